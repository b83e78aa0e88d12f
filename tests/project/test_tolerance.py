"""The tolerant comparisons let rounding pass, and nothing else."""

from __future__ import annotations

from tolerance import differences_of_data, differences_of_drawings, differences_of_texts


def test_data_differ_by_rounding_only() -> None:
    here = {"p": 3.616422172836309e-08, "n": [1, 2.0], "name": "a", "none": None}
    assert not differences_of_data(here, {**here, "p": 3.616422183938539e-08})
    for changed in (
        {**here, "p": 3.62e-08},
        {**here, "p": 0.0},
        {**here, "n": [1, 2.0, 3]},
        {**here, "n": [2, 2.0]},
        {**here, "name": "b"},
        {**here, "none": 0},
        {"p": here["p"]},
    ):
        assert differences_of_data(here, changed), changed
    assert differences_of_data({"a": True}, {"a": 1})
    assert not differences_of_data([1.0], (1,))


def test_texts_differ_by_rounding_only() -> None:
    text = "a round fails: 6.51e-11, 95 of 96 users\n  error 0.0123 (12.3%)"
    for other in ("a round fails: 6.52e-11, 95 of 96 users\n error  0.0124 (12.4%)", text + "\n"):
        assert not differences_of_texts(text, other)
    for other in (
        text.replace("95", "94"),
        text.replace("0.0123", "0.0153"),
        text.replace("6.51e-11", "6.51e-10"),
        text.replace("fails", "ends"),
        text + "\nmore",
    ):
        assert differences_of_texts(text, other), other


def test_drawings_differ_by_rounding_only() -> None:
    def svg(d: str = "M 1.25 2 L 3 4", fill: str = "#0072b2", words: str = "share 0.25", extra: str = "") -> str:
        return (
            '<svg xmlns="http://www.w3.org/2000/svg"><defs><path id="m8f"/></defs>'
            f'<path id="p1" d="{d}" style="fill: {fill}; stroke-width: 0.8"/><text>{words}</text>{extra}</svg>'
        )

    assert not differences_of_drawings(svg(), svg(d="M 1.250001 2 L 3 4.00001").replace("p1", "pf"))
    for other in (svg(d="M 1.5 2 L 3 4"), svg(d="M 1.25 2"), svg(fill="#0072b3"), svg(words="share 0.35"),
                  svg(extra="<g/>")):  # fmt: skip
        assert differences_of_drawings(svg(), other), other
