"""The reference pages say what the program says: commands, settings, errors, and every public name."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from browser import open_page
from scripts import load_script

from heterosag import errors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"

# Modules that users are told of. What is not here may change without notice.
PUBLIC = (
    "aggregation.clipping", "aggregation.cohorts", "simulation.cohorts",
    "aggregation.combine", "aggregation.rules", "errors", "flower", "ledger", "plan",
    "plan.cohorts", "planner.cohorts",
    "plan.costs", "plan.design", "plan.dropout", "plan.sharing", "plan.summary", "planner", "planner.private",
    "privacy", "privacy.accounting", "privacy.mechanism", "privacy.statement", "protocol", "protocol.budget",
    "protocol.enrolment", "protocol.guard", "protocol.pipeline", "protocol.update", "report.figures", "report.page",
    "report.runs", "simulation.engine", "simulation.session", "storage.budget", "storage.directories",
    "storage.identities",
    "storage.release_log", "storage.run_log", "training.combining", "training.config", "training.data",
    "training.models", "training.runs",
    "vector.arrays",
)  # fmt: skip


@pytest.fixture(scope="module")
def pages() -> types.ModuleType:
    return load_script(ROOT / "tools" / "documents" / "reference_pages.py")


def text_of(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


# --- the command line ---------------------------------------------------------------------------------------------


def test_the_page_of_the_command_line_is_that_of_the_program(pages: types.ModuleType) -> None:
    assert text_of("cli.md") == pages.cli_page(), "run `make docs-pages`"


def test_the_page_has_every_command_and_flag_that_help_shows(pages: types.ModuleType) -> None:
    page = text_of("cli.md")
    commands = pages.commands()
    shown = subprocess.run([sys.executable, "-m", "heterosag", "--help"], capture_output=True, text=True, check=True)
    for name, command in commands.items():
        assert re.search(rf"^  {name} ", shown.stdout, re.MULTILINE)
        section = page.partition(f"## heterosag {name}\n")[2].partition("\n## ")[0]
        for parameter in command.params:
            assert all(f"`{flag}`" in section for flag in parameter.opts if flag.startswith("-"))
        assert "|  |\n" not in section, f"something of {name} has no meaning"


def test_the_json_on_the_page_is_what_commands_print(pages: types.ModuleType) -> None:
    from heterosag.plan import Plan
    from heterosag.plan.summary import summarise, summarise_cohorts
    from heterosag.planner import Requirements, best
    from heterosag.planner.cohorts import best_cohorts
    from heterosag.planner.private import Blocks, PrivateProposal
    from heterosag.report import proposals, rounds
    from heterosag.report.runs import summarise_run
    from heterosag.storage.run_log import RunRecord
    from heterosag.training.config import TrainConfig

    plan = Plan.build([6, 6], [2, 4], 20, value_range=1.0, subgroup_size=3, min_survivors=2)
    done = rounds.run(plan, drop={"mask": 1}, secure=False)
    assert list(pages.JSON["round"]) == list(done)
    run = RunRecord(folder=Path("a"), config=TrainConfig().to_dict(), plan=summarise(plan), rounds=(), end=None)
    assert list(pages.JSON["train"]) == ["run", *summarise_run(run)]
    found = best(Requirements(rates=(1.0,) * 12, dimension=100, deadline=1.0, min_survivors=2))
    assert list(pages.JSON["optimize"]) == list(proposals.describe(found, 1.0))
    blocks = Blocks(
        subgroups=1, block_users=40, min_block_survivors=30, honest=29, level=16, noise_multiplier=3.0, error=0.5
    )
    whole: dict[str, Any] = {"design": "secagg", "subgroup_size": 40, "min_block_survivors": 30}
    noisy = Plan.build([40], [16], 90, **whole, clipping_norm=1.0, noise_multiplier=3.0)
    private = PrivateProposal(
        plan=noisy, blocks=blocks, error=0.5, target_epsilon=8.0, epsilon_server=8.0, epsilon_model=7.0, delta=1e-5,
        rounds=9, others=(),
    )  # fmt: skip
    said = pages.JSON["optimize --epsilon ..."]
    assert list(said) == list(proposals.describe_private(private))
    assert [name for name in proposals.describe_private(private)["chosen"] if f"`{name}`" not in said["chosen"]] == []
    split = best_cohorts(Requirements(rates=(1.0,) * 24, dimension=100, deadline=1.0, min_survivors=2), cohort_size=12)
    assert list(proposals.describe_cohorts(split)) == list(proposals.describe(found))
    page = (DOCS / "plans.md").read_text(encoding="utf-8").partition("\n## JSON\n")[2]
    alone, _, together = page.partition("With `--cohort` it prints one object")
    assert [name for name in summarise(plan) if f"`{name}`" not in alone] == []
    cohorts = summarise_cohorts(split.plan)
    assert [name for name in (*cohorts, *cohorts["cohorts"][0]) if f"`{name}`" not in together] == []


# --- settings -----------------------------------------------------------------------------------------------------


def test_every_setting_is_on_the_page(pages: types.ModuleType) -> None:
    import dataclasses

    from heterosag.training.config import TrainConfig

    page = text_of("configuration.md")
    tables = (
        pages.train_reference, pages.plan_reference, pages.grid_reference, pages.mod_reference, pages.policy_reference,
    )  # fmt: skip
    for table in tables:
        assert table() in page, f"run `make docs-data`: the table of {table.__name__} differs"
    training = page.partition("## A training run")[2].partition("\n## ")[0]
    assert all(f"| `{one.name}` |" in training for one in dataclasses.fields(TrainConfig))
    for name in pages.node_config_keys() | pages.environment_variables():
        assert f"| `{name}` |" in page
    assert len(pages.node_config_keys()) == 5
    assert len(pages.environment_variables()) == 2


def test_types_are_put_in_words(pages: types.ModuleType) -> None:
    from typing import Literal

    assert pages._kind(tuple[int, ...] | Literal["auto"]) == "list of integers or auto"
    assert pages._kind(Literal["auto", "complete", "sparse"]) == "auto, complete or sparse"
    assert pages._kind(float | None) == "number"


def test_the_tables_are_those_of_the_signatures(pages: types.ModuleType) -> None:
    """They are read from the source; this compares them with what Python makes of it."""
    import inspect

    pytest.importorskip("flwr")
    from heterosag import Policy
    from heterosag.flower import SecureGrid, mod
    from heterosag.plan import Plan

    for table, function in (
        (pages.plan_reference, Plan.build),
        (pages.grid_reference, SecureGrid),
        (pages.mod_reference, mod),
        (pages.policy_reference, Policy),
    ):
        assert re.findall(r"^\| `(\w+)` \|", table(), re.MULTILINE) == list(inspect.signature(function).parameters)


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", errors.__all__)
def test_every_error_is_on_the_page(name: str) -> None:
    page = text_of("errors.md")
    section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    for word in ("Proves", "At fault", "Afterwards", "What to do"):
        assert f"- **{word}:** " in section
    assert name == "HeteroSagError" or f"| [`{name}`](#{name.lower()}) |" in page


def test_the_page_names_no_error_that_is_not_there_and_every_attribute() -> None:
    page = text_of("errors.md")
    assert sorted(re.findall(r"^## (\w+)$", page, re.MULTILINE)) == sorted(errors.__all__)
    made = {
        "PlanError": errors.PlanError("field", "x"),
        "InfeasibleError": errors.InfeasibleError(("a", "b"), None, "x"),
        "WireError": errors.WireError("x"),
        "FaultyUserError": errors.FaultyUserError(1, "x"),
        "FaultyBlockError": errors.FaultyBlockError([], "x"),
        "TooFewSurvivorsError": errors.TooFewSurvivorsError("min_survivors", "x"),
        "ExposedUsersError": errors.ExposedUsersError([1]),
        "FailedCohortsError": errors.FailedCohortsError({0: errors.UsageError("x")}),
        "BudgetError": errors.BudgetError(7.9, 8.0, 1e-5),
        "WithheldError": errors.WithheldError([1], "x"),
    }
    for name, error in made.items():
        section = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        assert all(f"`{one}`" in section for one in vars(error) if one != "problem")


# --- the API ------------------------------------------------------------------------------------------------------


def test_every_public_module_is_on_a_page_of_the_api() -> None:
    pytest.importorskip("torch")
    listed = "".join(path.read_text(encoding="utf-8") for path in REFERENCE.glob("api*.md"))
    shown = re.findall(r"^\.\. automodule:: heterosag\.([\w.]+)$", listed, re.MULTILINE)
    assert sorted(shown) == sorted(PUBLIC)
    assert all(hasattr(import_module(f"heterosag.{name}"), "__all__") for name in PUBLIC)


def test_every_name_at_the_top_is_on_the_page() -> None:
    import heterosag

    page = text_of("api.md")
    assert all(f"`heterosag.{name}`" in page for name in heterosag.__all__)


# --- the site -----------------------------------------------------------------------------------------------------


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    found = [line for block in re.findall(r"```{toctree}\n(.*?)```", index, re.DOTALL) for line in block.splitlines()]
    listed = [line for line in found if line and not line.startswith(":")]
    there = [path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")]
    assert {*listed, "index"} - set(there) == set(), "in the contents, but not there"
    assert set(there) - {*listed, "index"} == set(), "there, but not in the contents"
    assert len(listed) == len(set(listed))


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = f"{sys.executable} -m sphinx -b html -n -W --keep-going -q -d {tmp_path / 'trees'} {DOCS} {site}"
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"""(?:src=|<link[^>]*href=)["']?(?:https?:)?//[^"' >]+""", text), f"{page} fetches"
    for style in site.rglob("*.css"):
        assert not re.findall(r"""(?:@import|url\()\s*["']?(?:https?:)?//""", style.read_text(encoding="utf-8"))
    opened = open_page(site / "concepts" / "rings.html", tmp_path / "profile")
    assert "CONSOLE" not in opened.stderr, opened.stderr
    assert opened.stdout.count("<math") > 5, "formulas are MathML"
    assert opened.stdout.count('class="copy"') > 5, "code blocks have a button that copies them"
