"""Regenerate what the documents quote: summaries (JSON), figures (SVG), and the marked tables filled from them.

`make docs-data` runs each command below, writes its summary with command, seed and duration, and fills the regions
`<!-- fill: NAME -->` .. `<!-- end -->` of the pages. A test fails when a page and its summary differ.

The paper's reproduction takes hours at full scale, so its summaries are not made here but taken from the folder of
`python -m reproduction`, by `python tools/documents/make_data.py --take FOLDER`. Its page and figures are made from
them each time.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SUMMARIES = ROOT / "docs" / "summaries"
FIGURES = ROOT / "docs" / "figures"
REPRODUCED = SUMMARIES / "reproduction"
PAGES = (
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "docs" / "flower.md",
    ROOT / "docs" / "how-to" / "flower-deployment.md",
    ROOT / "docs" / "plans.md",
    ROOT / "docs" / "protocol.md",
    ROOT / "docs" / "training.md",
    ROOT / "docs" / "concepts" / "ranges.md",
    ROOT / "docs" / "concepts" / "privacy.md",
    ROOT / "docs" / "threat-model.md",
    ROOT / "docs" / "how-to" / "privacy.md",
    ROOT / "docs" / "reference" / "configuration.md",
    ROOT / "docs" / "benchmarks.md",
    ROOT / "docs" / "performance.md",
    ROOT / "docs" / "beyond-one-machine.md",
    ROOT / "docs" / "supply-chain.md",
)
# The modules beside this one and the reproduction, also when a test loads it by its path.
sys.path += [str(ROOT / "tools" / "documents"), str(ROOT)]

REQUIREMENTS = "--classes 24,24,24,24 --levels 2,6,8,12 --subgroup-size 8"
COMMANDS = {
    "designs": f"plan {REQUIREMENTS} --compare secagg,multigroup,paper-composite,perfect --json",
    "plan": f"plan {REQUIREMENTS} --json",
    "round": "round --drop share=2,mask=5,unmask=1 --malicious 2 --rule median --identities --json",
}
_KEPT = (
    "design", "users", "dimension", "classes", "class_levels", "inference_robustness", "byzantine_tolerance", "dropout",
    "leak_probability", "failure_probability", "quantization_error", "upload_bits", "expansion",
)  # fmt: skip
_ROUND = ("users", "dimension", "survivors", "malicious", "exact", "error_rms", "inference_robustness")
_REGION = re.compile(r"(<!-- fill: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def run(name: str) -> dict[str, Any]:
    """Run a command and keep what the pages quote of it."""
    start = time.perf_counter()
    words = [sys.executable, "-m", "heterosag", *COMMANDS[name].split()]
    printed = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    head = {
        "command": f"heterosag {COMMANDS[name]}",
        "seed": printed.get("seed"),
        "duration_seconds": round(time.perf_counter() - start, 2),
    }
    if name == "round":
        phases = [
            {key: row[key] for key in ("phase", "users", "sent_bytes", "received_bytes")} for row in printed["phases"]
        ]
        return head | {"round": {**{key: printed[key] for key in _ROUND}, "phases": phases}}
    plans = printed.get("plans", [printed])
    return head | {"plans": [{key: plan[key] for key in _KEPT} for plan in plans]}


def demo_commands() -> dict[str, str]:
    """The flags of each of the demo's runs, by its name, as `make demo` starts them."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    found = re.findall(r"^\t@\$\(DEMO\) (.*) --brief --out runs/demo/(\S+)$", text, re.MULTILINE)
    values = dict(re.findall(r"^(\w+) := (.*)$", text, re.MULTILINE))
    return {name: re.sub(r"\$\((\w+)\)", lambda match: values[match[1]], flags) for flags, name in found}


def summarise_demo() -> None:
    """Train the demo's four runs and keep what they came to."""
    start = time.perf_counter()
    words = "train examples/demo.toml --json"
    about = (
        "Handwritten digits, a model of 50,826 parameters, 72 users on links from 0.1 to 3 Mb/s, a tenth of them "
        "dropping out in every round, two of them training on false labels and sending thirty times the result, "
        "unclipped."
    )
    kept = (
        *("name", "design", "rule", "rounds", "accuracy", "best_accuracy", "sent_bytes", "communication_seconds"),
        *("aggregate_error", "relative_error"),
    )
    runs = []
    with tempfile.TemporaryDirectory() as folder:
        for name, flags in demo_commands().items():
            command = [sys.executable, "-m", "heterosag", *words.split(), *flags.split(), "--out", f"{folder}/{name}"]
            done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
            found = json.loads(done.stdout)
            runs.append({"flags": flags} | {key: found[key] for key in kept})
    summary = {
        "command": f"heterosag {words}",
        "seed": 0,
        "duration_seconds": round(time.perf_counter() - start, 2),
        "about": about,
        "runs": runs,
    }
    (SUMMARIES / "demo.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def summarise_rotation() -> None:
    """Two levels everywhere, with and without rotation: accuracy, and how far the aggregate is from the true mean."""
    start = time.perf_counter()
    words = "train --levels 2,2,2,2 --rounds 30 --local-epochs 3 --learning-rate 0.4 --no-secure --json"
    runs = {}
    with tempfile.TemporaryDirectory() as folder:
        for extra in ("--no-rotate", "--rotate"):
            command = [sys.executable, "-m", "heterosag", *words.split(), extra, "--out", f"{folder}/{extra[2:]}"]
            done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
            found = json.loads(done.stdout)
            runs[extra[2:]] = {key: found[key] for key in ("accuracy", "aggregate_error")}
    summary = {
        "command": f"heterosag {words} [--no-rotate]",
        "seed": 0,
        "duration_seconds": round(time.perf_counter() - start, 2),
        "runs": runs,
    }
    (SUMMARIES / "rotation.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def rotation() -> str:
    """What rotation does at two levels."""
    found = load("rotation")
    plain, turned = found["runs"]["no-rotate"], found["runs"]["rotate"]
    return (
        f"At two levels everywhere (`{found['command']}`) the aggregate is {plain['aggregate_error']:.4f} (root mean "
        f"square) from the honest survivors' mean without rotation and {turned['aggregate_error']:.4f} with it; test "
        f"accuracy is {plain['accuracy']:.1%} without and {turned['accuracy']:.1%} with it.\n"
    )


def privacy(kind: str) -> Callable[[], str]:
    """A table of what a privacy budget costs in accuracy, or leaves of an attack."""

    def make() -> str:
        import privacy_tables

        made: str = getattr(privacy_tables, f"render_{kind}")(load("privacy"))
        return made

    return make


def few_levels() -> str:
    """What few levels cost in accuracy, against plain federated averaging."""
    import few_levels_table

    made: str = few_levels_table.render(load("few_levels"))
    return made


def apps() -> str:
    """Apps on Flower: plain, with our two lines, and with SecAgg+."""
    import apps_table

    made: str = apps_table.render(load("apps"))
    return made


def deployed() -> str:
    """What a deployed round takes."""
    import deployed_table

    made: str = deployed_table.render(load("deployed"))
    return made


def deployment() -> str:
    """The example, deployed."""
    import deployed_table

    made: str = deployed_table.render_example(load("deployment"))
    return made


def load(name: str) -> dict[str, Any]:
    """A committed summary."""
    summary: dict[str, Any] = json.loads((SUMMARIES / f"{name}.json").read_text(encoding="utf-8"))
    return summary


def installs() -> str:
    """What an installation with each extra brings."""
    import installs_table

    made: str = installs_table.render(load("installs"))
    return made


def fill(page: str) -> str:
    """The page's text with every marked region made anew from the committed summaries."""
    return _REGION.sub(lambda match: match[1] + REGIONS[match[2]]() + match[3], page)


def tree() -> str:
    """The package as a tree, layer by layer from the top, each module with the first sentence of its docstring."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    source = ROOT / "src" / "heterosag"
    lines = []
    for name in (name for layer in contract[0]["layers"] for name in layer.split(" | ")):
        if (source / f"{name}.py").exists():
            lines.append((f"{name}.py", source / f"{name}.py"))
            continue
        lines.append((f"{name}/", source / name / "__init__.py"))
        modules = sorted(path for path in (source / name).glob("*.py") if path.name != "__init__.py")
        lines += [(f"  {path.name}", path) for path in modules]
    wide = max(len(name) for name, _ in lines) + 1
    return "```text\n" + "".join(f"{name:<{wide}} {_first_sentence(path)}\n" for name, path in lines) + "```\n"


def _first_sentence(path: Path) -> str:
    text = " ".join((ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n\n")[0].split())
    return re.split(r"\.(?= [A-Z])|\.$|::$", text)[0]


def designs_table() -> str:
    """The four designs side by side."""
    plans = load("designs")["plans"]
    rows = [
        ["", *(f"`{plan['design']}`" for plan in plans)],
        ["---", *("---:" for _ in plans)],
        ["inference robustness", *(f"{p['inference_robustness']:.3f}" for p in plans)],
        ["faulty users the median tolerates", *(str(p["byzantine_tolerance"]) for p in plans)],
        ["a block keeps a single survivor", *(f"{p['leak_probability']['block']:.2g}" for p in plans)],
        ["and is unmasked", *(f"{p['leak_probability']['with_min_survivors']:.0f}" for p in plans)],
        ["a round fails for lack of survivors", *(f"{p['failure_probability']:.2g}" for p in plans)],
        ["upload of the slowest class, kB", *(f"{p['upload_bits'][0] / 8000:.1f}" for p in plans)],
        ["upload of the fastest class, kB", *(f"{p['upload_bits'][-1] / 8000:.1f}" for p in plans)],
        ["quantization error bound", *(f"{p['quantization_error']:.0f}" for p in plans)],
    ]  # fmt: skip
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def claim() -> str:
    """The sentence on what the paper claims for its design here."""
    plans = {plan["design"]: plan for plan in load("designs")["plans"]}
    count = sum(plans["perfect"]["classes"]) // 8
    return (
        f"For these {count} subgroups the paper's Theorem 1 claims {(count - 2) / count:.3f}; the true value of its "
        f"design is {plans['paper-composite']['inference_robustness']:.3f}, and ours has "
        f"{plans['perfect']['inference_robustness']:.3f}.\n"
    )


def settings() -> str:
    """What the table is about."""
    plan = load("plan")["plans"][0]
    return (
        f"{plan['users']} users in {len(plan['classes'])} classes with {', '.join(map(str, plan['class_levels']))} "
        f"quantizer levels, subgroups of 8, {plan['dimension']:,} parameters, {plan['dropout']:.0%} dropout "
        f"(`{load('designs')['command']}`):\n"
    )


def round_table() -> str:
    """Bytes of a round, phase by phase."""
    found = load("round")
    measured = found["round"]
    lines = [
        f"`{found['command']}`: {measured['users']} users, {measured['dimension']:,} parameters, "
        f"{measured['survivors']} survivors, {len(measured['malicious'])} malicious users; "
        f"block sums equal the plain integer sums: {'yes' if measured['exact'] else 'no'}.\n",
        "| phase | users who answer | sent by a user, kB | received by a user, kB |",
        "| --- | ---: | ---: | ---: |",
    ]
    for row in measured["phases"]:
        sent, received = row["sent_bytes"]["mean"] / 1000, row["received_bytes"]["max"] / 1000
        lines.append(f"| {row['phase']} | {row['users']} | {sent:.1f} | {received:.1f} |")
    return "\n".join(lines) + "\n"


def phases() -> str:
    """The transition tables as a diagram."""
    from heterosag.protocol.transitions import diagram

    return f"```mermaid\n{diagram()}\n```\n"


def demo() -> str:
    """What the demo's four runs came to."""
    found = load("demo")
    runs = {run["name"]: run for run in found["runs"]}
    ours, same, full, plain = (runs[name] for name in ("heterosag", "one-level", "16-bits", "fedavg"))
    faster = full["communication_seconds"] / ours["communication_seconds"]
    return (
        f"{found['about']} After {ours['rounds']} rounds HeteroSAg with the median is at {ours['accuracy']:.1%} test "
        f"accuracy in {ours['communication_seconds']:.0f} s of communication; with 16 bits for everybody it is at "
        f"{full['accuracy']:.1%} in {full['communication_seconds']:.0f} s, {faster:.1f} times as long. The slowest "
        f"link's two levels for everybody take {same['communication_seconds']:.0f} s, with an error of the aggregate "
        f"of {same['relative_error']:.0%} of the update's size instead of {ours['relative_error']:.0%}, and come to "
        f"{same['accuracy']:.1%}. Federated averaging over plain secure aggregation, with the same malicious users, "
        f"swings from round to round: at its best it is at {plain['best_accuracy']:.1%}, at the end at "
        f"{plain['accuracy']:.1%} (`make demo`).\n"
    )


def settings_table() -> str:
    """Every setting of a training run."""
    import dataclasses

    from heterosag.training.config import TrainConfig, fields_of

    kinds = fields_of()
    lines = ["| setting | meaning | default |", "| --- | --- | --- |"]
    for setting in dataclasses.fields(TrainConfig):
        value = setting.default
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else "" if value is None else str(value)
        kind = kinds[setting.name]
        others = [name for name in typing.get_args(kind) if name != value]
        if typing.get_origin(kind) is typing.Literal:
            shown += f" (or {', '.join(others)})"
        lines.append(f"| `{setting.name}` | {setting.metadata['help']} | {shown} |")
    return "\n".join(lines) + "\n"


def reproduction() -> str:
    """What the reproduction found, in a few sentences."""
    from reproduction.items import known_summaries
    from reproduction.page import lead

    found = known_summaries(REPRODUCED)
    values = {summary.item: summary.outcome.values for summary in found}
    one, two = values["experiment-1"], values["experiment-2"]
    return (
        f"Of the paper itself, item by item: {lead(found)} Its experiment 1 ({_scale(found, 'experiment-1')}) ends at "
        f"{one['none']:.1%} without quantization, {one['heterogeneous']:.1%} with its heterogeneous levels and "
        f"{one['homogeneous']:.1%} with two levels for all; in experiment 2 ({_scale(found, 'experiment-2')}) the "
        f"median ends at {two['gaussian-median']:.1%}, {two['sign-flip-median']:.1%} and "
        f"{two['label-flip-median']:.1%} under its three attacks, federated averaging at {two['gaussian-fedavg']:.1%}, "
        f"{two['sign-flip-fedavg']:.1%} and {two['label-flip-fedavg']:.1%}, where nobody attacking gives "
        f"{two['none-median']:.1%}. [docs/reproduction.md](docs/reproduction.md) has all of it.\n"
    )


def _scale(found: list[Any], item: str) -> str:
    summary = next(summary for summary in found if summary.item == item)
    seeds = max((run.seeds for run in summary.outcome.runs), default=1)
    return f"at {summary.scale.value} scale" + (f", means of {seeds} seeds" if seeds > 1 else "")


def summarise_subgroups() -> None:
    """Subgroup sizes that keep three honest survivors in every block."""
    from heterosag.plan.dropout import least_subgroup_size

    start = time.perf_counter()
    shares = (0.0, 0.05, 0.1, 0.2, 0.33)
    rates = (0.05, 0.1, 0.2)
    sizes = {str(rate): [least_subgroup_size(1000, corrupt=share, dropout=rate) for share in shares] for rate in rates}
    summary = {
        "command": "python tools/documents/make_data.py",
        "seed": None,
        "duration_seconds": round(time.perf_counter() - start, 4),
        "users": 1000,
        "honest": 3,
        "bits": 40,
        "corrupt": list(shares),
        "sizes": sizes,
    }
    (SUMMARIES / "subgroups.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def summarise_bytes() -> None:
    """What a user sends of shares beside its vector: by formula now, and by what 0.1.0's messages took."""
    from heterosag.plan import Plan
    from heterosag.plan.costs import beside_vector

    start, rows = time.perf_counter(), []
    for users in (96, 1000):
        plan = Plan.build([users], [12], 79_510, value_range=1.0, subgroup_size=8)
        holders, sent = plan.sharing.holders(0), beside_vector(plan, 0)
        indices = sum(1 if holder < 128 else 2 if holder < 256 else 3 for holder in holders)
        # 0.1.0: a head, three digests, [holder, two sealed shares, two digests] each; a head, [dealer, share] each
        before = {"share": 143 + 169 * len(holders) + indices, "unmask": 41 + 36 + 35 * len(holders) + indices}
        rows.append(
            {"users": users, "graph": "complete" if plan.sharing.complete else "sparse", "holders": len(holders)}
            | {"before": before, "now": {phase: sent[phase] for phase in before}}
        )
    summary = {
        "command": "python tools/documents/make_data.py",
        "seed": None,
        "duration_seconds": round(time.perf_counter() - start, 4),
        "rows": rows,
    }
    (SUMMARIES / "bytes.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def share_bytes() -> str:
    """Bytes of shares and unmasking, before and now."""
    lines = [
        "What user 0 sends beside its vector when everybody takes part (`heterosag.plan.costs.beside_vector`), in "
        "bytes, against messages of 0.1.0 to as many holders:\n",
        "| users | graph | holders | shares in 0.1.0 | now | unmasking in 0.1.0 | now | both, of 0.1.0's |",
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in load("bytes")["rows"]:
        before, now = row["before"], row["now"]
        lines.append(
            f"| {row['users']:,} | {row['graph']} | {row['holders']} | {before['share']:,} | {now['share']:,} "
            f"| {before['unmask']:,} | {now['unmask']:,} | {sum(now.values()) / sum(before.values()):.1%} |"
        )
    return "\n".join(lines) + "\n"


def subgroups() -> str:
    """How large subgroups must be, by corruption and dropout."""
    found = load("subgroups")
    heads = [f"{share:.0%} corrupt" for share in found["corrupt"]]
    lines = [
        f"Least users of a subgroup so that every block of `perfect` keeps {found['honest']} honest survivors, except "
        f"with probability 2^-{found['bits']}, among {found['users']:,} users "
        "(`heterosag.plan.dropout.least_subgroup_size`):\n",
        f"| dropout | {' | '.join(heads)} |",
        f"| --- | {' | '.join('---:' for _ in heads)} |",
    ]
    for rate, sizes in found["sizes"].items():
        lines.append(f"| {float(rate):.0%} | {' | '.join(map(str, sizes))} |")
    return "\n".join(lines) + "\n"


def summarise_coverage() -> None:
    """Branch coverage of what security rests on, by the unit tests and the attacks."""
    start = time.perf_counter()
    words = (
        "-m pytest -q -n 2 -m 'not slow' tests/attacks tests/crypto tests/protocol tests/property tests/simulation "
        "tests/storage tests/test_ledger.py --cov"
    )
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        command = [sys.executable, *shlex.split(words), f"--cov-report=json:{report}"]
        subprocess.run(command, check=True, cwd=ROOT)
        totals = json.loads(report.read_text(encoding="utf-8"))["totals"]
    summary = {
        "command": f"python {words}",
        "seed": None,
        "duration_seconds": round(time.perf_counter() - start, 1),
        "statements": totals["num_statements"],
        "branches": totals["num_branches"],
        "percent": totals["percent_covered"],
    }
    (SUMMARIES / "coverage.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")


def trials() -> str:
    """What was tried against the software, and what came of it."""
    fuzz, soak, covered, mutants = (load(name) for name in ("fuzz", "soak", "coverage", "mutants"))
    kinds = soak["kinds"]
    schedules = f"schedules of faults: {kinds['alone']:,} of rounds alone, {kinds['pipeline']:,} of rounds in a row"
    failed = f"{len(soak['failed'])} broke an invariant, {soak['lost']} lost"
    ended = ", ".join(f"{name} {count:,}" for name, count in soak["ended"].items())
    crashes = f"{fuzz['crashes']} crashes, {fuzz['peak_memory_mb']:.0f} MB at most"
    percent = f"{covered['percent']:.0f}% covered"
    rows = [
        ("inputs fuzzed", f"{fuzz['inputs']:,}", crashes, fuzz),
        (schedules, f"{soak['schedules']:,}", failed, soak),
        ("rounds in them", f"{soak['rounds']:,}", ended, soak),
        ("faults in them", f"{sum(soak['faults'].values()):,}", f"{len(soak['faults'])} kinds", soak),
        ("branches of crypto, wire and protocol", f"{covered['branches']:,}", percent, covered),
        ("mutants of crypto, protocol and privacy", f"{mutants['mutants']:,}", _mutants(mutants), mutants),
    ]
    lines = ["| what | how many | result | command | minutes |", "| --- | ---: | --- | --- | ---: |"]
    for what, count, result, summary in rows:
        minutes = summary["duration_seconds"] / 60
        lines.append(f"| {what} | {count} | {result} | `{summary['command']}` | {minutes:.0f} |")
    return "\n".join(lines) + "\n"


def _mutants(found: dict[str, Any]) -> str:
    rest = f", {found['not_run']:,} not run" if found["not_run"] else ""
    noticed = f"{found['noticed_of_others']:.1%} of those that change more than words are noticed"
    return f"{noticed} ([list of the others](mutants.md)){rest}"


def mutants_page() -> str:
    """docs/mutants.md: every mutant that no test noticed, with the reason."""
    import mutants_page as page

    made: str = page.render(load("mutants"))
    return made


def walkthrough_page() -> None:
    """docs/walkthrough.md and its figures: tools/documents/walkthrough.py, run cell by cell."""
    import make_walkthrough

    make_walkthrough.main()


def cli_page() -> str:
    """docs/reference/cli.md: every command, made from the program."""
    import reference_pages

    return reference_pages.cli_page()


def reference(name: str) -> Callable[[], str]:
    """A region of the reference, made from the program."""

    def table() -> str:
        import reference_pages

        made: str = getattr(reference_pages, name)()
        return made

    return table


def benchmark(name: str, module: str = "benchmark_pages") -> Callable[[], str]:
    """A table of the benchmarks."""

    def make() -> str:
        found: str = getattr(importlib.import_module(module), name)()
        return found

    return make


BENCHMARKS = (
    "about", "goals", "peer", "readme", "secagg", "masking", "scaling", "large", "flower", "rest", "profile",
    "profile_others", "profile_peer",
)  # fmt: skip
COHORTS = ("about", "measured", "goals", "carried", "processes", "superlink", "stragglers")

REGIONS = {
    "tree": tree,
    "trials": trials,
    "subgroups": subgroups,
    "bytes": share_bytes,
    "designs": designs_table,
    "claim": claim,
    "settings": settings,
    "round": round_table,
    "phases": phases,
    "demo": demo,
    "train": settings_table,
    "privacy": privacy("accuracy"),
    "inversion": privacy("inversion"),
    "rotation": rotation,
    "few_levels": few_levels,
    "apps": apps,
    "deployed": deployed,
    "deployment": deployment,
    "installs": installs,
    "reproduction": reproduction,
    "train_reference": reference("train_reference"),
    "plan_reference": reference("plan_reference"),
    "grid_reference": reference("grid_reference"),
    "mod_reference": reference("mod_reference"),
    "policy_reference": reference("policy_reference"),
    **{f"bench_{name}": benchmark(name) for name in BENCHMARKS},
    **{f"cohorts_{name}": benchmark(name, "cohort_pages") for name in COHORTS},
}


def draw() -> None:
    """The figure of the plan that the pages talk about."""
    from heterosag.plan import Plan
    from heterosag.report.figures import draw_design, to_svg

    plan = Plan.build([24] * 4, [2, 6, 8, 12], 79510, value_range=1.0, subgroup_size=8)
    figure = draw_design(plan.design, classes=[subgroup.user_class for subgroup in plan.subgroups])
    (FIGURES / "design.svg").write_text(to_svg(figure, title="The perfect design of 12 subgroups"), encoding="utf-8")


def take(folder: Path) -> None:
    """Copy the summaries of `python -m reproduction` from its folder."""
    REPRODUCED.mkdir(parents=True, exist_ok=True)
    for path in sorted((folder / "summaries").glob("*.json")):
        shutil.copy(path, REPRODUCED / path.name)


def draw_reproduction() -> None:
    """The reproduction's pages and figures, from its committed summaries."""
    from reproduction.figures import svg
    from reproduction.items import known_summaries
    from reproduction.page import write_pages

    found = known_summaries(REPRODUCED)
    place = FIGURES / "reproduction"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    for summary in found:
        for plot in summary.outcome.plots:
            (place / f"{summary.item}-{plot.name}.svg").write_text(svg(plot), encoding="utf-8")
    write_pages(found, ROOT / "docs", "figures/reproduction")


def draw_benchmarks() -> None:
    """The benchmarks' figures and that of the README, from committed summaries."""
    import benchmark_pages
    import benefit_figure

    benchmark_pages.draw()
    benefit_figure.draw()


def draw_concepts() -> None:
    """The figures of the concept pages, from the code itself."""
    import make_figures

    make_figures.main()


def main() -> None:
    """Make everything anew, or only what depends on the reproduction's summaries."""
    parser = argparse.ArgumentParser(description="Regenerate what the documents quote.")
    parser.add_argument("--take", type=Path, metavar="FOLDER", help="take the summaries of python -m reproduction")
    parser.add_argument("--pages", action="store_true", help="only fill the pages in, from the committed summaries")
    given = parser.parse_args()
    if given.pages:
        fill_pages()
        return
    if given.take is None:
        for name in COMMANDS:
            text = json.dumps(run(name), indent=2) + "\n"
            (SUMMARIES / f"{name}.json").write_text(text, encoding="utf-8")
        summarise_demo()
        summarise_rotation()
        summarise_subgroups()
        summarise_bytes()
        summarise_coverage()
        draw()
    else:
        take(given.take)
    draw_reproduction()
    draw_benchmarks()
    draw_concepts()
    walkthrough_page()
    fill_pages()


def fill_pages() -> None:
    """What follows from the tree and the committed summaries alone."""
    (ROOT / "docs" / "mutants.md").write_text(mutants_page(), encoding="utf-8")
    (ROOT / "docs" / "reference" / "cli.md").write_text(cli_page(), encoding="utf-8")
    for page in PAGES:
        page.write_text(fill(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
