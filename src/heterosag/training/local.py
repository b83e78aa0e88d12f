"""Local training of a round's users, who all start from the same model.

`train` chooses how. Small dense models train together: parameters are stacked and every step is one batched computation
(batched matrices for plain chains of linear layers, torch.func for others) instead of a Python loop over users. Users
with fewer samples take part in fewer steps: a step's missing samples have weight zero. All other models train user by
user, and nobody is padded: those with convolutions, which batching over users makes several times slower, and those
that cannot be batched over users, because they draw something (dropout), change buffers or relate the samples of a
batch to each other (batch normalisation), or do in their `forward` what torch.func does not support. Either way work is
done in processes of one thread each (see processes.py). `train_loop` is the plain loop, one user after another, for
comparison and tests.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from heterosag.aggregation.positive import PositiveArrays
from heterosag.training.convolutions import prepare
from heterosag.training.data import DataSet
from heterosag.training.models import Cifar10Net, arrays_of, running_variances
from heterosag.training.processes import run_apart, run_each, shared_zeros

__all__ = [
    "Evaluation",
    "Indices",
    "LocalTraining",
    "Work",
    "batches",
    "evaluate",
    "flatten",
    "load_vector",
    "positive_arrays",
    "train",
    "train_each",
    "train_layers",
    "train_loop",
    "train_stacked",
    "train_together",
]

Indices = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]

_LEAST_TOGETHER = 8  # users that are trained together even if they are unlike
_MOST_TOGETHER = 16  # more would not fit into the cache
_WORTH_A_PROCESS = 2e9  # samples times parameters: below, processes would take longer to start than to work
_ALIKE = 0.75  # fraction of the largest user's samples that makes another one like it
_SAME = 0.01  # of the largest element of an update: two updates that differ by less are the same but for rounding

_NOT_TOGETHER = (
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.RNNBase, nn.RNNCellBase, nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d,
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)

_trained_together: WeakKeyDictionary[nn.Module, bool] = WeakKeyDictionary()  # what was found out by trying


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTraining:
    """How every user trains in a round."""

    epochs: int
    batch_size: float
    learning_rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a round's users train on, and how.

    Args:
        data: The samples of all of them.
        parts: Indices of each user's samples.
        training: How every user trains.
        rngs: Each user's own.
        labels: Where given, replace the users' own: an array as long as the training labels for each user.
    """

    data: DataSet
    parts: Sequence[Indices]
    training: LocalTraining
    rngs: Sequence[np.random.Generator]
    labels: Sequence[Indices] | None = None

    def of(self, users: Sequence[int]) -> Work:
        """The work of some of the users."""
        labels = None if self.labels is None else [self.labels[user] for user in users]
        parts, rngs = [self.parts[user] for user in users], [self.rngs[user] for user in users]
        return replace(self, parts=parts, rngs=rngs, labels=labels)

    def labels_of(self, user: int) -> Indices:
        """The labels of all samples, as a user has them."""
        return self.data.train_y if self.labels is None else self.labels[user]

    def labels_at(self, indices: Indices) -> Indices:
        """The labels of samples, a row of indices for each user."""
        if self.labels is None:
            return self.data.train_y[indices]
        return np.stack([own[row] for own, row in zip(self.labels, indices, strict=True)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Loss and accuracy on the test part."""

    loss: float
    accuracy: float


def flatten(model: nn.Module) -> Vectors:
    """The model's parameters, and running statistics if it has any, as one vector."""
    with torch.no_grad():
        parts = [array.reshape(-1).to(torch.float32) for array in arrays_of(model)]
        vector: Vectors = torch.cat(parts).numpy().copy()
    return vector


def load_vector(model: nn.Module, vector: npt.NDArray[Any]) -> None:
    """The inverse of `flatten`, in place."""
    at = 0
    with torch.no_grad():
        for array in arrays_of(model):
            part = torch.from_numpy(np.asarray(vector[at : at + array.numel()], dtype=np.float32))
            array.copy_(part.reshape(array.shape))
            at += array.numel()


def positive_arrays(model: nn.Module) -> PositiveArrays:
    """Which arrays of a model stay positive: those that are so in it, and running variances if some are zero too.

    Args:
        model: The model that a run begins with.
    """
    names = [name for name, _ in model.named_parameters()]
    arrays = arrays_of(model)
    names += [""] * (len(arrays) - len(names))
    found = PositiveArrays.of(flatten(model), [array.numel() for array in arrays], names)
    variances = len(running_variances(model))
    others = found.positive[: len(found.positive) - variances]
    return replace(found, positive=(*others, *[True] * variances))


def batches(
    parts: Sequence[Indices], training: LocalTraining, rngs: Sequence[np.random.Generator]
) -> Iterator[tuple[Indices, npt.NDArray[np.float32]]]:
    """For every step, each user's sample indices and their weights (0 where a user has no more samples)."""
    sizes = [_batch(len(part), training.batch_size) for part in parts]
    widest = max(sizes)
    for _ in range(training.epochs):
        orders = [rng.permutation(part) for part, rng in zip(parts, rngs, strict=True)]
        for step in range(max(-(-len(part) // size) for part, size in zip(parts, sizes, strict=True))):
            indices = np.zeros((len(parts), widest), dtype=np.int64)
            weights = np.zeros((len(parts), widest), dtype=np.float32)
            for user, (order, size) in enumerate(zip(orders, sizes, strict=True)):
                chosen = order[step * size : (step + 1) * size]
                indices[user, : len(chosen)] = chosen
                weights[user, : len(chosen)] = 1.0
            yield indices, weights


def _batch(samples: int, batch_size: float) -> int:
    """Samples of a step: no more than the user has, so that a size beyond all data takes no memory."""
    return max(1, int(batch_size * samples) if batch_size < 1 else min(int(batch_size), samples))


def train(model: nn.Module, work: Work) -> Vectors:
    """Every user's update (a row each) after training on its own samples, in the way that is fastest for the model."""
    how = train_together if _can_train_together(model, work.data) else train_each
    return how(model, work)


def _can_train_together(model: nn.Module, data: DataSet) -> bool:
    """Whether users may train stacked and padded: by the model's layers, and if these do not say, by trying once."""
    if any(True for _ in model.buffers()) or any(isinstance(layer, _NOT_TOGETHER) for layer in model.modules()):
        return False
    if not all(parameter.requires_grad for parameter in model.parameters()):  # stacked, all parameters are trained
        return False
    if _linear_layers(model) is not None:
        return True
    if model not in _trained_together:
        found = shared_zeros((1,), np.int64)

        def try_once() -> None:
            found[0] = _gives_the_same_together(model, data)

        run_apart(try_once)  # gradients are not computed here: see processes.py
        _trained_together[model] = bool(found[0])
    return _trained_together[model]


def _gives_the_same_together(model: nn.Module, data: DataSet) -> bool:
    """Whether a step of a user who is padded, beside one who is not, gives what the user's own step gives."""
    samples = min(3, len(data.train_y))
    parts = [np.arange(1, samples), np.arange(samples)]
    training = LocalTraining(epochs=1, batch_size=samples, learning_rate=0.1)
    try:
        with torch.random.fork_rng(devices=[]):
            own = copy.deepcopy(model)
            rngs = [np.random.default_rng(0) for _ in parts]
            together = train_stacked(own, Work(data=data, parts=parts, training=training, rngs=rngs))[0]
            start = flatten(own)
            x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
            _descend(own, x, y, parts[0], training, np.random.default_rng(0))
    except Exception:  # what torch.func does not support has many names; user by user the model's own errors come up
        return False
    alone = flatten(own) - start
    return bool(np.abs(together - alone).max() <= _SAME * np.abs(alone).max())


def _has_convolutions(model: nn.Module) -> bool:
    return any(isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) for layer in model.modules())


def train_each(model: nn.Module, work: Work, *, processes: int | None = None) -> Vectors:
    """The same user by user, in processes of one thread each (default: as many as torch has threads).

    The updates do not depend on how many processes there are, bit for bit.
    """
    start = flatten(model)
    updates: Vectors = shared_zeros((len(work.parts), start.size))
    fresh = _channels_last(model)
    samples = torch.from_numpy(work.data.train_x)

    def train_one(user: int) -> None:
        own = copy.deepcopy(fresh)  # no buffer has what another user left in it
        truth, rng = torch.from_numpy(work.labels_of(user)), work.rngs[user]
        with torch.random.fork_rng(devices=[]):  # a model that draws something, as dropout does
            torch.manual_seed(int(rng.spawn(1)[0].integers(2**63)))
            _descend(own, samples, truth, work.parts[user], work.training, rng)
        updates[user] = flatten(own) - start

    if isinstance(model, Cifar10Net):
        prepare()
    run_each(train_one, len(work.parts), processes=processes)
    return updates


def _descend(
    model: nn.Module,
    samples: torch.Tensor,
    truth: torch.Tensor,
    part: Indices,
    training: LocalTraining,
    rng: np.random.Generator,
) -> None:
    """One user's steps, in place. A sample alone has no variance: batch norms then take their running statistics."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    norms = [layer for layer in model.modules() if isinstance(layer, _BATCH_NORMS) and layer.training]
    for indices, weights in batches([part], training, [rng]):
        chosen = torch.from_numpy(indices[0][weights[0] > 0])
        for layer in norms:
            layer.train(len(chosen) > 1)
        loss = functional.cross_entropy(model(_as_channels_last(samples[chosen])), truth[chosen])
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                if gradient is not None:
                    parameter.sub_(gradient, alpha=training.learning_rate)


def _channels_last(model: nn.Module) -> nn.Module:
    """A copy whose convolutions have their channels last in memory, which is faster on processors."""
    own = copy.deepcopy(model)
    for parameter in own.parameters():
        parameter.data = _as_channels_last(parameter.data)
    return own


def _as_channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.ndim == 4 else tensor


def train_together(model: nn.Module, work: Work) -> Vectors:
    """The same, a dozen users at once."""
    layers = _linear_layers(model)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    updates: Vectors = shared_zeros((len(work.parts), parameters))
    groups = list(_alike([len(part) for part in work.parts]))

    def train_group(number: int) -> None:
        group = groups[number]
        theirs = work.of(group)
        updates[group] = train_stacked(model, theirs) if layers is None else train_layers(layers, theirs)

    samples = work.training.epochs * sum(map(len, work.parts))
    run_each(train_group, len(groups), processes=None if samples * parameters > _WORTH_A_PROCESS else 1)
    return updates


def _alike(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Users with about as many samples each, together: in a step everybody is padded to the one who has most."""
    order = sorted(range(len(sizes)), key=lambda user: -sizes[user])
    group: list[int] = []
    for user in order:
        if len(group) >= _LEAST_TOGETHER and sizes[user] < _ALIKE * sizes[group[0]]:
            yield from _cut(group)
            group = []
        group.append(user)
    yield from _cut(group)


def _cut(group: list[int]) -> Iterator[list[int]]:
    """A group in as few parts as may be, of about the same size."""
    parts = -(-len(group) // _MOST_TOGETHER)
    for part in range(parts):
        yield sorted(group[part::parts])


def train_stacked(model: nn.Module, work: Work) -> Vectors:
    """Any model that torch.func can batch, without running statistics: the gradients of all users at once."""
    start = {name: parameter.detach() for name, parameter in model.named_parameters()}
    buffers = {name: buffer.detach() for name, buffer in model.named_buffers()}
    stacked = {name: value.expand(len(work.parts), *value.shape).clone() for name, value in start.items()}
    samples = torch.from_numpy(work.data.train_x)

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        logits = functional_call(model, (parameters, buffers), (x,))
        each = functional.cross_entropy(logits, y, reduction="none")
        return (each * w).sum() / w.sum().clamp(min=1.0)

    gradients = vmap(grad(loss))
    for indices, weights in batches(work.parts, work.training, work.rngs):
        x = samples[torch.from_numpy(indices)]
        y = torch.from_numpy(work.labels_at(indices))
        found = gradients(stacked, x, y, torch.from_numpy(weights))
        for name, gradient in found.items():
            stacked[name].sub_(gradient, alpha=work.training.learning_rate)
    return torch.cat([(stacked[name] - start[name]).flatten(1) for name in start], dim=1).numpy()


def _linear_layers(model: nn.Module) -> list[nn.Linear] | None:
    """The layers of a plain chain linear, ReLU, linear, ..., linear; None for any other model."""
    chain = list(model) if type(model) is nn.Sequential else []
    linear = chain[::2]
    plain = len(chain) % 2 == 1 and all(type(layer) is nn.ReLU for layer in chain[1::2])
    if plain and all(type(layer) is nn.Linear and layer.bias is not None for layer in linear):
        return [layer for layer in linear if isinstance(layer, nn.Linear)]
    return None


def train_layers(layers: list[nn.Linear], work: Work) -> Vectors:
    """Batched matrices: forward and backward written out, and every gradient added where it is made."""
    users, rate = len(work.parts), work.training.learning_rate
    weights = [layer.weight.detach().expand(users, *layer.weight.shape).clone() for layer in layers]
    biases = [layer.bias.detach().expand(users, 1, -1).clone() for layer in layers]
    samples = torch.from_numpy(work.data.train_x)
    with torch.no_grad():
        for indices, present in batches(work.parts, work.training, work.rngs):
            inputs = [samples.index_select(0, torch.from_numpy(indices).view(-1)).view(*indices.shape, -1)]
            for w, b in zip(weights[:-1], biases[:-1], strict=True):
                inputs.append(torch.baddbmm(b, inputs[-1], w.transpose(1, 2)).relu_())
            logits = torch.baddbmm(biases[-1], inputs[-1], weights[-1].transpose(1, 2))
            y = torch.from_numpy(work.labels_at(indices))
            slope = logits.softmax(dim=2)
            slope.scatter_add_(2, y.unsqueeze(2), torch.full_like(y, -1, dtype=slope.dtype).unsqueeze(2))
            given = torch.from_numpy(present)
            slope *= (given / given.sum(dim=1, keepdim=True).clamp(min=1.0)).unsqueeze(2)
            for place in range(len(layers) - 1, -1, -1):
                below = torch.bmm(slope, weights[place]) if place else None
                weights[place].baddbmm_(slope.transpose(1, 2), inputs[place], alpha=-rate)
                biases[place].sub_(slope.sum(dim=1, keepdim=True), alpha=rate)
                if below is not None:
                    slope = below.mul_(inputs[place] > 0)
        moved = [
            (now - before.detach()).reshape(users, -1)
            for layer, w, b in zip(layers, weights, biases, strict=True)
            for now, before in ((w, layer.weight), (b, layer.bias))
        ]
    return torch.cat(moved, dim=1).numpy()


def train_loop(model: nn.Module, work: Work) -> Vectors:
    """The same, one user after another with an ordinary optimiser."""
    start = flatten(model)
    updates = []
    samples = torch.from_numpy(work.data.train_x)
    for user, (part, rng) in enumerate(zip(work.parts, work.rngs, strict=True)):
        load_vector(model, start)
        truth = torch.from_numpy(work.labels_of(user))
        optimiser = torch.optim.SGD(model.parameters(), lr=work.training.learning_rate)
        for indices, weights in batches([part], work.training, [rng]):
            chosen = torch.from_numpy(indices[0][weights[0] > 0])
            optimiser.zero_grad()
            functional.cross_entropy(model(samples[chosen]), truth[chosen]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        updates.append(flatten(model) - start)
    load_vector(model, start)
    return np.stack(updates)


def evaluate(model: nn.Module, data: DataSet, *, batch: int = 500) -> Evaluation:
    """Loss and accuracy on the test part, in evaluation mode; of models with convolutions in several processes."""
    starts = range(0, len(data.test_y), batch)
    found = shared_zeros((len(starts), 2), np.float64)
    convolutions = _has_convolutions(model)
    own = _channels_last(model).eval()  # a copy: the model itself stays in its mode

    def judge(place: int) -> None:
        here = slice(starts[place], starts[place] + batch)
        y = torch.from_numpy(data.test_y[here])
        with torch.no_grad():
            logits = own(_as_channels_last(torch.from_numpy(data.test_x[here])))
            found[place, 0] = float(functional.cross_entropy(logits, y, reduction="sum"))
            found[place, 1] = int((logits.argmax(dim=1) == y).sum())

    run_each(judge, len(starts), processes=None if convolutions else 1)
    loss, correct = (float(total) / len(data.test_y) for total in found.sum(axis=0))
    return Evaluation(loss=loss, accuracy=correct)
