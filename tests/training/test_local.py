"""Local training: every way of it gives every user the update of the plain loop."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

import torch
from torch import nn
from torch.nn import functional

from heterosag.storage.run_log import read_run
from heterosag.training import attacks, data, models
from heterosag.training import local as users
from heterosag.training.config import TrainConfig
from heterosag.training.data import DataSet
from heterosag.training.local import LocalTraining, Work
from heterosag.training.processes import one_thread
from heterosag.training.runs import Run


@pytest.mark.parametrize("way", [users.train_together, users.train_each])
@pytest.mark.parametrize("model", ["digits", "own_models:make_conv"])
@pytest.mark.parametrize("batch", [7.0, 0.25, 500.0])
def test_both_ways_equal_the_plain_loop(way: Callable[..., users.Vectors], model: str, batch: float) -> None:
    """Unequal users too: some have no more samples when others go on."""
    found = data.load("digits")
    parts = [np.arange(10), np.arange(10, 45), np.arange(50, 51), np.arange(60, 100)]
    training = LocalTraining(epochs=2, batch_size=batch, learning_rate=0.2)
    built = models.build(model, "digits", 0)
    before = users.flatten(built)

    def work() -> Work:
        rngs = [np.random.default_rng([5, user]) for user in range(4)]
        return Work(data=found, parts=parts, training=training, rngs=rngs)

    updates = way(built, work())
    alone = users.train_loop(built, work())
    assert updates.shape == (4, before.size)
    assert np.abs(updates - alone).max() < 1e-5
    assert np.array_equal(users.flatten(built), before)


def test_a_batch_beyond_all_data_takes_no_more_memory_than_the_data() -> None:
    training = LocalTraining(epochs=1, batch_size=1e12, learning_rate=0.2)
    rngs = [np.random.default_rng(user) for user in range(2)]
    ((indices, weights),) = users.batches([np.arange(3), np.arange(5)], training, rngs)
    assert indices.shape == weights.shape == (2, 5)
    assert weights.sum(axis=1).tolist() == [3, 5]


@pytest.mark.parametrize("way", [users.train_together, users.train_each])
def test_labels_can_be_replaced_for_some_users(way: Callable[..., users.Vectors]) -> None:
    found = data.load("digits")
    parts = [np.arange(20), np.arange(20)]
    training = LocalTraining(epochs=1, batch_size=20, learning_rate=0.1)
    for name in ("digits", "own_models:make_conv"):
        model = models.build(name, "digits", 0)
        flipped = attacks.flip_labels(found.train_y, 10)
        rngs = [np.random.default_rng(0), np.random.default_rng(0)]
        labels = [found.train_y, flipped]
        updates = way(model, Work(data=found, parts=parts, training=training, rngs=rngs, labels=labels))
        changed = DataSet(name="x", train_x=found.train_x, train_y=flipped, test_x=found.test_x, test_y=found.test_y)
        alone = Work(data=changed, parts=parts[:1], training=training, rngs=[np.random.default_rng(0)])
        expected = users.train_loop(model, alone)
        assert np.abs(updates[1] - expected[0]).max() < 1e-6
        assert np.abs(updates[0] - updates[1]).max() > 1e-3


def test_users_of_unlike_sizes_train_as_each_alone() -> None:
    """Groups of like size are only a matter of speed."""
    found = data.load("digits")
    sizes = [3, 100, 5, 90, 40, 7, 60, 2, 80, 11, 30, 4]
    edges = np.cumsum([0, *sizes])
    parts = [np.arange(a, b) for a, b in itertools.pairwise(edges)]
    training = LocalTraining(epochs=2, batch_size=0.3, learning_rate=0.1)
    model = models.build("digits", "digits", 0)

    def work() -> Work:
        rngs = [np.random.default_rng([0, user]) for user in range(len(parts))]
        return Work(data=found, parts=parts, training=training, rngs=rngs)

    together = users.train_together(model, work())
    loop = users.train_loop(model, work())
    assert np.allclose(together, loop, atol=1e-5)


def test_vectors_go_in_and_out_of_models() -> None:
    model = models.build("digits", "digits", 0)
    vector = np.random.default_rng(0).normal(size=users.flatten(model).size).astype(np.float32)
    users.load_vector(model, vector)
    assert np.array_equal(users.flatten(model), vector)


@pytest.mark.parametrize(
    ("model", "way"),
    [("digits", "train_together"), ("own_models:make_dense", "train_together"), ("own_models:make_conv", "train_each")],
)
def test_the_way_follows_the_model(model: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = []
    for name in ("train_together", "train_each"):
        monkeypatch.setattr(users, name, lambda *_, name=name, **__: chosen.append(name))
    training = LocalTraining(epochs=1, batch_size=1, learning_rate=0.1)
    work = Work(data=data.load("digits"), parts=[np.arange(3)], training=training, rngs=[])
    users.train(models.build(model, "digits", 0), work)
    assert chosen == [way]


def pictures(count: int) -> DataSet:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(count, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, count)
    return DataSet(name="noise", train_x=x, train_y=y, test_x=x, test_y=y)


@pytest.mark.parametrize("name", ["cifar10", "cifar10-padded"])
def test_the_papers_networks_train_user_by_user_as_in_the_plain_loop(name: str) -> None:
    found = pictures(60)
    parts = [np.arange(5), np.arange(5, 40), np.arange(40, 60)]
    training = LocalTraining(epochs=2, batch_size=0.4, learning_rate=0.02)
    model = models.build(name, "cifar10", 0)

    def work() -> Work:
        rngs = [np.random.default_rng([0, user]) for user in range(3)]
        return Work(data=found, parts=parts, training=training, rngs=rngs)

    expected = users.train_loop(model, work())
    updates = users.train_each(model, work())
    apart, size = (np.linalg.norm(rows, axis=1) for rows in (updates - expected, expected))
    assert size.min() > 1e-3
    assert (apart / size).max() < 1e-3  # a pool that finds two values equal but for the last digit may choose either


@pytest.mark.parametrize("model", ["own_models:make_conv", "own_models:make_conv_with_dropout"])
def test_updates_do_not_depend_on_the_number_of_processes(model: str) -> None:
    """Nor does what a model draws: it comes from the user's own generator."""
    found = data.load("digits")
    parts = [np.arange(20), np.arange(20, 27), np.arange(20), np.arange(30, 90), np.arange(90, 95)]
    training = LocalTraining(epochs=2, batch_size=8, learning_rate=0.1)
    built = models.build(model, "digits", 0)
    before = torch.random.get_rng_state()

    def train(seed: int, processes: int) -> users.Vectors:
        rngs = [np.random.default_rng([seed, user]) for user in range(len(parts))]
        return users.train_each(built, Work(data=found, parts=parts, training=training, rngs=rngs), processes=processes)

    once, again, other = train(1, 1), train(1, 3), train(2, 3)
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_evaluation_is_the_same_in_processes_and_in_one_piece() -> None:
    found = pictures(70)
    model = models.build("cifar10", "cifar10", 0)
    with torch.no_grad():
        logits = model(torch.from_numpy(found.test_x))
        y = torch.from_numpy(found.test_y)
        loss = float(torch.nn.functional.cross_entropy(logits, y))
    judged = users.evaluate(model, found, batch=16)
    assert judged.loss == pytest.approx(loss, rel=1e-5)
    assert judged.accuracy == pytest.approx(float((logits.argmax(dim=1) == y).float().mean()))


def test_a_resumed_run_of_a_convolutional_model_is_the_same_run(tmp_path: Path) -> None:
    config = TrainConfig(
        classes=(8,), levels=(16,), subgroup_size=4, rounds=3, secure=False, model="own_models:make_conv_with_dropout",
        partition="dirichlet", train_samples=120, checkpoint_every=1,
    )  # fmt: skip
    Run(config, tmp_path / "whole").train()

    def stop(line: dict[str, object]) -> None:
        if line["round"] == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Run(config, tmp_path / "cut").train(stop)
    Run.resume(tmp_path / "cut").train()
    whole, cut = ([line["model"] for line in read_run(tmp_path / name).rounds] for name in ("whole", "cut"))
    assert len(whole) == 3
    assert whole == cut


@pytest.mark.parametrize("model", ["digits", "own_models:make_dense"])
def test_users_who_train_together_do_so_in_any_number_of_processes(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = data.load("digits")
    parts = data.partition(found.train_y, 40, "dirichlet", np.random.default_rng(0), alpha=0.3)
    training = LocalTraining(epochs=1, batch_size=8, learning_rate=0.1)
    built = models.build(model, "digits", 0)

    def train() -> users.Vectors:
        rngs = [np.random.default_rng([1, user]) for user in range(40)]
        return users.train(built, Work(data=found, parts=parts, training=training, rngs=rngs))

    here = train()
    monkeypatch.setattr(users, "_WORTH_A_PROCESS", 0)
    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        assert np.array_equal(train(), here)
    finally:
        torch.set_num_threads(threads)
    with one_thread():
        assert np.array_equal(train(), here)


# --- models that cannot be batched over users -----------------------------------------------------------------------


class Custom(nn.Module):
    """A layer between two others, without a module that says what it does."""

    def __init__(self, between: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(64, 12), nn.Linear(12, 10)
        self.between = between

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.between(self.first(x)))
        return found


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rows, self.last = nn.GRU(8, 6, batch_first=True), nn.Linear(6, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.rows(x.view(-1, 8, 8))[0][:, -1])
        return found


def dense(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(64, 12), *between, nn.ReLU(), nn.Linear(12, 10))


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))
    model[0].requires_grad_(False)
    return model


ALONE: dict[str, Callable[[], nn.Module]] = {
    "batch norm": lambda: dense(nn.BatchNorm1d(12)),
    "batch norm without statistics": lambda: dense(nn.BatchNorm1d(12, track_running_stats=False)),
    "dropout": lambda: dense(nn.Dropout(0.3)),
    "attention": lambda: dense(nn.TransformerEncoderLayer(12, 2, 8)),
    "recurrent": Recurrent,
    "frozen": frozen,
    "functional dropout": lambda: Custom(lambda x: functional.dropout(x, 0.3)),
    "a number of a tensor": lambda: Custom(lambda x: x if float(x.detach().sum()) > 0 else 2 * x),
    "samples of a batch related": lambda: Custom(lambda x: x - x.mean(dim=0)),
}
TOGETHER: dict[str, Callable[[], nn.Module]] = {
    "plain": lambda: nn.Sequential(nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10)),
    "layer norm": lambda: dense(nn.LayerNorm(12)),
    "custom": lambda: Custom(torch.tanh),
}
EPOCH = LocalTraining(epochs=1, batch_size=8, learning_rate=0.1)


@pytest.mark.parametrize("name", [*ALONE, *TOGETHER])
def test_models_that_cannot_be_batched_over_users_train_user_by_user(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[str] = []
    for way in ("train_together", "train_each"):
        own = getattr(users, way)
        monkeypatch.setattr(users, way, lambda *a, own=own, way=way, **k: (chosen.append(way), own(*a, **k))[1])
    torch.manual_seed(0)
    model = (ALONE | TOGETHER)[name]()
    before = users.flatten(model)
    parts = [np.arange(20), np.arange(20, 37), np.arange(40, 41)]
    rngs = [np.random.default_rng([0, user]) for user in range(3)]
    if name == "batch norm without statistics":
        parts = parts[:1]  # a sample alone has no variance, and there is none to take instead
    updates = users.train(model, Work(data=data.load("digits"), parts=parts, training=EPOCH, rngs=rngs))
    assert chosen == ["train_each" if name in ALONE else "train_together"]
    assert updates.shape == (len(parts), before.size)
    assert np.isfinite(updates).all()
    assert np.abs(updates).max(axis=1).min() > 1e-4
    assert np.array_equal(users.flatten(model), before)
    if name == "frozen":
        assert not updates[:, : 65 * 12].any()


def test_a_model_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(users, "run_apart", lambda work: tried.append(work()))
    model, found = Custom(torch.tanh), data.load("digits")
    for _ in range(3):
        work = Work(data=found, parts=[np.arange(20)], training=EPOCH, rngs=[np.random.default_rng(0)])
        users.train(model, work)
    assert len(tried) == 1


def test_running_statistics_are_each_users_own_in_any_number_of_processes() -> None:
    torch.manual_seed(0)
    model, found = ALONE["batch norm"](), data.load("digits")
    parts = [np.arange(20), np.arange(20, 60), np.arange(20)]

    def train(processes: int) -> users.Vectors:
        rngs = [np.random.default_rng([0, user % 2]) for user in range(3)]
        work = Work(data=found, parts=parts, training=EPOCH, rngs=rngs)
        return users.train_each(model, work, processes=processes)

    here = train(1)
    assert np.array_equal(here, train(3))
    assert np.array_equal(here[0], here[2])
    means, variances = here[0][-24:-12], here[0][-12:]
    assert np.abs(means).min() > 0
    assert np.abs(variances).min() > 0


def test_evaluation_is_in_evaluation_mode_and_leaves_the_mode() -> None:
    found = data.load("digits")
    torch.manual_seed(0)
    model = dense(nn.BatchNorm1d(12), nn.Dropout(0.5))
    users.load_vector(model, users.flatten(model) + 0.5)  # running statistics that are not a batch's own
    judged = users.evaluate(model, found)
    assert model.training
    assert int(model[1].num_batches_tracked) == 0
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(found.test_x))
    loss = float(functional.cross_entropy(logits, torch.from_numpy(found.test_y)))
    assert judged.loss == pytest.approx(loss, rel=1e-5)


def test_variances_are_positive_arrays_if_some_are_zero_too() -> None:
    model = dense(nn.BatchNorm1d(12))
    with torch.no_grad():
        model[1].running_var[5] = 0  # as of a neuron that has always been silent
    before = users.flatten(model)
    after = before.copy()
    after[[3, -1, -2, -7]] = -1, -1, 0.3, -1
    assert users.positive_arrays(model).hold(before, after) == 2
    assert after[[3, -1, -2, -7]].tolist() == [-1, 0.25, np.float32(0.3), 0]
    plain = models.build("digits", "digits", 0)
    assert users.positive_arrays(plain).hold(users.flatten(plain), -users.flatten(plain)) == 0
