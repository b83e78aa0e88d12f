"""Machines step after step, from docs/wire-format.md and the test vectors alone.

A case of machines.json or settling.json is one machine of a recorded round or enrolment that takes steps in order,
those after an error too. Each step must give what the case says: the recorded answer, other bytes, an error, or that a
message is taken or ignored, or the machine settled. What machines do is in naive_round.py and naive_plan.py; here they
are only driven.
"""

import math
from collections.abc import Callable
from typing import Any

from naive_plan import Charter, Enrolling, Enrolment, decode_plan
from naive_round import Plan, Server, Terms, User, recorded, same, sent
from naive_wire import RefusedError

Case = dict[str, Any]
Taken = Callable[[Case], tuple[Any, Any]]  # takes a step; what that gives, and what the recorded answer is


def play(case: Case) -> Any:
    """Take the steps of a machine, compare what each gives and how a client ends, and say what the last one gave."""
    machine, take = MACHINES[case["party"]](case)
    given: Any = None
    for number, step in enumerate(case["steps"]):
        try:
            given, answer = take(step)
        except RefusedError as error:
            given, answer = type(error).__name__, None
        gives = step.get("gives")  # of "receive all" nothing
        expected = answer if gives == "recorded" else gives
        same(f"{case['name']}: {step['do']}, step {number}", given, expected)
    if "client_is" in case:
        same(f"the state of a client after {case['name']}", machine.state, case["client_is"])
    return given


def check_machine(case: Case) -> list[Any]:
    """Take the steps of a case."""
    play(case)
    return []


def refuse_machine(case: Case) -> None:
    """Take the steps of a must-fail case, of which the last is refused with the error that the case names."""
    same(f"the error of {case['name']}", play(case), case["error"])


def settled_terms(case: Case, changes: Case, *, settled: bool = True) -> Terms:
    """Give what is known of a recorded round, but for what a step changes."""
    played = case["under"][case["round"]] | {name: one for name, one in changes.items() if name != "plan"}
    plan = decode_plan(case["under"]["plans"][changes["plan"]]) if "plan" in changes else Plan(played["plan"])
    metrics_only = changes.get("metrics_only", False)
    return Terms(plan, played["session"], played["number"], played["model"], metrics_only=metrics_only, settled=settled)


def first_terms(case: Case) -> tuple[Terms, dict[int, bytes]]:
    """Give what a machine begins with, which is not settled yet if the case says what that is, and the directory."""
    terms, directory = recorded(case["under"][case["round"]])
    return settled_terms(case, case["begins"], settled=False) if "begins" in case else terms, directory


def client(case: Case) -> tuple[User, Taken]:
    """Make a user of a recorded round."""
    played, me = case["under"][case["round"]], case["user"]
    terms, directory = first_terms(case)
    user = User(terms, dict(played["users"][me]), directory)

    def take(step: Case) -> tuple[Any, Any]:
        if step["do"] == "settle":
            user.settle(settled_terms(case, step))
            return "settled", None
        told, heard = sent(played, step["do"])
        message = step.get("message", next((data for users, data in told if me in users), b""))
        answer = next((data for sender, data in heard if sender == me), None)
        if user.given:  # a dead client has none
            update = played["users"][me]["update"]
            other = {"nan": math.nan, "zeros": 0.0}.get(step.get("update", ""))
            user.given["update"] = update if other is None else [other] * len(update)
        return user.answer(step["do"], message), answer

    return user, take


def server(case: Case) -> tuple[Server, Taken]:
    """Make the server of a recorded round."""
    played, one = case["under"][case["round"]], Server(*first_terms(case))

    def take(step: Case) -> tuple[Any, Any]:
        if step["do"] == "settle":
            one.settle(settled_terms(case, step))
            return "settled", None
        if step["do"] == "close":
            opened = dict(zip(one.phases, [*one.phases[1:], ""], strict=True)).get(one.phase, "")
            return one.close(), sent(played, opened)[0]
        if step["do"] == "combine":
            blocks, expected = one.combine(), played["blocks"]
            return [{name: block[name] for name in expected[0]} for block in blocks], expected
        heard = sent(played, step["phase"])[1]
        if step["do"] == "receive all":
            taken = [one.receive(sender, data) for sender, data in heard if sender not in step["without"]]
            return same("messages that are taken", taken, [True] * len(taken)), None
        message = step["message"] if "message" in step else dict(heard)[step["user"]]
        return "taken" if one.receive(step["user"], message) else "ignored", None

    return one, take


def enrolling(case: Case) -> tuple[Enrolling, Taken]:
    """Make a user of the recorded enrolment."""
    played = case["under"]["enrolment"]
    given = played["users"][case["user"]]
    charter, directory = charter_of(played)
    user = Enrolling(charter, given, directory)

    def take(step: Case) -> tuple[Any, Any]:
        if step["do"] == "commit":
            return user.commit(), given["commitment_message"]
        if step["do"] == "reveal":
            return user.reveal(step.get("message", played["commitments_message"])), given["reveal_message"]
        return user.finish(step.get("message", played["reveals_message"])).digest, played["plan_digest"]

    return user, take


def enrolment(case: Case) -> tuple[Enrolment, Taken]:
    """Make the server of the recorded enrolment."""
    played = case["under"]["enrolment"]
    one = Enrolment(*charter_of(played))
    names = {"commit": "commitment_message", "reveal": "reveal_message"}

    def take(step: Case) -> tuple[Any, Any]:
        if step["do"] == "close":
            shown = played["reveals_message" if one.context else "commitments_message"]
            return one.close(), [shown]
        heard = {given["index"]: given[names[step["phase"]]] for given in played["users"]}
        if step["do"] == "receive all":
            taken = [one.receive(sender, data) for sender, data in heard.items() if sender not in step["without"]]
            return same("messages that are taken", taken, [True] * len(taken)), None
        message = step.get("message", heard[step["user"]])
        return "taken" if one.receive(step["user"], message) else "ignored", None

    return one, take


def charter_of(played: Case) -> tuple[Charter, dict[int, bytes]]:
    """Give the charter of the recorded enrolment, and the directory."""
    directory = {one["index"]: one["identity_public"] for one in played["users"]}
    return Charter(played["charter_plan"], played["epoch"]), directory


MACHINES: dict[str, Callable[[Case], tuple[Any, Taken]]] = {
    "client": client,
    "server": server,
    "enrolling": enrolling,
    "enrolment": enrolment,
}
