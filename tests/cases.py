"""Many cases in one test: a loop that names the case it failed at, and as many random examples as there is time for."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import settings

__all__ = ["THOROUGH", "each", "examples"]

THOROUGH = os.environ.get("HYPOTHESIS_PROFILE") in ("thorough", "random")
"""Whether there is time for more examples, as in `make test-all`."""

Test = Callable[..., None]


def examples(count: int) -> Callable[[Test], Test]:
    """How many random examples a property is tried on; twice as many where there is time."""

    def decorate(test: Test) -> Test:
        limited: Test = settings(max_examples=count * (2 if THOROUGH else 1), deadline=None)(test)
        return pytest.mark.property(limited)

    return decorate


def each(names: str, values: Iterable[Any], ids: Iterable[str] | None = None) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize`, but one test: for thousands of cases of one loop, which pytest need not count.

    Fixtures are those of the one test, so this is for tests whose cases leave nothing behind.
    """
    wanted = [name.strip() for name in names.split(",")]
    rows = [value if len(wanted) > 1 else (value,) for value in values]
    labels = [repr(row) for row in rows] if ids is None else [str(label) for label in ids]

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def looped(**fixtures: Any) -> None:
            for label, row in zip(labels, rows, strict=True):
                try:
                    test(**fixtures, **dict(zip(wanted, row, strict=True)))
                except (Exception, pytest.fail.Exception) as error:
                    error.add_note(f"{names}: {label}")
                    raise

        signature = inspect.signature(test)
        kept = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        looped.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return looped

    return decorate
