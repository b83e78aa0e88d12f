"""Models whose arrays are unlike each other, trained for all users of a federation at once.

Every array has one dimension more in front, the users', so that a step of everybody is one batched computation.
BatchNorm is written out, its running mean and variance among the arrays that are aggregated, as a state_dict has them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

Arrays = dict[str, Tensor]

_MOMENTUM, _EPSILON = 0.1, 1e-5
_LABELS = 10


@dataclass(frozen=True, kw_only=True)
class Model:
    """How a model starts, what it computes, and how fast users train it.

    `forward` takes arrays with the users' dimension, pictures (users, samples, side, side) and whether it trains, and
    returns logits and what became of the arrays in `buffers`, which have no gradient.
    """

    start: Callable[[torch.Generator], Arrays]
    forward: Callable[[Arrays, Tensor, bool], tuple[Tensor, Arrays]]
    learning_rate: float
    buffers: tuple[str, ...] = field(default=())


def perceptron(side: int, factor: float, hidden: int = 64) -> Model:
    """Two layers with BatchNorm between them, on pictures times a factor: running statistics are far from weights."""

    def start(generator: torch.Generator) -> Arrays:
        return {
            "in.weight": _uniform(generator, hidden, side * side),
            "in.bias": torch.zeros(hidden),
            "norm.weight": torch.ones(hidden),
            "norm.bias": torch.zeros(hidden),
            "norm.running_mean": torch.zeros(hidden),
            "norm.running_var": torch.ones(hidden),
            "out.weight": _uniform(generator, _LABELS, hidden),
            "out.bias": torch.zeros(_LABELS),
        }

    def forward(arrays: Arrays, x: Tensor, trains: bool) -> tuple[Tensor, Arrays]:
        hidden_values = _linear(arrays, "in", x.flatten(2) * factor)
        moved: Arrays = {}
        mean, variance = arrays["norm.running_mean"], arrays["norm.running_var"]
        if trains:
            count = hidden_values.shape[1]
            here = {
                "norm.running_mean": hidden_values.mean(1),
                "norm.running_var": hidden_values.var(1, unbiased=False),
            }
            unbiased = {"norm.running_mean": 1.0, "norm.running_var": count / (count - 1)}
            moved = {
                name: (1 - _MOMENTUM) * arrays[name] + _MOMENTUM * unbiased[name] * value.detach()
                for name, value in here.items()
            }
            mean, variance = here.values()
        normal = (hidden_values - mean[:, None]) / (variance[:, None] + _EPSILON).sqrt()
        normal = normal * arrays["norm.weight"][:, None] + arrays["norm.bias"][:, None]
        return _linear(arrays, "out", normal.relu()), moved

    return Model(start=start, forward=forward, learning_rate=0.1, buffers=("norm.running_mean", "norm.running_var"))


def convolutions(side: int) -> Model:
    """Two convolutions and a layer."""
    left = (side // 2) // 2

    def start(generator: torch.Generator) -> Arrays:
        return {
            "one.weight": _uniform(generator, 8, 1, 3, 3),
            "one.bias": torch.zeros(8),
            "two.weight": _uniform(generator, 16, 8, 3, 3),
            "two.bias": torch.zeros(16),
            "out.weight": _uniform(generator, _LABELS, 16 * left * left),
            "out.bias": torch.zeros(_LABELS),
        }

    def forward(arrays: Arrays, x: Tensor, trains: bool) -> tuple[Tensor, Arrays]:
        del trains
        users, samples = x.shape[:2]
        values = x.transpose(0, 1)
        for name in ("one", "two"):
            weight, bias = arrays[f"{name}.weight"], arrays[f"{name}.bias"]
            values = functional.conv2d(values, weight.flatten(0, 1), bias.flatten(), padding=1, groups=users)
            values = functional.max_pool2d(values.relu(), 2)
        return _linear(arrays, "out", values.reshape(samples, users, -1).transpose(0, 1)), {}

    return Model(start=start, forward=forward, learning_rate=0.3)


def adapters(side: int, x: Tensor, y: Tensor, rank: int = 4, hidden: int = 128) -> Model:
    """Low-rank adapters of three layers that were trained before, on pictures turned by a right angle.

    A dictionary of small arrays, half of which start as zeros.
    """
    generator = torch.Generator().manual_seed(99)
    shapes = {"one": (hidden, side * side), "two": (hidden, hidden), "out": (_LABELS, hidden)}
    frozen = {name: _uniform(generator, *shape).requires_grad_() for name, shape in shapes.items()}
    optimiser = torch.optim.SGD(frozen.values(), lr=0.1)
    for _ in range(400):
        batch = torch.randint(0, min(len(y), 2000), (64,), generator=generator)
        values = x[batch].transpose(1, 2).flatten(1)
        for name, weight in frozen.items():
            values = values @ weight.T if name == "out" else (values @ weight.T).relu()
        optimiser.zero_grad()
        functional.cross_entropy(values, y[batch]).backward()
        optimiser.step()
    fixed = {name: weight.detach() for name, weight in frozen.items()}

    def start(generator: torch.Generator) -> Arrays:
        arrays: Arrays = {}
        for name, (outputs, inputs) in shapes.items():
            arrays[f"{name}.a"] = torch.randn(rank, inputs, generator=generator) / math.sqrt(inputs)
            arrays[f"{name}.b"] = torch.zeros(outputs, rank)
            arrays[f"{name}.bias"] = torch.zeros(outputs)
        return arrays

    def forward(arrays: Arrays, x: Tensor, trains: bool) -> tuple[Tensor, Arrays]:
        del trains
        values = x.flatten(2)
        for name, weight in fixed.items():
            low = torch.bmm(values, arrays[f"{name}.a"].transpose(1, 2))
            moved = 2 * torch.bmm(low, arrays[f"{name}.b"].transpose(1, 2))
            values = values @ weight.T + moved + arrays[f"{name}.bias"][:, None]
            values = values if name == "out" else values.relu()
        return values, {}

    return Model(start=start, forward=forward, learning_rate=0.05)


def _uniform(generator: torch.Generator, outputs: int, *inputs: int) -> Tensor:
    return (torch.rand(outputs, *inputs, generator=generator) * 2 - 1) / math.sqrt(math.prod(inputs))


def _linear(arrays: Arrays, name: str, x: Tensor) -> Tensor:
    return torch.baddbmm(arrays[f"{name}.bias"][:, None], x, arrays[f"{name}.weight"].transpose(1, 2))


def train(
    model: Model,
    arrays: Arrays,
    x: Tensor,
    y: Tensor,
    parts: npt.NDArray[np.int64],
    rng: np.random.Generator,
    *,
    epochs: int,
    batch: int,
) -> npt.NDArray[np.float32]:
    """Everybody's update, a row each, after some passes over its samples (the users' rows of `parts`)."""
    users, samples = parts.shape
    now = {name: array.expand(users, *array.shape).clone() for name, array in arrays.items()}
    for _ in range(epochs):
        order = np.take_along_axis(parts, np.argsort(rng.random(parts.shape), axis=1), axis=1)
        for at in range(0, samples - batch + 1, batch):
            chosen = torch.from_numpy(order[:, at : at + batch])
            learned = {n: a.detach().requires_grad_() for n, a in now.items() if n not in model.buffers}
            logits, moved = model.forward(now | learned, x[chosen], True)
            loss = functional.cross_entropy(logits.flatten(0, 1), y[chosen].flatten(), reduction="sum") / batch
            slopes = torch.autograd.grad(loss, list(learned.values()))
            for (name, array), slope in zip(learned.items(), slopes, strict=True):
                now[name] = (array - model.learning_rate * slope).detach()
            now |= moved
    return torch.cat([(now[name] - arrays[name]).flatten(1) for name in arrays], dim=1).numpy()


def accuracy(model: Model, arrays: Arrays, x: Tensor, y: Tensor) -> float:
    """The share of pictures whose label the model tells."""
    with torch.no_grad():
        logits, _ = model.forward({name: array[None] for name, array in arrays.items()}, x[None], False)
    return float((logits[0].argmax(1) == y).float().mean())
