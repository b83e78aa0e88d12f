"""Run the tests of many mutants after collecting them once: a pytest plugin.

mutmut starts pytest anew for every mutant, and most of its time goes into collecting tests. Here tests are collected
once; then every mutant gets a process of its own, forked from that state, which runs the tests that reach the mutant
until one fails. A test that takes far longer than it does without a mutant counts as failed.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from mutmut.mutation import trampoline

UNNOTICED, NOTICED = 0, 1
_TIMES_LONGER, _MORE_SECONDS = 10, 10
_MEMORY = 8 << 30


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mutants")
    group.addoption("--mutants-of", type=Path, help="JSON: the tests of each mutant in their order, and their seconds")
    group.addoption("--ends", type=Path, help="a line of JSON for each mutant is added here: its name, how it ended")
    group.addoption("--children", type=int, default=1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """In the place of pytest's own loop: the tests of one mutant after another."""
    if session.config.option.collectonly:
        return True
    given = json.loads(session.config.getoption("mutants_of").read_text(encoding="utf-8"))
    items = {item.nodeid: item for item in session.items}
    seconds: dict[str, float] = given["seconds"]
    running: dict[int, tuple[str, str]] = {}
    with session.config.getoption("ends").open("a", encoding="utf-8") as ends:

        def wait() -> None:
            child, status = os.wait()
            name, folder = running.pop(child)
            shutil.rmtree(folder, ignore_errors=True)
            end = UNNOTICED if os.waitstatus_to_exitcode(status) == 0 else NOTICED
            ends.write(json.dumps([name, end]) + "\n")
            ends.flush()

        for name, tests in given["tests"].items():
            while len(running) >= session.config.getoption("children"):
                wait()
            folder = tempfile.mkdtemp()
            child = os.fork()
            if child == 0:
                _run(session, name, [(items[test], seconds.get(test, 0.0)) for test in tests], folder)
            running[child] = name, folder
        while running:
            wait()
    return True


def _run(session: pytest.Session, mutant: str, tests: Sequence[tuple[pytest.Item, float]], folder: str) -> None:
    """In a child: run these tests under a mutant, and end with 1 at the first that fails."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
    os.environ["MUTANT_UNDER_TEST"] = mutant
    trampoline.get_mutant_under_test = lambda: mutant  # which it would look up in the environment at every call
    try:
        for place, (item, usual) in enumerate(tests):
            signal.alarm(_MORE_SECONDS + round(_TIMES_LONGER * usual))  # which ends the process
            following = tests[place + 1][0] if place + 1 < len(tests) else None
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.testsfailed:
                os._exit(NOTICED)
        os._exit(UNNOTICED)
    finally:  # whatever went wrong was this mutant's doing
        os._exit(NOTICED)
