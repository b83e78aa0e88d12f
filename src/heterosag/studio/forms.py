"""What the page sends: one JSON object, read value by value, each with its limits.

Every value out of bounds is a `PlanError` that names the field, so that the page can point at it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

from heterosag.errors import PlanError, UsageError

__all__ = ["Form", "read_form"]

_LONGEST_TEXT = 40_000

_Word = TypeVar("_Word", bound=str)


def read_form(body: bytes) -> Form:
    """The form of a request's body."""
    try:
        values = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # a number of thousands of digits, or brackets of any depth, end here too
        raise UsageError("the body is not JSON") from None
    if not isinstance(values, dict):
        raise UsageError("the body is a JSON object")
    return Form(values)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


class Form:
    """Values by name, checked as they are read; what is missing has its default."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def key(self) -> str:
        """The same text for the same values."""
        return json.dumps(self._values, sort_keys=True)

    def inner(self, name: str) -> Form:
        """A form inside this one; empty unless given."""
        values = self._values.get(name, {})
        if not isinstance(values, dict):
            raise PlanError(name, "must be an object")
        return Form(values)

    def integer(self, name: str, default: int, least: int, most: int) -> int:
        """An integer."""
        value = self._values.get(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise PlanError(name, f"must be an integer from {least:,} to {most:,}, not {_short(value)}")
        return value

    def number(self, name: str, default: float, least: float, most: float) -> float:
        """A number."""
        value = self._values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value <= most:
            raise PlanError(name, f"must be a number from {least:g} to {most:g}, not {_short(value)}")
        return float(value)

    def text(self, name: str, default: str) -> str:
        """Text of a bounded length."""
        value = self._values.get(name, default)
        if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
            raise PlanError(name, f"must be text of at most {_LONGEST_TEXT:,} characters")
        return value

    def choice(self, name: str, allowed: Sequence[_Word]) -> _Word:
        """One of a few words; the first unless given."""
        value = self._values.get(name, allowed[0])
        if value not in allowed:
            raise PlanError(name, f"must be one of {', '.join(allowed)}, not {_short(value)}")
        return allowed[allowed.index(value)]

    def flag(self, name: str) -> bool:
        """True or false; false unless given."""
        value = self._values.get(name, False)
        if not isinstance(value, bool):
            raise PlanError(name, f"must be true or false, not {_short(value)}")
        return value

    def places(self, name: str, below: int) -> frozenset[int]:
        """A list of distinct integers from 0 on; none unless given."""
        values = self._values.get(name, [])
        if not isinstance(values, list) or len(values) > below:
            raise PlanError(name, f"must be a list of at most {below} integers")
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
                raise PlanError(name, f"holds integers from 0 to {below - 1}, not {_short(value)}")
        return frozenset(values)

    def integers(self, name: str, default: str, *, most: int) -> list[int]:
        """Integers with commas between them, each at most `most`."""
        found = []
        for part in self.text(name, default).split(","):
            word = part.strip()
            if not (word.isascii() and word.isdigit() and len(word) < 12 and int(word) <= most):
                raise PlanError(name, f"must be integers up to {most:,} with commas between them, not {_short(part)}")
            found.append(int(word))
        return found

    def numbers(self, name: str, default: str, *, least: float, most: float, count: int) -> list[float]:
        """Numbers with commas between them; `0.5 x 24` stands for twenty-four of them. At most `count` in all."""
        found: list[float] = []
        for part in self.text(name, default).replace("*", "x").split(","):
            value, x, times = part.partition("x")
            repeated, each = (_float(times), _float(value)) if x else (1.0, _float(part))
            if each is None or not least <= each <= most:
                raise PlanError(
                    name, f"must be numbers from {least:g} to {most:g}, such as 0.5 x 24, 2 x 24; not {_short(part)}"
                )
            if repeated is None or not repeated.is_integer() or not 1 <= repeated <= count - len(found):
                raise PlanError(name, f"holds at most {count:,} numbers in all")
            found += [each] * int(repeated)
        return found


def _float(word: str) -> float | None:
    try:
        value = float(word)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _short(value: Any) -> str:
    """What was given, short enough for a message; an integer beyond a float's range has no repr worth showing."""
    if isinstance(value, int) and abs(value) > 10**15:
        return "a number this large" if value > 0 else "a number this small"
    words = repr(value)
    return words if len(words) <= 40 else f"{words[:40]}..."
