"""The footnote of section 5.1: HeteroSAg without quantization is FedAvg, and only its messages are longer.

No quantization is read as the paper's cost formula reads it, 2^32 levels. The aggregate of a real round is compared
with the mean in floating point, and training through the ring with federated averaging of plaintext updates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from heterosag.plan import Plan, costs
from heterosag.simulation.engine import Simulation, aggregate
from heterosag.training.config import TrainConfig
from heterosag.vector.quantize import step
from reproduction.descriptions import about, about_engine, accuracies, differs, same_bits, trained, worth_judging
from reproduction.experiments import papers_configs, plot_accuracy
from reproduction.outcome import Holds, Outcome, Scale, Verdict
from reproduction.plans import paper_plan
from reproduction.running import Finished, Job, accuracy_series, run_all
from reproduction.setting import SEEDS
from reproduction.settings import LEVELS, UNQUANTIZED, Setting

__all__ = ["largest_difference", "no_quantization"]

_ELEMENTS = 79_510


def _plan(levels: Sequence[int], size: int) -> Plan:
    return paper_plan([5] * 5, list(levels), size, value_range=1.0, design="paper", subgroup_size=5)


def largest_difference(size: int, seed: int) -> tuple[float, float]:
    """How far an element of a real round's aggregate is from the mean in floating point, and how far two levels are.

    Args:
        size: Elements of the updates.
        seed: Of the updates.

    Returns:
        The largest difference, and the distance of two levels.
    """
    plan = _plan((UNQUANTIZED,) * 5, size)
    updates = np.random.default_rng(seed).uniform(-1, 1, (len(plan.users), size)).astype(np.float32)
    found = aggregate(plan, updates, simulate=Simulation(rounding_seed=seed)).vector
    exact = updates.mean(axis=0, dtype=np.float64)
    return float(np.abs(found - exact).max()), step(plan.value_range, UNQUANTIZED)


def _settings(job: Job) -> list[Setting]:
    base = TrainConfig(
        partition="sorted",
        classes=(5,) * 5,
        levels=(UNQUANTIZED,) * 5,
        design="paper",
        subgroup_size=5,
        rule="mean",
        rounds=3 if job.scale is Scale.TINY else 20,
        local_epochs=5,
        batch_size=16,
        learning_rate=0.1,
        range_rule="minmax",
        rotate=False,
        fill_levels=False,
        secure=False,
        seed=job.seed,
    )
    plain = replace(base, design="secagg", range_rule="fixed", value_range=1.0)
    found = (
        Setting(name="heterosag", label="HeteroSAg, 2^32 levels", config=base),
        Setting(name="fedavg", label="FedAvg of plaintext updates", config=plain, scheme="float"),
        Setting(name="heterogeneous", label="HeteroSAg, 2 to 12 levels", config=replace(base, levels=LEVELS)),
    )
    return [replace(one, seeds=1 if job.scale is Scale.TINY else SEEDS) for one in found]


def no_quantization(job: Job) -> Outcome:
    """One aggregate, then training, then what the longer messages cost."""
    size = 2_000 if job.scale is Scale.TINY else _ELEMENTS
    off, unit = largest_difference(size, job.seed)
    found = {run.setting.name: run for run in run_all(job, "no-quantization", _settings(job))}
    fedavg = found["fedavg"]
    apart, coarse = (100 * _farthest(found[name], fedavg) for name in ("heterosag", "heterogeneous"))
    bits = max(costs.of(_plan((UNQUANTIZED,) * 5, _ELEMENTS)).per_class()) / _ELEMENTS
    return Outcome(
        text=(
            f"One real round of 25 users and {size:,} elements at 2^32 levels, against the mean in floating point: the "
            f"largest difference is {off:.2g}, two neighbouring levels being {unit:.2g} apart.",
            f"{about(fedavg.setting.config)} {len(fedavg.records)} seeds. {about_engine(found.values())}",
        ),
        verdicts=(
            Verdict(
                claim="HeteroSAg without quantization is FedAvg: the aggregate",
                paper="the same (footnote of section 5.1)",
                found=f"no element differs by more than {off / unit:.2f} of a quantization interval ({off:.2g})",
                holds=Holds.of(off <= unit),
                note="within the rounding; 2^32 levels are 32 bits, not 32-bit floats",
            ),
            Verdict(
                claim="HeteroSAg without quantization is FedAvg: the test accuracy",
                paper="the same (footnote of section 5.1)",
                found=f"never more than {apart:.2f} points apart in a round, over {len(fedavg.records)} seeds; with "
                f"2 to 12 levels up to {coarse:.1f}",
                holds=Holds.of(apart <= 0.5, judged=worth_judging(*fedavg.accuracies)),
                note="read as within half a point, two of the 360 test pictures",
            ),
            Verdict(
                claim="and only its messages are longer",
                paper="larger, by the ring",
                found=f"{bits:.2f} bits an element instead of 32",
                holds=Holds.of(bits > 32),
            ),
            same_bits(found.values()),
        ),
        tables=(accuracies("accuracy", "Test accuracy at the end", found.values()),),
        plots=(
            plot_accuracy(
                "accuracy",
                "No quantization and FedAvg: test accuracy",
                tuple(accuracy_series(run, dashed=run is fedavg) for run in found.values()),
            ),
        ),
        values={"difference": off, "interval": unit, "apart": apart},
        runs=trained(found.values()),
        differs=differs(found.values(), papers_configs(job, "experiment-1"), "the rule for the value range, min-max"),
    )


def _farthest(one: Finished, other: Finished) -> float:
    """The largest difference of two schemes' accuracies in a round, over all seeds."""
    return max(
        abs(float(a["accuracy"]) - float(b["accuracy"]))
        for first, second in zip(one.records, other.records, strict=True)
        for a, b in zip(first.rounds, second.rounds, strict=True)
    )
