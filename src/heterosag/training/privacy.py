"""What a training run costs its users in privacy: its noise, its budget on disk, and what its record says of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from heterosag.choices import View
from heterosag.errors import BudgetError
from heterosag.plan import CohortPlan, Plan
from heterosag.planner.cohorts import fit_cohorts
from heterosag.planner.noise import fit_plan
from heterosag.privacy import Accountant
from heterosag.protocol.budget import Charges, add_charge, event_of
from heterosag.protocol.policy import Policy
from heterosag.storage.budget import FileBudget
from heterosag.storage.privacy_record import describe_privacy
from heterosag.training.config import TrainConfig

__all__ = ["BUDGETS", "RunBudget", "private_plan"]

BUDGETS = "privacy"
"""The folder of a run's folder that has its budgets."""

_VIEWS: tuple[View, ...] = get_args(View)


def private_plan(config: TrainConfig, arguments: dict[str, Any], *, rounds: int) -> Plan | CohortPlan:
    """The plan of a run's rounds, or their cohorts, with the noise of its budget.

    Args:
        config: Has the budget.
        arguments: What `Plan.build` takes, but ranges and noise.
        rounds: Rounds that a user takes part in at most; drawing who takes part is not credited otherwise.

    Returns:
        The plan, whose blocks have as many survivors as given, or as a hundredth of the rounds may fail for.
    """
    given: dict[str, Any] = (
        {} if config.min_block_survivors is None else {"min_block_survivors": config.min_block_survivors}
    )
    given |= arguments | {"adaptive_clip": config.adaptive_clip}
    target: dict[str, Any] = {
        "clipping_norm": config.clip,
        "target_epsilon": config.epsilon or 0.0,
        "target_delta": config.delta,
        "rounds": rounds,
        "view": config.view,
        "others": max(config.attackers, 1),
    }
    if config.cohort is not None:
        return fit_cohorts(given, cohort_size=config.cohort, **target)
    return fit_plan(given, **target)


class RunBudget:
    """Charges the rounds of a run to budgets in its folder, so that a run that goes on later knows what was spent.

    Where everybody takes part in every round there is one budget, otherwise one for each user.
    """

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        self._config = config
        self._folder = folder / BUDGETS
        self._policy = Policy(max_epsilon=config.epsilon if config.view == "server" else None, delta=config.delta)
        self._budgets = {path.name: FileBudget(path) for path in sorted(self._folder.glob("user-*"))}

    def charge(self, plan: Plan | CohortPlan, members: Sequence[int]) -> dict[str, Any]:
        """Charge a round to everybody in it, before its vectors leave.

        Args:
            plan: Its plan, or its cohorts: a user is in one of them, and is charged what the dearest costs.
            members: Who takes part.

        Returns:
            What the record says of it: both epsilons so far of whoever has spent most, the fewest honest survivors, the
            clipping norm, noise and error.

        Raises:
            BudgetError: The round would exceed the budget of somebody; nobody is charged.
        """
        config = self._config
        budgets = [self._budget_of(user) for user in members] if config.participation < 1 else [self._budget_of()]
        for charges in _distinct(budgets):
            if config.view == "model":
                spent = self._accountant(charges, "model")
                if spent.would_exceed(event_of(plan), config.epsilon):
                    raise BudgetError(spent.get_epsilon(config.delta), config.epsilon or 0.0, config.delta)
            add_charge(charges, plan, self._policy)
        for budget in budgets:
            budget.charge(plan, self._policy)
        return self._describe(plan)

    def _describe(self, plan: Plan | CohortPlan) -> dict[str, Any]:
        config, known = self._config, _distinct(list(self._budgets.values()))
        server, model = (
            max(self._accountant(charges, view).get_epsilon(config.delta) for charges in known) for view in _VIEWS
        )
        released = model if config.rule == "mean" else None
        return describe_privacy(
            plan,
            epsilon_server=server,
            epsilon_model=released,
            delta=config.delta,
            rounds=max(sum(entry["count"] for entry in charges) for charges in known),
            identities=config.identities,
            simulated=not config.secure,
        )

    def _budget_of(self, user: int | None = None) -> FileBudget:
        """A user's budget, or that of everybody."""
        name = "" if user is None else f"user-{user}"
        if name not in self._budgets:
            self._budgets[name] = FileBudget(self._folder / name)
        return self._budgets[name]

    def _accountant(self, charges: Charges, view: View) -> Accountant:
        """The parameters of all rounds follow from the configuration, so the best of all orders counts."""
        accountant = Accountant(target_delta=self._config.delta, view=view)
        accountant.load_state_dict(accountant.state_dict() | {"composed": charges})
        return accountant


def _distinct(budgets: Sequence[FileBudget]) -> list[Charges]:
    """What users were charged, each history once: many users have the same."""
    return list({json.dumps(charges): charges for charges in (budget.charges for budget in budgets)}.values())
