"""Training: users together against one after another, and what real cryptography adds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bench.rows import CPU, Row, in_turn, seconds
from heterosag import Plan, Simulation, aggregate
from heterosag.choices import SharingName
from heterosag.training.data import DataSet, partition
from heterosag.training.local import Indices, LocalTraining, Work, train_loop, train_together
from heterosag.training.models import build
from heterosag.training.processes import one_thread

SAMPLES = 60_000


def mnist_like() -> DataSet:
    """As many samples of the same size as MNIST has; what they show does not matter for time."""
    rng = np.random.default_rng(0)
    x = rng.random((SAMPLES, 784), dtype=np.float32)
    y = rng.integers(0, 10, SAMPLES)
    return DataSet(name="like mnist", train_x=x, train_y=y, test_x=x[:100], test_y=y[:100])


def rows() -> Iterator[Row]:
    """Local training, then whole rounds."""
    data = mnist_like()
    model = build("mnist", "mnist", 0)
    for users, batch, goal in ((100, 60, 3.0), (300, 40, 3.0), (25, 240, 1.3)):
        parts = partition(data.train_y, users, "iid", np.random.default_rng(0))
        training = LocalTraining(epochs=1, batch_size=batch, learning_rate=0.03)
        work = partial(_work, data, parts, training)
        # Threads that wait for each other spin, which made small batches look ten times slower whenever something else
        # ran, and the ratio anything from 2 to 25.
        with one_thread():
            times = in_turn(
                lambda work=work: train_loop(model, work()),  # type: ignore[misc]
                lambda work=work: train_together(model, work()),  # type: ignore[misc]
                repeats=5,
                clock=CPU,
            )
        name = f"local training of {users} users at batch {batch} on one thread, one after another / together"
        yield Row.of(name, *times, goal=goal, better="higher")
    yield from _overhead(data)
    yield from _many_users()


def _work(data: DataSet, parts: list[Indices], training: LocalTraining) -> Work:
    """Work that begins anew: users' generators go on as they are drawn from."""
    rngs = [np.random.default_rng([0, user]) for user in range(len(parts))]
    return Work(data=data, parts=parts, training=training, rngs=rngs)


def _overhead(data: DataSet) -> Iterator[Row]:
    """A round of the paper's experiment 1: 25 users, five local epochs at batch 240."""
    model = build("mnist", "mnist", 0)
    plan = Plan.build([5] * 5, [2, 6, 8, 10, 12], 79_510, value_range=1.0)
    parts = partition(data.train_y, 25, "sorted", np.random.default_rng(0))
    training = LocalTraining(epochs=5, batch_size=240, learning_rate=0.03)

    def train() -> Any:
        return train_together(model, _work(data, parts, training))

    updates = train()
    steps: dict[str, Callable[[], Any]] = {
        "train": train,
        "plain": partial(aggregate, plan, updates, simulate=Simulation(secure=False)),
        "secure": partial(aggregate, plan, updates, workers=2),
        "signed": partial(aggregate, plan, updates, workers=2, identities=True),
    }
    runs = [{name: seconds(step) for name, step in steps.items()} for _ in range(7)]  # in turn: load comes and goes
    for name, goal in (("secure", 1.15), ("signed", None)):
        extra = ", identities on" if name == "signed" else ""
        yield Row.of(
            f"a round of experiment 1 with real cryptography{extra} / without",
            [run["train"] + run[name] for run in runs],
            [run["train"] + run["plain"] for run in runs],
            goal=goal,
        )


def _many_users() -> Iterator[Row]:
    """The paper's experiment 2: 300 users in subgroups of four, shares with neighbours or with everybody."""
    updates = np.random.default_rng(0).normal(0, 0.1, (300, 79_510)).astype(np.float32)
    kinds: list[tuple[SharingName, bool, float | None]] = [
        ("sparse", False, 1.0),
        ("complete", False, None),
        ("sparse", True, None),
    ]
    for sharing, signed, goal in kinds:
        plan = Plan.build([300], [12], 79_510, value_range=1.0, subgroup_size=4, sharing=sharing)
        step = partial(aggregate, plan, updates, workers=2, identities=signed)
        spent = [seconds(step)] if signed else in_turn(step, repeats=2)[0]  # signatures take most of a minute
        extra = ", identities on" if signed else ""
        name = f"a secure round of 300 users, {sharing} sharing graph{extra} / budget of 6 s"
        yield Row.of(name, spent, 6.0, goal=goal)
