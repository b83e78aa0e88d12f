"""The search for bits, against brute force over the same model."""

import itertools
import math

from cases import examples
from hypothesis import given
from hypothesis import strategies as st

from heterosag.planner import Requirements
from heterosag.planner.search import THRIFT, Model, solve_size


@examples(20)
@given(st.lists(st.floats(0.3, 6.0), min_size=6, max_size=6), st.floats(0.3, 3.0))
def test_no_assignment_of_bits_beats_the_search(rates: list[float], deadline: float) -> None:
    """Every rising list of bits of six subgroups of two, by brute force over the same model."""
    asked = Requirements(
        rates=tuple(sorted(rate for rate in rates for _ in range(2))), dimension=6000, deadline=deadline, dropout=0.0,
        min_survivors=2,
    )  # fmt: skip
    model = Model(users=12, size=2, subgroups=6, requirements=asked)
    budgets, weights = model.budgets(asked.rates), model.weights()
    least = math.inf
    for bits in itertools.combinations_with_replacement(range(model.fewest, model.fewest + 9), 6):
        spent = [sum(bits[:place]) + (5 - place) * width for place, width in enumerate(bits)]
        if all(one <= budget for one, budget in zip(spent, budgets, strict=True)):
            least = min(least, sum(w * model.cost(b) for w, b in zip(weights, bits, strict=True)))
    solved = solve_size(model, asked.rates)
    if math.isinf(least):
        assert solved is None
        return
    assert solved is not None
    assert solved.error <= model.error(least) * (1 + THRIFT)
    assert solved.lower_bound <= solved.error * (1 + 1e-12)
    spent = [sum(solved.bits[:place]) + (5 - place) * width for place, width in enumerate(solved.bits)]
    assert all(one <= budget for one, budget in zip(spent, budgets, strict=True))
