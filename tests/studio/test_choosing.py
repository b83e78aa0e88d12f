"""From the form to a plan: the nearest one where requirements clash, and large ones with little work."""

from __future__ import annotations

from typing import Any

import pytest
from fuzz.targets import limited_work
from studio_server import HAND, Studio

from heterosag.errors import PlanError
from heterosag.studio.choosing import MOST_SUBGROUPS, choose
from heterosag.studio.forms import Form
from heterosag.studio.plans import describe


def test_impossible_requirements_get_the_nearest_plan_and_the_contradiction(studio: Studio) -> None:
    status, plan = studio.post("/api/plan", {"deadline": 0.01})
    assert status == 200
    assert "contradict" in plan["problem"]
    assert plan["warnings"]


@pytest.mark.long
@pytest.mark.parametrize(
    "form",
    [
        {"users": 10_000, "most_subgroups": 64, "dimension": 10**9, "deadline": 10_000},
        HAND | {"classes": "2500,2500,2500,2500", "subgroup_size": 160, "design": "paper-composite"},
    ],
)
def test_the_largest_plans_of_the_page_take_little_work(studio: Studio, form: dict[str, Any]) -> None:
    with limited_work(20_000_000):  # they take two to five million calls
        assert describe(choose(Form(form)))
    assert studio.post("/api/plan", form)[0] == 200


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"classes": "9000,9000", "levels": "2,4"}, "classes"),
        ({"subgroup_size": 1}, "subgroup_size"),
        ({"class_rates": "1,2"}, "class_rates"),
    ],
)
def test_what_the_page_cannot_show_is_refused_by_name(change: dict[str, Any], field: str) -> None:
    with pytest.raises(PlanError) as refusal:
        choose(Form(HAND | change))
    assert refusal.value.field == field


def test_the_same_form_is_planned_once() -> None:
    assert choose(Form(dict(HAND))) is choose(Form(dict(reversed(HAND.items()))))
    assert len(choose(Form(dict(HAND))).plan.subgroups) <= MOST_SUBGROUPS


def test_a_sparse_plan_by_hand_has_as_many_colluders_as_it_counts_by_itself() -> None:
    plan = choose(Form(HAND | {"classes": "150,150", "levels": "2,4", "class_rates": "1,2", "subgroup_size": 25})).plan
    assert not plan.sharing.complete
    assert plan.colluders == 15
