"""The figures of docs/concepts show what the code does, and are those that tools/documents/make_figures.py draws."""

from __future__ import annotations

import importlib.util
import re
import sys
import types
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from tolerance import differences_of_drawings

from heterosag.plan import costs
from heterosag.plan.design import paper, perfect

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def figures() -> Iterator[types.ModuleType]:
    pytest.importorskip("matplotlib")
    spec = importlib.util.spec_from_file_location("make_figures", ROOT / "tools" / "documents" / "make_figures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_figures"] = module  # its dataclasses look themselves up there
    spec.loader.exec_module(module)
    yield module
    del sys.modules["make_figures"]


@pytest.mark.long
def test_the_committed_figures_are_those_that_the_code_draws(figures: types.ModuleType) -> None:
    assert {path.stem for path in figures.FIGURES.glob("*")} == figures.DRAWINGS.keys()
    for name in figures.DRAWINGS:
        committed = (figures.FIGURES / f"{name}.svg").read_text(encoding="utf-8")
        found = differences_of_drawings(figures.to_svg(name), committed)
        assert not found, f"run `python tools/documents/make_figures.py`: {name}.svg differs: {found[0]}"


def test_figures_hold_text_as_text_and_neither_dates_nor_pixels(figures: types.ModuleType) -> None:
    for path in figures.FIGURES.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert text.count("<text") > 10
        assert "<image" not in text
        assert "<dc:date>" not in text
        assert f"<title>{figures.DRAWINGS[path.stem][0]}</title>" in text


@pytest.mark.slow
def test_no_label_lies_on_another_or_outside(figures: types.ModuleType) -> None:
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    for name, (_, draw) in figures.DRAWINGS.items():
        with mpl.rc_context(figures._SETTINGS):
            figure = draw()
            canvas = FigureCanvasAgg(figure)
            canvas.draw()  # type: ignore[no-untyped-call]
            shown = [text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()]
            boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
        width, height = canvas.get_width_height()
        for text, box in boxes:
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
            assert inside, f"{name}: {text!r} leaves the picture"
        for (one, first), (other, second) in combinations(boxes, 2):
            assert not first.overlaps(second), f"{name}: {one!r} and {other!r} overlap"


def test_every_figure_is_shown_with_words_for_those_who_cannot_see_it(figures: types.ModuleType) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "concepts").glob("*.md"))
    shown = dict(re.findall(r"!\[([^\]]+)\]\(\.\./figures/concepts/([\w-]+)\.svg\)", pages))
    assert sorted(shown.values()) == sorted(figures.DRAWINGS)
    assert all(len(words) > 40 for words in shown)


def test_the_masks_drawn_are_those_of_the_round(figures: types.ModuleType) -> None:
    seen = figures.three_users()
    modulus = 1 << seen.plan.segments[0].blocks[0].bits
    for user in range(3):
        pairs = sum(
            mask if user == one else -mask for (one, other), mask in seen.pair_masks.items() if user in (one, other)
        )
        masked = (seen.levels[user][0] + seen.own_masks[user][0] + pairs) % modulus
        assert masked == seen.received[user][0]
    assert seen.decoded.segments[0][0].elements.tolist() == [sum(row[0] for row in seen.levels)]


def test_the_sums_drawn_are_those_of_the_levels_drawn(figures: types.ModuleType) -> None:
    seen = figures.twelve_users()
    levels, assignment = np.array(seen.levels), np.array(seen.plan.assignment)
    assert levels.max() <= 15
    assert not np.array_equal(levels, np.array(seen.received))
    for segment, blocks in zip(seen.plan.segments, seen.decoded.segments, strict=True):
        assert len(blocks) == 2
        for block in blocks:
            users = np.isin(assignment, block.block.subgroups)
            assert block.elements.tolist() == levels[users, segment.start : segment.stop].sum(axis=0).tolist()


def test_the_bits_drawn_are_those_of_the_plan(figures: types.ModuleType) -> None:
    plan, found = figures.example_plan(), figures.bits_by_class()
    clear, blocks, everybody = found.values()
    assert blocks == [bits / plan.dimension for bits in costs.of(plan).per_class()]
    assert all(one < two < three for one, two, three in zip(clear, blocks, everybody, strict=True))


def test_the_survivors_drawn_end_as_the_picture_says(figures: types.ModuleType) -> None:
    ends = [case.reason or len(case.kept) for case in figures.survivor_cases()]
    assert ends == [21, 20, 20, "robustness", 18, "thresholds"]
    assert [len(case.alive) for case in figures.survivor_cases()] == [21, 21, 20, 18, 18, 12]


def test_refusals_fall_with_size_and_rise_with_dropout(figures: types.ModuleType) -> None:
    found = [[max(chance, 1e-12) for chance in chances] for chances in figures.refusals().values()]  # what is drawn
    for chances in found:
        assert all(small >= large for small, large in pairwise(chances))
    for rates in zip(*found, strict=True):
        assert list(rates) == sorted(rates)


def test_the_graphs_drawn_fall_apart_as_the_picture_says(figures: types.ModuleType) -> None:
    odd_and_even = [frozenset({0, 2, 4}), frozenset({1, 3, 5})]
    assert figures.components(paper(6), figures.JOINED) == odd_and_even
    assert set(figures.JOINED) <= set(paper(6).decodable(figures.EVEN))
    assert all(len(figures.components(perfect(6), two)) == 1 for two in combinations(range(5), 2))
