"""The program itself: version, help, and how an error ends it."""

import pytest
from command import run_command as run

from heterosag.report import rounds


def test_version_and_help() -> None:
    import heterosag

    assert run("--version").stdout == f"heterosag {heterosag.__version__}\n"
    assert "plan" in run("--help").stdout
    assert "--subgroup-size" in run("plan", "--help").stdout


def test_a_command_that_there_is_not_is_answered_with_what_was_meant_once() -> None:
    assert run("optimise", expect=2).stderr.count("Did you mean 'optimize'?") == 1
    assert run("paint", expect=2).stderr.count("Did you mean") == 1


def test_an_error_is_one_line_and_an_unknown_flag_shows_the_usage() -> None:
    (line,) = run("plan", "--classes", "1", expect=2).stderr.splitlines()
    assert line.startswith("heterosag: ")
    for words in ("plan --colour", "plan --dimension x", "plan --design x", "paint"):
        shown = run(*words.split(), expect=2).stderr
        assert shown.startswith("Usage: heterosag ")
        assert "Error: " in shown


def test_a_process_of_the_program_that_ended_is_a_line_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*given: object, **named: object) -> None:
        raise ChildProcessError("a process has ended")

    monkeypatch.setattr(rounds, "run", end)
    assert run("round", expect=2).stderr == "heterosag: a process has ended\n"
