"""Remark 5 with deadlines: whether levels that fit the links lower dropout, and for which deadlines.

With 12 levels for all everybody sends at least what it sends with fitted levels, so that fitting cannot lose there. The
comparison that it can lose is with one level for all at the same total upload: fitted levels take bits from the slow
links and give them to the fast ones, which miss a deadline that is too short for what they then send. How many uploads
miss a deadline is arithmetic on the plan and on links drawn many times; training shows what that does to a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from heterosag.plan import costs
from heterosag.storage.run_log import RunRecord
from heterosag.training.config import TrainConfig
from reproduction.descriptions import same_bits, trained
from reproduction.outcome import Holds, Outcome, Plot, Scale, Series, Table, Verdict
from reproduction.plans import paper_plan
from reproduction.running import Finished, Job, accuracy, run_all
from reproduction.settings import Setting

__all__ = ["missing", "remark_5"]

_RATES = (0.3, 0.45, 0.8)  # Mb/s of each class
_SPREAD = 0.2
_CLASS = 12
_FITTED, _MOST = (2, 4, 12), 12
_SIZE = 3610  # parameters of the model for the embedded digits
_DRAWS = 200
_DEADLINES = tuple(round(0.02 + 0.005 * step, 3) for step in range(37))
_TRAINED = (0.06, 0.09, 0.12)


def _bits(levels: Sequence[int]) -> list[int]:
    """What a user of each class uploads, by the stated formula."""
    plan = paper_plan(
        [_CLASS] * 3, list(levels), _SIZE, value_range=1.0, design="paper", subgroup_size=_CLASS, min_survivors=2
    )
    return [int(bits) for bits in costs.of(plan).per_class()]


def _equal_upload() -> int:
    """The level for all whose total upload comes nearest to that of the fitted levels."""
    wanted = sum(_bits(_FITTED))
    return min(range(2, _MOST + 1), key=lambda level: abs(sum(_bits((level,) * 3)) - wanted))


def missing(levels: Sequence[int], deadline: float, factors: np.ndarray) -> float:
    """The fraction of uploads that miss a deadline.

    Args:
        levels: Of the quantizer of each class, slowest links first.
        deadline: In seconds.
        factors: By how much each user's link differs from its class's rate: draws, classes, users.

    Returns:
        A fraction of all draws and users.
    """
    seconds = np.array(_bits(levels)) / (np.array(_RATES) * 1e6)
    return float(np.mean(seconds[None, :, None] / factors > deadline))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Curves:
    """The fraction that misses each deadline, by how levels are chosen."""

    uniform: int
    fractions: Mapping[str, list[float]]

    @classmethod
    def draw(cls, seed: int) -> _Curves:
        factors = np.exp(np.random.default_rng(seed).normal(0, _SPREAD, (_DRAWS, 3, _CLASS)))
        uniform = _equal_upload()
        kinds = {"same": (_MOST,) * 3, "equal": (uniform,) * 3, "fitted": _FITTED}
        return cls(
            uniform=uniform,
            fractions={name: [missing(levels, at, factors) for at in _DEADLINES] for name, levels in kinds.items()},
        )

    def label(self, name: str) -> str:
        return {
            "same": f"{_MOST} levels for all",
            "equal": f"{self.uniform} levels for all, the same total upload",
            "fitted": f"{', '.join(map(str, _FITTED))} levels, fitted to the links",
        }[name]

    def compare(self, other: str) -> tuple[list[float], list[float]]:
        """The deadlines that fewer uploads miss with fitted levels than otherwise, and those that more miss.

        A difference below one in a thousand uploads is none.
        """
        pairs = list(zip(_DEADLINES, self.fractions["fitted"], self.fractions[other], strict=True))
        fewer = [at for at, fitted, rest in pairs if fitted < rest - 1e-3]
        more = [at for at, fitted, rest in pairs if fitted > rest + 1e-3]
        return fewer, more


def _settings(job: Job) -> list[Setting]:
    base = TrainConfig(
        classes=(_CLASS,) * 3,
        levels=(_MOST,) * 3,
        rates=_RATES,
        rate_spread=_SPREAD,
        subgroup_size=_CLASS,
        min_survivors=2,
        min_robustness=0.0,
        rounds=4 if job.scale is Scale.TINY else 15,
        local_epochs=2,
        learning_rate=0.1,
        fill_levels=False,
        secure=False,
        seed=job.seed,
    )
    kinds = {"same": (_MOST,) * 3, "fitted": _FITTED}
    labels = {"same": f"{_MOST} levels for all", "fitted": "fitted"}
    return [
        Setting(
            name=f"{name}-{1000 * deadline:.0f}",
            label=labels[name],
            panel=f"{1000 * deadline:.0f} ms",
            config=replace(base, levels=levels, deadline=deadline),
        )
        for deadline in (_TRAINED if job.scale is not Scale.TINY else _TRAINED[1:2])
        for name, levels in kinds.items()
    ]


def remark_5(job: Job) -> Outcome:
    """Links and deadlines: everybody at 12 levels, at one level of the same total upload, or levels that fit."""
    curves = _Curves.draw(job.seed)
    found = {run.setting.name: run for run in run_all(job, "remark-5", _settings(job))}
    against = {name: curves.compare(name) for name in ("same", "equal")}
    return Outcome(
        text=(
            f"{3 * _CLASS} users in three classes whose links carry {', '.join(map(str, _RATES))} Mb/s (spread "
            f"{_SPREAD:.0%} from user to user), {_SIZE:,} elements; an upload counts as dropped after a deadline. "
            f"Deadlines from {1000 * _DEADLINES[0]:.0f} to {1000 * _DEADLINES[-1]:.0f} ms, links drawn {_DRAWS} times.",
            f"With {_MOST} levels for all nobody sends less than with fitted ones, so that fitting cannot lose: that "
            f"it lowers dropout is true by construction. With {curves.uniform} levels for all the total upload is "
            "about the same: there fitting takes bits from the slow links and gives them to the fast ones, which lose "
            "where the deadline is short. Training on the embedded digits shows what is lost with the uploads.",
        ),
        verdicts=(
            Verdict(
                claim="Remark 5: fitting levels to links lowers dropout",
                paper="stated, not measured",
                found=f"against {_MOST} levels for all, {_words(*against['same'])}; against one level of the same "
                f"total upload, {_words(*against['equal'])}",
                holds=Holds.of(*(bool(fewer) and not more for fewer, more in against.values())),
                note="true by construction against the first",
            ),
            same_bits(found.values()),
        ),
        tables=(_table(found),),
        plots=(
            Plot(
                name="deadlines",
                title="Uploads that miss a deadline",
                kind="lines",
                x_label="deadline, ms",
                y_label="uploads that miss it, %",
                series=tuple(
                    Series(
                        label=curves.label(name),
                        x=tuple(1000 * at for at in _DEADLINES),
                        y=tuple(round(100 * fraction, 2) for fraction in fractions),
                        dashed=name == "same",
                    )
                    for name, fractions in curves.fractions.items()
                ),
            ),
        ),
        values={
            f"{what}_{name}": float(len(deadlines))
            for name, pair in against.items()
            for what, deadlines in zip(("fewer", "more"), pair, strict=True)
        },
        runs=trained(found.values()),
    )


def _words(fewer: Sequence[float], more: Sequence[float]) -> str:
    """At how many deadlines fewer and more uploads are lost, and where."""
    return f"fewer uploads are late at {_where(fewer)}, more at {_where(more)}"


def _where(deadlines: Sequence[float]) -> str:
    if not deadlines:
        return f"none of the {len(_DEADLINES)} deadlines"
    return (
        f"{len(deadlines)} of the {len(_DEADLINES)} deadlines ({1000 * min(deadlines):.0f} to "
        f"{1000 * max(deadlines):.0f} ms)"
    )


def _table(found: Mapping[str, Finished]) -> Table:
    return Table(
        name="deadline",
        title="Trained with a deadline",
        head=("deadline", "levels", "uploads that miss it", "rounds without enough survivors", "test accuracy"),
        rows=tuple(
            (
                run.setting.panel,
                run.setting.label,
                f"{_missed(run.record):.1%}",
                str(sum(line["error"] is not None for line in run.record.rounds)),
                f"{accuracy(run.record):.1%}",
            )
            for run in found.values()
        ),
    )


def _missed(record: RunRecord) -> float:
    users = sum(line["participants"] for line in record.rounds)
    return float(sum(line["missed_deadline"] for line in record.rounds) / users)
