"""The docstrings of the public surface: arguments, results, errors, and examples that run."""

import doctest
import inspect

import pytest

import heterosag
from heterosag import planner

EXAMPLES = {
    **{name: getattr(heterosag, name) for name in ("Client", "Ledger", "Plan", "Policy", "aggregate")},
    **{name: getattr(planner, name) for name in ("best", "read_rates")},
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str) -> None:
    thing = EXAMPLES[name]
    found = [test for test in doctest.DocTestFinder(recurse=True).find(thing, name) if test.examples]
    assert found, f"{name} has no example"
    for test in found:
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
        assert result.failed == 0


def test_every_argument_of_what_people_call_is_described() -> None:
    for thing in (
        heterosag.aggregate,
        heterosag.Client,
        heterosag.Client.restore,
        heterosag.Ledger,
        heterosag.Ledger.exposures,
        heterosag.Ledger.from_rounds,
        heterosag.Plan.build,
        heterosag.Plan.decode,
        heterosag.Plan.from_toml,
        heterosag.Plan.with_value_range,
        heterosag.Policy,
        heterosag.Policy.exactly,
        heterosag.Result,
        heterosag.Server,
        heterosag.Simulation,
        planner.Requirements,
        planner.best,
        planner.read_rates,
        planner.spread_rates,
        planner.trade_off,
    ):
        text = inspect.getdoc(thing) or ""
        for name in inspect.signature(thing).parameters.keys() - {"self"}:
            assert f"    {name}: " in text, f"{thing} does not say what {name} is"
        source = inspect.getsource(thing)
        if inspect.isroutine(thing):
            assert "Returns:" in text, f"{thing} does not say what it returns"
            assert "raise " not in source or "Raises:" in text, f"{thing} does not say what it raises"
