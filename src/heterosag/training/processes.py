"""Independent pieces of work in processes of one thread each.

Threads of one process that share a small convolution wait for each other in a loop, and fall to a tenth of their speed
whenever something else runs. Processes do not wait, and what each computes with one thread does not depend on how many
there are: the same bits come out on one core and on sixteen.

Processes are forked when the work is there, so that model and data are never copied or pickled. What they find goes
into arrays that were shared before (`shared_zeros`).
"""

from __future__ import annotations

import math
import mmap
import multiprocessing  # noqa: TID251 - forks that share memory; nothing is pickled
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["one_thread", "run_apart", "run_each", "shared_zeros"]


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch with one thread in this process, and as before afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def shared_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
    """An array of zeros in memory that processes forked from this one share with it."""
    kind = np.dtype(dtype)
    memory = mmap.mmap(-1, max(1, math.prod(shape) * kind.itemsize))
    return np.frombuffer(memory, dtype=kind, count=math.prod(shape)).reshape(shape)


def run_each(work: Callable[[int], None], count: int, *, processes: int | None = None) -> None:
    """Call `work` with every number below `count`, once, in any order, each call on one thread.

    Args:
        work: What is done with a number; its results go into a shared array.
        count: How many numbers there are.
        processes: How many processes do it (default: as many as torch has threads). One is this process itself, as it
            is where processes cannot be forked.

    Raises:
        ChildProcessError: A process failed, and wrote why to standard error, or was killed.

    Example:
        >>> squares = shared_zeros((5,), np.int64)
        >>> def square(number: int) -> None:
        ...     squares[number] = number**2
        >>> run_each(square, 5, processes=2)
        >>> squares.tolist()
        [0, 1, 4, 9, 16]
    """
    wanted = min(torch.get_num_threads() if processes is None else processes, count)
    with one_thread():
        if wanted > 1 and _can_fork():
            _fork(work, count, wanted)
        else:
            for number in range(count):
                work(number)


def run_apart(work: Callable[[], None]) -> None:
    """Call `work` once on one thread, in a process of its own where processes can be forked.

    Args:
        work: What is done; its results go into a shared array.

    Raises:
        ChildProcessError: As for `run_each`.
    """
    with one_thread():
        if _can_fork():
            _fork(lambda _: work(), 1, 1)
        else:
            work()


def _can_fork() -> bool:
    return sys.platform != "win32" and not multiprocessing.current_process().daemon


def _fork(work: Callable[[int], None], count: int, processes: int) -> None:
    """The calls in forked processes, each taking the next number when it is done with one.

    This process only waits. Once it has computed gradients itself, torch may refuse to compute them in its children.
    """
    context = multiprocessing.get_context("fork")
    following = context.Value("q", 0)
    arguments = (work, count, following, os.getpid())
    workers = [context.Process(target=_take_numbers, args=arguments, daemon=True) for _ in range(processes)]
    try:
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        for worker in workers:
            if worker.is_alive():
                worker.kill()
                worker.join()
    if any(worker.exitcode for worker in workers):
        raise ChildProcessError(
            "a process that did a part of the work has failed: it was killed, or wrote what went wrong to standard "
            "error"
        )


def _take_numbers(work: Callable[[int], None], count: int, following: Any, parent: int) -> None:
    """A process's life: number after number, until there are no more or nobody waits for them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    while os.getppid() == parent:
        with following.get_lock():
            number = following.value
            following.value = number + 1
        if number >= count:
            return
        work(number)
