"""The docstrings of the public surface: arguments, results, errors, and examples that run."""

import doctest
import inspect

import pytest

import heterosag

EXAMPLES = ("Client", "Ledger", "Plan", "Policy", "aggregate")


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_run(name: str) -> None:
    thing = getattr(heterosag, name)
    found = [test for test in doctest.DocTestFinder(recurse=True).find(thing, name) if test.examples]
    assert found, f"{name} has no example"
    for test in found:
        result = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(test)
        assert result.failed == 0


def test_every_argument_of_what_people_call_is_described() -> None:
    for thing, documented in (
        (heterosag.aggregate, heterosag.aggregate),
        (heterosag.Plan.build, heterosag.Plan.build),
        (heterosag.Client, heterosag.Client),
        (heterosag.Server, heterosag.Server),
        (heterosag.Policy, heterosag.Policy),
        (heterosag.Client.restore, heterosag.Client.restore),
        (heterosag.Ledger, heterosag.Ledger),
    ):
        text = inspect.getdoc(documented) or ""
        for name in inspect.signature(thing).parameters:
            assert f"    {name}: " in text, f"{documented} does not say what {name} is"
