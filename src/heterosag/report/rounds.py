"""Rounds for people to look at: what `heterosag round` runs, checks and shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from heterosag.aggregation.cohorts import CombinedCohorts
from heterosag.aggregation.combine import BlockSum, Combined
from heterosag.choices import PhaseName, RuleName
from heterosag.errors import HeteroSagError, UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.cohorts import plans_of
from heterosag.protocol.context import RoundId
from heterosag.protocol.transitions import Phase
from heterosag.simulation.cohorts import CohortResult
from heterosag.simulation.engine import Result, Simulation, Traffic, aggregate
from heterosag.simulation.session import Session

__all__ = ["ATTACK", "COMMON", "OWN", "draw_faults", "conclude", "describe", "is_exact", "run", "same_sums", "show"]

ATTACK = -30.0
COMMON, OWN = 0.24, 0.24  # standard deviations of what users have in common and of what each adds, in half widths


def run(
    plan: Plan,
    *,
    rule: RuleName = "mean",
    drop: Mapping[str, int] | None = None,
    malicious: int = 0,
    identities: bool = False,
    seed: int = 0,
    secure: bool = True,
    rounds: int = 1,
) -> dict[str, Any]:
    """Run rounds on random updates and say, in JSON types, what crossed, how long it took and whether they are exact.

    The updates of all users lie around a common vector, as those of federated training do, and fill the plan's range:
    its half width is three standard deviations of their elements. With several rounds the same users drop out in each,
    what is measured is the last one, and it is exact if all are.
    """
    if rounds < 1:
        raise UsageError(f"--rounds is at least 1, not {rounds}")
    if rounds > 1 and not secure:
        raise UsageError("several rounds in a row need the cryptography, which sets the next one up: leave --plain out")
    rng = np.random.default_rng(seed)
    dropped, cheating = draw_faults(plan, drop or {}, malicious, rng)
    simulation = Simulation(dropped=dropped, malicious=cheating, rounding_seed=seed, secure=secure)
    session = Session(plan, identities=identities, prepare=rounds > 1)
    summary = describe(plan, plan.design.name, simulation, rule=rule, identities=identities)
    try:
        result, honest, exact = _play(plan, session, simulation, rule, rounds, rng, identities=identities)
    except UsageError:
        raise
    except HeteroSagError as error:
        return summary | {"error": {"kind": type(error).__name__, "message": str(error)}}
    truth = honest[[plan.index(user) for user in result.survivors if user not in cheating]].mean(axis=0)
    return summary | conclude(plan, result, truth, exact=exact, trips=session.trips if secure else None)


def _play(
    plan: Plan,
    session: Session,
    simulation: Simulation,
    rule: RuleName,
    rounds: int,
    rng: np.random.Generator,
    *,
    identities: bool,
) -> tuple[Result, Any, bool]:
    """The last round's result, everybody's honest update in it, and whether all rounds were exact."""
    exact = True
    for number in range(rounds):
        honest = _updates(plan, rng)
        updates = honest.copy()
        for user in simulation.malicious:
            updates[plan.index(user)] *= ATTACK
        if simulation.secure:
            result = session.aggregate(updates, rule=rule, simulate=simulation)
        else:
            result = aggregate(plan, updates, rule=rule, identities=identities, simulate=simulation)
        exact &= is_exact(plan, result, updates, rule, simulation, number)
    return result, honest, exact


def _updates(plan: Plan, rng: np.random.Generator) -> Any:
    """Every user's update: around a common vector, filling the range."""
    low, high = plan.value_range
    try:
        common = rng.normal(0.0, COMMON, plan.dimension)
        own = rng.normal(0.0, OWN, (len(plan.users), plan.dimension))
    except (MemoryError, OverflowError, ValueError):
        raise UsageError(
            f"{len(plan.users)} updates of {plan.dimension:,} elements each are more than this machine's memory holds: "
            "choose a smaller --dimension, or fewer users"
        ) from None
    return ((low + high) / 2 + (common + own) * (high - low) / 2).astype(np.float32)


def is_exact(
    plan: Plan | CohortPlan,
    result: Result | CohortResult,
    updates: Any,
    rule: RuleName,
    simulation: Simulation,
    number: int = 0,
) -> bool:
    """Whether every block's sum, and the aggregate, are those of the survivors' plain quantized vectors."""
    alive = set(result.survivors)
    missing: dict[User, PhaseName] = {user: "mask" for user in plan.users if user not in alive}
    alone = replace(simulation, secure=False, dropped=missing)
    round_id = RoundId(session=b"plain", number=number)
    plain = aggregate(plan, updates, rule=rule, simulate=alone, round_id=round_id)
    found, expected = _blocks(result), _blocks(plain)
    return (
        list(found) == list(expected)
        and all(same_sums(found[cohort], expected[cohort]) for cohort in found)
        and bool(np.array_equal(result.vector, plain.vector))
    )


def _blocks(result: Result | CohortResult) -> dict[int, tuple[tuple[BlockSum, ...], ...]]:
    """The decoded blocks of every cohort that did not fail; a plan without cohorts is the only one."""
    if isinstance(result, CohortResult):
        return {one.cohort: one.blocks for one in result.cohorts}
    return {0: result.blocks}


def draw_faults(
    plan: Plan | CohortPlan, drop: Mapping[str, int], malicious: int, rng: np.random.Generator
) -> tuple[dict[User, PhaseName], list[User]]:
    """Who drops out when, and who is malicious, drawn without overlap."""
    names = get_args(PhaseName)
    unknown = sorted(drop.keys() - set(names))
    if unknown:
        raise UsageError(f"users drop out before one of the phases {', '.join(names)}, not {unknown[0]!r}")
    if malicious < 0:
        raise UsageError(f"--malicious is at least 0, not {malicious}")
    if sum(drop.values()) + malicious > len(plan.users):
        raise UsageError(
            f"{len(plan.users)} users cannot hold {sum(drop.values())} dropouts and {malicious} malicious users: "
            "choose fewer with --drop and --malicious, or a plan of more users"
        )
    order = [plan.users[int(index)] for index in rng.permutation(len(plan.users))]
    dropped: dict[User, PhaseName] = {}
    for phase in get_args(PhaseName):
        for user in order[len(dropped) : len(dropped) + drop.get(phase, 0)]:
            dropped[user] = phase
    return dropped, sorted(order[len(dropped) : len(dropped) + malicious], key=plan.index)


def same_sums(
    found: tuple[tuple[BlockSum, ...], ...],
    plain: tuple[tuple[BlockSum, ...], ...],
) -> bool:
    """Whether every block's sum is the plain integer sum of its survivors' quantized vectors."""
    pairs = zip(found, plain, strict=True)
    return all(
        a.subgroups == b.subgroups and bool(np.array_equal(a.sums, b.sums))
        for first, second in pairs
        for a, b in zip(first, second, strict=True)
    )


def describe(
    plan: Plan | CohortPlan, design: str, simulation: Simulation, *, rule: RuleName, identities: bool
) -> dict[str, Any]:
    """What a round is, before it has run."""
    dropped = simulation.dropped
    return {
        "design": design,
        "plan": plan.digest.hex(),
        "users": len(plan.users),
        "cohorts": len(plan.plans) if isinstance(plan, CohortPlan) else 1,
        "dimension": plan.dimension,
        "rule": rule,
        "secure": simulation.secure,
        "identities": identities,
        "seed": simulation.rounding_seed,
        "dropped": {phase.value: [u for u, p in dropped.items() if p == phase.value] for phase in Phase},
        "malicious": list(simulation.malicious),
        "error": None,
    }


def conclude(
    plan: Plan | CohortPlan, result: Result | CohortResult, truth: Any, *, exact: bool, trips: list[int] | None = None
) -> dict[str, Any]:
    """What a round came to; `truth` is the honest survivors' mean."""
    failed = result.failed if isinstance(result, CohortResult) else {}
    return {
        "trips": trips,
        "total_trips": None if trips is None else sum(trips),
        "failed_cohorts": {str(index): str(error) for index, error in failed.items()},
        "survivors": len(result.survivors),
        "faulty_blocks": _faulty(result),
        **_measure(plan, result.combined, result.traffic),
        "exact": exact,
        **_distance(result.vector, truth),
    }


def _faulty(result: Result | CohortResult) -> list[dict[str, Any]]:
    if isinstance(result, CohortResult):
        return [{"cohort": one.cohort} | _where(block) for one in result.cohorts for block in one.faulty_blocks]
    return [_where(block) for block in result.faulty_blocks]


def _where(block: BlockSum) -> dict[str, Any]:
    return {"segment": block.segment, "subgroups": list(block.subgroups), "fault": block.fault}


def _distance(vector: Any, truth: Any) -> dict[str, float]:
    """How far an aggregate is from the honest survivors' mean, and how large that mean is."""
    return {
        "error_rms": float(np.sqrt(np.mean((vector - truth) ** 2))),
        "error_max": float(np.abs(vector - truth).max()),
        "mean_rms": float(np.sqrt(np.mean(truth**2))),
    }


def _sent_by_class(plan: Plan | CohortPlan, traffic: Traffic) -> list[dict[str, Any]]:
    """What a user of each class sent in all phases, on average over those who sent its vector."""
    masked = traffic.sent.get("mask", {})
    found: list[dict[str, Any]] = [
        {"class": index, "level": level, "users": 0, "sent_bytes": 0.0, "vector_bytes": 0.0}
        for index, level in enumerate(plan.levels)
    ]
    for one in plans_of(plan):
        sizes = one.vector_sizes()
        for user, subgroup in zip(one.users, one.assignment, strict=True):
            if user in masked:
                row = found[one.subgroups[subgroup].user_class]
                row["users"] += 1
                row["vector_bytes"] += sizes[subgroup]
                row["sent_bytes"] += sum(by.get(user, 0) for by in traffic.sent.values())
    for row in found:
        for name in ("sent_bytes", "vector_bytes"):
            row[name] /= max(row["users"], 1)
    return found if masked else []


def _measure(plan: Plan | CohortPlan, combined: Combined | CombinedCohorts, traffic: Traffic) -> dict[str, Any]:
    """What the survivors are guaranteed, and what the round took."""
    phases: list[dict[str, Any]] = [
        {
            "phase": phase,
            "users": len(sent),
            "sent_bytes": {"mean": sum(sent.values()) / max(len(sent), 1), "max": max(sent.values(), default=0)},
            "received_bytes": {"max": max(traffic.received[phase].values(), default=0)},
            "user_seconds": traffic.user_seconds.get(phase, 0.0) / max(len(sent), 1),
            "server_seconds": traffic.server_seconds.get(phase, 0.0),
            "server_cpu_seconds": traffic.server_cpu_seconds.get(phase, 0.0),
        }
        for phase, sent in traffic.sent.items()
    ]
    return {
        "inference_robustness": combined.inference_robustness,
        "byzantine_tolerance": combined.byzantine_tolerance,
        "phases": phases,
        "classes": _sent_by_class(plan, traffic),
        "user_ms": 1000 * sum(row["user_seconds"] for row in phases),
    }


def show(summary: dict[str, Any]) -> RenderableType:
    """The round as tables."""
    how = "identities" if summary["identities"] else "no identities"
    many = f" in {summary['cohorts']} cohorts" if summary["cohorts"] > 1 else ""
    title = (
        f"{summary['design']}: {summary['users']} users{many}, {summary['dimension']:,} elements, "
        f"rule {summary['rule']}, {how if summary['secure'] else 'no cryptography'}"
    )
    gone = ", ".join(f"{len(users)} before {phase}" for phase, users in summary["dropped"].items() if users) or "nobody"
    lines = [Text(title, style="bold"), Text(f"dropped out: {gone}; malicious: {summary['malicious'] or 'none'}")]
    if summary["error"] is not None:
        return Group(*lines, Text(f"{summary['error']['kind']}: {summary['error']['message']}", style="red"))
    parts: list[RenderableType] = [*lines]
    if summary["phases"]:
        parts.append(_phases_table(summary["phases"]))
    if summary["classes"]:
        parts.append(_classes_table(summary["classes"]))
    parts.append(
        Text(
            f"{summary['survivors']} survivors; inference robustness {summary['inference_robustness']:.4f}, the median "
            f"tolerates {summary['byzantine_tolerance']} faulty users"
        )
    )
    if summary["trips"] is not None and len(summary["trips"]) > 1:
        listed = ", ".join(map(str, summary["trips"]))
        parts.append(Text(f"trips of each round: {listed}; {summary['total_trips']} in all; above is the last round"))
    for cohort, why in summary["failed_cohorts"].items():
        parts.append(Text(f"cohort {cohort} failed, and has no part in the result: {why}", style="red"))
    if summary["faulty_blocks"]:
        parts.append(Text(f"{len(summary['faulty_blocks'])} faulty blocks left out, among them {_first(summary)}"))
    check = "equal" if summary["exact"] else "DIFFERENT"
    parts.append(
        Text(f"block sums against the plain integer sums: {check}", style="green" if summary["exact"] else "red")
    )
    percent = summary["error_rms"] / summary["mean_rms"] if summary["mean_rms"] else 0.0
    parts.append(
        Text(
            f"distance to the honest survivors' mean: {summary['error_rms']:.2g} RMS a parameter,\n"
            f"{percent:.0%} of that mean's {summary['mean_rms']:.2g}"
        )
    )
    return Group(*parts)


def _phases_table(rows: list[dict[str, Any]]) -> Table:
    """What each phase took: bytes and times."""
    table = Table("phase", "users", "sent, kB", "received, kB", "a user, ms", "server, ms")
    for row in rows:
        table.add_row(
            row["phase"],
            str(row["users"]),
            f"{row['sent_bytes']['mean'] / 1000:,.1f}",
            f"{row['received_bytes']['max'] / 1000:,.1f}",
            f"{row['user_seconds'] * 1000:,.1f}",
            f"{row['server_seconds'] * 1000:,.1f}",
        )
    return table


def _classes_table(rows: list[dict[str, Any]]) -> Table:
    """What a user of each class sent."""
    table = Table("class", "levels", "who sent a vector", "a user sent, kB", "of which vector, kB")
    for row in rows:
        sizes = (f"{row[name] / 1000:,.1f}" for name in ("sent_bytes", "vector_bytes"))
        table.add_row(str(row["class"]), f"{row['level']:,}", f"{row['users']} users", *sizes)
    return table


def _first(summary: dict[str, Any]) -> str:
    block = summary["faulty_blocks"][0]
    return f"subgroups {block['subgroups']} in segment {block['segment']}: {block['fault']}"
