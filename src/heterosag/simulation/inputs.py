"""What the users of a round in memory bring, by user and checked: updates in any accepted form, weights, identities."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from heterosag.crypto.identity import Identity
from heterosag.errors import UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.protocol.transitions import Phase
from heterosag.protocol.update import Update
from heterosag.vector.arrays import Layout

__all__ = [
    "ACCEPTED",
    "NO_UPDATE",
    "Updates",
    "by_user",
    "check_plan",
    "collect",
    "directory_of",
    "identities_of",
    "weights_by_user",
]

Updates = Mapping[User, Any] | Sequence[Any] | npt.NDArray[np.floating[Any]]
"""Every user's update by name, a list of them in roster order, or a 2-D array with a row a user."""

ACCEPTED = (
    "updates are a mapping of user to update, a list with one update a user in roster order, or a 2-D array with one "
    "row a user; an update is an array, a torch state_dict, or a dict or list of arrays"
)
"""What `aggregate` takes, for whoever gave something else."""

NO_UPDATE = "nobody has an update: give at least one, even if its user is named in dropped"


def check_plan(plan: Any, updates: Any) -> None:
    """Refuse what is no plan, swapped arguments among it.

    Args:
        plan: What was given as the plan.
        updates: What was given as the updates.

    Raises:
        UsageError: It is none.
    """
    if isinstance(plan, (Plan, CohortPlan)):
        return
    swapped = ": the arguments are swapped" if isinstance(updates, (Plan, CohortPlan)) else ""
    raise UsageError(f"aggregate(plan, updates) takes a Plan or a CohortPlan first, not a {_kind(plan)}{swapped}")


def by_user(plan: Plan | CohortPlan, updates: Any) -> Mapping[User, Any]:
    """Every user's update by name, whichever way they came.

    Args:
        plan: Who the users are.
        updates: As `aggregate` takes them.

    Returns:
        A mapping that came as such, or one in roster order.

    Raises:
        UsageError: They are no updates of these users; the message has the forms that are accepted.
    """
    users = plan.users
    if isinstance(updates, Mapping):
        if updates and all(isinstance(name, str) and name not in users for name in updates):
            names = ", ".join(map(repr, users[:3]))
            raise UsageError(
                f"{next(iter(updates))!r} is not a user of this plan, which has {len(users)} users: {names}, ... A "
                f"state_dict is one user's update: {ACCEPTED}"
            )
        return updates
    if isinstance(updates, (list, tuple)) and updates and not np.isscalar(updates[0]) and not _are_rows(updates):
        rows: Any = updates
    else:
        try:
            rows = np.asarray(updates)
        except (ValueError, TypeError):  # rows of unequal length
            rows = np.empty(0)
        if rows.ndim != 2:
            raise UsageError(f"{ACCEPTED}: not a {_kind(updates)}")
    if len(rows) != len(users):
        raise UsageError(f"the plan has {len(users)} users, but there are {len(rows)} updates: {ACCEPTED}")
    return dict(zip(users, rows, strict=True))


def weights_by_user(plan: Plan | CohortPlan, weights: Mapping[User, int] | Sequence[int] | None) -> Mapping[User, int]:
    """Weights by user, where a list has them in roster order.

    Args:
        plan: Who the users are.
        weights: As `aggregate` takes them.

    Returns:
        A mapping that came as such, or one in roster order; an empty one without weights.

    Raises:
        UsageError: It is no such thing, or a list has more or fewer than one for each user.
    """
    if weights is None:
        return {}
    if isinstance(weights, Mapping):
        return weights
    try:
        listed = list(weights)
    except TypeError:
        raise UsageError(
            f"weights are a mapping of user to integer, or a list with one a user in roster order, not a "
            f"{_kind(weights)}"
        ) from None
    if len(listed) != len(plan.users):
        raise UsageError(f"{len(plan.users)} users need {len(plan.users)} weights, not {len(listed)}")
    return dict(zip(plan.users, listed, strict=True))


def _weights(plan: Plan, weights: Mapping[User, int] | Sequence[int] | None) -> dict[User, int]:
    given = weights_by_user(plan, weights)
    try:
        return {plan.users[plan.index(user)]: operator.index(weight) for user, weight in given.items()}
    except TypeError as error:
        raise UsageError(f"weights are integers: {error}") from None


def _metrics(metrics: Mapping[User, Mapping[str, float]] | None) -> Mapping[User, Mapping[str, float] | None]:
    """Metrics by user, checked as far as their shape goes."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise UsageError(
            f"metrics map users to their values by name, like {{0: {{'loss': 0.5}}}}, not a {_kind(metrics)}"
        )
    for user, values in metrics.items():
        if values is not None and not isinstance(values, Mapping):
            raise UsageError(f"the metrics of user {user!r} are values by name, like {{'loss': 0.5}}, not {values!r}")
    return metrics


def collect(
    plan: Plan,
    updates: Updates,
    weights: Mapping[User, int] | Sequence[int] | None,
    metrics: Mapping[User, Mapping[str, float]] | None,
    absent: Mapping[User, Phase],
    layout: Layout | None = None,
) -> tuple[Layout, dict[User, Update]]:
    """Everybody's update as a checked vector; users who drop out before masking need none.

    Args:
        plan: The plan of the round.
        updates: As `aggregate` takes them.
        weights: As `aggregate` takes them.
        metrics: As `aggregate` takes them.
        absent: Who drops out, and before which phase.
        layout: What the updates must look like; the first one's layout unless given.

    Returns:
        The layout of the updates, and everybody's update.

    Raises:
        UsageError: Somebody's update is missing or does not fit the plan.
    """
    given = dict(by_user(plan, updates))
    for user in (*given, *absent):
        plan.index(user)
    early = {user for user, phase in absent.items() if phase in (Phase.ADVERTISE, Phase.SHARE, Phase.MASK)}
    missing = [user for user in plan.users if user not in given and user not in early]
    if missing:
        raise UsageError(f"user {missing[0]!r} has no update: give one, or name it in dropped")
    if not given:
        raise UsageError(NO_UPDATE)
    layout = layout or Layout.of(next(iter(given.values())))
    if layout.dimension != plan.dimension:
        raise UsageError(
            f"the plan is for {plan.dimension} elements, the updates have {layout.dimension}: build it with "
            f"dimension={layout.dimension}"
        )
    weight_of, values = _weights(plan, weights), _metrics(metrics)
    inputs: dict[User, Update] = {}
    for user, arrays in given.items():
        try:
            vector, weight = layout.flatten(arrays), weight_of.get(user, 1)
            inputs[user] = Update.of(plan, vector, weight=weight, metrics=values.get(user))
        except UsageError as error:
            raise UsageError(f"the update of user {user!r}: {error}") from None
    return layout, inputs


def identities_of(plan: Plan, identities: Mapping[User, Identity] | bool | None) -> dict[User, Identity] | None:
    """Everybody's identity: as given, fresh ones, or none.

    Args:
        plan: The plan of the round.
        identities: Everybody's, or True for fresh ones.

    Returns:
        Everybody's identity, None without.

    Raises:
        UsageError: Somebody has none.
    """
    if identities is None or identities is False:
        return None
    if identities is True:
        return {user: Identity.generate() for user in plan.users}
    missing = [user for user in plan.users if user not in identities]
    if missing:
        raise UsageError(f"user {missing[0]!r} has no identity")
    return {user: identities[user] for user in plan.users}


def directory_of(identities: Mapping[User, Identity] | None) -> dict[User, bytes] | None:
    """What everybody knows of identities, by which signatures are checked; None without."""
    return None if identities is None else {user: identity.public for user, identity in identities.items()}


def _are_rows(updates: Sequence[Any]) -> bool:
    """Whether these are lists of plain numbers, which make an array."""
    return all(isinstance(row, (list, tuple)) and all(np.isscalar(value) for value in row) for row in updates)


def _kind(given: Any) -> str:
    """What was given, for a message."""
    shape = getattr(given, "shape", None)
    return type(given).__name__ + ("" if shape is None else f" of the shape {tuple(shape)}")
