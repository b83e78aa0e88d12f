"""Values of a form that are out of bounds name their field."""

from __future__ import annotations

from typing import Any

import pytest
from fuzz.targets import limited_work
from studio_server import HAND, Studio

from heterosag.errors import PlanError
from heterosag.studio.choosing import choose
from heterosag.studio.forms import Form


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"users": 10_001}, "users"),
        ({"users": 1e300}, "users"),
        ({"users": "96"}, "users"),
        ({"users": None}, "users"),
        ({"rates_kind": "list", "rates": "1 x 10001"}, "rates"),
        ({"rates_kind": "list", "rates": "1e999"}, "rates"),
        ({"rates_kind": "list", "rates": "one"}, "rates"),
        ({"dimension": 10**9 + 1}, "dimension"),
        ({"deadline": -1}, "deadline"),
        ({"limit": "bits", "bits": 10**30}, "bits"),
        ({"dropout": 0.7}, "dropout"),
        ({"min_survivors": 1}, "min_survivors"),
        ({"slowest": 5, "fastest": 1}, "fastest"),
        ({"most_subgroups": 65}, "most_subgroups"),
        ({"mode": "magic"}, "mode"),
        (HAND | {"classes": "5000,5001"}, "classes"),
        (HAND | {"classes": "9" * 30}, "classes"),
        (HAND | {"classes": "-5,5"}, "classes"),
        (HAND | {"subgroup_size": 1}, "subgroup_size"),
        (HAND | {"levels": "2,6"}, "levels"),
        (HAND | {"levels": "6,2,8,12"}, "levels[1]"),
        (HAND | {"design": "paper"}, "design"),
        (HAND | {"class_rates": "1"}, "class_rates"),
        (HAND | {"max_weight": 10**12}, "max_weight"),
    ],
)
def test_numbers_out_of_bounds_name_their_field_before_any_work(
    studio: Studio, form: dict[str, Any], field: str
) -> None:
    with limited_work(20_000), pytest.raises(PlanError) as refusal:  # the plan that the page begins with takes 400,000
        choose(Form(form))
    assert refusal.value.field == field
    for path in ("/api/plan", "/api/trade-off"):
        status, answer = studio.post(path, form)
        assert status == 422
        assert answer["field"] == field
        assert field.split("[")[0] in answer["error"]
