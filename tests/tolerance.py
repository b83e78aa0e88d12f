"""Comparisons that hold on every machine.

Results of float arithmetic differ in their last digits between processors, so what was computed here is compared with
what another machine committed as numbers, within a tolerance: in structured data, in printed text, in drawings. What
parties must agree on (digests, wire bytes, masks, quantized integers) is exact, and is compared exactly elsewhere.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree as ET

__all__ = ["RELATIVE", "differences_of_data", "differences_of_drawings", "differences_of_texts", "shows"]

RELATIVE = 1e-6
"""How far apart two computations of the same float may be, relative to it."""

_NUMBER = re.compile(r"(?<![\w.])[-+\N{MINUS SIGN}]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])", re.IGNORECASE)
_COORDINATE = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_NAMES = ("id", "href", "clip-path", "mask", "filter")  # of things in a drawing, hashed from their coordinates
_POINTS = 0.02  # how far apart two points of a drawing may be: nobody sees it


def differences_of_data(found: Any, expected: Any, place: str = "") -> list[str]:
    """Where two values made of dicts, lists, numbers and strings differ; floats only where no rounding explains it."""
    if isinstance(found, dict) and isinstance(expected, dict):
        if found.keys() != expected.keys():
            return [f"{place}: keys {sorted(map(str, found.keys() ^ expected.keys()))} are in one only"]
        return [line for key in found for line in differences_of_data(found[key], expected[key], f"{place}.{key}")]
    if isinstance(found, list | tuple) and isinstance(expected, list | tuple):
        if len(found) != len(expected):
            return [f"{place}: {len(found)} values, not {len(expected)}"]
        pairs = enumerate(zip(found, expected, strict=True))
        return [line for at, (a, b) in pairs for line in differences_of_data(a, b, f"{place}[{at}]")]
    if isinstance(found, float) and isinstance(expected, float | int) and not isinstance(expected, bool):
        same = math.isclose(found, expected, rel_tol=RELATIVE, abs_tol=0.0)
    else:
        same = type(found) is type(expected) and found == expected
    return [] if same else [f"{place}: {found!r} is not {expected!r}"]


def differences_of_texts(found: str, expected: str) -> list[str]:
    """Where two texts differ: words exactly, numbers as numbers, spaces between them not at all."""
    lines, wanted = _tidy(found), _tidy(expected)
    if len(lines) != len(wanted):
        return [f"{len(lines)} lines, not {len(wanted)}"]
    return [f"{a!r} is not {b!r}" for a, b in zip(lines, wanted, strict=True) if not _same_line(a, b)]


def shows(printed: str, shown: str) -> bool:
    """Whether what was printed is what a page shows, where `...` is part of a line or, alone, any lines or none."""
    pattern, numbers = "", list[str]()
    for line in _tidy(shown):
        parts = [_pattern(part, numbers) for part in re.split(r" ?\.\.\. ?", line)]
        pattern += r"(?:[^\n]*\n)*" if line == "..." else r"[^\n]*?".join(parts) + r"\n"
    found = re.fullmatch(pattern, "".join(f"{line}\n" for line in _tidy(printed)))
    return found is not None and all(map(_same_number, found.groups(), numbers))


def _pattern(text: str, numbers: list[str]) -> str:
    """A regular expression that catches a number wherever the text has one; the text's own are added to `numbers`."""
    numbers += _NUMBER.findall(text)
    return f"({_NUMBER.pattern})".join(map(re.escape, _NUMBER.split(text)))


def _tidy(text: str) -> list[str]:
    return [re.sub(r"\s+", " ", line).strip() for line in text.strip("\n").splitlines()]


def _same_line(found: str, expected: str) -> bool:
    words, numbers = _NUMBER.split(found), _NUMBER.findall(found)
    if words != _NUMBER.split(expected):
        return False
    return all(map(_same_number, numbers, _NUMBER.findall(expected)))


def _same_number(found: str, expected: str) -> bool:
    """Integers exactly; what has a decimal point to a unit of its last digit, where rounding may have tipped."""
    if found == expected:
        return True
    if not {".", "e"} & set(expected.lower()):
        return False
    one, other = (float(text.replace(",", "").replace("\N{MINUS SIGN}", "-")) for text in (found, expected))
    mantissa, _, exponent = expected.lower().partition("e")
    last_digit = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return abs(one - other) <= max(1.01 * last_digit, RELATIVE * abs(other))


# --- drawings -------------------------------------------------------------------------------------------------------


def differences_of_drawings(found: str, expected: str) -> list[str]:
    """Where two SVG texts draw something else: elements, colours and words exactly, coordinates nearly."""
    one, other = list(_drawn(found)), list(_drawn(expected))
    if len(one) != len(other):
        return [f"{len(one)} elements are drawn, not {len(other)}"]
    return [f"{a} is not {b}" for a, b in zip(one, other, strict=True) if not _same_element(a, b)]


_Element = tuple[str, dict[str, str], str]


def _drawn(svg: str) -> Iterator[_Element]:
    for element in ET.fromstring(svg).iter():  # our own files, or what was drawn this moment
        tag = element.tag.rpartition("}")[2]
        kept = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        if tag != "defs":
            yield tag, {name: value for name, value in kept.items() if name not in _NAMES}, (element.text or "").strip()


def _same_element(one: _Element, other: _Element) -> bool:
    if one[0] != other[0] or one[1].keys() != other[1].keys():
        return False
    if differences_of_texts(one[2], other[2]):
        return False
    return all(_same_attribute(value, other[1][name]) for name, value in one[1].items())


def _same_attribute(found: str, expected: str) -> bool:
    if found == expected:
        return True
    if _COORDINATE.split(found) != _COORDINATE.split(expected):
        return False
    pairs = zip(_COORDINATE.findall(found), _COORDINATE.findall(expected), strict=True)
    return all(abs(float(a) - float(b)) <= _POINTS for a, b in pairs)
