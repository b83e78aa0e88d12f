"""The users of an embedded round: in this process, or in processes of their own.

Key agreement takes most of a round's time and gains nothing from threads, so users can be spread over processes, this
one among them. The others are forked after the updates are there, so that no update and no secret is ever pickled: only
messages, which would cross a network anyway, go through the pipes. Every user computes its own side; nothing is
computed once for both ends.
"""

from __future__ import annotations

import multiprocessing  # noqa: TID251 - pipes to the engine's own forks
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.connection import Connection  # noqa: TID251 - pipes to the engine's own forks
from multiprocessing.reduction import ForkingPickler  # noqa: TID251 - as its pipes do
from typing import Any, Protocol

from heterosag.crypto.identity import Identity
from heterosag.errors import HeteroSagError, UsageError
from heterosag.plan import Plan, User
from heterosag.protocol.cells import ParallelMap
from heterosag.protocol.client import Client
from heterosag.protocol.context import RoundId
from heterosag.protocol.policy import Policy
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.transitions import Phase
from heterosag.protocol.update import Update
from heterosag.simulation.inputs import directory_of

__all__ = ["Workers", "WorkerSettings", "ForkedWorkers", "LocalWorkers", "all_cores", "assemble", "make_clients"]

_PATIENCE = 5.0  # seconds that a process gets to end by itself

Answers = dict[User, tuple[bytes, float]]
"""Each user's reply, and the seconds it took."""


class Workers(Protocol):
    """Users who answer the server's messages."""

    def answer(self, phase: Phase, messages: Mapping[User, bytes]) -> Answers:
        """Every addressed user's reply in a phase."""

    def dismiss(self) -> None:
        """The round is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What the users of a round need to know."""

    plan: Plan
    round_id: RoundId
    identities: Mapping[User, Identity] | None
    inputs: Mapping[User, Update]
    rounding: Mapping[User, Rounding | None]
    malicious: Collection[User]


def make_clients(
    plan: Plan, round_id: RoundId, users: Sequence[User], *, identities: Mapping[User, Identity] | None = None
) -> dict[User, Client]:
    """Clients of one round in this process: with identities they sign, without they trust the server.

    Args:
        plan: The plan, which the caller made: any is accepted.
        round_id: The round.
        users: Whose clients.
        identities: Everybody's, theirs among them.

    Returns:
        A fresh client for each of the users.
    """
    directory = directory_of(identities)
    return {
        user: Client(
            plan,
            user,
            round_id,
            identity=None if identities is None else identities[user],
            directory=directory,
            trust_server=identities is None,
            policy=Policy.any_plan(),
        )
        for user in users
    }


class LocalWorkers:
    """Some users in this process."""

    def __init__(self, settings: WorkerSettings, users: Sequence[User]) -> None:
        self._settings = settings
        self._clients = make_clients(settings.plan, settings.round_id, users, identities=settings.identities)

    def answer(self, phase: Phase, messages: Mapping[User, bytes]) -> Answers:
        """Every addressed user's reply in a phase."""
        answers = {}
        for user, message in messages.items():
            start = time.process_time()
            reply = self._reply(phase, user, message)
            answers[user] = (reply, time.process_time() - start)
        return answers

    def dismiss(self) -> None:
        """The round is over: forget the users."""
        self._clients.clear()

    def _reply(self, phase: Phase, user: User, message: bytes) -> bytes:
        client = self._clients[user]
        if phase is not Phase.MASK:
            return client.answer(phase, message)
        update = self._settings.inputs[user]
        clip = user not in self._settings.malicious
        return client.answer(phase, message, update, rounding=self._settings.rounding[user], clip=clip)


class ForkedWorkers:
    """Users spread over processes: some here, the others in processes behind pipes."""

    def __init__(self, settings: WorkerSettings, workers: int) -> None:
        context = multiprocessing.get_context("fork")
        users = settings.plan.users
        self._home: dict[User, int] = {user: index % workers for index, user in enumerate(users)}
        own = [[user for user in users if self._home[user] == worker] for worker in range(workers)]
        self._pipes: list[Connection] = []
        self._processes = []
        for theirs in own[1:]:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, settings, theirs), daemon=True)
            process.start()
            there.close()
            self._pipes.append(here)
            self._processes.append(process)
        self._here = LocalWorkers(settings, own[0])

    def answer(self, phase: Phase, messages: Mapping[User, bytes]) -> Answers:
        """Every addressed user's reply in a phase, all processes at work at once."""
        shares: list[dict[User, bytes]] = [{} for _ in range(len(self._pipes) + 1)]
        for user, message in messages.items():
            shares[self._home[user]][user] = message
        for pipe, share in zip(self._pipes, shares[1:], strict=True):
            with _named_if_ended():
                _send(pipe, (phase, share))
        found = self._here.answer(phase, shares[0])
        for pipe in self._pipes:
            with _named_if_ended():
                reply: Any = pipe.recv()
            if isinstance(reply, HeteroSagError):
                raise reply
            found |= reply
        return {user: found[user] for user in messages}

    def dismiss(self) -> None:
        """The round is over: end the processes."""
        self._here.dismiss()
        for pipe in self._pipes:
            try:
                _send(pipe, None)
            except (BrokenPipeError, OSError):
                continue  # that process has ended already
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            process.join(_PATIENCE)
            if process.is_alive():
                process.kill()
            pipe.close()


def _send(pipe: Connection, work: object) -> None:
    """As `pipe.send` does, but no error holds on to what was to be sent: Python 3.12.1 crashes when it lets go."""
    pipe.send_bytes(bytes(ForkingPickler.dumps(work)))


@contextmanager
def _named_if_ended() -> Iterator[None]:
    """Say of a pipe that is closed at its other end that the process there has ended."""
    try:
        yield
    except (EOFError, BrokenPipeError, ConnectionResetError):
        raise ChildProcessError(
            "a process that ran some of the users has ended: it was killed, or wrote what went wrong to standard error"
        ) from None


def _serve(pipe: Connection, settings: WorkerSettings, users: Sequence[User]) -> None:
    """A process's life: answer until told to stop."""
    workers = LocalWorkers(settings, users)
    while True:
        try:
            work = pipe.recv()
            if work is None:
                return
            _send(pipe, workers.answer(*work))
        except (EOFError, KeyboardInterrupt):
            return
        except HeteroSagError as error:
            _send(pipe, error)
            return


def all_cores() -> ParallelMap:
    """The `map` of a pool of threads, one for each core: for what releases the interpreter's lock, as masking does."""
    return _pool(os.getpid()).map


@lru_cache(maxsize=1)
def _pool(process: int) -> ThreadPoolExecutor:
    """A process's own pool: threads do not survive a fork."""
    return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix=f"heterosag-{process}")


def assemble(settings: WorkerSettings, workers: int) -> Workers:
    """Workers in this process, or in so many."""
    if not hasattr(workers, "__index__") or workers < 1:
        raise UsageError(f"workers is a number of processes, at least 1, not {workers!r}")
    workers = min(workers, len(settings.plan.users))  # more would have nobody to run
    if workers == 1:
        return LocalWorkers(settings, settings.plan.users)
    if sys.platform == "win32":
        raise UsageError("several workers need a system that can fork: use workers=1")
    return ForkedWorkers(settings, workers)
