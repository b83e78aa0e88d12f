"""Lemmas 1 and 2, Proposition 1 and Theorem 2's count: measured error of quantization against its bounds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt

from heterosag.plan import Plan
from heterosag.simulation.engine import Simulation, aggregate
from heterosag.vector.quantize import dequantize, quantize, step
from reproduction.outcome import Holds, Outcome, Scale, Table, Verdict
from reproduction.plans import paper_plan
from reproduction.running import Job
from reproduction.settings import LEVELS

__all__ = ["CHANCE", "lemmas", "quantize_user"]

_Vector = npt.NDArray[np.float64]

CHANCE = 1.02
"""By how much a measured error may exceed the bound on its expectation."""


def _error(plan: Plan, updates: _Vector, seed: int, repeats: int) -> tuple[float, float]:
    """E||mean of quantized - mean||^2 over some rounds, and how far their average is from the mean (per element, in
    standard errors): through the plain engine, which gives the bits of the secure one."""
    means = np.stack(
        [
            aggregate(plan, updates, simulate=Simulation(secure=False, rounding_seed=seed + number)).vector
            for number in range(repeats)
        ]
    )
    truth = updates.mean(axis=0)
    return float(np.mean(np.sum((means - truth) ** 2, axis=1))), _bias(means, truth)


def quantize_user(plan: Plan, user: int, values: _Vector, rng: np.random.Generator) -> _Vector:
    """One user's vector after quantizing: every segment by the quantizer of the user's block there."""
    found = np.empty_like(values)
    for segment, block in zip(plan.segments, plan.blocks_of(plan.subgroup_of(user)), strict=True):
        here = slice(segment.start, segment.stop)
        words = rng.integers(0, 2**32, segment.size, dtype=np.uint32)
        levels = np.zeros(segment.size, dtype=np.uint32)
        quantize(values[here], block.level, plan.value_range, words, out=levels)
        found[here] = dequantize(levels, 1, block.level, plan.value_range)
    return found


def _variance_bound(plan: Plan, user: int) -> float:
    """Lemma 1 (ii): a quarter of the squared quantization interval, summed over the elements of a user."""
    blocks = zip(plan.segments, plan.blocks_of(plan.subgroup_of(user)), strict=True)
    return sum(segment.size * step(plan.value_range, block.level) ** 2 / 4 for segment, block in blocks)


def _error_of_users(plan: Plan, updates: _Vector, rng: np.random.Generator, repeats: int) -> tuple[float, float]:
    """Over a user of each class: the largest error in parts of its bound, and the largest squared bias in parts of
    what chance gives: an element may be rounded one way in all but a few draws, so that all count together."""
    worst = bias = 0.0
    for own in range(len(plan.levels)):
        user = next(u for u in range(len(plan.users)) if plan.subgroups[plan.subgroup_of(u)].user_class == own)
        coded = np.stack([quantize_user(plan, user, updates[user], rng) for _ in range(repeats)])
        squared = float(np.mean(np.sum((coded - updates[user]) ** 2, axis=1)))
        worst = max(worst, squared / _variance_bound(plan, user))
        squared_bias = float(np.sum((coded.mean(axis=0) - updates[user]) ** 2))
        bias = max(bias, squared_bias * repeats / float(coded.var(axis=0, ddof=1).sum()))
    return worst, bias


def _bias(found: _Vector, truth: _Vector) -> float:
    """How far the average of some draws is from the truth: the largest of all elements, in standard errors."""
    spread = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    return float(np.max(np.abs(found.mean(axis=0) - truth) / np.maximum(spread, 1e-12)))


def lemmas(job: Job) -> Outcome:
    """Unbiasedness and error of the aggregate for equal and unequal classes and for split groups."""
    repeats = 60 if job.scale is Scale.TINY else 200
    size = 500
    rng = np.random.default_rng(job.seed)
    plans = {
        "equal classes 5 x 5": paper_plan([5] * 5, LEVELS, size, value_range=1.0, design="paper", subgroup_size=5),
        "split L=2, 10 subgroups": paper_plan(
            [10] * 5, LEVELS, size, value_range=1.0, design="paper-composite", subgroup_size=5, min_robustness=0.0
        ),
        "unequal L=(1,2,2)": paper_plan(
            [5, 10, 10], [2, 6, 12], size, value_range=1.0, design="paper", subgroup_size=5
        ),
        "homogeneous K=2": paper_plan([5] * 5, [2] * 5, size, value_range=1.0, design="paper", subgroup_size=5),
    }
    rows, measured, single = [], {}, {}
    for name, plan in plans.items():
        users = len(plan.users)
        worst = np.where(
            rng.random((users, size)) < 0.5, -0.0001, 0.0001
        )  # just beside the middle: most variance at K=2
        typical = rng.uniform(-1, 1, (users, size))
        bound, formula = plan.quantization_error(), _lemma_2(plan)
        found = {kind: _error(plan, values, job.seed, repeats) for kind, values in (("w", worst), ("t", typical))}
        measured[name] = (bound, formula, found)
        single[name] = [_error_of_users(plan, values, rng, repeats) for values in (worst, typical)]
        own = max(error for error, _ in single[name])
        rows.append(
            (
                name,
                f"{formula:.4f}",
                f"{bound:.4f}",
                f"{found['t'][0]:.4f}",
                f"{found['w'][0]:.4f}",
                f"{max(found['t'][1], found['w'][1]):.1f}",
                f"{own:.2f}",
            )
        )
    below = all(error <= CHANCE * bound for bound, _, found in measured.values() for error, _ in found.values())
    biases = {
        "aggregate": max(bias for _, _, found in measured.values() for _, bias in found.values()),
        "user": max(bias for found in single.values() for _, bias in found),
    }
    most = 1 + 6 * np.sqrt(2 / (size / 5))  # a chi-squared of one segment's elements: one may outweigh the others
    unbiased = biases["aggregate"] < 5.5 and biases["user"] < most
    own_error = max(error for found in single.values() for error, _ in found)
    formulas = all(abs(bound - formula) < 1e-9 * bound for bound, formula, _ in measured.values())
    splits = [
        paper_plan([40] * 5, LEVELS, 1000, value_range=1.0, design="paper" if n == 40 else "paper-composite",
                   subgroup_size=n, min_survivors=2, min_robustness=0.0).quantization_error()
        for n in (40, 20, 10)
    ]  # fmt: skip
    counts = _count(plans["equal classes 5 x 5"])
    tight = measured["homogeneous K=2"][2]["w"][0] / measured["homogeneous K=2"][0]
    return Outcome(
        text=(
            f"Users' vectors of {size} elements, uniform on the range or beside its middle, {repeats} rounds each. "
            "Bias is the largest distance of an element's average from the true mean, in standard errors (the largest "
            f"of {size} normal ones is about 3.2). At K=2 and mid-range the bound is reached: measured "
            f"error is {tight:.0%} of it.",
        ),
        verdicts=(
            Verdict(
                claim="Lemma 1 (i): a quantized vector is unbiased, and so is the aggregate",
                paper="E = the vector",
                found=f"a user's squared bias is at most {biases['user']:.2f} of what chance gives; no element of the "
                f"aggregate is farther off than {biases['aggregate']:.1f} standard errors",
                holds=Holds.of(unbiased),
                note=f"read as below {most:.2f} and 5.5",
            ),
            Verdict(
                claim="Lemma 1 (ii): the error of one user's vector is at most the sum of its squared intervals over 4",
                paper="m/G times the sum over the segments",
                found=f"at most {own_error:.3f} of the bound, over a user of each class",
                holds=Holds.of(own_error <= CHANCE),
            ),
            Verdict(
                claim="Lemma 1 (iii): the error of the aggregate is at most the bound",
                paper="sigma^2",
                found="every measured error is, within the 2% that chance allows" if below else "exceeded",
                holds=Holds.of(below),
            ),
            Verdict(
                claim="Lemma 2: the bound for unequal classes",
                paper="formula",
                found="equals the count over our blocks" if formulas else "differs from the count over our blocks",
                holds=Holds.of(formulas),
            ),
            Verdict(
                claim="Theorem 2's count: quantizer g is used (2(G-g)-1)n times",
                paper=str([(2 * (5 - g) - 1) * 5 for g in range(5)]),
                found=str(counts),
                holds=Holds.of(counts == [(2 * (5 - g) - 1) * 5 for g in range(5)]),
            ),
            Verdict(
                claim="Proposition 1: splitting groups leaves the error bound as it is",
                paper="unchanged",
                found=", ".join(f"{value:.4f}" for value in splits),
                holds=Holds.of(max(splits) - min(splits) < 1e-9),
            ),
        ),
        tables=(
            Table(
                name="errors",
                title="Total quantization error",
                head=(
                    "plan",
                    "paper's formula",
                    "bound from our blocks",
                    "measured, uniform",
                    "measured, worst",
                    "bias",
                    "one user, of its bound",
                ),
                rows=tuple(rows),
            ),
        ),
        values={"tight": tight},
    )


def _lemma_2(plan: Plan) -> float:
    """Lemma 2's sigma, with subgroups counted class by class."""
    low, high = plan.value_range
    users, total = len(plan.users), len(plan.subgroups)
    size = users // total
    sums, before = 0.0, 0
    for index, level in enumerate(plan.levels):
        own = sum(subgroup.user_class == index for subgroup in plan.subgroups)
        sums += sum(2 * (total - before - j) - 1 for j in range(own)) / (level - 1) ** 2
        before += own
    return (high - low) ** 2 / (4 * users**2) * plan.dimension / total * size * sums


def _count(plan: Plan) -> list[int]:
    """How many users' segments each class's quantizer codes."""
    found: Counter[int] = Counter()
    for segment in plan.segments:
        for block in segment.blocks:
            found[min(plan.subgroups[g].user_class for g in block.subgroups)] += block.users
    return [found[index] for index in range(len(plan.levels))]
