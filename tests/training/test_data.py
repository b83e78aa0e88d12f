"""Data sets from files, and how they are split over users."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")


from heterosag.errors import UsageError
from heterosag.training import data
from heterosag.training.config import TrainConfig
from heterosag.training.runs import Run


def write_mnist(folder: Path, *, compress: bool = True) -> None:
    rng = np.random.default_rng(0)
    for name, shape in (("train", (30, 28, 28)), ("t10k", (10, 28, 28))):
        for kind, values in (
            ("images-idx3", rng.integers(0, 256, shape, dtype=np.uint8)),
            ("labels-idx1", rng.integers(0, 10, shape[0], dtype=np.uint8)),
        ):
            raw = (
                struct.pack(">HBB", 0, 8, values.ndim)
                + struct.pack(f">{values.ndim}I", *values.shape)
                + values.tobytes()
            )
            path = folder / f"{name}-{kind}-ubyte{'.gz' if compress else ''}"
            path.write_bytes(gzip.compress(raw) if compress else raw)


@pytest.mark.parametrize("compress", [True, False])
def test_mnist_from_idx_files(tmp_path: Path, compress: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    write_mnist(tmp_path, compress=compress)
    found = data.load("mnist", str(tmp_path))
    assert found.train_x.shape == (30, 784)
    assert found.train_x.dtype == np.float32
    assert 0 <= found.train_x.min() <= found.train_x.max() <= 1
    monkeypatch.setenv("HETEROSAG_DATA", str(tmp_path))
    assert np.array_equal(data.load("fashion-mnist").test_y, found.test_y)


def test_cifar10_from_binary_batches(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 256, (4, 3073), dtype=np.uint8)
    rows[:, 0] %= 10
    (tmp_path / "cifar-10-batches-bin").mkdir()
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (tmp_path / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(rows.tobytes())
    found = data.load("cifar10", str(tmp_path))
    assert found.train_x.shape == (20, 3, 32, 32)
    assert found.test_y.tolist() == rows[:, 0].tolist()
    (tmp_path / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"short")
    with pytest.raises(UsageError, match="damaged or cannot be read: download it again"):
        data.load("cifar10", str(tmp_path))


def test_a_compressed_file_that_is_cut_or_changed_is_damaged(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).integers(0, 10, (4, 3073), dtype=np.uint8)
    whole = gzip.compress(rows.tobytes())
    changed = whole[:10] + bytes([whole[10] ^ 0xFF]) + whole[11:]  # the first byte after the header
    for name in [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]:
        (tmp_path / f"{name}.bin.gz").write_bytes(whole)
    write_mnist(tmp_path)
    for damaged in (whole[: len(whole) // 2], changed, b"", whole[1:]):
        for data_set, name in (("cifar10", "test_batch.bin.gz"), ("mnist", "t10k-labels-idx1-ubyte.gz")):
            (tmp_path / name).write_bytes(damaged)
            with pytest.raises(UsageError, match=f"{name} is damaged or cannot be read: download it again"):
                data.load(data_set, str(tmp_path))


def test_missing_and_damaged_files_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HETEROSAG_DATA", raising=False)
    with pytest.raises(UsageError, match="--data-dir or set HETEROSAG_DATA"):
        data.load("mnist")
    with pytest.raises(UsageError, match="download the data set"):
        data.load("mnist", str(tmp_path))
    with pytest.raises(UsageError, match="no data set is called"):
        data.load("imagenet")
    write_mnist(tmp_path)
    whole = (tmp_path / "train-labels-idx1-ubyte.gz").read_bytes()
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UsageError, match="damaged"):
        data.load("mnist", str(tmp_path))
    write_mnist(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes((tmp_path / "t10k-labels-idx1-ubyte.gz").read_bytes())
    with pytest.raises(UsageError, match="do not belong together"):
        data.load("mnist", str(tmp_path))


def test_what_cannot_be_fetched_is_told_with_the_data_sets_that_need_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fetch(name: str, **options: object) -> None:
        raise OSError(f"no route to {name}")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    with pytest.raises(UsageError, match=r"no route to iris\): it needs a network") as caught:
        data.load("openml:iris", str(tmp_path))
    assert "use digits, or mnist, fashion-mnist or cifar10 with --data-dir" in str(caught.value)


def test_partitions() -> None:
    labels = np.repeat(np.arange(10), 30)
    rng = np.random.default_rng(0)
    for how in ("iid", "sorted", "dirichlet"):
        parts = data.partition(labels, 12, how, rng, alpha=0.1)
        joined = np.concatenate(parts)
        assert len(set(joined.tolist())) == len(joined)
        assert all(part.size for part in parts)
    in_order = data.partition(labels, 10, "sorted", rng)
    assert [set(labels[part]) for part in in_order] == [{label} for label in range(10)]
    concentrated = data.partition(labels, 10, "dirichlet", rng, alpha=0.05)
    even = data.partition(labels, 10, "dirichlet", rng, alpha=1000.0)

    def spread(parts: list[np.ndarray]) -> float:
        return float(np.mean([len(set(labels[part])) for part in parts]))

    assert spread(concentrated) < 6 < spread(even)
    with pytest.raises(UsageError, match="cannot be split over 301 users"):
        data.partition(labels, 301, "iid", rng)


def test_a_thinner_data_set(tmp_path: Path) -> None:
    found = data.load("digits")
    thin = data.thin(found, 50, np.random.default_rng(0))
    assert len(thin.train_y) == len(thin.train_x) == 50
    assert thin.test_x is found.test_x
    assert data.thin(found, 0, np.random.default_rng(0)) is found
    with pytest.raises(UsageError, match="1437 training samples"):
        data.thin(found, 5000, np.random.default_rng(0))
    config = TrainConfig(classes=(8,), levels=(4,), subgroup_size=4, rounds=1, train_samples=40, secure=False)
    run = Run(config, tmp_path / "run")
    assert sum(map(len, run.parts)) == 40
    run.close()


@pytest.mark.parametrize("alpha", [0.3, 1.0, 10.0])
def test_fedmls_draw_caps_users_and_leaves_nobody_with_fewer_than_ten(alpha: float) -> None:
    labels = np.repeat(np.arange(10), 200)
    equal = len(labels) / 20
    parts = data.partition(labels, 20, "dirichlet-fedml", np.random.default_rng(0), alpha=alpha)
    joined = np.concatenate(parts)
    assert sorted(joined.tolist()) == list(range(2000))
    assert min(map(len, parts)) >= 10
    for part in parts:
        # Whoever has an equal part before a label gets nothing of it.
        counts = np.bincount(labels[part], minlength=10)
        last = int(np.flatnonzero(counts)[-1])
        assert counts[:last].sum() < equal
    again = data.partition(labels, 20, "dirichlet-fedml", np.random.default_rng(0), alpha=alpha)
    assert all(np.array_equal(one, other) for one, other in zip(parts, again, strict=True))


def test_fedmls_draw_gives_up_where_ten_samples_are_not_there() -> None:
    labels = np.repeat(np.arange(10), 10)
    with pytest.raises(UsageError, match="fewer than 10 of 100 samples"):
        data.partition(labels, 20, "dirichlet-fedml", np.random.default_rng(0))
