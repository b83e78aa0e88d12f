"""The walk-through prints what its page shows, and draws the figures that stand there."""

import types
from pathlib import Path

import pytest
from scripts import load_script
from tolerance import differences_of_drawings, differences_of_texts

pytest.importorskip("matplotlib")

DOCUMENTS = Path(__file__).parents[2] / "tools" / "documents"


@pytest.fixture(scope="module")
def walkthrough() -> types.ModuleType:
    return load_script(DOCUMENTS / "make_walkthrough.py")


@pytest.mark.long
def test_the_page_is_what_the_script_prints(walkthrough: types.ModuleType) -> None:
    page, figures = walkthrough.make(walkthrough.SCRIPT.read_text(encoding="utf-8"))
    hint = "run `python tools/documents/make_walkthrough.py`"
    differing = differences_of_texts(page, walkthrough.PAGE.read_text(encoding="utf-8"))
    assert not differing, f"{hint}: {differing[0]}"
    committed = {path.stem: path.read_text(encoding="utf-8") for path in walkthrough.FIGURES.glob("*.svg")}
    assert committed.keys() == figures.keys(), hint
    for name, svg in committed.items():
        differing = differences_of_drawings(figures[name], svg)
        assert not differing, f"{hint}: {name}.svg: {differing[0]}"


def test_cells_text_output_and_figures(walkthrough: types.ModuleType) -> None:
    text = "# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\nx = 2\n\n# %%\nprint(x)\nx\n"
    page, figures = walkthrough.make(text)
    assert page.startswith("# Title\n\nWords.\n")
    assert "```python\nx = 2\n```\n\n```python\nprint(x)\nx\n```\n\n<!-- output -->\n```text\n2\n```\n" in page
    assert figures == {}
    with pytest.raises(ZeroDivisionError) as caught:
        walkthrough.make("# %%\nx = 1\n\n# %% again\n\n1 / 0\n")
    assert caught.traceback[-1].lineno + 1 == 6
