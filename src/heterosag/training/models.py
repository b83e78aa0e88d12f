"""Models in PyTorch: the paper's, two for digits, and any that a user brings.

For CIFAR-10 there are two: `cifar10` is the paper's table, `cifar10-padded` the network of its authors' code.

An update has the parameters of a model and the running statistics of its normalisation layers (`arrays_of`), which are
aggregated like parameters: without them a model could not be evaluated. Other buffers stay as the model was built.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from heterosag.errors import UsageError
from heterosag.training.convolutions import convolve_and_pool
from heterosag.training.data import DataSet
from heterosag.training.processes import one_thread

__all__ = ["MODELS", "build", "count_parameters"]


class Cifar10Net(nn.Module):
    """The paper's network for CIFAR-10: two convolutions, three fully connected layers.

    As its table 6 prints the shapes, the second convolution has no padding and 64 features come out of it; the authors'
    code has a padding of 1 there, which makes 256 of them (and 191,434 parameters instead of 117,706).

    Pooling before the ReLU gives the same values and gradients, at a ninth or a sixteenth of the ReLU's work. Without
    padding the pools leave out what is beyond the first 23 rows and columns of a picture, and so does the network. The
    second convolution's gradients go through the maxima only (see convolutions.py); in the first, whose pools are
    smaller and which needs none for the picture, that gains nothing.
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
        x = torch.relu(convolve_and_pool(x, self.conv2, 4)).flatten(1)
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

_NORMALISING = (
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm,
    nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d,
)  # fmt: skip

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
        UsageError: There is no such model, or the factory does not make one that can be trained.
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
    """How many elements an update of a model has: its parameters, and running statistics if it has any.

    Args:
        name: As in `build`.
        data: The data set's name.

    Returns:
        The elements of its update.
    """
    return sum(array.numel() for array in arrays_of(build(name, data, 0)))


def arrays_of(model: nn.Module) -> list[torch.Tensor]:
    """The tensors that an update has, in order: parameters, then means and variances of normalisation layers."""
    return [*model.parameters(), *_running(model, "running_mean"), *running_variances(model)]


def running_variances(model: nn.Module) -> list[torch.Tensor]:
    """The last tensors of `arrays_of`, which must stay positive."""
    return _running(model, "running_var")


def _running(model: nn.Module, name: str) -> list[torch.Tensor]:
    layers = [layer for layer in model.modules() if isinstance(layer, _NORMALISING)]
    return [getattr(layer, name) for layer in layers if getattr(layer, name) is not None]


def _initialise(model: nn.Module) -> None:
    """Biases 0, Glorot uniform for convolutions, PyTorch's own for fully connected layers."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.xavier_uniform_(layer.weight)
        if isinstance(layer, (nn.Conv2d, nn.Linear)) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


def _bring(name: str) -> nn.Module:
    module, _, factory = name.partition(":")
    with _current_folder_on_path() as folder:
        try:
            make: Any = getattr(importlib.import_module(module), factory)  # noqa: TID251 - the user's own model, named on the user's own command line
            model = make()
        except ModuleNotFoundError as error:
            where = f"modules are looked for in the current folder ({folder}) and on the Python path"
            raise UsageError(f"cannot make the model {name!r}: {error}; {where}") from error
        except Exception as error:  # whatever the user's own code raises
            what = "the factory is a function without arguments that returns a torch.nn.Module"
            raise UsageError(f"cannot make the model {name!r}: {_describe(error)}; {what}") from error
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"{name!r} made a {type(model).__name__}, not a torch.nn.Module: the factory must return the model"
        )
    if any(nn.parameter.is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        raise UsageError(f"{name!r} has lazy layers, whose sizes are not known: give them their number of inputs")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(f"{name!r} has no parameters to train: at least one must require a gradient")
    return model


@contextlib.contextmanager
def _current_folder_on_path() -> Iterator[str]:
    """Import from the current folder first, as `python -m` does, and as before afterwards."""
    folder = os.getcwd()  # noqa: PTH109 - a text, as sys.path has it
    sys.path.insert(0, folder)
    try:
        yield folder
    finally:
        with contextlib.suppress(ValueError):  # the user's own code may have changed it too
            sys.path.remove(folder)


def _describe(error: Exception) -> str:
    """An error of the user's own code in one line, with the line of that code where there is one."""
    words = str(error).strip().partition("\n")[0]
    others = (*(str(Path(path).parent) for path in (torch.__file__, __file__, traceback.__file__)), "<")
    frames = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith(others)]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {words}{place}"


def check_model(name: str, model: nn.Module, data: DataSet) -> None:
    """Try a forward pass of two samples, and refuse a model that cannot take the data.

    Args:
        name: As in `build`.
        model: The model, which stays as it is.
        data: The data set that it is to be trained on.

    Raises:
        UsageError: The forward pass fails, or does not give a score for each class; the message says what to do.
    """
    shape = ", ".join(["N", *map(str, data.train_x.shape[1:])])
    takes = f"models of {data.name} get batches of shape ({shape})"
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), one_thread():
            scores = copy.deepcopy(model)(torch.from_numpy(data.train_x[:2]))
    except Exception as error:  # whatever the user's own code raises
        raise UsageError(
            f"the model {name!r} cannot take the data: {takes}, and a forward pass of two samples ended with "
            f"{_describe(error)}: {_hint(model, data.train_x.shape[1:])}"
        ) from error
    if not isinstance(scores, torch.Tensor):
        raise UsageError(
            f"the model {name!r} returns a {type(scores).__name__}, not a tensor: its forward must return one of shape "
            f"(N, {data.labels}), the scores of the classes; {takes}"
        )
    if scores.shape != (len(data.train_x[:2]), data.labels) or not scores.is_floating_point():
        raise UsageError(
            f"the model {name!r} returns a tensor of shape {tuple(scores.shape)} and {scores.dtype} for two samples: "
            f"{data.name} has {data.labels} classes, so its last layer must have {data.labels} outputs; {takes}"
        )


def _hint(model: nn.Module, shape: tuple[int, ...]) -> str:
    """What to do about a model that does not take samples of a shape."""
    size = math.prod(shape)
    if len(shape) > 1:
        return f"its first layer must take {shape[0]} channels, or be nn.Flatten() before one of {size} inputs"
    if any(isinstance(layer, (nn.Conv2d, nn.MaxPool2d, nn.AvgPool2d)) for layer in model.modules()):
        side = math.isqrt(size)
        picture = f"(1, {side}, {side})" if side * side == size else "(channels, height, width)"
        return f"begin a model with convolutions with nn.Unflatten(1, {picture}), because these samples are flat"
    return f"its first layer must take {size} inputs, and each of the others what the one before it gives"
