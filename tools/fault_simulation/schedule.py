"""What a seed decides: the order of events in virtual time, and the script (plan, faults, malicious) of a schedule.

There is one queue of events and no real clock. Everything random about the events comes from one `random.Random` made
from the seed; secrets and vectors come from others made from it too, so a replay repeats every byte.
"""

from __future__ import annotations

import heapq
import random
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fault_simulation.plans import choose_plan, find_plan
from heterosag.plan import Plan, User

__all__ = ["MOODS", "PHASES", "SESSION", "Clock", "Rates", "Script", "Trace"]

PHASES = ("advertise", "share", "mask", "agree", "unmask")

SESSION = 1000
"""Where rounds run in a row, round n of the server's session s is number 1000 s + n of the world."""

_MOST_EVENTS = 20_000  # far more than any schedule has: a world that never ends is a failure too


class Clock:
    """Events in the order of their virtual time, and of their making where times are equal."""

    def __init__(self) -> None:
        self.now = 0
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = 0

    def after(self, delay: int, action: Callable[..., None], *details: Any) -> None:
        """Let something happen later."""
        self._made += 1
        heapq.heappush(self._events, (self.now + delay, self._made, action, details))

    def run(self) -> None:
        """Until nothing is left to happen."""
        while self._events:
            self.now, made, action, details = heapq.heappop(self._events)
            if made > _MOST_EVENTS:
                raise RuntimeError(f"more than {_MOST_EVENTS} events: this schedule does not end")
            action(*details)


class Trace:
    """What happened, in order: readable lines, and what they add up to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: list[tuple[int, str, str, int | None]] = []
        self.faults: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()

    def note(self, who: Any, what: str, data: bytes | None = None) -> None:
        """An event; of a message its checksum is kept, so that equal traces mean equal bytes."""
        self._events.append((self._clock.now, str(who), what, None if data is None else zlib.crc32(data)))

    def fault(self, kind: str, who: Any, what: str = "") -> None:
        """A fault that the world injected."""
        self.faults[kind] += 1
        self.note(who, f"! {kind} {what}".rstrip())

    def lines(self) -> list[str]:
        """The trace for a reader."""
        return [
            f"{now:6d}  {who:<8} {what}" + ("" if check is None else f"  [{check:08x}]")
            for now, who, what, check in self._events
        ]

    def digest(self) -> int:
        """One number for the whole trace."""
        return zlib.crc32("\n".join(self.lines()).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """How often each fault happens: per message, per step of a user, per user and round, or per step of the server."""

    # each message
    lose: float = 0.0
    duplicate: float = 0.0
    delay: float = 0.0
    corrupt: float = 0.0
    misroute: float = 0.0
    splice: float = 0.0
    tamper: float = 0.0
    # each step of a user
    crash_step: float = 0.0
    stale_save: float = 0.0
    # each user and round
    crash: float = 0.0
    twin: float = 0.0
    # each restart of a user
    lose_disk: float = 0.0
    replay: float = 0.0  # everything that the server sent it in the round comes again
    # each step of the server
    crash_server: float = 0.0
    # each round in a row
    discard: float = 0.0  # what was set up ahead is thrown away
    join: float = 0.0  # messages of any rounds in one trip


_NETWORK = Rates(lose=0.03, duplicate=0.1, delay=0.03, discard=0.2)
_CRASHES = Rates(crash_step=0.05, crash=0.15, stale_save=0.4, lose_disk=0.15, twin=0.1, duplicate=0.15)
_HOSTILE = Rates(
    corrupt=0.02,
    misroute=0.03,
    splice=0.03,
    tamper=0.06,
    duplicate=0.1,
    crash_step=0.02,
    stale_save=0.5,
    discard=0.2,
    join=0.1,
)
_STORM = Rates(
    lose=0.01,
    duplicate=0.1,
    delay=0.01,
    corrupt=0.01,
    misroute=0.02,
    splice=0.02,
    tamper=0.04,
    crash_step=0.02,
    stale_save=0.5,
    crash=0.08,
    twin=0.1,
    lose_disk=0.2,
    replay=0.5,
    crash_server=0.005,
    discard=0.2,
    join=0.05,
)
_ROLLBACK = Rates(crash_step=0.12, stale_save=0.6, twin=0.15, replay=0.9, tamper=0.12, duplicate=0.05, join=0.05)
_SERVER = Rates(crash_server=0.03, duplicate=0.1, crash=0.05, misroute=0.05, discard=0.2)

# How often, what happens, and how many rounds and malicious users there may be.
MOODS: dict[str, tuple[int, Rates, int, int]] = {
    "calm": (6, Rates(), 2, 0),
    "drops": (13, Rates(), 1, 0),
    "network": (15, _NETWORK, 2, 0),
    "crashes": (13, _CRASHES, 2, 0),
    "rollback": (15, _ROLLBACK, 2, 0),
    "server": (8, _SERVER, 3, 0),
    "hostile": (10, _HOSTILE, 2, 0),
    "malicious": (8, Rates(duplicate=0.05), 1, 2),
    "storm": (12, _STORM, 3, 1),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Everything that is settled before the first event."""

    seed: int
    mood: str
    place: int
    plan: Plan
    signed: bool
    rounds: int
    rates: Rates
    malicious: dict[User, str]
    drops: dict[User, str]
    eager: bool
    retries: bool
    same_rounding: bool
    pipelined: bool = False
    prepare: bool = True
    timeout: int = 100
    draw: random.Random = field(repr=False, compare=False)
    secrets: random.Random = field(repr=False, compare=False)

    @classmethod
    def of(cls, seed: int, traits: tuple[str, ...], *, pipelined: bool = False) -> Script:
        """The script of a seed; `traits` are the ways to lie, `pipelined` is for rounds in a row."""
        draw = random.Random(f"pipeline/{seed}" if pipelined else f"events/{seed}")
        mood = draw.choices(list(MOODS), weights=[weight for weight, *_ in MOODS.values()])[0]
        _, rates, most_rounds, most_liars = MOODS[mood]
        place = choose_plan(draw)
        plan = find_plan(place)
        malicious = draw.sample(plan.users, draw.randint(min(1, most_liars), most_liars))
        dropping = draw.sample(plan.users, draw.randint(0, len(plan.users) // 2)) if mood == "drops" else []
        rounds = draw.choices(range(1, most_rounds + 1), weights=[6, 3, 2][:most_rounds])[0]
        rounds = rounds if len(plan.users) < 8 else 1
        return cls(
            seed=seed,
            mood=mood,
            place=place,
            plan=plan,
            signed=draw.random() < 0.35,
            rounds=rounds + draw.randint(1, 3) if pipelined else rounds,
            rates=rates,
            malicious={user: draw.choice(traits) for user in malicious},
            drops={user: draw.choice(PHASES) for user in dropping},
            eager=draw.random() < 0.6,
            retries=mood not in ("calm", "drops") and draw.random() < 0.6,
            same_rounding=draw.random() < 0.5,
            pipelined=pipelined,
            prepare=not pipelined or draw.random() < 0.95,
            draw=draw,
            secrets=random.Random(f"secrets/{seed}"),
        )
