"""The one sentence that says what is claimed."""

import pytest

from heterosag.errors import UsageError
from heterosag.plan import Plan
from heterosag.privacy.statement import state, word_for

PLAN = Plan.build(
    [40], [2], 900, design="secagg", subgroup_size=40, min_block_survivors=32, clipping_norm=1.0, noise_multiplier=4.0
)


def test_what_an_epsilon_is_called() -> None:
    assert word_for(10.0) == "differential privacy"
    assert word_for(10.1).startswith("a noise floor")


def test_the_claim_names_unit_neighbours_view_delta_and_who_may_not_follow() -> None:
    found = state(PLAN, epsilon_server=7.9, epsilon_model=4.1, delta=1e-5, rounds=20, identities=True)
    for words in (
        "every user over 20 rounds",
        "at delta 1e-05",
        "against fair coins",
        "epsilon 7.90 against whoever sees all sums (differential privacy)",
        "epsilon 4.10 against whoever sees the models only (differential privacy)",
        "malicious or curious",
        "32 or more survivors of a block 1 may not follow",
    ):
        assert words in found
    weaker = state(PLAN, epsilon_server=17.9, epsilon_model=None, delta=1e-5, rounds=20, identities=False)
    assert "epsilon 17.90 against whoever sees all sums (a noise floor, no guarantee)" in weaker
    assert "models" not in weaker
    assert "curious, not malicious" in weaker


def test_nothing_is_claimed_of_what_is_simulated_or_has_no_noise() -> None:
    given = {"epsilon_server": 7.9, "epsilon_model": None, "delta": 1e-5, "rounds": 20, "identities": True}
    simulated = state(PLAN, **given, simulated=True)  # type: ignore[arg-type]
    assert simulated.startswith("simulated, no privacy")
    assert "epsilon" not in simulated
    plain = Plan.build([8], [4], 10, value_range=1.0, subgroup_size=4)
    with pytest.raises(UsageError, match="nothing is claimed"):
        state(plain, **given)  # type: ignore[arg-type]
