"""Users in processes of their own: an error stays what it was, and a process that dies is said to have."""

import os
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import pytest
from aggregated import UPDATES, plan_of
from cases import each

from heterosag import aggregate
from heterosag.errors import ExposedUsersError, UsageError
from heterosag.plan import User
from heterosag.protocol.transitions import Phase
from heterosag.simulation.workers import Answers, ForkedWorkers, WorkerSettings


class Refusing:
    """Clients of some users that refuse, or end their process, when they are asked to mask."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, refuse: Callable[[], NoReturn], user: int) -> None:
        from heterosag.protocol import Client

        mask = Client.mask

        def refusing(client: Client, *args: Any, **options: Any) -> bytes:
            if client.user == user:
                refuse()
            return mask(client, *args, **options)

        monkeypatch.setattr(Client, "mask", refusing)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
@pytest.mark.parametrize("user", [0, 1])  # in this process, and in another
def test_a_clients_error_stays_what_it_was_in_another_process(monkeypatch: pytest.MonkeyPatch, user: int) -> None:
    def refuse() -> NoReturn:
        raise ExposedUsersError([3, "ada"])

    Refusing(monkeypatch, refuse, user)
    with pytest.raises(ExposedUsersError, match="would reveal") as caught:
        aggregate(plan_of(), UPDATES, workers=2)
    assert caught.value.users == (3, "ada")


@each("workers", [0, -1, 1.5, "a", None])
def test_workers_are_a_number_of_processes(workers: Any) -> None:
    with pytest.raises(UsageError, match="workers is a number of processes, at least 1, not"):
        aggregate(plan_of(), UPDATES, workers=workers)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_no_process_is_started_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[int] = []
    begin = ForkedWorkers.__init__

    def few(self: ForkedWorkers, settings: WorkerSettings, workers: int) -> None:
        started.append(workers)
        begin(self, settings, 2)

    monkeypatch.setattr(ForkedWorkers, "__init__", few)
    for workers in (10**9, np.int64(1000)):
        aggregate(plan_of(), UPDATES, workers=workers)
    assert started == [16, 16]


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_process_that_dies_is_said_to_have(monkeypatch: pytest.MonkeyPatch) -> None:
    Refusing(monkeypatch, lambda: os._exit(3), 1)
    with pytest.raises(ChildProcessError, match="has ended"):
        aggregate(plan_of(), UPDATES, workers=2)


@pytest.mark.skipif(sys.platform == "win32", reason="needs fork")
def test_a_process_that_is_killed_between_two_phases_is_said_to_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next message to it meets a closed pipe, which must not be taken for a closed standard output."""
    workers: list[ForkedWorkers] = []
    answer = ForkedWorkers.answer

    def killing(self: ForkedWorkers, phase: Phase, messages: Mapping[User, bytes]) -> Answers:
        found = answer(self, phase, messages)
        if not workers:
            workers.append(self)
            [process] = self._processes
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        return found

    monkeypatch.setattr(ForkedWorkers, "answer", killing)
    with pytest.raises(ChildProcessError, match="has ended: it was killed"):
        aggregate(plan_of(), UPDATES, workers=2)
    assert workers
