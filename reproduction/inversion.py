"""The paper's motive, which it never measures: what a curious server makes of the sums that it decodes.

Its view of a subgroup is, in every segment, the mean of the block that the subgroup is in: alone under `multigroup`,
with another subgroup in all but one segment under `paper`, always with another under `perfect`, with everybody under
`secagg`. Two attacks on that view:

Inversion: the first layer's gradient of one sample is an outer product with that sample, so every row of it is a
mixture of the block's pictures, and often one picture alone (Zhu et al. 2019, Geiping et al. 2020). The best row,
chosen by somebody who knows the picture, is an upper bound on what the server sees. It is judged by its correlation
with the picture once the average picture is taken away, so that guessing the average counts for nothing.

Membership: does a sample's own update correlate with the view? Judged by the area under the ROC curve of members of the
subgroup against fresh samples: 0.5 is guessing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from heterosag.choices import DesignName
from heterosag.plan.design import make
from heterosag.simulation.engine import Simulation, aggregate
from heterosag.training import data, models
from heterosag.training.local import LocalTraining, Work, train_together
from heterosag.vector.quantize import dequantize
from reproduction.outcome import Holds, Outcome, Plot, Scale, Table, Trained, Verdict
from reproduction.plans import paper_plan
from reproduction.running import Job

__all__ = ["SHOWS", "average_picture", "best_guess", "draw_samples", "inversion", "membership", "view_subgroups"]

_DESIGNS: tuple[DesignName, ...] = ("multigroup", "paper-composite", "perfect", "secagg")
_COUNTS = (6, 7, 13)  # of subgroups: a composite number first
_SIZE = 4
_LARGER = (8, 16)
_LEVEL = 2**16  # so fine that only the design protects
_PIXELS, _HIDDEN = 64, 48
SHOWS = 0.9
"""A correlation at which a person sees the picture."""

_Vector = npt.NDArray[np.float64]


@dataclass(slots=True)
class _Found:
    """What the attacks came to under one design."""

    scores: list[float] = field(default_factory=list)
    areas: list[float] = field(default_factory=list)
    pictures: list[_Vector] = field(default_factory=list)

    @property
    def shown(self) -> float:
        return float(np.mean(np.array(self.scores) > SHOWS))

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def area(self) -> float:
        return float(np.mean(self.areas))


def _attack(design: DesignName, subgroups: int, size: int, trials: int, seed: int) -> _Found:
    """Both attacks on every subgroup of so many users, over some draws."""
    average = average_picture()
    users = subgroups * size
    found = _Found()
    for trial in range(trials):
        pictures, updates = draw_samples(seed + trial, users)
        views = view_subgroups(design, updates[:users], size, seed)
        best = [best_guess(pictures[user], average, views[user // size]) for user in range(users)]
        found.scores += [score for score, _ in best]
        found.pictures += [guess for _, guess in best]
        members = [updates[group * size : (group + 1) * size] for group in range(subgroups)]
        found.areas += [membership(view, own, updates[users:]) for view, own in zip(views, members, strict=True)]
    return found


def inversion(job: Job) -> Outcome:
    """Best guesses at users' pictures, and at who took part, under four designs and three numbers of subgroups."""
    trials = 2 if job.scale is Scale.TINY else 12
    drawn = {(count, _SIZE): max(1, trials * _COUNTS[0] // count) for count in _COUNTS}
    drawn |= {(_COUNTS[0], size): max(1, trials * _SIZE // size) for size in _LARGER}
    found = {
        (count, name): _attack(name, count, _SIZE, drawn[count, _SIZE], job.seed)
        for count in _COUNTS
        for name in _DESIGNS
    }
    larger = {size: _attack("perfect", _COUNTS[0], size, drawn[_COUNTS[0], size], job.seed) for size in _LARGER}
    shown = {name: found[_COUNTS[0], name].shown for name in _DESIGNS}
    exposed = [found[count, "multigroup"].shown for count in _COUNTS]
    return Outcome(
        text=(
            f"{', '.join(map(str, _COUNTS))} subgroups of {_SIZE} users, one picture of the embedded digits each, one "
            f"step of training on the small model, {_LEVEL:,} levels so that only the design protects, {trials} draws "
            f"with {_COUNTS[0]} subgroups and about as many users with the others. The first number is composite, the "
            "paper's weakest case; the others are prime, where its design has the robustness that it claims. A guess "
            "is chosen by somebody who knows the picture, so these are upper bounds on what the server sees.",
            f"With {_COUNTS[0]} subgroups the server's view of one is four users alone under `multigroup` "
            f"({shown['multigroup']:.0%} of the pictures shown); the paper's design and `perfect` mix every segment "
            "(but one, for the paper's) with one other subgroup, a different one each time "
            f"({shown['paper-composite']:.0%} and {shown['perfect']:.0%}). Inference robustness says in how many "
            "segments one and the same set is decoded; it does not say that a sum of eight hides its parts, and more "
            "subgroups do not change that. With larger subgroups under `perfect`: "
            + ", ".join(f"{one.shown:.0%} of the pictures with subgroups of {size}" for size, one in larger.items())
            + ".",
        ),
        verdicts=(
            Verdict(
                claim="Decoding a group's whole update (multigroup) lets the server reconstruct pictures",
                paper="stated, not measured",
                found=f"{', '.join(f'{value:.0%}' for value in exposed)} of pictures shown (correlation above {SHOWS})",
                holds=Holds.of(min(exposed) > 0.5),
                note=f"with {', '.join(map(str, _COUNTS))} subgroups",
            ),
            Verdict(
                claim="The segment grouping limits inversion and membership attacks",
                paper="stated, not measured",
                found="; ".join(
                    f"{count} subgroups: "
                    + ", ".join(
                        f"{name} {found[count, name].shown:.0%} and {found[count, name].area:.2f}" for name in _DESIGNS
                    )
                    for count in _COUNTS
                )
                + " (pictures shown, membership area)",
                holds=Holds.of(
                    all(_ordered(found, count) for count in _COUNTS),
                    all(found[count, "perfect"].shown < 0.5 * found[count, "multigroup"].shown for count in _COUNTS),
                ),
                note="read as: each design shows no more than the one before it, and `perfect` at most half of "
                "multigroup",
            ),
        ),
        tables=(_table(found, larger),),
        plots=(_gallery(job.seed, {name: found[_COUNTS[0], name].pictures[:4] for name in _DESIGNS}),),
        values={f"shown_{name}": value for name, value in shown.items()}
        | {f"area_{name}": found[_COUNTS[0], name].area for name in _DESIGNS},
        runs=tuple(
            Trained(
                name=f"{count} subgroups of {size}", users=count * size, samples=count * size, rounds=1, seeds=draws
            )
            for (count, size), draws in drawn.items()
        ),
    )


def _ordered(found: Mapping[tuple[int, DesignName], _Found], count: int) -> bool:
    """Whether each design shows no more than the one before; equal designs may differ by chance."""
    ones = [found[count, name] for name in _DESIGNS]
    return all(a.mean > b.mean - 0.01 and a.area > b.area - 0.01 for a, b in pairwise(ones))


def _table(found: Mapping[tuple[int, DesignName], _Found], larger: Mapping[int, _Found]) -> Table:
    def row(label: str, robust: float, one: _Found) -> tuple[str, ...]:
        return (label, f"{robust:.3f}", f"{one.mean:.3f}", f"{one.shown:.0%}", f"{one.area:.3f}")

    rows = [
        (str(count), *row(name, float(make(name, count).robustness()), one)) for (count, name), one in found.items()
    ]
    robust = float(make("perfect", _COUNTS[0]).robustness())
    rows += [(str(_COUNTS[0]), *row(f"perfect, subgroups of {size}", robust, one)) for size, one in larger.items()]
    return Table(
        name="inversion",
        title="What the server makes of its view",
        head=(
            "subgroups",
            "design",
            "inference robustness",
            "mean correlation",
            "pictures shown",
            "membership, area under ROC",
        ),
        rows=tuple(rows),
    )


def _gallery(seed: int, guesses: Mapping[str, Sequence[_Vector]]) -> Plot:
    """Four users' pictures, and the best guess at each under every design."""
    rows = {"true": list(draw_samples(seed, _COUNTS[0] * _SIZE)[0][:4]), **guesses}
    return Plot(
        name="gallery",
        title="Four users' pictures and the server's best guesses",
        kind="pictures",
        ticks=tuple(name for name in rows for _ in range(4)),
        grid=tuple(tuple(round(float(v), 3) for v in _stretch(row)) for some in rows.values() for row in some),
    )


def average_picture() -> _Vector:
    """The average of pictures that nobody trains on."""
    average: _Vector = data.load("digits").test_x.mean(axis=0).astype(np.float64)
    return average


def draw_samples(seed: int, users: int) -> tuple[_Vector, npt.NDArray[np.float32]]:
    """Pictures, and the update of one step on each: first one of every user, then as many fresh ones."""
    digits = data.load("digits")
    count = 2 * users
    chosen = np.random.default_rng(seed).choice(len(digits.train_y), count, replace=False)
    model = models.build("digits", "digits", seed)
    training = LocalTraining(epochs=1, batch_size=1, learning_rate=1.0)
    rngs = [np.random.default_rng([seed, user]) for user in range(count)]
    parts = [chosen[user : user + 1] for user in range(count)]
    updates = train_together(model, Work(data=digits, parts=parts, training=training, rngs=rngs))
    return digits.train_x[chosen].astype(np.float64), updates


def view_subgroups(name: DesignName, updates: npt.NDArray[np.float32], size: int, seed: int) -> list[_Vector]:
    """For each subgroup, in every segment the decoded mean of the block that it is in."""
    widest = float(np.abs(updates).max())
    plan = paper_plan(
        [len(updates)],
        [_LEVEL],
        updates.shape[1],
        design=name,
        subgroup_size=size,
        min_survivors=2,
        min_robustness=0.0,
        value_range=(-widest, widest),
    )
    result = aggregate(plan, updates, simulate=Simulation(secure=False, rounding_seed=seed))
    views = [np.zeros(plan.dimension) for _ in range(len(updates) // size)]
    for segment, blocks in zip(plan.segments, result.blocks, strict=True):
        for block in blocks:
            mean = dequantize(block.sums, block.weight, _LEVEL, plan.value_range)
            for subgroup in block.subgroups:
                views[subgroup][segment.start : segment.stop] = mean
    return views


def membership(view: _Vector, members: npt.NDArray[np.float32], others: npt.NDArray[np.float32]) -> float:
    """The chance that a member's update correlates more with the view than a stranger's."""
    inside, outside = (rows @ view / np.linalg.norm(rows, axis=1) for rows in (members, others))
    return float(np.mean(inside[:, None] > outside[None, :]))


def best_guess(picture: _Vector, average: _Vector, view: _Vector) -> tuple[float, _Vector]:
    """The row of the first layer that shows a picture best, and how well."""
    target = picture - average
    best, shown = 0.0, average
    for guess in view[: _HIDDEN * _PIXELS].reshape(_HIDDEN, _PIXELS):
        norm = float(np.sqrt(np.sum(guess**2)))
        if norm < 1e-9:
            continue
        scaled = guess * (np.sum(guess * picture) / norm**2)  # the row is the picture times an unknown factor
        centred = scaled - average
        score = float(centred @ target / (np.linalg.norm(centred) * np.linalg.norm(target) + 1e-12))
        if score > best:
            best, shown = score, scaled
    return best, shown


def _stretch(picture: _Vector) -> _Vector:
    low, high = float(picture.min()), float(picture.max())
    stretched: _Vector = (picture - low) / max(high - low, 1e-9)
    return stretched
