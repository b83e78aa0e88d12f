"""Plans as the studio makes and describes them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from studio_server import HAND, Studio

from heterosag.plan import Plan


def test_a_plan_by_hand_is_the_plan_of_its_exports(studio: Studio) -> None:
    status, plan = studio.post("/api/plan", HAND)
    assert status == 200
    built = Plan.build([24, 24, 24, 24], [2, 6, 8, 12], 79_510, value_range=1.0, subgroup_size=8)
    assert plan["digest"] == built.digest.hex() == Plan.from_toml(plan["exports"]["toml"]).digest.hex()
    assert [row["bytes"] for row in plan["classes"]] == [max(built.vector_sizes()[3 * g : 3 * g + 3]) for g in range(4)]
    scope: dict[str, Any] = {}
    exec(plan["exports"]["python"].replace("print", ""), scope)
    assert scope["plan"].digest == built.digest
    command = plan["exports"]["command"].replace("\\\n", " ").split()
    assert command[0] == "heterosag"
    words = [sys.executable, "-m", *command, "--json"]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert told["digest"] == plan["digest"]


def test_requirements_give_a_plan_within_the_deadline_and_a_curve_through_it(studio: Studio) -> None:
    form = {"rates_kind": "list", "rates": "1 x 24, 2 x 24, 4 x 24, 8 x 24", "deadline": 1.0}
    status, plan = studio.post("/api/plan", form)
    assert status == 200
    assert all(row["seconds"] <= 1.0 for row in plan["classes"])
    assert plan["proposal"]["lower_bound"] <= plan["error"]
    scope: dict[str, Any] = {}
    exec(plan["exports"]["python"].replace("print", ""), scope)
    assert scope["plan"].digest.hex() == plan["digest"]
    _, longer = studio.post("/api/plan", form | {"deadline": 2.0})
    assert longer["error"] < plan["error"]
    _, traced = studio.post("/api/trade-off", form)
    errors = [error for at, error in traced["curve"] if error is not None and at != 1.0]
    assert errors == sorted(errors, reverse=True)
    below, above = (max(e for t, e in traced["curve"] if t > 1.0), min(e for t, e in traced["curve"] if e and t < 1.0))
    assert 0.999 * below <= plan["error"] <= 1.001 * above  # two searches may end a hair apart
    assert traced["chosen"][0] == 1.0
    assert [1.0, plan["error"]] == traced["chosen"]
    assert traced["chosen"] in traced["curve"]


def test_savings_compare_with_one_sum_that_is_as_precise(studio: Studio) -> None:
    _, plan = studio.post("/api/plan", HAND)
    savings, rows = plan["savings"], plan["classes"]
    levels = savings["secagg_levels"]
    users = sum(row["users"] for row in rows)

    def error(level: int) -> float:
        one = Plan.build([users], [level], plan["dimension"], design="secagg", value_range=1.0)
        assert max(one.vector_sizes()) >= savings["secagg"]["bytes"] or level < levels
        return one.error_bound()

    assert error(levels) <= plan["error"] < error(levels - 1)
    assert savings["float32"]["bytes"] == 4 * plan["dimension"]
    for reference in ("float32", "secagg"):
        assert savings[reference]["slowest"] == pytest.approx(savings[reference]["bytes"] / rows[0]["bytes"])
    sent = sum(row["users"] * row["bytes"] for row in rows)
    assert savings["secagg"]["all"] == pytest.approx(users * savings["secagg"]["bytes"] / sent)
    assert rows[1]["float32"] == pytest.approx(savings["float32"]["bytes"] / rows[1]["bytes"])
