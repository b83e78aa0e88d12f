"""A planner's proposal for scripts and for people."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from heterosag.plan.costs import beside_vector
from heterosag.planner import Requirements, best
from heterosag.planner.cohorts import best_cohorts
from heterosag.planner.private import PrivacyRequirements, best_private
from heterosag.report.proposals import (
    describe,
    describe_cohorts,
    describe_private,
    show,
    show_cohort_proposal,
    show_private,
)


def test_a_proposal_says_what_it_costs_and_what_would_help() -> None:
    proposal = best(Requirements(rates=(0.5,) * 8 + (2.0,) * 8, dimension=2000, deadline=0.1))
    found = json.loads(json.dumps(describe(proposal)))
    assert found["lower_bound"] <= found["error"]
    assert found["error"] == pytest.approx(found["plan"]["quantization_error"] + found["plan"]["clip_bias"])
    assert max(found["upload_seconds"]) <= 0.1
    assert "error_before" not in found
    assert describe(proposal, before=7.0)["error_before"] == 7.0
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(show(proposal, before=7.0))
    assert "the plan of the run: 0.059 RMS, 18% of an update" in capture.get()
    assert f"what would help most: {proposal.binding}" in capture.get()
    assert all(f"  {one.what}: " in capture.get() for one in proposal.relaxing)


@pytest.mark.parametrize(("error", "words"), [(2.0, "a few points"), (2.1, "more than a few points")])
def test_an_error_in_clipping_norms_is_put_in_words_as_the_page_on_privacy_does(error: float, words: str) -> None:
    proposal = replace(best_private(PrivacyRequirements(users=40, dimension=60, epsilon=8.0)), error=error)
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(show_private(proposal))
    assert f"clipping norms c: {words} of accuracy; beyond 3 much of it may be lost" in capture.get()


def test_a_proposal_of_cohorts_says_what_binds_in_a_cohort() -> None:
    asked = Requirements(rates=(0.5,) * 24 + (2.0,) * 24, dimension=2000, deadline=0.1)
    proposal = best_cohorts(asked, cohort_size=16)
    found = json.loads(json.dumps(describe_cohorts(proposal)))
    assert [one["users"] for one in found["plan"]["cohorts"]] == [16, 16, 16]
    assert found["error"] == proposal.error
    assert found["binding"] == proposal.cohort.binding
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(show_cohort_proposal(proposal))
    assert "48 users in 3 cohorts of at most 16" in capture.get()
    assert f"what would help a cohort most: {proposal.cohort.binding}" in capture.get()


def test_uploads_are_shown_with_and_without_keys_and_shares() -> None:
    proposal = best(Requirements(rates=[0.02] * 10 + [3.0] * 14, dimension=3610, deadline=1.0, value_range=1.0))
    console = Console(width=120, file=io.StringIO())
    console.print(show(proposal))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    beside = sum(beside_vector(proposal.plan, 0).values())
    assert beside > proposal.bytes[0]  # keys and shares are more than the vector of so small a model
    assert f"{(proposal.bytes[0] + beside) / 1000:,.1f}" in text
    assert "vector, kB" in text
    assert "all messages, kB" in text


@pytest.mark.parametrize("rule", ["mean", "median"])
def test_a_private_proposal_states_an_epsilon_of_the_models_for_the_mean_only(rule: str) -> None:
    proposal = best_private(PrivacyRequirements(users=40, dimension=60, epsilon=8.0, attackers=1))
    if rule == "mean":
        proposal = replace(proposal, epsilon_model=4.0)
    found = json.loads(json.dumps(describe_private(proposal)))
    assert (found["epsilon_model"] is None) == (rule == "median")
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(show_private(proposal))
    assert "against whoever sees all sums" in capture.get()
    assert ("the models only (with the mean)" in capture.get()) == (rule == "mean")
