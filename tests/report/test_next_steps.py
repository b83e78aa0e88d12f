"""The commands that a proposal ends with: they fit a terminal, make the plan that was proposed, and name its model."""

from pathlib import Path
from typing import Any

import pytest
from command import settings_in, training_command

from heterosag.plan import CohortPlan, Plan
from heterosag.planner import Requirements, best
from heterosag.planner.cohorts import best_cohorts
from heterosag.planner.private import PrivacyRequirements, best_private
from heterosag.privacy import epsilon
from heterosag.report.next_steps import BUILT_IN, next_steps, next_steps_of_cohorts, next_steps_of_private
from heterosag.training.config import TrainConfig
from heterosag.training.epochs import build_plan


def config_of(printed: str) -> TrainConfig:
    return TrainConfig.from_dict(settings_in(training_command(printed)))


def test_a_proposal_ends_with_what_to_do_next_in_80_columns() -> None:
    proposal = best(Requirements(rates=(0.5,) * 12 + (2.0,) * 12, dimension=2000, deadline=0.03))
    unsaved, saved = next_steps(proposal, None), next_steps(proposal, Path("mine.toml"))
    for steps in (unsaved, saved):
        assert f"levels={list(proposal.plan.levels)}" in steps
        assert "rate_limits=[1]" in steps or len(proposal.plan.levels) == 1
        assert max(map(len, steps.splitlines())) <= 80
    assert "--save plan.toml" in unsaved
    assert "--save plan.toml" not in saved
    assert "heterosag train --plan mine.toml --rates 0.5" in saved


@pytest.mark.parametrize(
    "asked",
    [
        {"users": 40, "dimension": 60, "attackers": 1},
        {"users": 96, "dimension": 3610, "corrupt": 0.1, "rounds": 7, "clip": 0.3},
        {"users": 300, "dimension": 2000, "epsilon": 4.0, "dropout": 0.2},
        pytest.param({"users": 300, "dimension": 20_000}, marks=pytest.mark.slow),
    ],
)
def test_the_private_command_makes_the_plan_that_was_proposed(asked: dict[str, Any]) -> None:
    proposal = best_private(PrivacyRequirements(**{"epsilon": 8.0} | asked))
    printed = next_steps_of_private(proposal)
    assert max(map(len, printed.splitlines())) <= 80
    config = config_of(printed)
    assert config.rule == proposal.rule
    plan, built = proposal.plan, build_plan(config, [proposal.plan.dimension])
    assert isinstance(built, Plan)
    for name in (
        *("classes", "levels", "fill_levels", "min_survivors", "min_block_survivors", "honest", "colluders"),
        *("share_threshold", "agree_quorum", "dropout", "clipping_norm"),
    ):
        assert getattr(built, name) == getattr(plan, name), name
    assert built.noise_multiplier == pytest.approx(plan.noise_multiplier, rel=1e-4)
    spent = epsilon(built, rounds=config.rounds, delta=config.delta)
    assert spent == pytest.approx(proposal.epsilon_server, rel=1e-4)


@pytest.mark.parametrize("ranges", ["levels", "single"])
def test_the_command_for_cohorts_makes_the_plan_that_was_proposed(ranges: Any) -> None:
    asked = Requirements(
        rates=(0.5,) * 24 + (2.0,) * 24,
        dimension=2000,
        deadline=0.03,
        min_survivors=2,
        corrupt=0.1,
        dropout=0.0,
        ranges=ranges,
    )
    proposal = best_cohorts(asked, cohort_size=24)
    printed = next_steps_of_cohorts(proposal)
    assert max(map(len, printed.splitlines())) <= 80
    config = config_of(printed)
    built = build_plan(config, [2000])
    assert isinstance(built, CohortPlan)
    assert (built.classes, built.levels) == (proposal.plan.classes, proposal.plan.levels)
    assert len(built.plans) == len(proposal.plan.plans)
    for mine, other in zip(built.plans, proposal.plan.plans, strict=True):
        assert mine.design == other.design
        assert (mine.share_threshold, mine.min_survivors) == (other.share_threshold, other.min_survivors)
        assert (mine.vector_sizes(), mine.ranges) == (other.vector_sizes(), other.ranges)
    assert config.rates == (0.5, 2.0)


@pytest.mark.parametrize("dimension", [*BUILT_IN, 20_000])
def test_the_command_names_a_model_of_the_plan_s_parameters(dimension: int) -> None:
    proposal = best(Requirements(rates=(1.0,) * 24, dimension=dimension, deadline=9.0))
    printed = next_steps(proposal, None)
    assert max(map(len, printed.splitlines())) <= 80
    assert f"{dimension:,} parameters" in printed
    settings = settings_in(training_command(printed))
    assert ("HETEROSAG_DATA" in printed) == ("data" in settings)
    if dimension not in BUILT_IN:
        assert settings["model"] == "package.module:factory"
        return
    pytest.importorskip("torch")
    from heterosag.training.models import count_parameters

    assert count_parameters(settings.get("model", "auto"), settings.get("data", "digits")) == dimension


def test_every_model_that_comes_along_has_its_command() -> None:
    pytest.importorskip("torch")
    from heterosag.training.models import MODELS, count_parameters

    assert {count_parameters(name, "digits") for name in MODELS} == BUILT_IN.keys()
