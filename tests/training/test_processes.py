"""Work in processes of one thread each: all of it is done, once; failures and interrupts end it."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from heterosag.training.processes import one_thread, run_apart, run_each, shared_zeros


@pytest.mark.parametrize("processes", [1, 2, 5])
def test_every_number_is_worked_on_once_by_one_thread(processes: int) -> None:
    threads = torch.get_num_threads()
    done = shared_zeros((40, 3), np.int64)

    def work(number: int) -> None:
        done[number] += (1, torch.get_num_threads(), os.getpid())

    run_each(work, len(done), processes=processes)
    assert done[:, :2].tolist() == [[1, 1]] * 40
    assert (os.getpid() in done[:, 2]) == (processes == 1)
    assert torch.get_num_threads() == threads


def test_there_are_as_many_processes_as_torch_has_threads_and_no_more_than_work(tmp_path: Path) -> None:
    def work(number: int) -> None:
        (tmp_path / str(os.getpid())).touch()
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.001)

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        run_each(work, 6)
        assert len(list(tmp_path.iterdir())) == 2
    finally:
        torch.set_num_threads(threads)
    with one_thread():
        run_each(lambda number: (tmp_path / f"own{os.getpid()}").touch(), 6)
    assert (tmp_path / f"own{os.getpid()}").exists()
    run_each(lambda number: None, 0)


def test_gradients_can_be_computed_in_the_processes() -> None:
    weight = torch.ones(4, requires_grad=True)
    found = shared_zeros((3, 4))

    def work(number: int) -> None:
        found[number] = torch.autograd.grad((number * weight**2).sum(), weight)[0].numpy()

    work(1)
    run_each(work, 3, processes=2)
    assert found.tolist() == [[0.0] * 4, [2.0] * 4, [4.0] * 4]


def test_a_process_that_fails_or_is_killed_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    def fail(number: int) -> None:
        raise ValueError(f"no luck with {number}")

    with pytest.raises(ChildProcessError, match="a process that did a part of the work has failed"):
        run_each(fail, 3, processes=2)
    assert "no luck with" in capfd.readouterr().err
    with pytest.raises(ChildProcessError):
        run_each(lambda number: os.kill(os.getpid(), signal.SIGKILL), 3, processes=2)
    with pytest.raises(ValueError, match="no luck with 0"):
        run_each(fail, 3, processes=1)


def test_an_interrupt_ends_the_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal reaches them too, from a terminal; they leave it to their parent."""
    started = shared_zeros((4,), np.int64)

    def work(number: int) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        started[number] = os.getpid()
        time.sleep(60)

    def interrupt(process: multiprocessing.Process) -> None:
        while np.count_nonzero(started) < 2:
            time.sleep(0.001)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(multiprocessing.get_context("fork").Process, "join", interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_each(work, 4, processes=2)
    for process in started[started > 0]:
        with pytest.raises(ProcessLookupError):
            os.kill(int(process), 0)


def test_processes_that_may_not_fork_do_it_themselves() -> None:
    """A daemonic process may have no children."""
    done = shared_zeros((3,), np.int64)

    def work(number: int) -> None:
        done[number] = os.getpid()

    process = multiprocessing.get_context("fork").Process(target=run_each, args=(work, 3), daemon=True)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert set(done.tolist()) == {process.pid}


def test_nobody_works_on_for_a_parent_that_has_gone() -> None:
    done = shared_zeros((50,), np.int64)

    def lead() -> None:
        own = os.getpid()

        def work(number: int) -> None:
            done[number] = os.getpid()
            time.sleep(0.05)
            if number == 1:
                os.kill(own, signal.SIGKILL)

        run_each(work, len(done), processes=2)

    leader = multiprocessing.get_context("fork").Process(target=lead)
    leader.start()
    leader.join()
    assert leader.exitcode == -signal.SIGKILL
    children = set(done[done > 0].tolist())
    until = time.monotonic() + 30
    while any(_alive(child) for child in children) and time.monotonic() < until:
        time.sleep(0.01)
    assert not any(_alive(child) for child in children)
    assert np.count_nonzero(done) < 50


def _alive(process: int) -> bool:
    """Whether a process runs; one that has ended and that nobody waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_work_apart_is_done_once_in_another_process_by_one_thread() -> None:
    done = shared_zeros((3,), np.int64)

    def work() -> None:
        done[:] += (1, torch.get_num_threads(), os.getpid())

    run_apart(work)
    assert done[:2].tolist() == [1, 1]
    assert done[2] != os.getpid()
