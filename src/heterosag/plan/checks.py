"""The checks of what goes into a plan, and what it is where that is left open.

Every check that fails raises a `PlanError` which names the value to change and says to what.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, get_args

from heterosag.choices import RangesName, SharingName
from heterosag.crypto import hashing
from heterosag.errors import PlanError, UsageError
from heterosag.plan import sharing as sharing_graph
from heterosag.plan.assignment import Subgroup, count_subgroups, fit_perfect
from heterosag.plan.design import DESIGNS, Design, is_prime, make
from heterosag.plan.layout import PlannedSegment
from heterosag.plan.sharing import SharingGraph
from heterosag.vector.quantize import MAX_LEVEL, ValueRange, check_range

__all__ = [
    "LEAST_CORRUPT",
    "LEAST_SCALE",
    "MOST_USERS",
    "MOST_USERS_WITH_METRICS",
    "User",
    "as_integer",
    "check_auto",
    "check_classes",
    "check_metrics",
    "check_min_robustness",
    "check_numbers",
    "check_ranges",
    "check_scales",
    "check_survivors",
    "check_thresholds",
    "check_users",
    "choose_counts",
    "choose_design",
    "choose_graph",
    "default_colluders",
    "seed_bytes",
]

User = int | str
"""How the application calls a user."""

LEAST_CORRUPT = 0.05
"""The fraction of users that a sparse sharing graph always provides for, whether colluders were planned or not."""

MOST_USERS_WITH_METRICS = 2**14
"""A metric lane of 64 bits holds the sum of so many users' values at their limit, with space to tell a false one."""

MOST_USERS = 2**20 - 2
"""A share is taken at a roster index + 1, below 2^20."""

LEAST_SCALE = 2.0**-64
"""Least scale of an array; the greatest is its inverse."""

_COMPLETE_UP_TO = 256  # users; beyond, shares go to neighbours only
_LONGEST_NAME = 256


def check_metrics(metrics: Any, users: int) -> tuple[str, ...]:
    """Names of the metrics that are summed over everybody."""
    if isinstance(metrics, (str, bytes)) or not isinstance(metrics, Sequence):
        raise PlanError("metrics", f"must be a list of names, not {metrics!r}")
    names = tuple(metrics)
    for name in names:
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= _LONGEST_NAME:
            raise PlanError("metrics", f"a metric has a name of 1 to {_LONGEST_NAME} characters, not {name!r}")
    if len(set(names)) != len(names) or {"count", "weight"} & set(names):
        raise PlanError("metrics", "names of metrics are distinct, and none is 'count' or 'weight'")
    if names and users > MOST_USERS_WITH_METRICS:
        raise PlanError("metrics", f"can be summed over at most {MOST_USERS_WITH_METRICS} users, not {users}")
    return names


def as_integer(value: Any) -> Any:
    """NumPy's integers as Python's, which are encoded alike; anything else as it is."""
    if not isinstance(value, (bool, int)):
        with suppress(TypeError):
            return operator.index(value)
    return value


def _whole(field_name: str, value: Any, least: int, most: int = 2**63 - 1) -> int:
    value = as_integer(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        upto = "" if most == 2**63 - 1 else f" and at most {most}"
        raise PlanError(field_name, f"must be an integer of at least {least}{upto}, not {value!r}")
    return value


def _numbers(field_name: str, values: Any, least: int, most: int = 2**63 - 1) -> tuple[int, ...]:
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence) or not values:
        raise PlanError(field_name, f"must be a list with one integer a class, like [8, 8], not {values!r}")
    return tuple(_whole(f"{field_name}[{index}]", value, least, most) for index, value in enumerate(values))


def check_classes(classes: Any, levels: Any) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
    """Users and levels of each class; None for levels that are to be chosen."""
    sizes = _numbers("classes", classes, 1)
    if isinstance(levels, str) and levels == "auto":
        return sizes, None
    steps = _numbers("levels", levels, 2, MAX_LEVEL)
    if len(sizes) != len(steps):
        raise PlanError("levels", f"{len(sizes)} classes need {len(sizes)} levels, not {len(steps)}")
    for index, (slow, fast) in enumerate(pairwise(steps)):
        if fast < slow:
            raise PlanError(
                f"levels[{index + 1}]",
                f"falls from {slow} to {fast}: classes are listed slowest first, so use at least {slow}, "
                "or list the classes in the other order",
            )
    return sizes, steps


def check_auto(levels: tuple[int, ...] | None, rates: Any, deadline: Any) -> None:
    """Rates and a deadline are what levels are chosen from, and of no effect beside levels by number."""
    if levels is None and rates is None:
        raise PlanError("rates", "levels='auto' needs the upload rate of each class in Mb/s, such as rates=[1, 2, 4]")
    for name, given in (("rates", rates), ("deadline", deadline)):
        if levels is not None and given is not None:
            raise PlanError(name, "is what levels='auto' chooses from, and has no effect beside levels by number")


def check_users(users: Any, count: int) -> tuple[User, ...]:
    """So many names, each once; without names, numbers."""
    if count > MOST_USERS:
        raise PlanError("classes", f"{count} users are more than the {MOST_USERS} a plan may have")
    if users is None:
        return tuple(range(count))
    if isinstance(users, (str, bytes)) or not isinstance(users, Iterable):
        raise PlanError("users", f"must be a list of names, not {users!r}")
    roster = tuple(users)
    if len(roster) != count:
        raise PlanError("users", f"the classes hold {count} users, but {len(roster)} are named")
    for user in roster:
        number = isinstance(user, int) and not isinstance(user, bool) and 0 <= user < 2**64
        if not number and not (isinstance(user, str) and user.isprintable() and 0 < len(user) <= _LONGEST_NAME):
            raise PlanError(
                "users",
                f"a user is named by a number from 0 to 2^64-1 or by 1 to {_LONGEST_NAME} printable characters, "
                f"not {user!r}",
            )
    if len(set(roster)) != count:
        times = Counter(roster)
        twice = next(user for user in roster if times[user] > 1)
        raise PlanError("users", f"{twice!r} is named more than once")
    return roster


def check_numbers(
    dimension: Any, value_range: Any, max_weight: Any, min_survivors: Any, colluders: Any, dropout: Any, users: int
) -> ValueRange:
    """Single numbers of a plan; the value range is returned as a pair."""
    _whole("dimension", dimension, 1)
    _whole("max_weight", max_weight, 1, 2**32)
    _whole("min_survivors", min_survivors, 2)
    _whole("colluders", colluders, 0, users - 1)
    if isinstance(dropout, bool) or not isinstance(dropout, (int, float)) or not 0 <= dropout < 1:
        raise PlanError("dropout", f"the fraction of users expected to drop out lies in 0 <= p < 1, not {dropout!r}")
    try:
        checked = check_range(value_range)
    except UsageError as error:
        raise PlanError("value_range", str(error)) from None
    if max_weight > 1 and not checked[0] <= 0 <= checked[1]:
        raise PlanError("value_range", f"must contain zero where weights are in use, which {checked} does not")
    return checked


def check_ranges(ranges: Any, value_range: ValueRange) -> RangesName:
    """Whether blocks have ranges of their own, which then contain zero."""
    if ranges not in get_args(RangesName):
        raise PlanError("ranges", f"must be one of {', '.join(get_args(RangesName))}, not {ranges!r}")
    if ranges != "single" and not value_range[0] <= 0 <= value_range[1]:
        raise PlanError(
            "value_range",
            f"must contain zero, which {value_range} does not, where every level has a range of its own: use "
            "ranges='single'",
        )
    chosen: RangesName = ranges
    return chosen


def check_scales(
    arrays: Any, scales: Any, dimension: int, *, noise: float = 0.0
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The elements of each array of an update, and the public scale of each; both empty where there is none."""
    if noise and (arrays or scales):
        raise PlanError("arrays", "have no scales under noise, which is that of the clipping norm for all")
    for name, given in (("arrays", arrays), ("scales", scales)):
        if isinstance(given, (str, bytes)) or not isinstance(given, Sequence):
            raise PlanError(name, f"must be a list with one number an array, not {given!r}")
    sizes = tuple(_whole(f"arrays[{index}]", size, 1) for index, size in enumerate(arrays))
    if sizes and sum(sizes) != dimension:
        raise PlanError("arrays", f"have {sum(sizes)} elements together, the update has {dimension}")
    if len(scales) not in (0, len(sizes)):
        raise PlanError("scales", f"{len(sizes)} arrays need {len(sizes)} scales, not {len(scales)}")
    found = []
    for index, scale in enumerate(scales):
        number = isinstance(scale, (int, float)) and not isinstance(scale, bool)
        if not number or not LEAST_SCALE <= scale <= 1 / LEAST_SCALE:
            raise PlanError(f"scales[{index}]", f"lies between {LEAST_SCALE:g} and {1 / LEAST_SCALE:g}, not {scale!r}")
        found.append(float(scale))
    return sizes, tuple(found)


def seed_bytes(seed: Any) -> bytes | None:
    """An assignment seed as bytes, None where users are assigned in listed order."""
    if seed is None:
        return None
    if isinstance(seed, bytes) and 1 <= len(seed) <= 64:
        return b"bytes" + seed
    if isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**63:
        return b"int" + seed.to_bytes(8, "little")
    raise PlanError("assignment_seed", "must be None, an integer from 0 to 2^63-1, or 1 to 64 bytes")


def choose_counts(
    classes: tuple[int, ...], subgroup_size: Any, design: Any, min_survivors: int, dimension: int
) -> tuple[list[int], str | None]:
    """How many subgroups each class gets, and a note where the design asked for another number."""
    _whole("subgroup_size", subgroup_size, 1)
    if not isinstance(design, str) or design not in DESIGNS:
        raise PlanError("design", f"{design!r} is not one of {', '.join(DESIGNS)}")
    counts = count_subgroups(classes, subgroup_size)
    if design != "perfect":
        return counts, None
    return fit_perfect(classes, counts, least_users=min_survivors, most=dimension)


def choose_design(name: str, subgroups: int) -> Design:
    """The design of a name for so many subgroups."""
    if name == "paper" and subgroups > 1 and not is_prime(subgroups):
        primes = [z for z in range(2, 2 * subgroups) if is_prime(z)]
        below, above = max(z for z in primes if z < subgroups), min(z for z in primes if z > subgroups)
        factor = next(d for d in range(2, subgroups + 1) if subgroups % d == 0)
        raise PlanError(
            "design",
            f"under `paper` {subgroups} subgroups are composite, and the paper's Theorem 1 fails there: the true "
            f"robustness is {1 - 1 / factor:.4g}. Use design='perfect', or a subgroup_size that makes {below} or "
            f"{above} subgroups, or ask for design='paper-composite' by name",
        )
    return make(name, subgroups)


def check_survivors(
    subgroups: tuple[Subgroup, ...], segments: tuple[PlannedSegment, ...], min_survivors: int, wanted: Any
) -> int:
    """The least survivors of a block: as asked for, else what its subgroups need.

    A sum of several blocks can be solved for the sums of subgroups if the same value is in several segments, which
    whoever chooses the model can arrange: so every subgroup by itself needs `min_survivors`, wherever there are several
    blocks.
    """
    several = any(len(segment.blocks) > 1 for segment in segments)
    if several:
        users, where = min((len(subgroup.members), g) for g, subgroup in enumerate(subgroups))
        if users < min_survivors:
            raise PlanError(
                "min_survivors",
                f"{min_survivors} is more than the {users} users of subgroup {where}: use at most {users}"
                f"{'' if users >= 2 else ' (the least is 2, so add users)'}, or a subgroup_size of at least "
                f"{min_survivors} with classes of at least that many users",
            )
    smallest = min(block.users for segment in segments for block in segment.blocks)
    least = min_survivors if wanted is None else _whole("min_block_survivors", wanted, 2)
    if smallest < least:
        name = "min_survivors" if wanted is None else "min_block_survivors"
        raise PlanError(
            name, f"{least} is more than the {smallest} users of the smallest block: add users, or lower it"
        )
    return least


def default_colluders(users: int, min_survivors: Any, sharing: Any = "auto") -> int:
    """How many may collude with the server unless said: as many as the least survivors of a subgroup hide from, and
    with a sparse sharing graph at least 5% of the users."""
    few = min(_whole("min_survivors", min_survivors, 2) - 2, users - 1)
    sparse = sharing == "sparse" or (sharing == "auto" and users > _COMPLETE_UP_TO)
    return max(few, int(LEAST_CORRUPT * users)) if sparse else few


def choose_graph(users: int, colluders: int, dropout: float, sharing: Any, seed: bytes | None) -> SharingGraph:
    """Who holds whose shares: everybody, or as few neighbours as do."""
    if sharing not in get_args(SharingName):
        raise PlanError("sharing", f"must be one of {', '.join(get_args(SharingName))}, not {sharing!r}")
    if sharing == "complete" or (sharing == "auto" and users <= _COMPLETE_UP_TO):
        return sharing_graph.complete_graph(users, colluders)
    corrupt = max(LEAST_CORRUPT, colluders / users)
    try:  # a threshold above the colluders holds wherever they are on the ring, whoever chose its order
        neighbours, threshold = sharing_graph.find_neighbours(users, corrupt, dropout, min_threshold=colluders + 1)
    except UsageError as error:
        raise PlanError("sharing", str(error)) from None
    order = hashing.shuffle("sharing-order", seed or b"", users)
    return sharing_graph.sparse_graph(order, neighbours, threshold)


def check_thresholds(graph: SharingGraph, quorum: int, dropout: float) -> None:
    """Refuse a threshold or quorum that the expected survivors cannot reach."""
    for name, needed, out_of in (
        ("share_threshold", graph.threshold, graph.users if graph.complete else graph.neighbours),
        ("agree_quorum", quorum, graph.users),
    ):
        expected = out_of * (1 - dropout)
        if expected < needed:
            raise PlanError(
                "dropout",
                f"with {dropout:.0%} dropout {expected:.4g} of {out_of} users are expected to survive, fewer than the "
                f"{name} of {needed}: plan for a dropout of at most {max(0.0, 1 - needed / out_of):.4f}, or for fewer "
                "colluders, or add users",
            )


def check_min_robustness(wanted: Any, robustness: float) -> float:
    """The least robustness of a survivor set; that of the whole plan where none is given."""
    if wanted is None:
        return robustness
    if isinstance(wanted, bool) or not isinstance(wanted, (int, float)) or not 0 <= wanted <= 1:
        raise PlanError("min_robustness", f"lies between 0 and 1, not {wanted!r}")
    if wanted > robustness:
        raise PlanError(
            "min_robustness",
            f"{wanted:g} is more than this plan has without any loss: use at most {robustness!r}, or more subgroups",
        )
    return float(wanted) + 0.0  # no negative zero: equal plans are equal as bytes
