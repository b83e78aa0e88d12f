"""Plans within a privacy budget, as the studio makes and describes them."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from studio_server import Studio

from heterosag.plan import Plan
from heterosag.privacy import epsilon

PRIVATE = {"privacy": "budget", "dimension": 5000, "attackers": 0, "epsilon": 8.0, "delta": 1e-5, "rounds": 20}


def test_a_privacy_budget_gives_a_plan_with_noise_and_its_error_by_epsilon(studio: Studio) -> None:
    status, plan = studio.post("/api/plan", PRIVATE | {"clip": 0.5})
    assert status == 200
    privacy = plan["privacy"]
    built = Plan.from_toml(plan["exports"]["toml"])
    assert (built.clipping_norm, built.noise_multiplier) == (0.5, privacy["noise_multiplier"])
    assert 7.5 < privacy["epsilon_server"] <= 8.0
    assert epsilon(built, rounds=20, delta=1e-5) == pytest.approx(privacy["epsilon_server"])
    assert "all of its trials in all rounds against fair coins" in privacy["statement"]
    _, traced = studio.post("/api/trade-off", PRIVATE | {"clip": 0.5})
    assert traced["names"] == ["one block", "4 subgroups", "6 subgroups"]
    for points in traced["curves"]:
        errors = [error for _, error in points]
        assert errors == sorted(errors, reverse=True)
    assert dict(map(tuple, traced["curve"]))[8.0] == pytest.approx(privacy["error"])
    assert traced["chosen"] == [8.0, privacy["error"]]
    assert plan["guarantees"][4]["name"] == "Noise"
    assert privacy["epsilon_model"] <= privacy["epsilon_server"]
    assert "--rule=mean" in plan["exports"]["train"]


def test_a_plan_for_the_median_has_no_epsilon_of_the_models(studio: Studio) -> None:
    status, plan = studio.post("/api/plan", PRIVATE | {"users": 40, "dimension": 60, "attackers": 1})
    assert (status, plan["problem"]) == (200, None)
    assert plan["privacy"]["epsilon_model"] is None
    assert "models only" not in plan["privacy"]["statement"]
    assert "--rule=median" in plan["exports"]["train"]
    assert "rule='median'" in plan["exports"]["flower"]


@pytest.mark.slow
def test_a_useless_budget_gets_the_nearest_plan_or_is_refused_in_words(studio: Studio) -> None:
    status, plan = studio.post("/api/plan", PRIVATE | {"rounds": 200})
    assert status == 200
    assert "off by" in plan["problem"]
    assert plan["privacy"]["rounds"] < 200
    command = plan["exports"]["command"].replace("\\\n", " ").split()
    words = [sys.executable, "-m", *command, "--json"]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert told["plan"]["digest"] == plan["digest"]
    status, refusal = studio.post("/api/plan", PRIVATE | {"dimension": 10**6})
    assert status == 422
    assert "fewer elements" in refusal["error"]
    for field, value in (("epsilon", 0), ("delta", 1), ("rounds", 0.5), ("clip", -1), ("privacy", "much")):
        status, refusal = studio.post("/api/plan", PRIVATE | {field: value})
        assert (status, refusal["field"]) == (422, field)
