"""Rounds in a row: what rides on what, what is refused, and every sum against the oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import examples
from hypothesis import given
from hypothesis import strategies as st
from rounds import small_plan

from heterosag.aggregation.combine import combine
from heterosag.aggregation.rules import find_rule
from heterosag.errors import FaultyServerError, HeteroSagError, PlanError, TooFewSurvivorsError, UsageError, WireError
from heterosag.ledger import Ledger
from heterosag.plan import Plan
from heterosag.protocol import Client, Identity, Policy, RoundId
from heterosag.protocol import messages as wire
from heterosag.protocol.pipeline import Answer, ClientPipeline, Part, ServerPipeline
from heterosag.protocol.release_log import MemoryReleaseLog
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.survivors import outcome
from heterosag.protocol.transitions import ClientPhase, Phase

SESSION = b"test"
Lost = Callable[[int, Phase, Any], bool]


class Federation:
    """Users and a server in this process; `lost` says who misses which trip of which of its rounds."""

    def __init__(self, plan: Plan, *, signed: bool = False, **options: Any) -> None:
        self.plan = plan
        self.identities = {user: Identity.generate() for user in plan.users} if signed else None
        directory = None if self.identities is None else {user: one.public for user, one in self.identities.items()}
        self.server = ServerPipeline(SESSION, directory=directory, **options)
        self.logs = {user: MemoryReleaseLog() for user in plan.users}
        self.users = {user: self.make_user(user) for user in plan.users}
        self.trips: list[int] = []
        self.answered: dict[int, dict[Any, set[Phase]]] = {}
        self.last: dict[Any, list[Part]] = {}

    def make_user(self, user: Any, **changes: Any) -> ClientPipeline:
        identity = None if self.identities is None else self.identities[user]
        directory = None if self.identities is None else {name: one.public for name, one in self.identities.items()}
        options: dict[str, Any] = {
            "identity": identity,
            "directory": directory,
            "trust_server": identity is None,
            "policy": Policy.any_plan(),
            "release_log": self.logs[user],
            **changes,
        }
        return ClientPipeline(self.plan, user, SESSION, **options)

    def mask(self, plan: Plan, model: bytes, metrics_only: bool = False) -> Callable[[Client, Part], bytes]:
        def answer(client: Client, part: Part) -> bytes:
            round_id = RoundId(session=SESSION, number=part.number, model=model, metrics_only=metrics_only)
            client.settle(plan, round_id)
            index = plan.index(client.user)
            vector = np.empty(0) if metrics_only else self.updates()[index]
            metrics = dict.fromkeys(plan.metrics, float(index))
            return client.mask(part.message, vector, metrics=metrics, rounding=Rounding.from_seed(1, index, 0))

        return answer

    def updates(self) -> Any:
        return np.random.default_rng(7).uniform(-1, 1, (len(self.plan.users), self.plan.dimension))

    def run(
        self, lost: Lost | None = None, *, plan: Plan | None = None, model: bytes = bytes(32), guard: Any = None,
        metrics_only: bool = False,
    ) -> Any:  # fmt: skip
        """One round; what the server decoded."""
        chosen = plan or self.plan
        self.server.begin(chosen, guard=guard)
        self.server.settle(chosen, model=model, metrics_only=metrics_only)
        try:
            while not self.server.done:
                self.trip(lost, self.mask(chosen, model, metrics_only))
        finally:
            self.trips.append(self.server.trips)
        return self.server.decoded

    def trip(self, lost: Lost | None, mask: Callable[[Client, Part], bytes]) -> None:
        phase, number = self.server.phase, self.server.number
        self.last = self.server.send()
        for user, parts in self.last.items():
            if lost is not None and lost(number, phase, user):
                continue
            self.deliver(user, self.users[user].answer(parts, mask))
        self.server.close()

    def deliver(self, user: Any, answers: list[Answer]) -> None:
        for answer in answers:
            if answer.error is None:
                self.server.receive(user, answer.number, answer.message)
                self.answered.setdefault(answer.number, {}).setdefault(user, set()).add(answer.phase)

    def expected(self, number: int) -> Any:
        """What the oracle says of a round, from who answered in which of its phases."""
        answered = self.answered.get(number, {})
        dropped = {}
        for user in self.plan.users:
            missing = [phase for phase in self.phases() if phase not in answered.get(user, set())]
            if missing:
                dropped[user] = missing[0]
        return outcome(self.plan, dropped, identities=self.identities is not None)

    def phases(self) -> list[Phase]:
        return [phase for phase in Phase if phase is not Phase.AGREE or self.identities is not None]


def sums_are_exact(federation: Federation, decoded: Any) -> None:
    """The mean over the survivors is that of their updates, within a step of the quantizer."""
    plan = federation.plan
    found = combine(plan, decoded, find_rule("mean")).vector
    alive = [plan.index(user) for user in decoded.survivors]
    step = 2.0
    assert np.abs(found - federation.updates()[alive].mean(axis=0)).max() < step


# --- trips ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("signed", "trips"), [(False, [4, 2, 2, 2]), (True, [5, 3, 3, 3])])
def test_stages_fall_to_two_and_three(signed: bool, trips: list[int]) -> None:
    federation = Federation(small_plan(), signed=signed)
    for _ in trips:
        decoded = federation.run()
        assert len(decoded.survivors) == 12
        sums_are_exact(federation, decoded)
    assert federation.trips == trips


@pytest.mark.parametrize(
    ("signed", "trips"),
    [
        (False, [
            {1: "advertise"}, {1: "share", 2: "advertise"}, {1: "mask"}, {1: "unmask", 2: "share", 3: "advertise"},
            {2: "mask"}, {2: "unmask", 3: "share", 4: "advertise"},
        ]),
        (True, [
            {1: "advertise"}, {1: "share"}, {1: "mask", 2: "advertise"}, {1: "agree"}, {1: "unmask", 2: "share"},
            {2: "mask", 3: "advertise"}, {2: "agree"}, {2: "unmask", 3: "share"},
        ]),
    ],
)  # fmt: skip
def test_keys_and_shares_ride_on_the_first_trip_that_may_carry_them(signed: bool, trips: list[dict[int, str]]) -> None:
    federation = Federation(small_plan(classes=[3, 3], dimension=6), signed=signed)
    found = []
    for _ in range(2):
        federation.server.begin(federation.plan)
        federation.server.settle(federation.plan)
        while not federation.server.done:
            federation.trip(None, federation.mask(federation.plan, bytes(32)))
            parts = federation.last[0]
            found.append({part.number: part.phase.value for part in parts})
            assert all((part.message == b"") == (part.phase is Phase.ADVERTISE) for part in parts)
    assert found == trips


def test_without_preparing_every_round_takes_all_trips() -> None:
    federation = Federation(small_plan(), prepare=False)
    for _ in range(2):
        federation.run()
    assert federation.trips == [4, 4]
    assert all(len(parts) == 1 for parts in federation.last.values())


@pytest.mark.parametrize("signed", [False, True])
def test_metrics_alone_ride_like_any_round(signed: bool) -> None:
    federation = Federation(small_plan(metrics=["loss"]), signed=signed)
    federation.run()
    decoded = federation.run(metrics_only=True)
    assert decoded.segments == ()
    found = combine(federation.plan.only_metrics(), decoded, find_rule("mean")).metrics
    assert found["loss"] == pytest.approx(5.5)
    federation.run()
    assert federation.trips == ([5, 3, 3] if signed else [4, 2, 2])


def test_one_frame_many_ranges() -> None:
    federation = Federation(small_plan())
    federation.run()
    for half in (0.5, 2.0):
        plan = federation.plan.with_value_range(half)
        decoded = federation.run(plan=plan, model=bytes([int(half * 2)] * 32))
        assert len(decoded.survivors) == 12
    assert federation.trips == [4, 2, 2]


def test_another_plan_is_set_up_anew_and_numbers_are_never_used_again() -> None:
    federation = Federation(small_plan())
    federation.run()
    used = federation.server.number
    other = small_plan(assignment_seed=4)
    federation.plan = other
    federation.users = {user: federation.make_user(user) for user in other.users}
    federation.run()
    assert federation.trips == [4, 4]
    assert federation.server.number > used + 2  # two were set up ahead and thrown away
    federation.run()
    assert federation.trips == [4, 4, 2]


@examples(5)
@given(st.sets(st.tuples(st.integers(1, 20), st.integers(0, 11)), max_size=24), st.booleans())
def test_riders_against_the_oracle(missed: set[tuple[int, int]], signed: bool) -> None:
    """Whoever misses whatever: each round ends as the oracle says, the sum is exact, or the error has its name."""
    plan = small_plan(dimension=6)
    federation = Federation(plan, signed=signed)
    count = [0]

    def lost(number: int, phase: Phase, user: Any) -> bool:
        del number, phase
        return (count[0], user) in missed

    trip = federation.trip

    def counted(*arguments: Any) -> None:
        count[0] += 1
        trip(*arguments)

    federation.trip = counted  # type: ignore[method-assign]
    for _ in range(5):
        error: HeteroSagError | None = None
        try:
            decoded = federation.run(lost)
        except TooFewSurvivorsError as raised:
            error = raised
        expected = federation.expected(federation.server.number)
        if error is None:
            assert expected.unwrap() == decoded.survivors
            sums_are_exact(federation, decoded)
        else:
            assert expected.error is not None


# --- who misses what ------------------------------------------------------------------------------------------------


def misses(number: int, phase: Phase, *users: int) -> Lost:
    return lambda at, trip, user: (at, trip) == (number, phase) and user in users


def survivors_of(federation: Federation, lost: Lost, rounds: int = 3) -> list[set[Any]]:
    return [set(federation.run(lost).survivors) for _ in range(rounds)]


EVERYBODY = set(range(12))


@pytest.mark.parametrize("signed", [False, True])
def test_whoever_misses_mask_is_back_in_the_next_round(signed: bool) -> None:
    federation = Federation(small_plan(), signed=signed)
    federation.run()
    found = survivors_of(federation, misses(2, Phase.MASK, 3))
    assert found == [EVERYBODY - {3}, EVERYBODY, EVERYBODY]
    assert federation.trips[1:] == ([3, 3, 3] if signed else [2, 2, 2])


def test_whoever_misses_agree_is_in_both_rounds() -> None:
    federation = Federation(small_plan(), signed=True)
    found = survivors_of(federation, misses(2, Phase.AGREE, 3))
    assert found == [EVERYBODY] * 3
    assert Phase.UNMASK not in federation.answered[2][3]
    assert Phase.SHARE in federation.answered[3][3]


@pytest.mark.parametrize("signed", [False, True])
def test_a_user_lost_at_unmask_sits_out_one_round(signed: bool) -> None:
    federation = Federation(small_plan(), signed=signed)
    found = survivors_of(federation, misses(2, Phase.UNMASK, 3), 4)
    assert found == [EVERYBODY, EVERYBODY, EVERYBODY - {3}, EVERYBODY]
    assert federation.trips == ([5, 3, 3, 3] if signed else [4, 2, 2, 2])


def test_users_left_out_to_make_the_set_admissible_share_for_the_next_round() -> None:
    """Two of a subgroup of three are silent: the third is left out, and set up for the next round all the same."""
    federation = Federation(small_plan())
    federation.run()
    alone, *silent = federation.plan.subgroups[1].members
    federation.run(misses(2, Phase.MASK, *silent))
    assert [part.phase for part in federation.last[alone]] == [Phase.SHARE, Phase.ADVERTISE]
    assert set(federation.run().survivors) == EVERYBODY
    assert federation.trips == [4, 2, 2]


def test_a_user_that_lost_its_state_is_out_of_at_most_two_rounds() -> None:
    federation = Federation(small_plan())
    federation.run()
    federation.users[3] = federation.make_user(3)
    found = [set(federation.run().survivors) for _ in range(3)]
    assert found == [EVERYBODY - {3}, EVERYBODY - {3}, EVERYBODY]


def test_a_round_that_fails_at_mask_leaves_nothing_ahead() -> None:
    federation = Federation(small_plan())
    federation.run()
    with pytest.raises(TooFewSurvivorsError):
        federation.run(misses(2, Phase.MASK, *range(8)))
    federation.run()
    assert federation.trips == [4, 1, 4]


def test_a_round_that_fails_at_unmask_uses_what_is_set_up_if_it_is_ready() -> None:
    """All answer, but half of them release nothing: the round fails, and the next one is set up all the same."""
    federation = Federation(small_plan())
    federation.run()
    deliver = federation.deliver

    def withheld(user: Any, answers: list[Answer]) -> None:
        deliver(user, [one for one in answers if user < 6 or (one.number, one.phase) != (2, Phase.UNMASK)])

    federation.deliver = withheld  # type: ignore[method-assign]
    with pytest.raises(TooFewSurvivorsError):
        federation.run()
    federation.run()
    assert federation.trips == [4, 2, 2]
    with pytest.raises(TooFewSurvivorsError):
        federation.run(lambda number, phase, user: phase is Phase.UNMASK and user > 4)
    federation.run()
    assert federation.trips == [4, 2, 2, 2, 4]


def test_nothing_rides_on_unmask_after_what_was_ahead_is_discarded() -> None:
    federation = Federation(small_plan(classes=[3, 3]))
    federation.server.begin(federation.plan)
    federation.server.settle(federation.plan)
    while federation.server.phase is not Phase.UNMASK:
        federation.trip(None, federation.mask(federation.plan, bytes(32)))
    federation.server.discard()
    federation.trip(None, federation.mask(federation.plan, bytes(32)))
    assert [part.phase for part in federation.last[0]] == [Phase.UNMASK]
    assert set(federation.server.decoded.survivors) == set(federation.plan.users)


@pytest.mark.parametrize("signed", [False, True])
def test_too_few_keys_ahead_are_thrown_away(signed: bool) -> None:
    federation = Federation(small_plan(), signed=signed)
    deliver = federation.deliver

    def withheld(user: Any, answers: list[Answer]) -> None:
        deliver(user, [one for one in answers if user < 4 or (one.number, one.phase) != (2, Phase.ADVERTISE)])

    federation.deliver = withheld  # type: ignore[method-assign]
    federation.run()
    federation.run()
    assert federation.trips == ([5, 5] if signed else [4, 4])
    assert federation.server.number == 3  # the number of what was thrown away is not used again


# --- what a malicious server may not do -----------------------------------------------------------------------------


def prepared(*, signed: bool = False, **changes: Any) -> Federation:
    """A federation after its first round, the second one settled and its first trip made up, not yet sent."""
    federation = Federation(small_plan(**changes), signed=signed)
    federation.run()
    federation.server.begin(federation.plan)
    federation.server.settle(federation.plan)
    federation.last = federation.server.send()
    return federation


def refusal(federation: Federation, user: Any, parts: list[Part], which: int = 0) -> str:
    answers = federation.users[user].answer(parts, federation.mask(federation.plan, bytes(32)))
    return str(answers[which].error)


def test_only_set_up_rides() -> None:
    """Two vectors are never outstanding: ahead of the lowest round, only keys and shares are answered."""
    federation = prepared()
    (mask,) = federation.last[0]
    ahead = Part(number=mask.number + 1, phase=Phase.MASK, message=mask.message)
    assert "only keys and shares" in refusal(federation, 0, [mask, ahead], 1)


def test_no_round_is_opened_below_one_that_is_kept() -> None:
    """Else the lower one would be the lowest, and masked while the vector of the other is outstanding."""
    federation = prepared()
    (mask,) = federation.last[0]
    federation.users[0] = federation.make_user(0, saved={mask.number: federation.users[0].save()[mask.number]})
    assert federation.users[0].answer([mask], federation.mask(federation.plan, bytes(32)))[0].error is None
    below = Part(number=mask.number - 1, phase=Phase.ADVERTISE, message=b"")
    assert "below one that this user is in" in refusal(federation, 0, [below])
    assert list(federation.users[0].save()) == [mask.number]


def test_at_most_two_rounds_are_kept() -> None:
    federation = Federation(small_plan())
    user = federation.users[0]
    opening = [Part(number=number, phase=Phase.ADVERTISE, message=b"") for number in (5, 6, 7)]
    answers = user.answer(opening, federation.mask(federation.plan, bytes(32)))
    assert [answer.error is None for answer in answers] == [True, True, False]
    assert "more than 2 rounds" in str(answers[2].error)
    assert len(user.save()) == 2
    assert "rounds [5, 6]" in repr(user)


@pytest.mark.parametrize("numbers", [[], [1, 1], [1, 2, 3, 4]])
def test_a_trip_names_each_of_its_rounds_once(numbers: list[int]) -> None:
    federation = Federation(small_plan())
    parts = [Part(number=number, phase=Phase.ADVERTISE, message=b"") for number in numbers]
    with pytest.raises(FaultyServerError, match="one to 3 parts"):
        federation.users[0].answer(parts, federation.mask(federation.plan, bytes(32)))


@pytest.mark.parametrize("number", [-1, 2**64])
def test_a_number_that_no_round_has_is_the_servers_fault(number: int) -> None:
    federation = Federation(small_plan())
    part = Part(number=number, phase=Phase.ADVERTISE, message=b"")
    with pytest.raises(FaultyServerError, match="number is from 0"):
        federation.users[0].answer([part], federation.mask(federation.plan, bytes(32)))


@pytest.mark.parametrize("number", [0, 128, 2**64 - 1])
def test_the_first_and_the_last_number_are_rounds_like_any(number: int) -> None:
    federation = Federation(small_plan())
    part = Part(number=number, phase=Phase.ADVERTISE, message=b"")
    (answer,) = federation.users[0].answer([part], federation.mask(federation.plan, bytes(32)))
    assert answer.error is None
    assert list(federation.users[0].save()) == [number]


def test_users_without_identities_are_not_asked_to_agree() -> None:
    federation = Federation(small_plan())
    opening = [Part(number=5, phase=Phase.ADVERTISE, message=b"")]
    federation.users[0].answer(opening, federation.mask(federation.plan, bytes(32)))
    assert "only users with identities" in refusal(federation, 0, [Part(number=5, phase=Phase.AGREE, message=b"x")])


def test_a_repeated_advertise_returns_the_same_keys() -> None:
    federation = Federation(small_plan())
    opening = [Part(number=5, phase=Phase.ADVERTISE, message=b"")]
    mask = federation.mask(federation.plan, bytes(32))
    first, again = (federation.users[0].answer(opening, mask)[0].message for _ in range(2))
    assert first == again


def test_nothing_of_a_released_round_is_kept() -> None:
    federation = Federation(small_plan())
    federation.run()
    assert all(1 not in user.save() for user in federation.users.values())
    (part,) = [part for part in federation.last[0] if part.number == 1]
    assert "without having advertised" in refusal(federation, 0, [part])


def test_a_failed_part_leaves_the_others() -> None:
    federation = prepared()
    for user, parts in federation.last.items():
        federation.deliver(user, federation.users[user].answer(parts, federation.mask(federation.plan, bytes(32))))
    federation.server.close()
    unmask, *riders = federation.server.send()[0]
    spoilt = Part(number=unmask.number, phase=unmask.phase, message=b"\x00")
    answers = federation.users[0].answer([spoilt, *riders], federation.mask(federation.plan, bytes(32)))
    assert [answer.error is None for answer in answers] == [False, True, True]
    assert [(one.number, one.phase) for one in answers] == [(one.number, one.phase) for one in (unmask, *riders)]
    assert unmask.number not in federation.users[0].save()


@pytest.mark.parametrize("asks_first", [False, True])
def test_a_trip_that_is_replayed_throws_nobody_out(asks_first: bool) -> None:
    """The mask trip again after agree: whoever can replay it kept the user from releasing its shares."""
    federation = Federation(small_plan(), signed=True, prepare=False)
    answer_mask = federation.mask(federation.plan, bytes(32))

    def mask(client: Client, part: Part) -> bytes:
        if asks_first and client.phase is not ClientPhase.MASKED:  # as a node on Flower, which checks and then trains
            client.settle(federation.plan, RoundId(session=SESSION, number=part.number, model=bytes(32)))
            client.check_inbox(part.message)
        return answer_mask(client, part)

    federation.server.begin(federation.plan)
    federation.server.settle(federation.plan, model=bytes(32))
    trips: list[list[Part]] = []
    while not federation.server.done:
        federation.trip(None, mask)
        trips.append(federation.last.get(3, []))
        for parts in trips[: 4 if len(trips) < 5 else 0]:
            for answer in federation.users[3].answer(parts, mask):
                late = len(trips) == 4 and answer.phase is Phase.MASK
                assert isinstance(answer.error, WireError) if late else answer.error is None
    assert set(federation.server.decoded.survivors) == set(federation.plan.users)
    assert federation.answered[1][3] == set(Phase)


def test_split_rosters_ahead_leave_the_round_exact() -> None:
    """The server shows two halves different rosters of the next round: this round is exact, that one fails by name."""
    federation = prepared()
    for user, parts in federation.last.items():
        federation.deliver(user, federation.users[user].answer(parts, federation.mask(federation.plan, bytes(32))))
    federation.server.close()
    sent = federation.server.send()
    (share,) = [part for part in sent[0] if part.phase is Phase.SHARE]
    roster = wire.decode(wire.Roster, share.message, plan=federation.plan)
    shorter = wire.Roster(
        roster.version, roster.context, [one for one in roster.advertised if one.user not in (6, 7, 8)]
    )
    split = Part(number=share.number, phase=share.phase, message=wire.encode(shorter))
    for user, parts in sent.items():
        shown = [split if part is share or part.phase is Phase.SHARE else part for part in parts] if user < 3 else parts
        for answer in federation.users[user].answer(shown, federation.mask(federation.plan, bytes(32))):
            if answer.phase is Phase.SHARE and user < 3:
                with pytest.raises(HeteroSagError, match="another context"):
                    federation.server.receive(user, answer.number, answer.message)
            elif answer.error is None:
                federation.server.receive(user, answer.number, answer.message)
    federation.server.close()
    assert set(federation.server.decoded.survivors) == EVERYBODY
    sums_are_exact(federation, federation.server.decoded)
    found = set(federation.run().survivors)
    assert found in (EVERYBODY, EVERYBODY - {0, 1, 2})


def test_messages_of_one_round_are_refused_in_the_next() -> None:
    federation = Federation(small_plan())
    federation.run()
    (before,) = [part for part in federation.last[0] if part.phase is Phase.SHARE]
    federation.run()
    (now,) = [part for part in federation.last[0] if part.phase is Phase.SHARE]
    opening = Part(number=now.number + 1, phase=Phase.ADVERTISE, message=b"")
    mixed = Part(number=opening.number, phase=Phase.SHARE, message=before.message)
    mask = federation.mask(federation.plan, bytes(32))
    federation.users[0].answer([opening], mask)
    assert "another context" in refusal(federation, 0, [mixed])


def test_a_number_is_set_up_once() -> None:
    """Forgotten or not, a round that was shared is not shared again under other keys."""
    federation = Federation(small_plan())
    federation.run()
    (share,) = [part for part in federation.last[0] if part.phase is Phase.SHARE]
    federation.users[0] = federation.make_user(0)  # with the release log that outlives it
    mask = federation.mask(federation.plan, bytes(32))
    opening = Part(number=share.number, phase=Phase.ADVERTISE, message=b"")
    (answer,) = federation.users[0].answer([opening], mask)
    advertised = wire.decode(wire.Advertisement, answer.message, plan=federation.plan).advertised
    roster = wire.decode(wire.Roster, share.message, plan=federation.plan)
    shown = [advertised if one.user == 0 else one for one in roster.advertised]
    again = wire.encode(wire.Roster(roster.version, roster.context, shown))
    told = refusal(federation, 0, [Part(number=share.number, phase=Phase.SHARE, message=again)])
    assert "asked a second time, for something else, to share" in told


@pytest.mark.parametrize("way", ["below the lowest", "refused", "released"])
def test_a_round_that_was_forgotten_is_not_opened_again(way: str) -> None:
    """Also where nobody gave a release log, so that every client has one in memory, forgotten with it."""
    federation = Federation(small_plan(), prepare=False)
    federation.users = {user: federation.make_user(user, release_log=None) for user in federation.plan.users}
    mask, user = federation.mask(federation.plan, bytes(32)), federation.users[0]

    def ask(number: int, phase: Phase = Phase.ADVERTISE) -> str:
        (answer,) = user.answer([Part(number=number, phase=phase, message=b"")], mask)
        return str(answer.error or "")

    if way == "released":
        federation.run()
    else:
        assert not ask(1)
        assert ask(5 if way == "below the lowest" else 1, Phase.SHARE)
    assert user.save() == {}
    for number in (0, 1):
        assert f"asked for keys of round {number} after round 1 was over" in ask(number)
    assert not ask(2)


def test_a_round_that_was_refused_unopened_may_be_opened_later() -> None:
    federation = Federation(small_plan())
    mask = federation.mask(federation.plan, bytes(32))
    one, two, three = (Part(number=number, phase=Phase.ADVERTISE, message=b"") for number in (5, 6, 7))
    answers = federation.users[0].answer([one, two, three], mask)
    assert "more than 2 rounds" in str(answers[2].error)
    assert [answer.error for answer in federation.users[0].answer([two, three], mask)] == [None, None]


def test_another_model_or_range_on_one_set_up_is_refused_across_a_restart() -> None:
    federation = prepared()
    (part,) = federation.last[0]
    plan, user = federation.plan, federation.users[0]
    kept = user.save()
    assert user.answer([part], federation.mask(plan, b"a" * 32))[0].error is None
    for chosen, model in ((plan, b"b" * 32), (plan.with_value_range(0.5), b"a" * 32)):
        rolled_back = federation.make_user(0, saved=kept)
        (answer,) = rolled_back.answer([part], federation.mask(chosen, model))
        assert answer.error is not None
        (late,) = federation.make_user(0, saved=user.save()).answer([part], federation.mask(chosen, model))
        assert "another value range or model" in str(late.error)


def test_the_policy_is_asked_again_when_settled() -> None:
    federation = prepared()
    strict = Policy(min_survivors=2, min_colluders=0, min_half_width=0.5, max_half_width=1.5)
    user = federation.make_user(0, policy=strict, saved=federation.users[0].save())
    (part,) = federation.last[0]
    (answer,) = user.answer([part], federation.mask(federation.plan.with_value_range(0.1), bytes(32)))
    assert isinstance(answer.error, PlanError)


@pytest.mark.parametrize("restored", [False, True])
def test_nothing_is_masked_before_it_is_settled(restored: bool) -> None:
    federation = prepared()
    (part,) = federation.last[0]
    user = federation.users[0]
    if restored:
        user = federation.make_user(0, saved=user.save())
    (answer,) = user.answer([part], lambda client, part: client.mask(part.message, np.zeros(client.plan.dimension)))
    assert isinstance(answer.error, UsageError)
    assert "settle comes before mask" in str(answer.error)


def test_a_user_who_masked_another_model_is_no_survivor() -> None:
    federation = prepared(signed=True)
    for user, parts in federation.last.items():
        model = b"x" * 32 if user == 0 else bytes(32)
        answers = federation.users[user].answer(parts, federation.mask(federation.plan, model))
        if user == 0:
            with pytest.raises(HeteroSagError, match="another context"):
                federation.server.receive(0, answers[0].number, answers[0].message)
            federation.deliver(0, answers[1:])
        else:
            federation.deliver(user, answers)
    federation.server.close()
    agree = next(part for part in federation.server.send()[1] if part.phase is Phase.AGREE)
    named = wire.decode(wire.SurvivorSet, agree.message, plan=federation.plan).survivors
    assert 0 not in named


# --- the server's side ----------------------------------------------------------------------------------------------


def test_answers_to_rounds_that_are_gone_are_ignored() -> None:
    federation = prepared()
    assert not federation.server.receive(0, 1, b"late")
    assert not federation.server.receive(0, 99, b"never")


def test_a_server_without_a_round_says_so() -> None:
    server = ServerPipeline(SESSION)
    assert server.trips == 0
    with pytest.raises(UsageError, match="no round has begun"):
        server.send()
    federation = Federation(small_plan())
    federation.run()
    federation.server.begin(federation.plan)
    with pytest.raises(UsageError, match="settled before anything is sent"):
        federation.server.send()


def test_every_round_is_unmasked_with_the_parallel_map_given() -> None:
    rounds: list[int] = []

    def watched(run: Callable[[Any], Any], pieces: Any) -> Any:
        rounds.append(federation.server.number)
        return map(run, pieces)

    federation = Federation(small_plan(classes=[3, 3]), parallel_map=watched)
    federation.run()
    federation.run()
    assert set(rounds) == {1, 2}


def test_the_ledger_counts_block_sums_and_no_round_of_metrics_alone() -> None:
    federation = Federation(small_plan(metrics=["loss"]))
    ledger = Ledger(federation.plan)
    federation.run(guard=ledger)
    federation.run(misses(2, Phase.MASK, 0), guard=ledger, metrics_only=True)
    assert ledger.summary()["rounds"] == 1
    federation.run(misses(3, Phase.MASK, 0), guard=ledger)
    assert ledger.summary()["rounds"] == 2


def test_a_clients_guard_counts_no_round_of_metrics_alone() -> None:
    """Everybody but one in the first, everybody in the second: the difference of metrics is not what a ledger keeps."""
    federation = Federation(small_plan(metrics=["loss"], min_robustness=0.0))
    ledgers = {user: Ledger(federation.plan, sets_below=2) for user in federation.plan.users}
    federation.users = {user: federation.make_user(user, guard=ledgers[user]) for user in federation.plan.users}
    federation.run()
    federation.run(misses(2, Phase.MASK, 0), metrics_only=True)
    with pytest.raises(TooFewSurvivorsError):
        federation.run(misses(3, Phase.MASK, 0))


def test_a_range_too_far_from_that_of_the_last_update_is_refused() -> None:
    """A server that widens or narrows the range at will reads small or large elements better and better."""
    federation = Federation(small_plan(metrics=["loss"]))
    policy = replace(Policy.any_plan(), max_range_change=2.0)
    federation.users = {user: federation.make_user(user, policy=policy) for user in federation.plan.users}
    federation.run()
    with pytest.raises(TooFewSurvivorsError):
        federation.run(plan=federation.plan.with_value_range(2.5))
    federation.run(plan=federation.plan.with_value_range(2.0))
    federation.run(plan=federation.plan.with_value_range(50.0), metrics_only=True)  # no update is clipped to it
    with pytest.raises(TooFewSurvivorsError):
        federation.run(plan=federation.plan.with_value_range(50.0))
    federation.run(plan=federation.plan.with_value_range(4.0))
