"""Models in PyTorch: the paper's, two for digits, and any that a user brings.

For CIFAR-10 there are two: `cifar10` is the paper's table, `cifar10-padded` the network of its authors' code.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from heterosag.errors import UsageError

__all__ = ["MODELS", "build", "count_parameters"]


class Cifar10Net(nn.Module):
    """The paper's network for CIFAR-10: two convolutions, three fully connected layers.

    As its table 6 prints the shapes, the second convolution has no padding and 64 features come out of it; the authors'
    code has a padding of 1 there, which makes 256 of them (and 191,434 parameters instead of 117,706).

    Pooling before the ReLU gives the same values and gradients, at a ninth or a sixteenth of the ReLU's work. Without
    padding the pools leave out what is beyond the first 23 rows and columns of a picture, and so does the network.
    """

    def __init__(self, *, padding: int = 0) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3)
        self.conv2 = nn.Conv2d(16, 64, 4, padding=padding)
        self.fc1 = nn.Linear(256 if padding else 64, 384)
        self.fc2 = nn.Linear(384, 192)
        self.fc3 = nn.Linear(192, 10)
        self._seen = 32 if padding else 23

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of a batch of pictures (3 x 32 x 32)."""
        x = x[:, :, : self._seen, : self._seen]
        x = torch.relu(functional.max_pool2d(self.conv1(x), 3, 3))
        x = torch.relu(functional.max_pool2d(self.conv2(x), 4, 4)).flatten(1)
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        logits: torch.Tensor = self.fc3(x)
        return logits


def _mnist() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))


def _digits() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))


def _digits_large() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mnist": _mnist,
    "digits": _digits,
    "digits-large": _digits_large,
    "cifar10": Cifar10Net,
    "cifar10-padded": partial(Cifar10Net, padding=1),
}
"""The models that come along, by name."""

_FOR_DATA = {"digits": "digits", "mnist": "mnist", "fashion-mnist": "mnist", "cifar10": "cifar10"}


def build(name: str, data: str, seed: int) -> nn.Module:
    """A model, initialised as the paper does, from a seed.

    Args:
        name: A name in `MODELS`, `package.module:factory`, or `auto` for the one of the data set.
        data: The data set's name.
        seed: Of its initial weights.

    Returns:
        The model.

    Raises:
        UsageError: There is no such model, or the factory does not make one.
    """
    chosen = _FOR_DATA.get(data, name) if name == "auto" else name
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if chosen in MODELS:
            model = MODELS[chosen]()
            _initialise(model)
        elif ":" in chosen:
            model = _bring(chosen)
        else:
            raise UsageError(f"no model is called {chosen!r}: use {', '.join(MODELS)}, or package.module:factory")
    return model


def count_parameters(name: str, data: str) -> int:
    """How many parameters a model has.

    Args:
        name: As in `build`.
        data: The data set's name.

    Returns:
        The elements of its update.
    """
    return sum(parameter.numel() for parameter in build(name, data, 0).parameters())


def _initialise(model: nn.Module) -> None:
    """Biases 0, Glorot uniform for convolutions, PyTorch's own for fully connected layers."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
        if isinstance(layer, (nn.Conv2d, nn.Linear)) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


def _bring(name: str) -> nn.Module:
    module, _, factory = name.partition(":")
    try:
        make: Any = getattr(importlib.import_module(module), factory)  # noqa: TID251 - the user's own model, named on the user's own command line
        model = make()
    except (ImportError, AttributeError) as error:
        raise UsageError(f"cannot make the model {name!r}: {error}") from None
    if not isinstance(model, nn.Module):
        raise UsageError(f"{name!r} made a {type(model).__name__}, not a torch.nn.Module")
    return model
