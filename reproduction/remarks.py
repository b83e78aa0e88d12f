"""Remarks 1, 2 and 4: what any set of groups exposes, many groups, and groups that are split."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations, pairwise

from heterosag.plan.design import Design, paper, perfect
from reproduction.guarantees import claimed_robustness, list_numbers
from reproduction.outcome import Holds, Outcome, Table, Verdict
from reproduction.plans import paper_plan
from reproduction.running import Job

__all__ = ["remarks"]


def remarks(job: Job) -> Outcome:
    """Remarks 1, 2 and 4 as measurements."""
    del job
    shares = {count: _largest_share(paper(count)) for count in range(2, 12)}
    over = [count for count, share in shares.items() if share > 2 / count + 1e-12]
    parts = {
        count: paper_plan(
            [20] * 5,
            [2, 6, 8, 10, 12],
            10_000,
            value_range=1.0,
            subgroup_size=20 // count,
            design="paper-composite" if count > 1 else "paper",
            min_survivors=2,
        )
        for count in (1, 2, 4)
    }
    rows = tuple(
        (
            str(count),
            str(5 * count),
            f"{claimed_robustness(5 * count):.4f}",
            f"{plan.inference_robustness():.4f}",
            str(max(0, math.ceil(5 * count / 4) - 1)),
            str(plan.byzantine_tolerance()),
            f"{plan.quantization_error():.4f}",
        )
        for count, plan in parts.items()
    )
    composite = sorted({a * b for a in range(2, 21) for b in range(2, 21) if a * b <= 40})
    split = [count for count in composite if math.isclose(float(paper(count).robustness()), (count - 2) / count)]
    growing, stuck = (
        {count: float(paper(count).robustness()) for count in counts}
        for counts in ((3, 7, 13, 31, 61), (6, 12, 30, 60))
    )
    exposed = [(m, 1 - float(paper(m).robustness()), 1 - claimed_robustness(m)) for m in (13, 14, 15)]
    return Outcome(
        text=(
            "Remark 1: over every proper set of groups, the largest fraction of segments that the server decodes. "
            "Remark 2: with many groups, prime and composite numbers of them, and with as many as elements. Remark 4: "
            "splitting five groups of 20 users into subgroups; that it leaves the error bound as it is, is Proposition "
            "1, which is judged among the lemmas.",
        ),
        verdicts=(
            Verdict(
                claim="Remark 1: the server decodes at most 2/G of the segments of any set",
                paper="2/G",
                found=f"more for G = {list_numbers(over)} of 2..11, {shares[6]:.3f} for G=6; perfect, G=6: "
                f"{_largest_share(perfect(6)):.3f}",
                holds=Holds.of(not over),
                note=f"true for G = {list_numbers(count for count in shares if count not in over)}",
            ),
            Verdict(
                claim="Remark 2: robustness tends to 1 with the number of groups",
                paper="approaches 1",
                found=f"{', '.join(f'{value:.3f}' for value in growing.values())} for G = {list_numbers(growing)}, but "
                f"{', '.join(f'{value:.3f}' for value in stuck.values())} for G = {list_numbers(stuck)}",
                holds=Holds.of(_rises(growing) and _rises(stuck)),
                note="true along primes; every even G from 6 on has 1/2",
            ),
            Verdict(
                claim="Remark 2: with a group for every element a set exposes 1/m of the model, 2/m for even m",
                paper="1/m or 2/m",
                found=", ".join(f"{seen:.3f} for m={size} ({claimed:.3f} claimed)" for size, seen, claimed in exposed),
                holds=Holds.of(all(math.isclose(seen, claimed) for _, seen, claimed in exposed)),
                note="true for prime m; the paper's models have 79,510 and 117,706 elements, both even",
            ),
            Verdict(
                claim="Remark 4: splitting groups L times raises B to ceil(LG/4)-1",
                paper="1, 2, 4 for L = 1, 2, 4 of 5 groups",
                found=", ".join(str(plan.byzantine_tolerance()) for plan in parts.values()),
                holds=Holds.of([plan.byzantine_tolerance() for plan in parts.values()] == [1, 2, 4]),
            ),
            Verdict(
                claim="Remark 4: and robustness to (LG-2)/LG",
                paper=f"{8 / 10}, {18 / 20} for L = 2, 4",
                found=", ".join(f"{plan.inference_robustness():.3f}" for plan in list(parts.values())[1:]),
                holds=Holds.of(
                    all(
                        math.isclose(p.inference_robustness(), (5 * c - 2) / (5 * c)) for c, p in parts.items() if c > 1
                    )
                ),
                note="with L from 2 on their number is composite: of those up to 40 it is true for "
                f"{list_numbers(split)} only",
            ),
        ),
        tables=(
            Table(
                name="splitting",
                title="Remark 4: five groups of 20 users, split",
                head=("L", "subgroups", "robustness claimed", "true", "B claimed", "true", "error bound"),
                rows=rows,
            ),
        ),
        values={"share_of_7": shares[7], "share_of_6": shares[6]},
    )


def _rises(values: Mapping[int, float]) -> bool:
    return all(one < other for one, other in pairwise(values.values()))


def _largest_share(design: Design) -> float:
    sets = (some for size in range(1, design.subgroups) for some in combinations(range(design.subgroups), size))
    return max(len(design.decodable(some)) for some in sets) / len(design.segments)
