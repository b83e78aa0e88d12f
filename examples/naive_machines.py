"""Machines step after step: the cases of machines.json and settling.json, with the naive user and server.

A case is a client or the server of a recorded round, or a user or the server of the recorded enrolment. Each of its
steps gives what is recorded, what the step says, or an error, and the machine goes on from there. Unlike the rest
this file, and how machines end in naive_round.py and naive_plan.py, follow the package as well as the pages.
"""

from typing import Any

from naive_plan import Charter, Enrolling, Enrolment
from naive_round import Plan, Server, Terms, User, expect_refusal, recorded, same, sent

Case = dict[str, Any]
COMMITS = {"commit": "commitment_message", "reveal": "reveal_message"}  # what a user of an enrolment sends
SHOWN = {"reveal": "commitments_message", "finish": "reveals_message"}  # what it is sent


def follow(case: Case) -> None:
    """Take every step of a case, and compare what it gives."""
    machine = MACHINES[case["party"]](case)
    for number, step in enumerate(case["steps"]):
        where, gives = f"step {number} of {case['name']}", step.get("gives")
        if isinstance(gives, str) and gives.endswith("Error"):
            expect_refusal({"name": where, "error": gives}, lambda step=step: machine.take(step))
        else:
            result = machine.take(step)
            same(where, result, machine.expected(step) if gives == "recorded" else gives)
    if "client_is" in case:
        same(f"the state after {case['name']}", machine.user.state, case["client_is"])


def settled(case: Case, given: Case) -> Terms:
    """Give the terms of a round as recorded, but for what a step says."""
    told = case["under"][case["round"]] | given
    plan = case["under"]["plans"][given["plan"]] if "plan" in given else told["plan"]
    alone = given.get("metrics_only", False)
    return Terms(Plan(plan), told["session"], told["number"], told["model"], metrics_only=alone)


class Client:
    """A user of a recorded round."""

    def __init__(self, case: Case) -> None:
        self.case, self.played = case, case["under"][case["round"]]
        terms, directory = recorded(self.played)
        begins = settled(case, case["begins"]) if "begins" in case else terms
        self.given = dict(self.played["users"][case["user"]])
        self.user = User(begins, self.given, directory, settled="begins" not in case)

    def take(self, step: Case) -> Any:
        """Settle the round, or give the user a message."""
        if step["do"] == "settle":
            self.user.settle(settled(self.case, step))
            return "settled"
        told = [message for users, message in sent(self.played, step["do"])[0] if self.case["user"] in users]
        update = self.given["update"]
        self.given["update"] = [float(step["update"])] * len(update) if "update" in step else update
        try:
            return self.user.answer(step["do"], step.get("message", told[0] if told else b""))
        finally:
            self.given["update"] = update

    def expected(self, step: Case) -> bytes:
        """Look up what the user sent."""
        return dict(sent(self.played, step["do"])[1])[self.case["user"]]


class Receiver:
    """The server of a recorded round."""

    def __init__(self, case: Case) -> None:
        self.case, self.played = case, case["under"][case["round"]]
        terms, directory = recorded(self.played)
        self.server = Server(settled(case, case["begins"]) if "begins" in case else terms, directory)

    def take(self, step: Case) -> Any:
        """Settle the round, receive messages, close a phase, or combine."""
        if step["do"] == "settle":
            self.server.settle(settled(self.case, step))
            return "settled"
        if step["do"] == "close":
            return self.server.close()
        if step["do"] == "combine":
            return [block["sums"] for block in self.server.combine()]
        messages = sent(self.played, step["phase"])[1]
        if step["do"] == "receive all":
            taken = [self.server.receive(*one) for one in messages if one[0] not in step["without"]]
            return same("messages that are taken", taken, [True] * len(taken))
        message = step.get("message", dict(messages).get(step["user"]))
        return "taken" if self.server.receive(step["user"], message) else "ignored"

    def expected(self, step: Case) -> Any:
        """Look up the sums, or what the server sent to open the phase that is open now."""
        if step["do"] == "combine":
            return [block["sums"] for block in self.played["blocks"]]
        return sent(self.played, self.server.phase)[0]


class Enroller:
    """A user of the recorded enrolment."""

    def __init__(self, case: Case) -> None:
        self.recorded = case["under"]["enrolment"]
        self.given = self.recorded["users"][case["user"]]
        charter = Charter(self.recorded["charter_plan"], self.recorded["epoch"])
        self.user = Enrolling(charter, self.given, identities(self.recorded))

    def take(self, step: Case) -> bytes:
        """Commit, or give the user a message."""
        if step["do"] == "commit":
            return self.user.commit()
        answer = getattr(self.user, step["do"])(step.get("message", self.recorded[SHOWN[step["do"]]]))
        return answer.digest if step["do"] == "finish" else answer

    def expected(self, step: Case) -> bytes:
        """Look up what the user sent, or the plan's digest."""
        return self.recorded["plan_digest"] if step["do"] == "finish" else self.given[COMMITS[step["do"]]]


class EnrolmentServer:
    """The server of the recorded enrolment."""

    def __init__(self, case: Case) -> None:
        self.recorded = case["under"]["enrolment"]
        charter = Charter(self.recorded["charter_plan"], self.recorded["epoch"])
        self.server, self.closed = Enrolment(charter, identities(self.recorded)), []

    def take(self, step: Case) -> Any:
        """Receive messages, or close a phase."""
        if step["do"] == "close":
            self.closed.append(self.server.close())
            return self.closed[-1]
        messages = {given["index"]: given[COMMITS[step["phase"]]] for given in self.recorded["users"]}
        if step["do"] == "receive all":
            for user in (user for user in messages if user not in step["without"]):
                self.server.receive(user, messages[user])
            return None
        self.server.receive(step["user"], step.get("message", messages[step["user"]]))
        return "taken"

    def expected(self, _: Case) -> list[bytes]:
        """Look up what the server showed."""
        return [self.recorded["commitments_message" if len(self.closed) == 1 else "reveals_message"]]


def identities(enrolled: Case) -> dict[int, bytes]:
    """Give the directory of an enrolment."""
    return {given["index"]: given["identity_public"] for given in enrolled["users"]}


MACHINES: dict[str, Any] = {
    "client": Client,
    "server": Receiver,
    "enrolling": Enroller,
    "enrolment": EnrolmentServer,
}
