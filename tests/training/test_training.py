"""Configuration, data, attacks and runs of training."""

import dataclasses
import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")


from heterosag.errors import PlanError, UsageError
from heterosag.plan import Plan
from heterosag.storage.run_log import read_run
from heterosag.training import attacks, data
from heterosag.training.config import TrainConfig, fields_of
from heterosag.training.runs import Run


def test_configuration_comes_back_from_toml_and_dict() -> None:
    config = TrainConfig(
        classes=(3, 4), levels=(2, 4), rates=(1.0, 2.5), secure=False, dropout_phases=("share", "mask")
    )
    assert TrainConfig.from_toml(config.to_toml()) == config
    assert TrainConfig.from_dict(config.to_dict()) == config
    assert TrainConfig.from_dict({"classes": "3, 4", "levels": "2,4", "batch_size": 8}).classes == (3, 4)
    assert config.users == 7
    assert set(fields_of()) == set(config.to_dict())


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({"colour": 1}, "no setting is called 'colour'"),
        ({"rounds": 0}, "rounds must be at least 1"),
        ({"rounds": 1.5}, "rounds must be an integer"),
        ({"rounds": "many"}, "rounds must be an integer"),
        ({"secure": "yes"}, "secure must be a switch"),
        ({"partition": "fair"}, "partition must be one of iid, sorted, dirichlet"),
        ({"attack": "laser"}, "attack must be one of"),
        ({"attack": "gaussian"}, "needs attackers"),
        ({"attack": "gaussian", "attackers": 97}, "more than the 96 users"),
        ({"dropout": 1.0}, "below 1"),
        ({"seed": -1}, "seed cannot be negative"),
        ({"dropout": -0.1}, "cannot be negative"),
        ({"participation": 0}, "above 0 and at most 1"),
        ({"quantile": 1.0}, "between 0 and 1"),
        ({"batch_size": 2.5}, "integer, or a fraction"),
        ({"learning_rate": 0}, "above 0"),
        ({"levels": [2]}, "4 classes need 4 levels"),
        ({"rates": [1.0, 2.0]}, "one for each of the 4 classes"),
        ({"rates": [0.0]}, "positive rate"),
        ({"dropout_phases": ["lunch"]}, "dropout_phases must be a list of one of advertise"),
        ({"classes": ["a"]}, "classes must be a list of integers"),
        ({"value_range": "wide"}, "value_range must be a number or a list of numbers"),
        ({"value_range": [1.0, 0.5]}, "two finite numbers in rising order"),
        ({"range_rule": "fixed"}, "needs a value_range"),
        ({"deadline": 0}, "above 0, or left out for none"),
    ],
)
def test_settings_that_make_no_sense(values: dict[str, Any], match: str) -> None:
    with pytest.raises((UsageError, PlanError), match=match):
        TrainConfig.from_dict(values)


def test_learning_rate_falls_when_it_should() -> None:
    config = TrainConfig(learning_rate=0.02, decay_start=150, decay=0.02)
    assert config.learning_rate_at(150) == 0.02
    assert config.learning_rate_at(200) == pytest.approx(0.02 / 5)
    assert TrainConfig(learning_rate=0.1).learning_rate_at(1000) == 0.1


# --- data -----------------------------------------------------------------------------------------------------------


def write_mnist(folder: Path, *, count: int = 30, compress: bool = True) -> None:
    rng = np.random.default_rng(0)
    for name, shape in (("train", (count, 28, 28)), ("t10k", (10, 28, 28))):
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
    with pytest.raises(UsageError, match="damaged: download it again"):
        data.load("cifar10", str(tmp_path))


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


# --- attacks --------------------------------------------------------------------------------------------------------


def test_attackers_are_spread_or_random() -> None:
    plan = Plan.build([96], [4], 100, value_range=1.0, subgroup_size=8)
    rng = np.random.default_rng(0)
    spread = attacks.choose_attackers(plan, 12, "spread", rng)
    assert len({plan.assignment[user] for user in spread}) == 12
    assert len(attacks.choose_attackers(plan, 30, "spread", rng)) == 30
    anywhere = attacks.choose_attackers(plan, 12, "random", rng)
    assert len(set(anywhere)) == 12
    assert attacks.choose_attackers(plan, 0, "spread", rng) == []


def test_what_attackers_send() -> None:
    honest = np.random.default_rng(0).normal(1.0, 0.1, (5, 4000)).astype(np.float32)
    rng = np.random.default_rng(1)
    assert np.array_equal(attacks.tamper("sign-flip", honest, 0.0, rng), honest * np.float32(-5))
    assert np.array_equal(attacks.tamper("label-flip", honest, 0.0, rng), honest * np.float32(30))
    noise = attacks.tamper("gaussian", honest, 2.0, rng)
    assert noise.std() == pytest.approx(2.0, rel=0.05)
    hidden = attacks.tamper("little", honest, 1.0, rng)
    assert np.allclose(hidden[0], honest.mean(axis=0) - honest.std(axis=0))
    assert np.array_equal(hidden[0], hidden[4])
    assert attacks.flip_labels(np.array([0, 3, 9]), 10).tolist() == [9, 6, 0]


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


@pytest.mark.parametrize("range_rule", ["adaptive", "minmax"])
def test_training_that_diverges_is_a_dropout_and_named(range_rule: str, tmp_path: Path) -> None:
    config = TrainConfig(
        classes=(8,), levels=(16,), subgroup_size=4, rounds=2, learning_rate=1e38, local_epochs=3, secure=False,
        range_rule=range_rule,
    )  # fmt: skip
    Run(config, tmp_path / "run").train()
    lines = read_run(tmp_path / "run").rounds
    assert len(lines) == 2
    assert lines[0]["diverged"] > 0
    assert "diverged: lower learning_rate" in lines[0]["error"]["message"]


def test_every_line_of_a_record_fingerprints_the_model(tmp_path: Path) -> None:
    config = TrainConfig(classes=(8,), levels=(4,), subgroup_size=4, rounds=3, secure=False)
    Run(config, tmp_path / "one").train()
    Run(config, tmp_path / "two").train()
    one, two = (read_run(tmp_path / name).rounds for name in ("one", "two"))
    assert [line["model"] for line in one] == [line["model"] for line in two]
    assert len({line["model"] for line in one}) == 3


@pytest.mark.parametrize("rule", ["median", "mean"])
def test_a_user_who_dealt_false_shares_is_left_out_afterwards(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The median goes on without its subgroup, the mean loses one round; the next plan is without it, and a run that
    goes on later knows."""
    from heterosag.crypto.keys import RoundSecrets
    from heterosag.protocol.client import Client, Polynomials

    honest = Client.share

    def share(self: Client, message: bytes, **options: Any) -> bytes:
        if self.user == 30:
            options["polynomials"] = Polynomials.draw(self.plan, RoundSecrets.generate())
        return honest(self, message, **options)

    monkeypatch.setattr(Client, "share", share)
    config = TrainConfig(
        classes=(12, 20), levels=(4, 8), rule=rule, subgroup_size=4, rounds=3, train_samples=300, checkpoint_every=2
    )  # type: ignore[arg-type]

    class StopError(Exception):
        pass

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise StopError

    with pytest.raises(StopError):
        Run(config, tmp_path / "run").train(stop)
    run = Run.resume(tmp_path / "run")
    run.train()
    assert 30 not in run.plan.users
    first, second, third = read_run(tmp_path / "run").rounds
    assert (first["error"] is None) == (rule == "median")
    assert [line["faulty_users"] for line in (first, second, third)] == [[30], [], []]
    assert [line["participants"] for line in (first, second, third)] == [32, 31, 31]
    assert [line["survivors"] for line in (second, third)] == [31, 31]
    assert third["ledger"]["rounds"] == 1, "the same survivors twice, in an epoch of their own"


def test_a_class_of_faulty_users_only_is_not_planned_for(tmp_path: Path) -> None:
    config = TrainConfig(classes=(1, 12), levels=(4, 8), design="secagg", subgroup_size=13, train_samples=300, rounds=1)
    run = Run(config, tmp_path / "run")
    run._go_on(dataclasses.replace(run._state, faulty=(0,)))
    assert (run.plan.classes, run.plan.levels, run.plan.users) == ((12,), (8,), tuple(range(1, 13)))
    run.train()
    assert read_run(tmp_path / "run").rounds[0]["survivors"] == 12
