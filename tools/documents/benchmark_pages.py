"""Tables and figures of benchmarks.md, performance.md and README.md, from docs/summaries/benchmarks.json alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

SUMMARY = Path(__file__).resolve().parents[2] / "docs" / "summaries" / "benchmarks.json"
FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures" / "benchmarks"

STEPS = ("user's share step", "user's mask step", "user's unmask step", "server's unmask step", "server, all steps")
STYLE: Any = {
    "svg.hashsalt": "heterosag",
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "white",
}
_ONCE = "met in one of two"
_PEER, _COARSE, _FINE = "#0072b2", "#d55e00", "#e69f00"  # Okabe and Ito's, told apart by everybody


def load() -> dict[str, Any]:
    """The committed summary of `make bench-full` and `make bench-second`."""
    found: dict[str, Any] = json.loads(SUMMARY.read_text(encoding="utf-8"))
    return found


def about() -> str:
    """Command, machine and versions of the run."""
    found = load()
    machine = dict(found["machine"])
    versions = ", ".join(
        f"{name} {machine[name]}" for name in ("numpy", "cryptography", "msgspec", "torch", "flwr", "numba")
    )
    return (
        f"Everything on this page is from one run of `{found['command']}` (commit {found['commit']}, seed "
        f"{found['seed']}, {found['duration_seconds'] / 60:.0f} minutes, {found['date']}) on {machine['processor']}, "
        f"{machine['cores']} cores, {machine['system']}: Python {machine['python']}, OpenSSL {machine['openssl']}, "
        f"{versions}.\n"
        + "".join(
            f"Measured again there by `{run['command']}` ({run['duration_seconds'] / 60:.0f} minutes).\n"
            for run in found.get("again", ())
        )
        + "".join(
            f'The column "second run" is from `{run["command"]}` ({run["duration_seconds"] / 60:.0f} minutes, '
            f"{run['date']}{_elsewhere(machine, run['machine'])}).\n"
            for run in found.get("second", ())
        )
        + _agreement(found)
    )


def _elsewhere(first: dict[str, Any], second: dict[str, Any]) -> str:
    """On which machine a second run was, if not on that of the first."""
    return "" if second["processor"] == first["processor"] else f", on {second['processor']}"


def _agreement(found: dict[str, Any]) -> str:
    """How many rows two runs repeat, and which they do not."""
    twice = [row for part in found["rows"].values() for row in part if "second" in row]
    if not twice:
        return ""
    differ = [f"{row['name']}: {_short(row['ratio'])} and {_short(row['second'])}" for row in twice if _differs(row)]
    listed = f" ({'; '.join(differ)})" if differ else ""
    return f"Of {len(twice)} rows the two runs repeat {len(twice) - len(differ)} within a third{listed}.\n"


def goals() -> str:
    """Every row that has a goal."""
    rows = [row for part in load()["rows"].values() for row in part if row["goal"] is not None]
    lines = ["| row | ratio | least to greatest | second run | goal | |", "|---|---:|---:|---:|---:|---|"]
    for row in rows:
        sign = "at most" if row["better"] == "lower" else "at least"
        lines.append(
            f"| {row['name']} | {_short(row['ratio'])} | {_spread(row)} | {_second(row)} | {sign} {row['goal']:g} | "
            f"{_verdict(row)} |"
        )
    met, once = (sum(_verdict(row) == verdict for row in rows) for verdict in ("met", _ONCE))
    some = f", {once} more in one of two runs" if once else ""
    return "\n".join([f"{met} of {len(rows)} goals are met{some}.", "", *lines]) + "\n"


def _verdict(row: dict[str, Any]) -> str:
    """Whether the goal of a row is met in every run that it was measured in."""
    ratios = [row["ratio"], row.get("second", row["ratio"])]
    met = [ratio <= row["goal"] if row["better"] == "lower" else ratio >= row["goal"] for ratio in ratios]
    return "met" if all(met) else _ONCE if any(met) else "**missed**"


def _second(row: dict[str, Any]) -> str:
    """The ratio in the second run, marked if it differs by more than a third."""
    if "second" not in row:
        return ""
    return _short(row["second"]) + (" (differs)" if _differs(row) else "")


def _differs(row: dict[str, Any]) -> bool:
    low, high = sorted((row["ratio"], row["second"]))
    return bool(high > 4 / 3 * low)


def masking() -> str:
    """Masks against the keystream."""
    return _table(load()["rows"]["masking"])


def flower() -> str:
    """Both through Flower itself."""
    return _table(load()["rows"]["flower"])


def rest() -> str:
    """The suites that need no words."""
    found = load()["rows"]
    suites = ("startup", "sharing", "training", "convolutions", "planning", "ledger")
    return _table([row for name in suites for row in found[name]])


def secagg() -> str:
    """Blocks against one block of everybody, at 100 users and a million elements."""
    wanted = "(100 users, 1,000,000 elements"
    rows = [row for row in load()["rows"]["peer"] if "our secagg" in row["name"] and wanted in row["name"]]
    return _table(rows)


def profile() -> str:
    """Every step's parts."""
    lines = ["| step | part | times | each | together | fraction of the step |", "|---|---|---:|---:|---:|---:|"]
    for step in _steps_of(lambda case: not case):
        lines.append(f"| **{step['step']}** | | | | **{_seconds(step['seconds'])}** | |")
        lines += [_line("", *part) for part in _parts(step)]
    return "\n".join(lines) + "\n"


def profile_others() -> str:
    """The parts of the same steps with another graph and with other levels, if the summary has them."""
    return _profile_in_short(
        "The same with the sparse graph, and with SecAgg+'s number of levels on the complete one, where as in the "
        "comparison nothing is rotated:",
        _steps_of(lambda case: bool(case) and not case.startswith("SecAgg+")),
    )


def profile_peer() -> str:
    """The parts of SecAgg+'s steps, if the summary has them."""
    return _profile_in_short(
        "SecAgg+'s steps at the same size, by the functions that its client calls, each timed within the step:",
        _steps_of(lambda case: case.startswith("SecAgg+")),
    )


def _profile_in_short(about: str, steps: list[dict[str, Any]]) -> str:
    """A table of the parts that are a hundredth of their step or more."""
    if not steps:
        return ""
    lines = ["| step | part | times | together | fraction of the step |", "|---|---|---:|---:|---:|"]
    for step in steps:
        lines.append(f"| **{step['case']}: {step['step']}** | | | **{_seconds(step['seconds'])}** | |")
        shown = [part for part in _parts(step) if part[-1] != "0%"]
        lines += [_line("", part, times, together, fraction) for part, times, _, together, fraction in shown]
    return "\n".join([about, "", *lines]) + "\n"


def _line(*cells: str) -> str:
    """A line of a table."""
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def _steps_of(wanted: Callable[[str], bool]) -> list[dict[str, Any]]:
    """The steps of the cases that are wanted; the first case has no name."""
    return [step for step in load()["profile"] if wanted(step.get("case", ""))]


def _parts(step: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Of each part, the largest first, its name, how often, seconds of one, seconds together, fraction of the step."""
    whole = step["seconds"]
    parts = sorted(step["parts"], key=lambda part: -part["seconds"])
    rest = max(0.0, whole - sum(part["seconds"] for part in parts))
    listed = [
        (part["part"], f"{part['times']:,.0f}", _each(part["each"]), part["seconds"], part["seconds"] / whole)
        for part in parts
    ]
    return [
        (name, times, each, _seconds(seconds), f"{fraction:.0%}")
        for name, times, each, seconds, fraction in [*listed, ("everything else", "", "", rest, rest / whole)]
    ]


def _table(rows: list[dict[str, Any]]) -> str:
    lines = ["| row | ratio | least to greatest | second run |", "|---|---:|---:|---:|"]
    lines += [f"| {row['name']} | {_short(row['ratio'])} | {_spread(row)} | {_second(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def _each(value: float) -> str:
    if value < 1e-8:
        return f"{value * 1e9:.2g} ns"
    return f"{value * 1e9:,.0f} ns" if value < 1e-6 else f"{value * 1e6:,.0f} µs"


def peer() -> str:
    """The peer's and our steps in seconds and bytes."""
    lines = [
        "| N | m | graph | side | share | mask | unmask | server: unmask | server: all | up | error |",
        "|---:|---:|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    names = {
        "peer": "SecAgg+",
        "coarse": "ours, 12 levels",
        "fine": "ours, as fine",
        "signed": "ours, identities",
        "secagg": "our `secagg`",
    }
    for case in load()["peer"]:
        graph = case["graph"] if case["neighbours"] is None else f"{case['graph']} ({case['neighbours']})"
        for side, name in names.items():
            took = case[side]
            cells = " | ".join(_seconds(took[step]) for step in STEPS)
            lines.append(
                f"| {case['users']} | {case['dimension']:,} | {graph} | {name} | {cells} | "
                f"{took['bytes up'] / 1e6:.2f} MB | {took['error of the mean']:.1e} |"
            )
    return "\n".join(lines) + "\n"


def readme() -> str:
    """Us and the peer at 100 users and a million parameters: at the peer's precision first, then at few levels."""
    cases = {case["graph"]: case for case in load()["peer"] if (case["users"], case["dimension"]) == (100, 1_000_000)}
    sparse, complete = cases["sparse"], cases["complete"]
    sides = ("peer", "fine", "coarse")
    users = ("user's share step", "user's mask step", "user's unmask step")
    rows: list[tuple[str, list[float], Callable[[float], str]]] = [
        ("a user sends", [sparse[side]["bytes up"] for side in sides], lambda sent: f"{sent / 1e6:.1f} MB"),
        ("a user computes", [sum(sparse[side][step] for step in users) for side in sides], _seconds),
        ("the server computes", [sparse[side]["server, all steps"] for side in sides], _seconds),
        ("the same, complete graphs", [complete[side]["server, all steps"] for side in sides], _seconds),
    ]
    lines = [
        "| 100 users, 1,000,000 parameters, 10 drop out | SecAgg+ | HeteroSAg, same precision | HeteroSAg, 12 levels |",
        "|---|---:|---:|---:|",
    ]
    for text, (theirs, *ours), show in rows:
        cells = " | ".join(f"{show(one)} ({_short(theirs / one)}x less)" for one in ours)
        lines.append(f"| {text} | {show(theirs)} | {cells} |")
    errors = " | ".join(f"{sparse[side]['error of the mean']:.1e}" for side in sides)
    lines.append(f"| largest error of an element of the mean | {errors} |")
    return "\n".join(lines) + "\n"


def scaling() -> str:
    """Slopes, measured and counted."""
    lines = [
        "| step | grows with | from | to | slope | counted slope | measured over counted, at the end | how |",
        "|---|---|---:|---:|---:|---:|---:|---|",
    ]
    for one in load()["series"]:
        x = one["x"]
        lines.append(
            f"| {one['name']} | {one['x_name']} | {_number(x[0])} | {_number(x[-1])} | {one['slope']:.2f} | "
            f"{one['counted_slope']:.2f} | {one['seconds'][-1] / one['counted'][-1]:.1f} | {one['note']} |"
        )
    return "\n".join(lines) + "\n"


def large() -> str:
    """The absolute numbers of the largest cases."""
    found = load()["large"]
    user, server, round_ = found["user"], found["server"], found["thousand"]
    users = sum(value for key, value in round_.items() if key.startswith("users_"))
    return (
        f"- m = 10^8, a block of 16 users at 12 levels: quantizing, masking and packing take {user['seconds']:.2f} s "
        f"of CPU and {user['bytes'] / 1e6:.0f} MB beyond the 400 MB that come in; on the wall {user['one_thread']:.2f} "
        f"s with one thread, {user['all_cores']:.2f} s with all cores.\n"
        f"- m = 10^8 on the server, four subgroups: {server['lanes'] / 1e6:.0f} MB of accumulators, "
        f"{server['bytes'] / 1e6:.0f} MB while a vector of {server['message'] / 1e6:.0f} MB is added, which takes "
        f"{server['seconds']:.2f} s.\n"
        f"- N = 1,000, m = 10^6, 100 of them gone, real cryptography for every user: {round_['seconds']:.0f} s for "
        f"the whole round on two cores, {round_['server']:.1f} s of it the server's, {users:.0f} s of work all users' "
        "together.\n"
    )


def _short(ratio: float) -> str:
    if ratio >= 20:
        return f"{ratio:,.0f}"
    return f"{ratio:.2g}" if ratio < 1 else f"{ratio:.1f}" if ratio >= 10 else f"{ratio:.2f}"


def _spread(row: dict[str, Any]) -> str:
    return f"{_short(row['low'])} to {_short(row['high'])}" if row["repeats"] > 1 else "one run"


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 0.1 else f"{value * 1000:.2g} ms" if value < 0.001 else f"{value * 1000:.1f} ms"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:.0%}"


def draw(folder: Path = FIGURES) -> None:
    """Both figures."""
    import matplotlib as mpl

    mpl.use("svg")
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        _draw_peer(folder / "peer.svg")
        _draw_scaling(folder / "scaling.svg")


def _draw_peer(path: Path) -> None:
    import matplotlib.pyplot as plt

    cases = [case for case in load()["peer"] if (case["users"], case["dimension"]) == (100, 1_000_000)]
    steps = ("user's share step", "user's mask step", "server's unmask step", "bytes up")
    figure, axes = plt.subplots(1, len(cases), figsize=(8.4, 3.2), sharex=True)
    for axis, case in zip(axes, cases, strict=True):
        for shift, (side, color, label) in enumerate(
            (("fine", _FINE, "ours, as fine as it"), ("coarse", _COARSE, "ours, 12 levels"))
        ):
            values = [case["peer"][step] / case[side][step] for step in steps]
            places = [place + 0.38 * shift - 0.19 for place in range(len(steps))]
            axis.barh(places, values, height=0.36, color=color, label=label)
            for place, value in zip(places, values, strict=True):
                axis.text(value * 1.1, place, _short(value), va="center", fontsize=8)
        axis.set_xscale("log")
        axis.set_xlim(1, 8000)
        axis.set_yticks(range(len(steps)), steps if axis is axes[0] else [""] * len(steps))
        axis.invert_yaxis()
        axis.set_title(f"{case['graph']} graphs", fontsize=9)
        axis.set_xlabel("SecAgg+ over ours")
    axes[-1].legend(frameon=False, fontsize=8, loc="lower right", reverse=True)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _draw_scaling(path: Path) -> None:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    series = load()["series"]
    figure, axes = plt.subplots(2, 3, figsize=(8.8, 5.2))
    for axis, one in zip(axes.flat, series, strict=False):
        axis.loglog(one["x"], one["seconds"], "o-", color=_COARSE, label=f"measured (slope {one['slope']:.2f})")
        counted = f"counted (slope {one['counted_slope']:.2f})"
        axis.loglog(one["x"], one["counted"], "s--", color=_PEER, markersize=4, label=counted)
        axis.set_title(one["name"], fontsize=9)
        axis.set_xlabel(one["x_name"])
        axis.set_ylabel("seconds")
        axis.legend(frameon=False, fontsize=7, loc="upper right" if one["slope"] < 0 else "upper left")
        axis.grid(True, which="major", linewidth=0.3)
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
        if max(one["x"]) < 50 * min(one["x"]):
            axis.set_xticks(one["x"], [_number(value) for value in one["x"]], fontsize=8)
        low, high = axis.get_ylim()
        axis.set_ylim(low, high * (high / low) ** 0.35)  # space for the legend
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
