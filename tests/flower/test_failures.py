"""A run whose rounds fail one after another is stopped, and says why once for each reason."""

from pathlib import Path
from typing import Any

import pytest
from flower_nodes import arrays, grid_of, make_nodes, messages, train

from heterosag.errors import PlanError
from heterosag.flower import StoppedRunError
from heterosag.flower.failures import Failures
from heterosag.flower.rounds import Round, Work


def failed(number: int, error: str, **lost: str) -> Round:
    return Round(number=number, nodes=(1, 2), error=error, lost={int(node[1:]): why for node, why in lost.items()})


def test_only_failures_in_a_row_stop_a_run() -> None:
    failures = Failures(2)
    for number in range(5):
        failures.note(failed(number, "PlanError: x" if number % 2 else ""))
    failures.note(failed(7, "PlanError: x"))
    with pytest.raises(StoppedRunError):
        failures.note(failed(8, "PlanError: x"))
    failures.note(failed(9, "PlanError: x"))  # counted from the start again
    for number in range(10):
        Failures(0).note(failed(number, "PlanError: x"))


def test_each_reason_has_one_line(caplog: pytest.LogCaptureFixture) -> None:
    failures, few = Failures(3), "TooFewSurvivorsError: 0 users are left"
    failures.note(failed(1, f"{few} (all nodes were lost, most at advertise: no mod)", n1="no mod", n2="no mod"))
    failures.note(failed(2, few, n1="no mod"))
    with pytest.raises(StoppedRunError) as stopped:
        failures.note(failed(3, "PlanError: users", n2="no reply in time"))
    assert stopped.value.rounds == 3
    assert stopped.value.reasons == [
        f"2 of 3 rounds: {few}",
        "1 of 3 rounds: PlanError: users",
        "3 times a node was lost no mod",
        "1 times a node was lost no reply in time",
    ]
    assert [record.message.strip(" \t>") for record in caplog.records[-4:]] == stopped.value.reasons


def test_what_a_round_says_of_its_nodes_is_left_out_of_its_reason() -> None:
    nodes: Any = dict.fromkeys((1, 2))
    work = Work(number=1, messages=nodes, message_type="train")
    for node in nodes:
        work.lose(node, "advertise", "no mod")
    error = work.reason(PlanError("users", "too few"))
    assert error == "PlanError: users: too few (all nodes were lost, most at advertise: no mod)"
    with pytest.raises(StoppedRunError) as stopped:
        Failures(1).note(failed(1, error))
    assert stopped.value.reasons == ["1 of 1 rounds: PlanError: users: too few"]


def test_nodes_without_the_mod_stop_the_run(tmp_path: Path) -> None:
    nodes = make_nodes(4, tmp_path, train, secure=lambda place: None)
    grid, inside = grid_of(nodes, stop_after=2)
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert reply.has_error()
    with pytest.raises(StoppedRunError, match="does its ClientApp have the heterosag mod"):
        grid.send_and_receive(messages(nodes, arrays()))
    assert len(grid.rounds) == 2
    assert len(inside.log) == 8
