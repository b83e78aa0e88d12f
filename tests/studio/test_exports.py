"""Plans as they leave the page for a training run and for Flower."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest
from command import settings_in, training_command
from studio_server import HAND

from heterosag.plan import CohortPlan
from heterosag.studio.choosing import Choice, choose
from heterosag.studio.forms import Form
from heterosag.studio.plans import describe
from heterosag.training.config import TrainConfig

FORMS = [
    {},
    HAND,
    HAND | {"min_survivors": 2, "subgroup_size": 6, "fill_levels": True, "attackers": 0},
    {"limit": "bits", "bits": 600_000, "rates_kind": "list", "rates": "1 x 48, 3 x 48"},
    pytest.param(
        {"privacy": "budget", "users": 200, "dimension": 5000, "attackers": 0, "epsilon": 8.0}, marks=pytest.mark.slow
    ),
]

_STRUCTURE = ("classes", "levels", "design", "min_survivors", "min_block_survivors", "share_threshold", "dropout")


def config_of(command: str) -> TrainConfig:
    """The settings of a command as `heterosag train` reads them."""
    return TrainConfig.from_dict(settings_in(training_command(command)))


def exports_of(form: dict[str, Any]) -> tuple[Choice, dict[str, str]]:
    choice = choose(Form(form))
    exports: dict[str, str] = describe(choice)["exports"]
    return choice, exports


@pytest.mark.parametrize("form", FORMS)
def test_the_training_command_makes_the_plan_that_is_shown(form: dict[str, Any]) -> None:
    from heterosag.training.epochs import build_plan

    choice, exports = exports_of(form)
    config = config_of(exports["train"])
    plan = choice.plan
    built = build_plan(config, [plan.dimension])
    assert not isinstance(built, CohortPlan)
    for name in (*_STRUCTURE, "fill_levels"):
        assert getattr(built, name) == getattr(plan, name), name
    assert built.vector_sizes() == plan.vector_sizes()
    assert built.noise_multiplier == pytest.approx(plan.noise_multiplier, rel=1e-4)
    if not plan.noise_multiplier:
        assert config.rates == choice.rates
        robust = choice.requirements.attackers > 0 and plan.byzantine_tolerance() > 0
        assert config.rule == ("median" if robust else "mean")


@pytest.mark.parametrize("form", FORMS)
def test_the_lines_for_flower_call_what_there_is(form: dict[str, Any]) -> None:
    pytest.importorskip("flwr")
    import heterosag
    from heterosag import flower

    choice, exports = exports_of(form)
    tree = ast.parse(exports["flower"])
    known = {"SecureGrid": flower.SecureGrid, "mod": flower.mod, "Privacy": flower.Privacy, "Policy": heterosag.Policy}
    called: dict[str, dict[str, Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in known:
            taken = inspect.signature(known[node.func.id]).parameters
            given = {str(word.arg): word.value for word in node.keywords}
            assert given.keys() <= taken.keys()
            called[node.func.id] = given
    grid = called["SecureGrid"]
    assert ast.literal_eval(grid["levels"]) == list(choice.plan.levels)
    options = ast.literal_eval(grid["options"])
    assert (options["subgroup_size"], options["design"]) == (choice.plan.subgroup_size, choice.plan.design.name)
    if len(choice.plan.classes) > 1:
        assert ast.literal_eval(grid["rate_limits"]) == list(choice.rates[1:])
    if not choice.plan.noise_multiplier:
        loosened = {name: ast.literal_eval(value) for name, value in called.get("Policy", {}).items()}
        heterosag.Policy(**loosened).check(choice.plan)
    assert ("Policy" in called) == (choice.plan.min_survivors < heterosag.Policy().min_survivors)
    assert options["colluders"] == choice.plan.colluders
    assert ("Privacy" in called) == bool(choice.plan.noise_multiplier)
