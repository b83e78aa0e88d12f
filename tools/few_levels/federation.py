"""A federation that trains one of the models: data of unlike users, rounds through the library, ranges that follow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from models import Arrays, Model, accuracy, adapters, convolutions, perceptron, train
from torch import Tensor
from torch.nn import functional

from heterosag import Plan, Simulation, aggregate
from heterosag.aggregation.clipping import AdaptiveRange, follow_quantile, measure_clipping
from heterosag.aggregation.positive import PositiveArrays
from heterosag.training import data

Vector = npt.NDArray[np.float32]
Step = Callable[[Vector, npt.NDArray[np.float32], int], Vector]
"""The model after a round, from the one before, everybody's updates and the round's number."""

SUBGROUP_SIZE = {12: 3, 40: 5, 100: 8}
"""By the number of users."""

_SAMPLES, _EPOCHS, _BATCH, _SKEW = 100, 3, 10, 1.0  # of a user; the skew is that of a Dirichlet distribution
_SIDE = 14  # pixels: what is measured does not need all of a larger picture
_FIRST_RANGE = 0.2  # half width that the rule of 0.1.0 began with


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Training and test pictures, (samples, side, side) of floats, and their labels."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


def load(name: str, folder: str) -> Pictures:
    """A data set of pictures, made smaller."""
    found = data.load(name, folder)

    def shrink(x: npt.NDArray[np.float32]) -> Tensor:
        side = round(x[0].size ** 0.5)
        pictures = torch.from_numpy(x).reshape(-1, 1, side, side)
        return functional.adaptive_avg_pool2d(pictures, min(side, _SIDE))[:, 0]

    return Pictures(
        train_x=shrink(found.train_x),
        train_y=torch.from_numpy(found.train_y),
        test_x=shrink(found.test_x),
        test_y=torch.from_numpy(found.test_y),
    )


def build(name: str, pictures: Pictures) -> Model:
    """A model by its name."""
    side = pictures.train_x.shape[-1]
    if name == "convolutions":
        return convolutions(side)
    if name == "adapters":
        return adapters(side, pictures.train_x, pictures.train_y)
    return perceptron(side, 10.0 if name.endswith("x10") else 1.0)


def plan_of(levels: str, users: int, sizes: list[int], **changes: Any) -> Plan:
    """The plan of a federation: one class, or as many of equal size as there are levels."""
    each = [int(level) for level in levels.split(",")]
    given = {"value_range": 1.0, "subgroup_size": SUBGROUP_SIZE.get(users, 3), "dropout": 0.0, "assignment_seed": 0}
    return Plan.build([users // len(each)] * len(each), each, sum(sizes), **(given | changes))


def federate(
    model: Model, pictures: Pictures, users: int, levels: str, seed: int, *, rounds: int, rule: str = "adaptive"
) -> list[float]:
    """Test accuracy after every fifth round and the last.

    `levels` are those of each class, or `plain` for federated averaging without quantization. The rule `quantile` is
    that of 0.1.0: a single range, no rotation, no scales.
    """
    parts = _split(pictures.train_y.numpy(), users, np.random.default_rng([seed, 1]))
    arrays = model.start(torch.Generator().manual_seed(seed))
    vector = torch.cat([array.flatten() for array in arrays.values()]).numpy()
    sizes = [array.numel() for array in arrays.values()]
    if levels == "plain":
        step: Step = _average
    elif rule == "quantile":
        step = _by_quantile(plan_of(levels, users, sizes, ranges="single", rotate=False), seed)
    else:
        step = _adaptively(plan_of(levels, users, sizes, arrays=sizes), vector, seed)
    found = []
    for number in range(rounds):
        rng = np.random.default_rng([seed, 2, number])
        x, y = pictures.train_x, pictures.train_y
        updates = train(model, arrays, x, y, parts, rng, epochs=_EPOCHS, batch=_BATCH)
        if not np.isfinite(updates).all():  # the model is past help
            return [*found, 0.0]
        vector = step(vector, updates, number)
        arrays = _restore(vector, arrays)
        if (number + 1) % 5 == 0 or number + 1 == rounds:
            found.append(accuracy(model, arrays, pictures.test_x, pictures.test_y))
    return found


def _average(vector: Vector, updates: npt.NDArray[np.float32], number: int) -> Vector:
    del number
    return vector + updates.mean(axis=0)


def _adaptively(plan: Plan, first: Vector, seed: int) -> Step:
    follows, positive = AdaptiveRange.start(first, plan.arrays), PositiveArrays.of(first, plan.arrays)

    def step(vector: Vector, updates: npt.NDArray[np.float32], number: int) -> Vector:
        settled = follows.settle(plan)
        simulation = Simulation(secure=False, rounding_seed=1000 * seed + number)
        result = aggregate(settled, updates, simulate=simulation)
        follows.follow(settled, result.combined)
        after = (vector + result.vector).astype(np.float32)
        positive.hold(vector, after)
        return after

    return step


def _by_quantile(plan: Plan, seed: int) -> Step:
    half = _FIRST_RANGE

    def step(vector: Vector, updates: npt.NDArray[np.float32], number: int) -> Vector:
        nonlocal half
        simulation = Simulation(secure=False, rounding_seed=1000 * seed + number)
        result = aggregate(plan.with_value_range(half), updates, simulate=simulation)
        half = follow_quantile(half, measure_clipping(plan, result.combined), 0.999)
        return (vector + result.vector).astype(np.float32)

    return step


def _split(labels: npt.NDArray[np.int64], users: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Every user's samples, a row each: labels as drawn from a Dirichlet distribution, unlike from user to user."""
    by_label = [np.flatnonzero(labels == label) for label in range(10)]
    rows = []
    for _ in range(users):
        counts = rng.multinomial(_SAMPLES, rng.dirichlet([_SKEW] * 10))
        rows.append(np.concatenate([rng.choice(own, count) for own, count in zip(by_label, counts, strict=True)]))
    return np.stack(rows).astype(np.int64)


def _restore(vector: Vector, arrays: Arrays) -> Arrays:
    found, at = {}, 0
    for name, array in arrays.items():
        found[name] = torch.from_numpy(vector[at : at + array.numel()]).reshape(array.shape)
        at += array.numel()
    return found
