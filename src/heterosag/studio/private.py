"""The Plan tab with a privacy budget: from the page's form to a private plan, and the error of its mean by epsilon."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from heterosag import planner
from heterosag.errors import InfeasibleError
from heterosag.planner.private import (
    USELESS,
    Blocks,
    PrivacyRequirements,
    PrivateProposal,
    best_private,
    error_at,
)
from heterosag.privacy.statement import state, word_for
from heterosag.studio.forms import Form

__all__ = ["EPSILONS", "PrivateChoice", "choose_private", "describe_private", "trace_epsilon"]

EPSILONS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0)
"""Where the curve is drawn."""

_OTHERS = 2  # other numbers of subgroups beside the plan's, in the curve


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateChoice:
    """A private plan, the budget it is for, and why it is only the nearest one."""

    proposal: PrivateProposal
    requirements: PrivacyRequirements
    problem: str | None

    @property
    def curves(self) -> tuple[Blocks, ...]:
        """The blocks whose error the page draws: the plan's own first."""
        return (self.proposal.blocks, *self.proposal.others[:_OTHERS])


def choose_private(form: Form, requirements: planner.Requirements) -> PrivateChoice:
    """The best plan within the budget of a form; links do not matter to it.

    Args:
        form: Has epsilon, delta, rounds and clip.
        requirements: What else the form asks for.

    Returns:
        The plan, or the nearest useful one.

    Raises:
        InfeasibleError: No plan is useful, nor is one near.
    """
    wanted = PrivacyRequirements(
        users=len(requirements.rates),
        dimension=requirements.dimension,
        epsilon=form.number("epsilon", 8.0, 0.01, 100.0),
        delta=form.number("delta", 1e-5, 1e-12, 0.1),
        rounds=form.integer("rounds", 20, 1, 100_000),
        clip=form.number("clip", 1.0, 1e-9, 1e9),
        dropout=requirements.dropout,
        corrupt=requirements.corrupt,
        attackers=requirements.attackers,
        min_survivors=requirements.min_survivors,
    )
    try:
        return PrivateChoice(proposal=best_private(wanted), requirements=wanted, problem=None)
    except InfeasibleError as error:
        if not isinstance(error.nearest, PrivateProposal):
            raise
        return PrivateChoice(proposal=error.nearest, requirements=wanted, problem=str(error))


def describe_private(choice: PrivateChoice) -> dict[str, Any]:
    """What the page shows of a budget, in JSON types."""
    proposal = choice.proposal
    return {
        "epsilon_server": proposal.epsilon_server,
        "epsilon_model": proposal.epsilon_model,
        "delta": proposal.delta,
        "rounds": proposal.rounds,
        "error": proposal.error,
        "useless": USELESS,
        "noise_multiplier": proposal.blocks.noise_multiplier,
        "honest": proposal.blocks.honest,
        "block_users": proposal.blocks.block_users,
        "min_block_survivors": proposal.blocks.min_block_survivors,
        "called": word_for(proposal.epsilon_server),
        "statement": state(
            proposal.plan,
            epsilon_server=proposal.epsilon_server,
            epsilon_model=proposal.epsilon_model,
            delta=proposal.delta,
            rounds=proposal.rounds,
            identities=False,
        ),
        "command": _command(choice),
    }


def trace_epsilon(choice: PrivateChoice, blocks: Blocks, epsilon: float) -> tuple[float, float | None]:
    """The error of the mean at one epsilon with these blocks, in clipping norms."""
    return epsilon, error_at(choice.requirements, blocks, epsilon)


def _command(choice: PrivateChoice) -> str:
    """The plan found again on the command line."""
    wanted, proposal = choice.requirements, choice.proposal
    flags = {
        "epsilon": wanted.epsilon,
        "delta": wanted.delta,
        "rounds": proposal.rounds,
        "clip": wanted.clip,
        "users": wanted.users,
        "dimension": wanted.dimension,
        "dropout": wanted.dropout,
        "corrupt": wanted.corrupt,
        "attackers": wanted.attackers if proposal.blocks.subgroups > 1 else 0,
        "min-survivors": wanted.min_survivors,
    }
    words = " \\\n  ".join(f"--{name}={value!r}" for name, value in flags.items())
    return f"heterosag optimize \\\n  {words}\n"
