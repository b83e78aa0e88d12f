"""The Attack tab: what a curious server decodes of a set of subgroups, and which blocks attackers corrupt."""

from __future__ import annotations

from typing import Any

from heterosag.errors import PlanError
from heterosag.plan import Plan
from heterosag.plan.design import Design
from heterosag.studio.forms import Form

__all__ = ["attack", "place_worst"]


def attack(plan: Plan, form: Form) -> dict[str, Any]:
    """Both attacks at once, for the subgroups that the form names."""
    count = len(plan.subgroups)
    lost = form.places("lost", count)
    if len(lost) == count:
        raise PlanError("lost", "somebody must be left")
    malicious = form.places("malicious", count)
    worst = form.integer("worst", 0, 0, count)
    if worst:
        malicious = place_worst(plan.design, worst, lost)
    return {
        "decoded": _decode(plan, form.places("subgroups", count), lost),
        "spoiled": _spoil(plan, malicious - lost, lost),
    }


def _decode(plan: Plan, wanted: frozenset[int], lost: frozenset[int]) -> dict[str, Any]:
    """The segments in which the sum of exactly these subgroups is a union of blocks."""
    design, left = plan.design, wanted - lost
    proper = bool(left) and len(left) < design.subgroups - len(lost)
    shown = set(design.decodable(left, lost)) if left else set()
    segments = len(design.segments)
    if not left:
        words = "Pick some subgroups: the server tries to learn the sum of exactly these."
    elif not proper:
        words = "The sum of everybody is what the round is for: the server learns all of it."
    else:
        words = (
            f"The server learns the sum of {_named(left)} in {len(shown)} of {segments} segments "
            f"({len(shown) / segments:.0%}); the plan keeps any proper set to at most "
            f"{1 - float(design.robustness(lost)):.0%}."
        )
    return {"segments": sorted(shown), "share": len(shown) / segments, "proper": proper, "words": words}


def _spoil(plan: Plan, malicious: frozenset[int], lost: frozenset[int]) -> dict[str, Any]:
    """The blocks with a malicious user in them; a segment's median holds while honest blocks are more than half."""
    rows = []
    for segment in plan.design.surviving(lost):
        spoiled = [list(block) for block in segment if not malicious.isdisjoint(block)]
        rows.append({"blocks": len(segment), "spoiled": spoiled, "holds": 2 * len(spoiled) < len(segment)})
    broken = [index for index, row in enumerate(rows) if not row["holds"]]
    tolerates = plan.design.byzantine_tolerance(lost)
    if not malicious:
        words = f"Pick subgroups with an attacker in them. The median tolerates {tolerates}, wherever they are."
    elif broken:
        words = (
            f"{_count(malicious)} control the median of {len(broken)} of {len(rows)} segments: there at least half of "
            f"the blocks are corrupted. The plan tolerates {tolerates}."
        )
    else:
        words = f"{_count(malicious)} corrupt blocks in every segment, yet honest blocks are the majority everywhere."
    return {"malicious": sorted(malicious), "segments": rows, "broken": broken, "tolerates": tolerates, "words": words}


def place_worst(design: Design, malicious: int, lost: frozenset[int]) -> frozenset[int]:
    """Where so many attackers do most: in as many blocks as possible of a segment with the fewest blocks."""
    segments = design.surviving(lost)
    weakest = min(segments, key=len)
    first = [block[0] for block in weakest]
    others = [subgroup for block in weakest for subgroup in block[1:]]
    return frozenset((first + others)[:malicious])


def _named(subgroups: frozenset[int]) -> str:
    listed = ", ".join(map(str, sorted(subgroups)))
    return f"subgroup {listed}" if len(subgroups) == 1 else f"subgroups {listed}"


def _count(malicious: frozenset[int]) -> str:
    return "One attacker" if len(malicious) == 1 else f"{len(malicious)} attackers"
