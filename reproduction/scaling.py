"""Proposition 2: how a round's computation and communication grow with the users N and the elements m.

Each is measured in real rounds, in CPU seconds and in bytes of messages, and fitted by a power of N and of m. Two
things hide the terms that the proposition compares, m n and m N. Key agreement and sharing grow with N alone: they are
removed by measuring every N at two sizes of the vector, the difference being what elements cost, and in the sweep in m
by subtracting what a round of few elements costs. Quantizing and packing cost the same for each element whoever masks
it: they are measured in blocks of two users, where an element has one mask of a pair and one of its own, and
subtracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from heterosag.choices import DesignName
from reproduction.computation import Measured, measure_round
from reproduction.fits import Estimate, fit_line, fit_power
from reproduction.outcome import Holds, Outcome, Plot, Scale, Series, Table, Verdict
from reproduction.running import Job

__all__ = ["proposition_2"]

_DESIGNS: dict[str, DesignName] = {"SecAg": "secagg", "HeteroSAg": "paper-composite"}
_SUBGROUP = 8
_FEW = 1_000  # elements of a round that costs hardly more than its keys and shares


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sizes:
    """Users of the sweep in N with the two sizes of their vectors, elements of the sweep in m with their users."""

    users: tuple[int, ...]
    short: int
    long: int
    elements: tuple[int, ...]
    fixed_users: int
    repeats: int


# 248 users of two levels still fit into a byte; with more SecAg's masks are twice as wide. Vectors of the quick and the
# full scale are long enough for compiled loops (vector/_numba.py), so that an element costs the same in all of them.
_SIZES = {
    Scale.TINY: _Sizes(
        users=(16, 24, 32, 40), short=5_000, long=40_000, elements=(20_000, 80_000, 320_000), fixed_users=16, repeats=2
    ),
    Scale.QUICK: _Sizes(
        users=(16, 24, 32, 48, 64),
        short=300_000,
        long=900_000,
        elements=(300_000, 600_000, 1_200_000),
        fixed_users=16,
        repeats=2,
    ),
    Scale.FULL: _Sizes(
        users=(16, 32, 64, 128, 248),
        short=300_000,
        long=1_200_000,
        elements=(300_000, 600_000, 1_200_000, 2_400_000, 4_800_000),
        fixed_users=32,
        repeats=3,
    ),
}

_Rounds = dict[tuple[str, int, int], list[Measured]]
"""The measured rounds by scheme, users and elements."""

_QUANTITIES: dict[str, tuple[str, Callable[[Measured], float]]] = {
    "mask": ("a user masks, s", lambda found: found.phase("mask")),
    "user": ("a user, whole round, s", lambda found: found.user),
    "server": ("the server, whole round, s", lambda found: found.server),
    "sent": ("a user sends, bytes", lambda found: found.sent),
    "handled": ("the server sends and receives, bytes", lambda found: found.handled),
}
_CLAIMS = {  # of SecAg and of HeteroSAg, in N and in m
    "mask": ("N m", "n m"),
    "user": ("N^2 + N m", "N^2 + n m"),
    "server": ("as SecAg", "as SecAg"),
    "sent": ("N + m", "N + m"),
    "handled": ("as SecAg", "as SecAg"),
}


def _measure(sizes: _Sizes, job: Job) -> _Rounds:
    """Every round of both sweeps."""
    pairs = [(users, size) for users in sizes.users for size in (sizes.short, sizes.long)]
    pairs += [(sizes.fixed_users, size) for size in (_FEW, *sizes.elements)]
    found: _Rounds = {}
    for design in _DESIGNS.values():  # the first round compiles, and is not counted
        measure_round(design, sizes.users[0], sizes.long, job.seed, subgroup_size=_SUBGROUP)
    for repeat in range(sizes.repeats):
        for users, size in dict.fromkeys(pairs):
            for name, design in _DESIGNS.items():
                one = measure_round(design, users, size, job.seed + repeat, subgroup_size=_SUBGROUP)
                found.setdefault((name, users, size), []).append(one)
        for size in (sizes.short, sizes.long):
            alone = measure_round("multigroup", sizes.users[0], size, job.seed + repeat, subgroup_size=2)
            found.setdefault(("pairs", sizes.users[0], size), []).append(alone)
    return found


def _per_element(rounds: _Rounds, sizes: _Sizes, name: str, users: int) -> float:
    """Seconds that a user's masking takes for one element more."""
    short, long = (_least(rounds[name, users, size], _QUANTITIES["mask"][1]) for size in (sizes.short, sizes.long))
    return (long - short) / (sizes.long - sizes.short)


def _least(repeats: Sequence[Measured], value: Callable[[Measured], float]) -> float:
    """What counts of repeated rounds: whatever else a machine does only adds to one."""
    return min(value(one) for one in repeats)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Masking:
    """What an element's masks cost: measured against N, quantizing and packing removed."""

    bare: float
    costs: Mapping[str, Mapping[int, float]]

    def exponent(self, name: str) -> Estimate:
        """The power of N by which the masks of an element grow."""
        least = 1e-12  # a picosecond, where noise of a clock made a difference of two rounds negative
        costs = self.costs[name]
        return fit_power(list(map(float, costs)), [max(cost, least) for cost in costs.values()])

    def marginal(self, name: str) -> Estimate:
        """Picoseconds that one user more adds to every element."""
        costs = self.costs[name]
        return fit_line(list(map(float, costs)), [1e12 * cost for cost in costs.values()])[1]


def _masking(rounds: _Rounds, sizes: _Sizes) -> _Masking:
    bare = _per_element(rounds, sizes, "pairs", sizes.users[0])
    return _Masking(
        bare=bare,
        costs={
            name: {users: _per_element(rounds, sizes, name, users) - bare for users in sizes.users} for name in _DESIGNS
        },
    )


def _exponents(rounds: _Rounds, sizes: _Sizes) -> dict[tuple[str, str, str], Estimate]:
    """The fitted powers by scheme, quantity and what varies: in m, of what is above a round of few elements."""
    sweeps = {
        "N": [(users, sizes.long, users) for users in sizes.users],
        "m": [(sizes.fixed_users, size, size) for size in sizes.elements],
    }
    found = {}
    for name in _DESIGNS:
        for what, (_, value) in _QUANTITIES.items():
            for varied, places in sweeps.items():
                few = 0.0 if varied == "N" else _least(rounds[name, sizes.fixed_users, _FEW], value)
                points = [(at, _least(rounds[name, users, size], value) - few) for users, size, at in places]
                found[name, what, varied] = fit_power(
                    [float(at) for at, _ in points], [max(y, 1e-9) for _, y in points]
                )
    return found


def proposition_2(job: Job) -> Outcome:
    """Sweeps in N and in m, fitted by powers with intervals; and where HeteroSAg is the slower one."""
    sizes = _SIZES[job.scale]
    rounds = _measure(sizes, job)
    powers = _exponents(rounds, sizes)
    masking = _masking(rounds, sizes)
    masks = {name: masking.exponent(name) for name in _DESIGNS}
    most = sizes.users[-1]
    return Outcome(
        text=(
            f"Real rounds at 2 levels in subgroups of {_SUBGROUP} with a complete sharing graph, a tenth of the users "
            f"dropping out before they send their vector. In N: {_list(sizes.users)} users with {sizes.long:,} "
            f"elements; in m: {_list(sizes.elements)} elements with {sizes.fixed_users} users; each {sizes.repeats} "
            "times, the least of which counts. Seconds are CPU seconds of this run's machine. Exponents are slopes of "
            "the logarithms with two standard errors of the regression on either side; those in m are of what is above "
            f"a round of {_FEW:,} elements.",
            "What the proposition compares is m n with m N, so the cost of an element's masks is taken apart: every N "
            f"is measured with {sizes.short:,} elements too, the difference being what elements cost, and what an "
            f"element costs in a block of two ({1e9 * masking.bare:.1f} ns: quantizing, packing, one pair's mask and "
            "its own) is subtracted. Without that, quantizing and packing flatten SecAg's slope, and the keys of N "
            "peers, which both agree on, steepen HeteroSAg's: a whole user's exponents in N are "
            f"{powers['SecAg', 'user', 'N']} and {powers['HeteroSAg', 'user', 'N']}.",
            _slower(rounds),
        ),
        verdicts=_verdicts(rounds, sizes, powers, masking),
        tables=(_table(powers), _masks_table(masking, sizes)),
        plots=_plots(rounds, sizes, masking),
        values={
            "mask_gain": _ratio(rounds, most, sizes.long, lambda one: one.phase("mask")),
            "server_gain": _ratio(rounds, most, sizes.long, lambda one: one.server),
            "secagg_masks": masks["SecAg"].value,
            "heterosag_masks": masks["HeteroSAg"].value,
        },
    )


def _verdicts(
    rounds: _Rounds, sizes: _Sizes, powers: Mapping[tuple[str, str, str], Estimate], masking: _Masking
) -> tuple[Verdict, ...]:
    theirs, ours = (masking.exponent(name) for name in _DESIGNS)
    both = "{} for HeteroSAg, {} for SecAg"
    server = {varied: [powers[name, "server", varied] for name in _DESIGNS] for varied in ("N", "m")}
    most = sizes.users[-1]
    slower = _ratio(rounds, most, sizes.long, lambda one: one.server)
    sent = {varied: [powers[name, "sent", varied] for name in _DESIGNS] for varied in ("N", "m")}
    return (
        Verdict(
            claim="Proposition 2: an element has n masks or 2n instead of N, so that masking is O(m n) and not O(m N)",
            paper="exponents in N: 0 and 1",
            found=both.format(ours, theirs),
            holds=Holds.of(ours.high < theirs.low, ours.contains(0) and theirs.contains(1)),
            note="of an element's masks alone; holds if the intervals contain the claimed exponents, partly if "
            "HeteroSAg's is the smaller all the same",
        ),
        Verdict(
            claim="Proposition 2: a user's computation is linear in m",
            paper="O(m): exponent in m of 1 at most, for both",
            found=both.format(powers["HeteroSAg", "user", "m"], powers["SecAg", "user", "m"]),
            holds=Holds.of(*(_linear(powers[name, "user", "m"], _SECONDS) for name in _DESIGNS)),
            note=f"{_read_linear(_SECONDS)}: an element costs a little more where a vector has outgrown the caches",
        ),
        Verdict(
            claim="Proposition 2: a user's communication is O(N + m), as in SecAg",
            paper="exponent in m of 1 at most; in N below 1",
            found="in m " + both.format(*reversed(sent["m"])) + "; in N " + both.format(*reversed(sent["N"])),
            holds=Holds.of(all(_linear(one, _BYTES) for one in sent["m"]), all(one.high < 1 for one in sent["N"])),
            note=f"{_read_linear(_BYTES)}; SecAg's elements also widen with log N, which O(N + m) leaves out, "
            "HeteroSAg's do not",
        ),
        Verdict(
            claim="Proposition 2: the server's computation and communication are those of SecAg",
            paper="the same complexity",
            found="computation in N "
            + both.format(*reversed(server["N"]))
            + ", in m "
            + both.format(*reversed(server["m"]))
            + f"; SecAg's server takes {slower:.2f} times HeteroSAg's with {most} users and {sizes.long:,} elements",
            holds=Holds.of(
                all(ours.low <= theirs.high for theirs, ours in server.values()),
                all(
                    powers["HeteroSAg", "handled", varied].low <= powers["SecAg", "handled", varied].high
                    for varied in ("N", "m")
                ),
            ),
            note="read as: HeteroSAg's exponents are not above SecAg's, intervals counted",
        ),
    )


_BYTES, _SECONDS = 0.01, 0.1
"""By how much an exponent may be above 1: bytes have headers, and hardly an interval; a quiet machine's have hardly one
either, and caches bend its lines by more than that."""


def _read_linear(slack: float) -> str:
    return f"read as: not above 1 by more than {slack}, intervals counted"


def _linear(power: Estimate, slack: float) -> bool:
    """Whether a cost is O(m): an exponent below 1 is, of what grows a little less than the elements do."""
    return power.low <= 1 + slack


def _ratio(rounds: _Rounds, users: int, size: int, value: Callable[[Measured], float]) -> float:
    """SecAg's over HeteroSAg's in one place."""
    theirs, ours = (_least(rounds[name, users, size], value) for name in _DESIGNS)
    return theirs / ours


def _slower(rounds: _Rounds) -> str:
    """Where HeteroSAg takes longer than SecAg, and by how much."""
    places = dict.fromkeys((users, size) for name, users, size in rounds if name in _DESIGNS)
    words = []
    for what, words_of in (("mask", "masking"), ("user", "a user's whole round"), ("server", "the server")):
        ratios = {place: 1 / _ratio(rounds, *place, _QUANTITIES[what][1]) for place in places}
        worse = {place: ratio for place, ratio in ratios.items() if ratio > 1}
        if worse:
            (users, size), worst = max(worse.items(), key=lambda item: item[1])
            words.append(
                f"{words_of} in {len(worse)} of {len(places)} places, most with {users} users and {size:,} elements "
                f"({worst:.2f} times SecAg's)"
            )
        else:
            words.append(f"{words_of} nowhere")
    return f"Where HeteroSAg is slower than SecAg: {'; '.join(words)}."


def _table(powers: Mapping[tuple[str, str, str], Estimate]) -> Table:
    return Table(
        name="exponents",
        title="Fitted exponents, with intervals",
        head=(
            "what",
            "claimed, SecAg",
            "SecAg in N",
            "SecAg in m",
            "claimed, HeteroSAg",
            "HeteroSAg in N",
            "HeteroSAg in m",
        ),
        rows=tuple(
            (
                title,
                _CLAIMS[what][0],
                str(powers["SecAg", what, "N"]),
                str(powers["SecAg", what, "m"]),
                _CLAIMS[what][1],
                str(powers["HeteroSAg", what, "N"]),
                str(powers["HeteroSAg", what, "m"]),
            )
            for what, (title, _) in _QUANTITIES.items()
        ),
    )


def _masks_table(masking: _Masking, sizes: _Sizes) -> Table:
    rows = [(str(users), *(f"{1e9 * masking.costs[name][users]:.2f}" for name in _DESIGNS)) for users in sizes.users]
    rows.append(("exponent in N", *(str(masking.exponent(name)) for name in _DESIGNS)))
    rows.append(("one user more, ps", *(str(masking.marginal(name)) for name in _DESIGNS)))
    return Table(
        name="masks",
        title="An element's masks, ns of a user",
        head=("users", *_DESIGNS),
        rows=tuple(rows),
    )


def _plots(rounds: _Rounds, sizes: _Sizes, masking: _Masking) -> tuple[Plot, ...]:
    x = tuple(map(float, sizes.users))
    masks = tuple(
        Series(
            label=name,
            x=x,
            y=tuple(_short(1e9 * masking.costs[name][users]) for users in sizes.users),
            panel="an element's masks, ns",
        )
        for name in _DESIGNS
    )

    def lines(what: str, places: Sequence[tuple[int, int]], x: tuple[float, ...], panel: str) -> list[Series]:
        value = _QUANTITIES[what][1]
        unit = 1e-3 if what == "sent" else 1e3  # kB, ms

        def ends(name: str, end: Callable[[Iterable[float]], float]) -> tuple[float, ...]:
            return tuple(_short(unit * end(map(value, rounds[name, *place]))) for place in places)

        return [
            Series(label=name, x=x, y=ends(name, min), low=ends(name, min), high=ends(name, max), panel=panel)
            for name in _DESIGNS
        ]

    by_users = [(users, sizes.long) for users in sizes.users]
    by_size = [(sizes.fixed_users, size) for size in sizes.elements]
    elements = tuple(map(float, sizes.elements))
    return (
        Plot(
            name="users",
            title=f"Against users, {sizes.long:,} elements",
            kind="lines",
            x_label="users",
            series=(*masks, *lines("user", by_users, x, "a user, ms"), *lines("server", by_users, x, "the server, ms")),
            log_x=True,
            log_y=True,
        ),
        Plot(
            name="elements",
            title=f"Against elements, {sizes.fixed_users} users",
            kind="lines",
            x_label="elements",
            series=(
                *lines("user", by_size, elements, "a user, ms"),
                *lines("server", by_size, elements, "the server, ms"),
                *lines("sent", by_size, elements, "a user sends, kB"),
            ),
            log_x=True,
            log_y=True,
        ),
    )


def _short(value: float) -> float:
    return float(f"{max(value, 1e-9):.3g}")


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(f"{number:,}" for number in numbers)
