"""The apps: a model in PyTorch, data of unlike nodes, and local training. Nothing here knows of secure aggregation.

- `perceptron`: BatchNorm with its counters, a weight that two layers share, and a parameter of half precision, on
  classes of points that lie in several clusters.
- `convolutions`: a small network for MNIST.
- `adapters`: low-rank adapters of a network that was trained before, a dictionary of small arrays, half of them zeros.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from heterosag.training import data

Arrays = dict[str, npt.NDArray[np.generic]]
Samples = tuple[Tensor, Tensor]

CLASSES = 10
_FEATURES = 64
_ADAPTERS = (".down", ".up")


@dataclass(frozen=True, kw_only=True)
class App:
    """A model, each node's samples and the test samples, and how a node trains."""

    name: str
    model: Callable[[], nn.Module]
    parts: list[Samples]
    test: Samples
    learning_rate: float
    epochs: int
    rounds: int
    batch: int = 16

    def start(self) -> Arrays:
        """The first model: what is trained of it, and its buffers."""
        return to_arrays(self.model())

    def train(self, arrays: Mapping[str, npt.NDArray[np.generic]], part: int, seed: int) -> tuple[Arrays, int, float]:
        """The model after a node has trained it, the node's number of examples, and its last loss."""
        model, (x, y) = load(self.model(), arrays).train(), self.parts[part]
        optimiser = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=self.learning_rate)
        generator = torch.Generator().manual_seed(seed)
        loss = torch.zeros(())
        for _ in range(self.epochs):
            for chosen in torch.split(torch.randperm(len(y), generator=generator), self.batch):
                if len(chosen) > 1:  # BatchNorm has no variance of one sample
                    optimiser.zero_grad()
                    loss = functional.cross_entropy(model(x[chosen]), y[chosen])
                    torch.autograd.backward(loss)
                    optimiser.step()
        return to_arrays(model), len(y), float(loss.detach())

    def accuracy(self, arrays: Mapping[str, npt.NDArray[np.generic]]) -> float:
        """The share of test samples whose class the model tells."""
        model, (x, y) = load(self.model(), arrays).eval(), self.test
        with torch.no_grad():
            return float((model(x).argmax(1) == y).float().mean())


def to_arrays(model: nn.Module) -> Arrays:
    """What a node sends of a model: all but frozen parameters."""
    frozen = {name for name, one in model.named_parameters() if not one.requires_grad}
    return {name: one.detach().numpy().copy() for name, one in model.state_dict().items() if name not in frozen}


def load(model: nn.Module, arrays: Mapping[str, npt.NDArray[np.generic]]) -> nn.Module:
    """The model with these arrays, whatever types they have become."""
    known = model.state_dict()
    known |= {name: torch.tensor(array).to(known[name].dtype) for name, array in arrays.items()}
    model.load_state_dict(known)
    return model


def build(name: str, *, nodes: int, seed: int, rounds: int = 0, folder: str = "") -> App:
    """An app by its name; `folder` is that of the data files, which `convolutions` needs (or HETEROSAG_DATA)."""
    made = _MAKERS[name](nodes, seed, folder)
    return replace(made, rounds=rounds) if rounds else made


class _Perceptron(nn.Module):
    def __init__(self, hidden: int = 128) -> None:
        super().__init__()
        self.first = nn.Linear(_FEATURES, hidden)
        self.norm = nn.BatchNorm1d(hidden)
        self.second = nn.Linear(hidden, hidden)
        self.third = nn.Linear(hidden, hidden)
        self.third.weight = self.second.weight
        self.gain = nn.Parameter(torch.ones(hidden, dtype=torch.float16))
        self.last = nn.Linear(hidden, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu()
        x = self.third(self.second(x).relu()).relu() * self.gain.float()
        logits: Tensor = self.last(x)
        return logits


class _Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(1, 8, 3, padding=1)
        self.two = nn.Conv2d(8, 16, 3, padding=1)
        self.hidden = nn.Linear(16 * 7 * 7, 32)
        self.last = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.max_pool2d(self.one(x).relu(), 2)
        x = functional.max_pool2d(self.two(x).relu(), 2)
        logits: Tensor = self.last(self.hidden(x.flatten(1)).relu())
        return logits


class _Layer(nn.Module):
    """A frozen layer and its adapter, which begins as nothing."""

    def __init__(self, width: int, rank: int) -> None:
        super().__init__()
        self.frozen = nn.Linear(width, width)
        self.down = nn.Parameter(torch.randn(rank, width) / math.sqrt(width))
        self.up = nn.Parameter(torch.zeros(width, rank))

    def forward(self, x: Tensor) -> Tensor:
        moved: Tensor = self.frozen(x) + 2 * (x @ self.down.T) @ self.up.T
        return x + moved.relu()


class _Adapted(nn.Module):
    def __init__(self, width: int = 128, rank: int = 8, layers: int = 10) -> None:
        super().__init__()
        self.first = nn.Linear(_FEATURES, width)
        self.layers = nn.Sequential(*(_Layer(width, rank) for _ in range(layers)))
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.layers(self.first(x)))
        return logits


def _perceptron(nodes: int, seed: int, folder: str) -> App:
    del folder
    x, y = _clusters(seed, 200 * nodes + 5000)
    cut = 200 * nodes
    return App(
        name="perceptron",
        model=_seeded(_Perceptron, seed),
        parts=_split(x[:cut], y[:cut], nodes, seed, skew=0.5),
        test=(x[cut:], y[cut:]),
        learning_rate=0.1,
        epochs=2,
        rounds=10,
    )


def _convolutions(nodes: int, seed: int, folder: str) -> App:
    found = data.load("mnist", folder)
    chosen = np.random.default_rng([seed, 3]).permutation(len(found.train_y))[: 200 * nodes]
    x, y = torch.from_numpy(found.train_x[chosen]).reshape(-1, 1, 28, 28), torch.from_numpy(found.train_y[chosen])
    return App(
        name="convolutions",
        model=_seeded(_Convolutions, seed),
        parts=_split(x, y, nodes, seed, skew=1.0),
        test=(torch.from_numpy(found.test_x).reshape(-1, 1, 28, 28), torch.from_numpy(found.test_y)),
        learning_rate=0.1,
        epochs=2,
        rounds=10,
    )


def _adapters(nodes: int, seed: int, folder: str) -> App:
    """The frozen network knows the points as they are; the nodes have them turned."""
    del folder
    x, y = _clusters(seed, 200 * nodes + 7000)
    before, cut = 2000, 200 * nodes + 2000
    start = _seeded(_Adapted, seed)
    base = start()
    optimiser = torch.optim.SGD(base.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(300):
        batch = torch.randint(0, before, (32,), generator=generator)
        optimiser.zero_grad()
        torch.autograd.backward(functional.cross_entropy(base(x[batch]), y[batch]))
        optimiser.step()
    known = {name: one for name, one in base.state_dict().items() if not name.endswith(_ADAPTERS)}

    def model() -> nn.Module:
        made = start()
        made.load_state_dict(known, strict=False)
        for name, one in made.named_parameters():
            one.requires_grad_(name.endswith(_ADAPTERS))
        return made

    rng = np.random.default_rng([seed, 4])
    turns, triangle = np.linalg.qr(np.eye(_FEATURES) + 0.12 * rng.normal(size=(_FEATURES, _FEATURES)))
    turn = torch.from_numpy(turns * np.sign(np.diag(triangle)))  # near the identity, not its negative
    turned = x @ turn.to(x.dtype)
    return App(
        name="adapters",
        model=model,
        parts=_split(turned[before:cut], y[before:cut], nodes, seed, skew=1.0),
        test=(turned[cut:], y[cut:]),
        learning_rate=0.05,
        epochs=2,
        rounds=10,
    )


_MAKERS: dict[str, Callable[[int, int, str], App]] = {
    "perceptron": _perceptron,
    "convolutions": _convolutions,
    "adapters": _adapters,
}
APPS = tuple(_MAKERS)


def _seeded(kind: Callable[[], nn.Module], seed: int) -> Callable[[], nn.Module]:
    """The same model each time, whatever else draws random numbers."""

    def make() -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return kind()

    return make


def _clusters(seed: int, samples: int, each: int = 3) -> Samples:
    """Points of classes that have several clusters each."""
    rng = np.random.default_rng([seed, 1])
    centres = rng.normal(size=(CLASSES * each, _FEATURES))
    cluster = rng.integers(0, CLASSES * each, samples)
    x = centres[cluster] + 1.3 * rng.normal(size=(samples, _FEATURES))
    return torch.from_numpy(x.astype(np.float32)), torch.from_numpy(cluster % CLASSES)


def _split(x: Tensor, y: Tensor, nodes: int, seed: int, *, skew: float) -> list[Samples]:
    """Each class over the nodes by a Dirichlet distribution: nodes have unlike classes, and unlike many samples."""
    rng = np.random.default_rng([seed, 2])
    parts: list[list[int]] = [[] for _ in range(nodes)]
    for label in range(CLASSES):
        found = rng.permutation(np.flatnonzero(y.numpy() == label))
        cuts = (np.cumsum(rng.dirichlet([skew] * nodes))[:-1] * len(found)).astype(int)
        for part, chosen in zip(parts, np.split(found, cuts), strict=True):
            part += chosen.tolist()
    return [(x[part], y[part]) for part in parts]
