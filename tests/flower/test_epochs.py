"""Plans on Flower: with identities the nodes draw together who is assigned to which subgroup."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_nodes import (
    FIRST_NODE,
    LEVEL,
    LOOSE,
    OPTIONS,
    Node,
    arrays,
    grid_of,
    make_nodes,
    messages,
    signed_nodes,
    train,
)
from flwr.app import ConfigRecord, Message, RecordDict

from heterosag import Plan
from heterosag.errors import PlanError, UsageError
from heterosag.flower import SecureGrid, mod
from heterosag.plan.notes import WITHOUT_IDENTITIES
from heterosag.protocol import Identity, Policy
from heterosag.storage.run_log import read_run

pytest.importorskip("flwr")

from flower_nodes import (
    LocalGrid,
    told_at_home,
)


def one_round(grid: SecureGrid, nodes: list[Node]) -> Message:
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    return reply


def test_nodes_draw_their_assignment_and_check_the_plan(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(12, tmp_path)
    plans = []
    for _ in range(2):
        grid, _ = grid_of(nodes, directory=directory)
        assert not one_round(grid, nodes).has_error()
        plan = grid.rounds[0].plan
        assert plan is not None
        assert isinstance(plan.assignment_seed, bytes)
        plans.append(plan)
    assert plans[0].assignment_seed != plans[1].assignment_seed


@pytest.mark.parametrize("signed", [True, False])
def test_that_identities_are_missing_is_said_only_where_they_are(
    signed: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, directory = signed_nodes(6, tmp_path) if signed else (make_nodes(6, tmp_path, train), None)
    grid, _ = grid_of(nodes, directory=directory, options={"design": "secagg", "subgroup_size": 6}, record=tmp_path)
    assert not one_round(grid, nodes).has_error()
    grid.close()
    assert grid.record_folder is not None
    run = read_run(grid.record_folder)
    assert run.config["identities"] == signed
    assert (WITHOUT_IDENTITIES in run.plan["notes"]) != signed
    assert (WITHOUT_IDENTITIES in caplog.text) != signed


def test_a_server_that_assigns_nodes_by_itself_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes, directory = signed_nodes(12, tmp_path)
    grid, _ = grid_of(nodes, directory=directory, assignment="server")
    assert one_round(grid, nodes).has_error()
    assert "has assigned the nodes to subgroups by itself" in caplog.text


def test_nodes_may_allow_the_server_to_assign(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(12, tmp_path, assignment="server")
    grid, _ = grid_of(nodes, directory=directory, assignment="server")
    assert not one_round(grid, nodes).has_error()
    assert grid.rounds[0].trips == 5


def test_a_plan_that_the_policy_pins_needs_no_enrolment(tmp_path: Path) -> None:
    users = [str(FIRST_NODE + 1000 * place) for place in range(12)]
    plan = Plan.build([12], [LEVEL], 35, subgroup_size=3, min_survivors=2, users=users, value_range=0.5)
    nodes, directory = signed_nodes(12, tmp_path, policy=Policy.exactly(plan, ranges=(0.1, 1.0)))
    grid = SecureGrid(grid_of(nodes)[1], plan=plan, directory=directory, adapt_range=False)
    assert not one_round(grid, nodes).has_error()
    other = replace(plan, assignment_seed=7)
    grid = SecureGrid(grid_of(nodes)[1], plan=other, directory=directory, adapt_range=False)
    assert one_round(grid, nodes).has_error()


def test_a_server_that_shows_another_plan_than_was_drawn_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes, directory = signed_nodes(12, tmp_path)
    grid, _ = grid_of(nodes, directory=directory)
    drawn = grid._epochs._enrol

    def others(*arguments: Any) -> Plan:
        plan = drawn(*arguments)
        chosen = replace(plan, assignment_seed=b"the server's own choice")
        grid._epochs._reveals[chosen.frame] = grid._epochs._reveals[plan.frame]
        return chosen

    grid._epochs._enrol = others  # type: ignore[method-assign]
    assert one_round(grid, nodes).has_error()
    assert "another one than the nodes drew together" in caplog.text


@pytest.mark.parametrize("stage", ["commit", "reveal"])
@pytest.mark.parametrize("what", ["silent", pytest.param("reborn", marks=pytest.mark.slow)])
def test_whoever_is_silent_while_they_draw_is_not_in_the_epoch(stage: str, what: str, tmp_path: Path) -> None:
    nodes, directory = signed_nodes(13, tmp_path)
    victim = nodes[5].context.node_id
    grid, inside = grid_of(
        nodes, lambda at, node, _: what if (at, node) == (stage, victim) else "", directory=directory
    )
    assert not one_round(grid, nodes).has_error()
    lost = (stage, what) != ("commit", "reborn")  # nothing was kept before the commit
    assert len(grid.rounds[0].survivors) == 13 - lost
    assert (victim in grid.rounds[0].lost) == lost
    assert sum(at == "commit" for at, _ in inside.log) == (13 + 12 if lost else 13)
    assert not one_round(grid, nodes).has_error()
    assert grid.rounds[1].trips == 3


def test_nodes_that_take_turns_to_withhold_end_one_round_and_not_the_run(tmp_path: Path) -> None:
    """Each try fails by another node, after everybody else has revealed, which a node does so often in a run."""
    nodes, directory = signed_nodes(12, tmp_path, policy=replace(LOOSE, max_epochs=4))
    tries = 0

    def withhold(stage: str, node: int, message: Message) -> str:
        nonlocal tries
        del message
        tries += (stage, node) == ("commit", nodes[-1].context.node_id)
        return "silent" if stage == "reveal" and node == nodes[(tries - 1) % 3].context.node_id else ""

    grid, _ = grid_of(nodes, withhold, directory=directory)
    assert "silent in 3 enrolments" in str(one_round(grid, nodes).error.reason)
    for _ in range(2):
        assert not one_round(grid, nodes).has_error()
    assert set(grid.rounds[1].survivors) == {node.context.node_id for node in nodes[3:]}
    assert "did not reveal what it had committed to" in grid.rounds[2].lost[FIRST_NODE]
    assert grid.rounds[2].trips == 3


def test_one_node_cannot_have_others_excluded_by_using_their_draws_up(tmp_path: Path) -> None:
    """Nodes that may draw no more must not commit: the grid would take those who refuse to reveal for malicious."""
    identities = [Identity.generate() for _ in range(13)]
    directory = {str(FIRST_NODE + 1000 * place): own.public for place, own in enumerate(identities)}

    def secure(place: int) -> Any:
        policy = LOOSE if place == 12 else replace(LOOSE, max_epochs=3)
        return mod(identity=identities[place], directory=directory, policy=policy, release_log=tmp_path)

    nodes = make_nodes(13, tmp_path, train, secure=secure)
    malicious, seen = nodes[-1].context.node_id, 0

    def withhold_once(stage: str, node: int, message: Message) -> str:
        nonlocal seen
        seen += (stage, node) == ("reveal", malicious)
        return "silent" if (stage, node, seen) == ("reveal", malicious, 2) else ""

    grid, _ = grid_of(nodes, withhold_once, directory=directory, stop_after=0)
    assert not one_round(grid, nodes).has_error()
    for out in range(2):  # other nodes each time, so that all draw again
        one_round(grid, nodes[:out] + nodes[out + 1 :])
    assert grid._epochs.withheld <= {malicious}
    assert not one_round(grid, nodes).has_error()  # with the plan that all of them drew
    assert len(grid.rounds[-1].survivors) == 13


@pytest.mark.long
def test_whoever_has_withheld_still_takes_part_in_what_it_drew_before(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(13, tmp_path)
    grid, _ = grid_of(nodes, directory=directory)
    assert not one_round(grid, nodes).has_error()
    grid._epochs.withheld.add(FIRST_NODE)
    assert not one_round(grid, nodes).has_error()
    assert (grid.rounds[1].lost, grid.rounds[1].trips) == ({}, 3)
    assert not one_round(grid, nodes[:-1]).has_error()
    assert set(grid.rounds[2].lost) == {FIRST_NODE}


def test_reveals_that_are_all_lost_end_one_round_and_not_the_run(tmp_path: Path) -> None:
    """The nodes have revealed, and do so again only without one of them."""
    nodes, directory = signed_nodes(13, tmp_path)
    lost = [True]
    grid, _ = grid_of(nodes, lambda stage, *_: "crash" if stage == "reveal" and lost[0] else "", directory=directory)
    assert "no node draws" in str(one_round(grid, nodes).error.reason)
    lost[0] = False
    assert not one_round(grid, nodes).has_error()
    assert len(grid.rounds[1].survivors) == 12


def test_whoever_was_silent_before_may_draw_after_tries_that_came_to_nothing(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(14, tmp_path)
    ids = [node.context.node_id for node in nodes]
    tries = 0

    def fault(stage: str, node: int, message: Message) -> str:
        nonlocal tries
        del message
        tries += (stage, node) == ("commit", ids[-1])
        return (
            "crash"
            if (tries, stage, node) in {(0, "commit", ids[0]), (2, "reveal", ids[1]), (3, "reveal", ids[2])}
            else ""
        )

    grid, _ = grid_of(nodes, fault, directory=directory)
    assert "silent in 3 enrolments" in str(one_round(grid, nodes).error.reason)
    assert not one_round(grid, nodes).has_error()
    assert set(grid.rounds[1].survivors) == {ids[0], *ids[3:]}


def test_garbage_while_they_draw_costs_the_sender_its_place(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(13, tmp_path)
    plain = nodes[5].app

    def garbage(message: Message, context: Any) -> Message:
        if message.content["heterosag"]["stages"] == ["commit"]:  # type: ignore[index]
            return Message(RecordDict({"heterosag": ConfigRecord({"message": b"x"})}), reply_to=message)
        return plain(message, context)

    nodes[5].app = garbage  # type: ignore[assignment]
    grid, _ = grid_of(nodes, directory=directory)
    assert not one_round(grid, nodes).has_error()
    assert len(grid.rounds[0].survivors) == 12


def test_nobody_draws_together_is_a_named_error(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(24, tmp_path)
    tries = [0]

    def fault(stage: str, node: int, message: Message) -> str:
        del message
        tries[0] += (stage, node) == ("commit", FIRST_NODE)
        return "silent" if stage == "commit" and node == FIRST_NODE + 1000 * tries[0] else ""

    grid, _ = grid_of(nodes, fault, directory=directory)
    assert "3 enrolments" in str(one_round(grid, nodes).error.reason)


def test_a_seed_of_the_servers_own_is_asked_for_by_name(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(12, tmp_path)
    with pytest.raises(PlanError, match="assignment='server'"):
        grid_of(nodes, directory=directory, options={"assignment_seed": 1})
    with pytest.raises(PlanError, match="'enrolled' or 'server'"):
        grid_of(nodes, directory=directory, assignment="nobody")


def test_two_classes_of_one_level_are_refused_where_nodes_would_draw(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(12, tmp_path)
    with pytest.raises(PlanError, match=r"two classes of one level.*one class, or say assignment='server'") as refusal:
        grid_of(nodes, directory=directory, levels=[5, 17, 17])
    assert refusal.value.field == "levels"
    grid_of(nodes, directory=directory, levels=[17, 17], assignment="server")
    grid_of(nodes, levels=[17, 17])


@pytest.mark.parametrize("shape", [{"design": "secagg"}, {"subgroup_size": 3, "min_survivors": 2}])
def test_a_robust_rule_on_one_block_is_refused(shape: dict[str, Any], tmp_path: Path) -> None:
    """Six nodes in two subgroups are one block too."""
    nodes = make_nodes(6, tmp_path, train)
    plan = Plan.build([6], [LEVEL], 35, users=[str(node.context.node_id) for node in nodes], value_range=0.5, **shape)
    with pytest.raises(UsageError, match="'median' has no effect on one block"):
        SecureGrid(LocalGrid(nodes), plan=plan, rule="median")
    grid, inside = grid_of(nodes, rule="median", options=shape)
    assert "UsageError: the rule 'median' has no effect on one block" in str(one_round(grid, nodes).error.reason)
    assert inside.log == []


@pytest.mark.slow
def test_a_robust_rule_may_have_a_block_of_each_cohort(tmp_path: Path) -> None:
    nodes = make_nodes(18, tmp_path, train)
    grid, _ = grid_of(nodes, rule="median", cohort_size=6, options={**OPTIONS, "design": "secagg"})
    assert not one_round(grid, nodes).has_error()


def test_nodes_that_are_too_few_for_a_robust_rule_do_not_draw(tmp_path: Path) -> None:
    nodes, directory = signed_nodes(12, tmp_path)
    silent = {node.context.node_id for node in nodes[6:]}
    grid, inside = grid_of(
        nodes,
        lambda stage, node, _: "silent" if stage == "commit" and node in silent else "",
        directory=directory,
        rule="median",
    )
    assert "has no effect on one block" in str(one_round(grid, nodes).error.reason)
    assert {stage for stage, _ in inside.log} == {"commit"}


def test_nodes_name_their_class_once(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train, config=lambda place: {"heterosag-class": place % 2})
    grid, inside = grid_of(nodes, levels=[5, 17])
    for _ in range(2):
        list(grid.send_and_receive(messages(nodes, arrays())))
    assert sum(stage == "hello" for stage, _ in inside.log) == 12
    plan = grid.rounds[1].plan
    assert plan is not None
    assert plan.classes == (6, 6)
    for place, node in enumerate(nodes):
        assert plan.subgroups[plan.subgroup_of(str(node.context.node_id))].user_class == place % 2


def test_nodes_name_their_rate(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train, config=lambda place: {"heterosag-rate": 0.5 + place})
    grid, _ = grid_of(nodes, levels=[5, 17], rate_limits=[6.0])
    list(grid.send_and_receive(messages(nodes, arrays())))
    plan = grid.rounds[0].plan
    assert plan is not None
    assert plan.classes == (6, 6)


def test_a_node_that_names_nothing_is_left_out(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train, config=lambda place: {"heterosag-class": 0} if place else {})
    grid, _ = grid_of(nodes, levels=[5, 17])
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert not reply.has_error()
    assert "heterosag-class" in grid.rounds[0].lost[FIRST_NODE]
    assert len(grid.rounds[0].survivors) == 11


def test_a_changing_set_of_nodes_gets_a_new_plan(tmp_path: Path) -> None:
    nodes = make_nodes(12, tmp_path, train)
    grid, _ = grid_of(nodes)
    for chosen in (nodes, nodes, nodes[3:]):
        (reply,) = grid.send_and_receive(messages(chosen, arrays()))
        assert not reply.has_error()
    plans = [done.plan for done in grid.rounds]
    assert plans[0] == plans[1]
    assert plans[2] is not None
    assert len(plans[2].users) == 9


def test_a_plan_given_is_used_or_refused(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    users = [str(node.context.node_id) for node in nodes]
    plan = Plan.build([6], [LEVEL], 35, subgroup_size=3, min_survivors=2, users=users, value_range=(-0.75, 0.75))
    grid = SecureGrid(LocalGrid(nodes), plan=plan, adapt_range=False)
    list(grid.send_and_receive(messages(nodes, arrays())))
    assert grid.rounds[0].plan == plan
    (reply,) = grid.send_and_receive(messages(nodes[1:], arrays()))
    assert "other nodes" in str(reply.error.reason)
    (reply,) = grid.send_and_receive(messages(nodes, {"w": np.zeros(9, dtype=np.float32)}))
    assert "the plan given is for 35 elements" in str(reply.error.reason) or "35" in str(reply.error.reason)
    for more in ({"metrics": ["loss"]}, {"max_weight": 4}, {"options": {"min_survivors": 2}}):
        with pytest.raises(PlanError, match="a plan given has its own"):
            SecureGrid(LocalGrid(nodes), plan=plan, **more)  # type: ignore[arg-type]


def test_a_class_without_nodes_and_classes_nobody_asked_for(tmp_path: Path) -> None:
    nodes = make_nodes(9, tmp_path, train, config=lambda place: {"heterosag-class": 1})
    for levels in ([5, 17], [17]):
        grid, _ = grid_of(nodes, levels=levels)
        (reply,) = grid.send_and_receive(messages(nodes, arrays()))
        assert not reply.has_error()
        assert len(grid.rounds[0].survivors) == 9


@pytest.mark.parametrize("classes", [5, "x", [0.5], ["a"]])
def test_classes_that_are_none_are_refused_by_name(
    classes: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = make_nodes(6, tmp_path, train)

    def spoil(stage: str, node: int, message: Message) -> str:
        del stage
        own: Any = message.content.config_records["heterosag"]
        if node == FIRST_NODE and "plan" in own:
            own["classes"] = classes
        return ""

    grid, _ = grid_of(nodes, spoil)
    list(grid.send_and_receive(messages(nodes, arrays())))
    told_at_home(caplog, "'classes' is missing or no list of int", grid.rounds[0].lost[FIRST_NODE])


@pytest.mark.parametrize(("count", "rule"), [(2, "mean"), (3, "mean"), (3, "median")])
def test_few_nodes_get_one_error_that_names_everything_to_change(count: int, rule: str, tmp_path: Path) -> None:
    """And what it names works, to the letter."""
    nodes = make_nodes(count, tmp_path / "before", train)
    grid, _ = grid_of(nodes, options=None, rule=rule)
    reply = one_round(grid, nodes)
    pattern = r"SecureGrid\((?:rule='(mean)', )?options=(\{.*?\})\).*mod\(policy=Policy\((.*?)\)\)"
    found = re.search(pattern, reply.error.reason)
    assert found is not None, reply.error.reason
    policy = Policy(**{name: int(value) for name, _, value in (one.partition("=") for one in found[3].split(", "))})
    own = mod(trust_server=True, release_log=tmp_path / "after", policy=policy)
    nodes = make_nodes(count, tmp_path, train, secure=lambda _: own)
    grid, _ = grid_of(nodes, options=ast.literal_eval(found[2]), rule=found[1] or rule)
    assert not one_round(grid, nodes).has_error()


def test_one_node_is_told_that_there_must_be_more(tmp_path: Path) -> None:
    nodes = make_nodes(1, tmp_path, train)
    grid, _ = grid_of(nodes, options=None)
    assert "there must be more" in one_round(grid, nodes).error.reason
