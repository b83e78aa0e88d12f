"""Whole rounds: for random plans, updates and dropouts the result is exact, or the error that the oracle names."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cases import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from heterosag import Simulation, aggregate
from heterosag.errors import PlanError, TooFewSurvivorsError
from heterosag.plan import Plan
from heterosag.protocol import Phase, outcome
from heterosag.protocol.encoding import fill_cells
from heterosag.protocol.rounding import Rounding
from heterosag.protocol.update import Update

PHASES = [phase.value for phase in Phase]


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    classes = draw(st.lists(st.integers(2, 9), min_size=1, max_size=3))
    dimension = draw(st.integers(1, 60))
    first = draw(st.integers(1, dimension))
    scaled = first < dimension and draw(st.booleans())
    try:
        return Plan.build(
            classes=classes,
            levels=sorted(
                draw(st.lists(st.sampled_from([2, 3, 6, 50, 62, 70_000]), min_size=len(classes), max_size=len(classes)))
            ),
            dimension=dimension,
            value_range=1.0,
            ranges=draw(st.sampled_from(["single", "levels"])),
            rotate=draw(st.booleans()),
            arrays=[first, dimension - first] if scaled else [],
            scales=[0.5, 3.0] if scaled else [],
            design=draw(st.sampled_from(["perfect", "paper-composite", "secagg", "multigroup"])),
            subgroup_size=draw(st.integers(2, 4)),
            min_survivors=2,
            max_weight=draw(st.sampled_from([1, 1, 9])),
            min_robustness=draw(st.sampled_from([None, 0.0])),
            assignment_seed=draw(st.none() | st.integers(0, 9)),
            fill_levels=draw(st.booleans()),
            metrics=draw(st.sampled_from([[], ["loss"]])),
        )
    except PlanError:
        assume(False)
        raise


def exact_sums(plan: Plan, survivors: tuple[Any, ...], updates: np.ndarray, weights: list[int]) -> dict[Any, Any]:
    """The plain integer sum of the survivors' quantized vectors, by segment and block, in Python's own numbers."""
    cells = {
        user: fill_cells(
            plan,
            plan.subgroup_of(user),
            Update.of(plan, updates[user], weight=weights[user], metrics=dict.fromkeys(plan.metrics, 0.5)),
            Rounding.from_seed(11, user),
        )
        for user in survivors
    }
    sums = {}
    for at, segment in enumerate(plan.segments):
        for block in segment.blocks:
            present = [user for user in survivors if plan.subgroup_of(user) in block.subgroups]
            if present:
                sums[at, block.subgroups] = sum(cells[user][at].elements.astype(object) for user in present)
    return sums


@examples(24)
@given(plan=plans(), data=st.data())
def test_the_result_is_the_exact_sum_or_the_error_the_oracle_names(plan: Plan, data: st.DataObject) -> None:
    users = len(plan.users)
    updates = np.random.default_rng(data.draw(st.integers(0, 99))).uniform(-1.5, 1.5, (users, plan.dimension))
    weights = data.draw(st.lists(st.integers(1, plan.max_weight), min_size=users, max_size=users))
    dropped = data.draw(st.dictionaries(st.integers(0, users - 1), st.sampled_from(PHASES), max_size=users // 3))
    signed = data.draw(st.booleans())
    options: dict[str, Any] = {
        "weights": weights,
        "identities": signed,
        "metrics": {user: dict.fromkeys(plan.metrics, 0.5) for user in plan.users},
    }
    simulation = Simulation(dropped=dropped, rounding_seed=11)
    expected = outcome(plan, dropped, identities=signed)
    if expected.error is not None:
        for secure in (True, False):
            with pytest.raises(TooFewSurvivorsError) as failure:
                aggregate(plan, updates, simulate=replace(simulation, secure=secure), **options)
            assert failure.value.reason == expected.error.reason
        return
    result = aggregate(plan, updates, simulate=simulation, **options)
    assert result.survivors == expected.survivors
    sums = exact_sums(plan, expected.survivors, updates, weights)
    decoded = {(block.segment, block.subgroups): block for segment in result.blocks for block in segment}
    assert decoded.keys() == sums.keys()
    for key, block in decoded.items():
        assert block.sums.astype(object).tolist() == sums[key].tolist()
        present = [user for user in expected.survivors if plan.subgroup_of(user) in key[1]]
        assert block.survivors == len(present)
        assert block.weight == sum(weights[user] for user in present)
        assert block.fault is None
    plain = aggregate(plan, updates, simulate=replace(simulation, secure=False), **options)
    assert np.array_equal(plain.vector, result.vector)
    assert plain.metrics == result.metrics == pytest.approx(dict.fromkeys(plan.metrics, 0.5), abs=1e-6)
    if plan.rotate or plan.ranges == "levels" or plan.scales:
        return  # what is clipped cannot be read off the updates
    chosen = list(expected.survivors)
    own = np.array([weights[user] for user in chosen])
    scaled = np.clip(updates[chosen] * (own / plan.max_weight)[:, None], -1, 1)  # clipped after scaling
    mean = scaled.sum(axis=0) * plan.max_weight / own.sum()
    slowest = min(block.level for segment in plan.segments for block in segment.blocks)
    lightest = min(block.weight / block.survivors for segment in result.blocks for block in segment)
    assert np.abs(result.vector - mean).max() <= 2 / (slowest - 1) * plan.max_weight / lightest + 1e-9
