"""What a training run costs its users in privacy: its noise, its budget on disk, and what its record says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from heterosag.errors import BudgetError
from heterosag.plan import Plan
from heterosag.planner.private import fit_plan
from heterosag.privacy import Accountant
from heterosag.privacy.accounting import View
from heterosag.privacy.statement import state
from heterosag.protocol.budget import event_of
from heterosag.protocol.policy import Policy
from heterosag.storage.budget import FileBudget
from heterosag.training.config import TrainConfig

__all__ = ["RunBudget", "private_plan"]


def private_plan(config: TrainConfig, arguments: dict[str, Any]) -> Plan:
    """The plan of a run with the noise of its budget.

    Args:
        config: Has the budget.
        arguments: What `Plan.build` takes, but ranges and noise.

    Returns:
        The plan, whose blocks have as many survivors as given, or as a hundredth of the rounds may fail for.
    """
    given = {} if config.min_block_survivors is None else {"min_block_survivors": config.min_block_survivors}
    return fit_plan(
        arguments | given,
        clipping_norm=config.clip,
        target_epsilon=config.epsilon or 0.0,
        target_delta=config.delta,
        rounds=config.rounds,
        view=config.view,
        others=max(config.attackers, 1),
    )


class RunBudget:
    """Charges the rounds of a run to a budget in its folder, so that a run that goes on later knows what was spent."""

    def __init__(self, config: TrainConfig, folder: Path) -> None:
        self._config = config
        self._budget = FileBudget(folder / "privacy")
        self._policy = Policy(max_epsilon=config.epsilon if config.view == "server" else None, delta=config.delta)

    def charge(self, plan: Plan) -> dict[str, Any]:
        """Charge a round before its vectors leave.

        Args:
            plan: Its plan.

        Returns:
            What the record says of it: both epsilons so far, the fewest honest survivors, the clipping norm, noise and
            error.

        Raises:
            BudgetError: The round would exceed the budget; it is not charged.
        """
        config = self._config
        if config.view == "model":
            spent = self._accountant("model")
            if spent.would_exceed(event_of(plan), config.epsilon):
                raise BudgetError(spent.get_epsilon(config.delta), config.epsilon or 0.0, config.delta)
        self._budget.charge(plan, self._policy)
        server, model = (self._accountant(view).get_epsilon(config.delta) for view in ("server", "model"))
        released = model if config.rule == "mean" else None
        simulated = not config.secure
        return {
            "epsilon_server": server,
            "epsilon_model": released,
            "delta": config.delta,
            "honest": plan.honest,
            "clipping_norm": plan.clipping_norm,
            "noise_multiplier": plan.noise_multiplier,
            "error_in_clipping_norms": plan.quantization_error() ** 0.5 / plan.value_range[1],
            "simulated": simulated,
            "statement": state(
                plan,
                epsilon_server=server,
                epsilon_model=released,
                delta=config.delta,
                rounds=self._budget.rounds,
                identities=config.identities,
                simulated=simulated,
            ),
        }

    def _accountant(self, view: View) -> Accountant:
        """The parameters of all rounds follow from the configuration, so the best of all orders counts."""
        accountant = Accountant(target_delta=self._config.delta, view=view)
        accountant.load_state_dict(accountant.state_dict() | {"composed": self._budget.charges})
        return accountant
