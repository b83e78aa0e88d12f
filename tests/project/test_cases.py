"""A loop of cases in one test runs them all, and says at which it failed."""

from __future__ import annotations

import inspect

import pytest
from cases import each


def test_every_case_runs_and_the_failing_one_is_named() -> None:
    seen = []

    @each("a, b", [(1, 2), (3, 4)], ids=["first", "second"])
    @each("c", "xy")
    def check(a: int, b: int, c: str, fixture: str) -> None:
        seen.append((a, b, c, fixture))
        assert (a, c) != (3, "y")

    assert list(inspect.signature(check).parameters) == ["fixture"]
    with pytest.raises(AssertionError) as caught:
        check(fixture="f")
    assert seen == [(1, 2, "x", "f"), (1, 2, "y", "f"), (3, 4, "x", "f"), (3, 4, "y", "f")]
    assert caught.value.__notes__ == ["c: ('y',)", "a, b: second"]
