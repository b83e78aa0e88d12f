"""Which arrays go: floats that are neither excluded nor tied to another."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_nodes import STEP, arrays, grid_of, make_nodes, messages, result_of, shift

from heterosag.errors import UsageError
from heterosag.flower.selection import Selection, pairs_of


def model() -> dict[str, Any]:
    embedding = np.arange(6, dtype=np.float32).reshape(3, 2)
    return {
        "embed.weight": embedding,
        "norm.running_var": np.ones(2),
        "norm.num_batches_tracked": np.array(7),
        "mask": np.array([True, False]),
        "head.weight": embedding.copy(),
    }


def test_integers_excluded_and_tied_arrays_do_not_go() -> None:
    chosen = Selection(model=model(), exclude=["*.running_*"], tied={"head.weight": "embed.weight"})
    assert chosen.names == ["embed.weight"]
    assert chosen.left_out == ["norm.running_var", "norm.num_batches_tracked", "mask"]
    after = {name: array + np.asarray(1, array.dtype) for name, array in model().items()}
    assert chosen.update(after).tolist() == [1.0] * 6
    applied = chosen.restore(chosen.vector + 0.5)
    assert list(applied) == list(model())
    for name in ("embed.weight", "head.weight"):
        np.testing.assert_allclose(applied[name], model()[name] + 0.5)
        assert applied[name].dtype == np.float32
    for name in chosen.left_out:
        np.testing.assert_array_equal(applied[name], model()[name])
        assert applied[name].dtype == model()[name].dtype


def test_what_is_tied_to_an_excluded_array_stays_too() -> None:
    chosen = Selection(model=model(), exclude=["embed.*"], tied={"head.weight": "embed.weight"})
    assert chosen.names == ["norm.running_var"]
    np.testing.assert_array_equal(chosen.restore(np.ones(2))["head.weight"], model()["head.weight"])


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"exclude": ["*.running_men"]}, "which no array of the model fits"),
        ({"exclude": ["*"]}, "no array of the model is left"),
        ({"tied": {"head.weight": "embed"}}, "cannot be tied"),
        ({"tied": {"head.weight": "head.weight"}}, "cannot be tied"),
        ({"tied": {"head.weight": "embed.weight", "embed.weight": "head.weight"}}, "cannot be tied"),
        ({"tied": {"head.weight": "norm.running_var"}}, "shapes or types differ"),
    ],
)
def test_what_fits_no_array_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Selection(model=model(), **{"tied": {}, **options})


def test_updates_of_another_model_are_refused() -> None:
    chosen = Selection(model=model(), tied={"head.weight": "embed.weight"})
    with pytest.raises(UsageError, match=r"missing \['mask'\], unknown \['more'\]"):
        chosen.update({**{name: array for name, array in model().items() if name != "mask"}, "more": np.ones(1)})
    with pytest.raises(UsageError, match="training has made them differ"):
        chosen.update({**model(), "head.weight": model()["head.weight"] + 1})
    with pytest.raises(UsageError, match="pairs"):
        pairs_of(["a"])
    assert pairs_of(["a", "b"]) == {"b": "a"}


def test_a_round_with_all_of_it(tmp_path: Path) -> None:
    """The counter grows on every node, the excluded array changes, the tied ones stay one."""

    def train(node: int, before: dict[str, Any]) -> dict[str, Any]:
        after = {
            name: array + np.asarray(shift(node) if array.dtype.kind == "f" else 50).astype(array.dtype)
            for name, array in before.items()
        }
        return after | {"mask": before["mask"]}

    nodes = make_nodes(6, tmp_path, train)
    grid, _ = grid_of(nodes, exclude=["*.running_*"], tied={"head.weight": "embed.weight"})
    for _ in range(2):
        (reply,) = grid.send_and_receive(messages(nodes, model()))
        found = result_of(reply)
        mean = np.mean([shift(node.context.node_id) for node in nodes])
        np.testing.assert_allclose(found["embed.weight"], model()["embed.weight"] + mean, atol=STEP)
        np.testing.assert_array_equal(found["embed.weight"], found["head.weight"])
        for name in ("norm.running_var", "norm.num_batches_tracked", "mask"):
            np.testing.assert_array_equal(found[name], model()[name])
    assert grid.rounds[0].plan is not None
    assert grid.rounds[0].plan.dimension == 6


def test_a_pattern_that_fits_nothing_is_said_in_the_first_round(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, lambda node, before: before)
    grid, inside = grid_of(nodes, exclude=["*.num_batches_tracked"])
    (reply,) = grid.send_and_receive(messages(nodes, arrays()))
    assert "which no array of the model fits" in reply.error.reason
    assert inside.log == []
