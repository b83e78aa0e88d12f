"""Training and evaluation of the paper's network for CIFAR-10: as 0.1.0 did it, against user by user in processes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch.nn import functional

from bench.rows import CPU, Row, in_turn
from heterosag.training.data import DataSet
from heterosag.training.local import LocalTraining, Work, evaluate, train, train_each, train_stacked
from heterosag.training.models import Cifar10Net, build
from heterosag.training.processes import one_thread

USERS, SAMPLES, TEST_SAMPLES, BATCH, EPOCHS = 8, 800, 4000, 100, 5


class AsBefore(Cifar10Net):
    """The network as 0.1.0 had it: whole pictures, and the pools after the ReLU."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(torch.relu(self.conv1(x)), 3, 3)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 4, 4).flatten(1)
        logits: torch.Tensor = self.fc3(torch.relu(self.fc2(torch.relu(self.fc1(x)))))
        return logits


def evaluate_before(model: torch.nn.Module, data: DataSet) -> float:
    """The evaluation of 0.1.0: batches of 2000 in this process."""
    total = 0.0
    with torch.no_grad():
        for start in range(0, len(data.test_y), 2000):
            y = torch.from_numpy(data.test_y[start : start + 2000])
            logits = model(torch.from_numpy(data.test_x[start : start + 2000]))
            total += float(functional.cross_entropy(logits, y, reduction="sum"))
    return total


def rows() -> Iterator[Row]:
    """With every core by the clock on the wall, then on one thread in CPU seconds, which load disturbs less."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(TEST_SAMPLES, 3, 32, 32)).astype(np.float32), rng.integers(0, 10, TEST_SAMPLES)
    data = DataSet(name="like cifar10", train_x=x[:SAMPLES], train_y=y[:SAMPLES], test_x=x, test_y=y)
    now = build("cifar10", "cifar10", 0)
    before = AsBefore()
    before.load_state_dict(now.state_dict())
    parts = np.array_split(np.arange(SAMPLES), USERS)
    training = LocalTraining(epochs=EPOCHS, batch_size=BATCH, learning_rate=0.02)

    def work() -> Work:
        rngs = [np.random.default_rng([0, user]) for user in range(USERS)]
        return Work(data=data, parts=parts, training=training, rngs=rngs)

    what = f"the paper's CIFAR-10 network, {USERS} users at batch {BATCH}, {EPOCHS} epochs"
    times = in_turn(
        lambda: train_stacked(before, work()),
        lambda: train(now, work()),
        repeats=5,
    )
    yield Row.of(f"local training of {what}, vmap of 0.1.0 / user by user", *times, goal=4.0, better="higher")
    with one_thread():
        times = in_turn(
            lambda: train_stacked(before, work()),
            lambda: train_each(now, work(), processes=1),
            repeats=5,
            clock=CPU,
        )
    name = f"local training of {what} on one thread, vmap of 0.1.0 / user by user"
    yield Row.of(name, *times, goal=4.0, better="higher")
    times = in_turn(partial(evaluate_before, before, data), partial(evaluate, now, data), repeats=5)
    name = f"evaluation of the paper's CIFAR-10 network on {TEST_SAMPLES:,} pictures, 0.1.0 / now"
    yield Row.of(name, *times, goal=1.5, better="higher")
