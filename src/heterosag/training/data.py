"""Data sets, and how they are split over users.

`digits` ships with scikit-learn and needs nothing else. MNIST and Fashion-MNIST are read from their four idx files
(gzipped or not), CIFAR-10 from its binary batches, in a folder given by `data_dir` or HETEROSAG_DATA. On a machine with
a network `openml:NAME` fetches through scikit-learn.
"""

from __future__ import annotations

import gzip
import os
import struct
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.errors import UsageError

__all__ = ["DataSet", "load", "partition", "thin"]

_IDX = {
    "train_x": "train-images-idx3-ubyte",
    "train_y": "train-labels-idx1-ubyte",
    "test_x": "t10k-images-idx3-ubyte",
    "test_y": "t10k-labels-idx1-ubyte",
}
_CIFAR_ROW = 1 + 3 * 32 * 32
_LEAST_SAMPLES = 10  # of a user, as FedML has it
_MOST_DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """Samples as float32 with their labels, a training and a test part.

    Args:
        name: What it is called.
        train_x: Samples to train on, one along the first axis.
        train_y: Their labels, from 0.
        test_x: Samples to judge a model by.
        test_y: Their labels.
    """

    name: str
    train_x: npt.NDArray[np.float32]
    train_y: npt.NDArray[np.int64]
    test_x: npt.NDArray[np.float32]
    test_y: npt.NDArray[np.int64]

    @property
    def labels(self) -> int:
        """How many labels there are."""
        return int(max(self.train_y.max(), self.test_y.max())) + 1


def load(name: str, folder: str = "") -> DataSet:
    """A data set by name.

    Args:
        name: `digits`, `mnist`, `fashion-mnist`, `cifar10`, or `openml:NAME`.
        folder: Where its files are; `HETEROSAG_DATA` unless given.

    Returns:
        The data set.

    Raises:
        UsageError: There is no such data set, or a file is missing or damaged; the message says what to do.
    """
    if name == "digits":
        return _digits()
    if name.startswith("openml:"):
        return _openml(name.removeprefix("openml:"))
    if name not in ("mnist", "fashion-mnist", "cifar10"):
        raise UsageError(f"no data set is called {name!r}: use digits, mnist, fashion-mnist, cifar10 or openml:NAME")
    place = folder or os.environ.get("HETEROSAG_DATA", "")
    if not place:
        raise UsageError(f"{name} needs its files: give their folder with --data-dir or set HETEROSAG_DATA")
    return _cifar10(Path(place)) if name == "cifar10" else _mnist(name, Path(place))


def _digits() -> DataSet:
    from sklearn.datasets import load_digits

    pictures, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(labels))
    x = (pictures[order] / 16.0).astype(np.float32)
    y = labels[order].astype(np.int64)
    return DataSet(name="digits", train_x=x[:1437], train_y=y[:1437], test_x=x[1437:], test_y=y[1437:])


def _openml(name: str) -> DataSet:
    from sklearn.datasets import fetch_openml  # noqa: TID251 - fetched if asked for as openml:NAME

    try:
        found = fetch_openml(name, version=1, as_frame=False, parser="liac-arff")
    except Exception as error:
        raise UsageError(
            f"openml:{name} could not be fetched ({error}): it needs a network, and a name that OpenML has. Without a "
            "network use digits, or mnist, fashion-mnist or cifar10 with --data-dir"
        ) from None
    x = np.asarray(found.data, dtype=np.float32)
    _, y = np.unique(found.target, return_inverse=True)
    x /= max(1.0, float(np.abs(x).max()))
    order = np.random.default_rng(0).permutation(len(y))
    cut = len(y) - len(y) // 7
    x, y = x[order], y[order].astype(np.int64)
    return DataSet(name=name, train_x=x[:cut], train_y=y[:cut], test_x=x[cut:], test_y=y[cut:])


def _find(folder: Path, name: str, *subfolders: str) -> Path:
    places = [folder, *(folder / sub for sub in subfolders)]
    for place in places:
        for candidate in (place / name, place / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    looked = ", ".join(str(place) for place in places)
    raise UsageError(
        f"{name} (or {name}.gz) is not in {looked}: download the data set from its home page and unpack it there"
    )


def _mnist(name: str, folder: Path) -> DataSet:
    parts = {key: _idx(_find(folder, file, name, name.replace("-", "_"))) for key, file in _IDX.items()}
    for half in ("train", "test"):
        x, y = parts[f"{half}_x"], parts[f"{half}_y"]
        if x.ndim != 3 or y.ndim != 1 or len(x) != len(y) or x.shape[1:] != (28, 28) or y.max() > 9:
            raise UsageError(f"the {half} files of {name} do not belong together: download them again")
    return DataSet(
        name=name,
        train_x=parts["train_x"].reshape(-1, 784).astype(np.float32) / np.float32(255),
        train_y=parts["train_y"].astype(np.int64),
        test_x=parts["test_x"].reshape(-1, 784).astype(np.float32) / np.float32(255),
        test_y=parts["test_y"].astype(np.int64),
    )


def _read(path: Path) -> bytes:
    try:
        return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error):
        raise _damaged(path) from None


def _damaged(path: Path) -> UsageError:
    return UsageError(f"{path} is damaged or cannot be read: download it again")


def _idx(path: Path) -> npt.NDArray[np.uint8]:
    """An idx file of unsigned bytes."""
    data = _read(path)
    try:
        zero, kind, dimensions = struct.unpack_from(">HBB", data)
        shape = struct.unpack_from(f">{dimensions}I", data, 4)
        values = np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * dimensions)
        if zero or kind != 8 or values.size != int(np.prod(shape)):
            raise ValueError
        return values.reshape(shape)
    except (ValueError, struct.error):
        raise _damaged(path) from None


def _cifar10(folder: Path) -> DataSet:
    def read(names: list[str]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
        rows = []
        for name in names:
            path = _find(folder, name, "cifar-10-batches-bin", "cifar10")
            data = np.frombuffer(_read(path), np.uint8)
            if data.size == 0 or data.size % _CIFAR_ROW or data[::_CIFAR_ROW].max() > 9:
                raise _damaged(path)
            rows.append(data.reshape(-1, _CIFAR_ROW))
        table = np.concatenate(rows)
        x = table[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / np.float32(255)
        return (x - np.float32(0.5)) / np.float32(0.25), table[:, 0].astype(np.int64)

    train_x, train_y = read([f"data_batch_{i}.bin" for i in range(1, 6)])
    test_x, test_y = read(["test_batch.bin"])
    return DataSet(name="cifar10", train_x=train_x, train_y=train_y, test_x=test_x, test_y=test_y)


def thin(data: DataSet, samples: int | None, rng: np.random.Generator) -> DataSet:
    """The data set with only some of its training samples.

    Args:
        data: The data set.
        samples: How many are drawn from all; None keeps them all.
        rng: Draws them.

    Returns:
        The data set.

    Raises:
        UsageError: It has fewer.
    """
    if not samples:
        return data
    if samples > len(data.train_y):
        raise UsageError(f"{data.name} has {len(data.train_y)} training samples, not {samples}")
    chosen = np.sort(rng.choice(len(data.train_y), samples, replace=False))
    return replace(data, train_x=data.train_x[chosen], train_y=data.train_y[chosen])


def partition(
    labels: npt.NDArray[np.int64], users: int, how: str, rng: np.random.Generator, *, alpha: float = 1.0
) -> list[npt.NDArray[np.int64]]:
    """Indices of every user's samples; each sample belongs to one user at most.

    iid: shuffled, equal parts. sorted: by label, equal parts in order (the paper's experiment 1). dirichlet: for every
    label, the shares of the users in it are drawn from Dirichlet(alpha), with at least one sample a user.
    dirichlet-fedml: the same as FedML draws it, which the paper uses: a user who has its equal part already gets no
    more of the labels that follow, and all is drawn again while somebody has fewer than ten samples.

    Args:
        labels: The label of each sample.
        users: How many there are.
        how: `iid`, `sorted`, `dirichlet` or `dirichlet-fedml`.
        rng: Draws it.
        alpha: Of the Dirichlet distribution: the smaller, the more unlike users are.

    Returns:
        An array of indices for each user.

    Raises:
        UsageError: There are fewer samples than users, or than ten a user for `dirichlet-fedml`.
    """
    if users > len(labels):
        raise UsageError(f"{len(labels)} samples cannot be split over {users} users: use fewer users")
    if how == "iid":
        return _equal(rng.permutation(len(labels)), users)
    if how == "sorted":
        return _equal(np.argsort(labels, kind="stable"), users)
    if how == "dirichlet-fedml":
        return _draw_like_fedml(labels, users, alpha, rng)
    parts = _draw(labels, users, alpha, rng, capped=False)
    for user, part in enumerate(parts):
        if not part.size:
            richest = max(range(users), key=lambda other: parts[other].size)
            parts[user], parts[richest] = parts[richest][:1], parts[richest][1:]
    return parts


def _draw(
    labels: npt.NDArray[np.int64], users: int, alpha: float, rng: np.random.Generator, *, capped: bool
) -> list[npt.NDArray[np.int64]]:
    """Every label's samples, cut at shares drawn from Dirichlet(alpha); if capped, among users below an equal part."""
    shares: list[list[Any]] = [[] for _ in range(users)]
    sizes = np.zeros(users)
    for label in range(int(labels.max()) + 1):
        members = rng.permutation(np.flatnonzero(labels == label))
        drawn = rng.dirichlet(np.full(users, alpha))
        if capped:
            drawn = drawn * (sizes < len(labels) / users)
            drawn /= drawn.sum()
        cuts = (np.cumsum(drawn)[:-1] * len(members)).astype(int)
        for user, part in enumerate(np.split(members, cuts)):
            shares[user].append(part)
            sizes[user] += len(part)
    return [np.sort(np.concatenate(share)).astype(np.int64) for share in shares]


def _draw_like_fedml(
    labels: npt.NDArray[np.int64], users: int, alpha: float, rng: np.random.Generator
) -> list[npt.NDArray[np.int64]]:
    for _ in range(_MOST_DRAWS):
        parts = _draw(labels, users, alpha, rng, capped=True)
        if min(part.size for part in parts) >= _LEAST_SAMPLES:
            return parts
    raise UsageError(
        f"{_MOST_DRAWS} draws of dirichlet-fedml left a user of {users} with fewer than {_LEAST_SAMPLES} of "
        f"{len(labels)} samples: use fewer users, more samples, a larger alpha, or dirichlet"
    )


def _equal(order: npt.NDArray[Any], users: int) -> list[npt.NDArray[np.int64]]:
    size = len(order) // users
    return [np.sort(order[user * size : (user + 1) * size]).astype(np.int64) for user in range(users)]
