"""Named arrays to one vector and back."""

from typing import Any

import numpy as np
import pytest

from heterosag.errors import UsageError
from heterosag.vector.arrays import Layout


def same(a: Any, b: Any) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())


def test_a_dict_of_mixed_shapes_and_types_comes_back() -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "conv": rng.normal(size=(3, 2, 2)).astype(np.float32),
        "half": rng.normal(size=5).astype(np.float16),
        "double": rng.normal(size=(2, 1)),
        "scalar": np.array(0.5),
        "empty": np.zeros((0, 3), dtype=np.float32),
        "steps": np.array([7, -3], dtype=np.int64),
        "flags": np.array([True, False]),
    }
    layout = Layout.of(arrays)
    assert layout.dimension == 12 + 5 + 2 + 1 + 0 + 2 + 2
    vector = layout.flatten(arrays)
    assert vector.dtype == np.float64
    back = layout.restore(vector, round_integers=True)
    assert list(back) == list(arrays)
    assert all(same(arrays[name], back[name]) for name in arrays)
    for name, array in layout.restore(vector / 2).items():
        integer = arrays[name].dtype.kind in "iub"
        assert array.dtype == (np.float64 if integer else arrays[name].dtype)
        assert np.array_equal(array, (arrays[name] / 2).astype(array.dtype))


def test_lists_tuples_and_single_arrays_come_back_as_they_came() -> None:
    parts = [np.ones((2, 2), dtype=np.float32), np.zeros(3, dtype=np.float16)]
    for arrays in (parts, tuple(parts)):
        layout = Layout.of(arrays)
        vector = layout.flatten(arrays)
        assert vector.dtype == np.float32
        back = layout.restore(vector)
        assert type(back) is type(arrays)
        assert all(same(a, b) for a, b in zip(arrays, back, strict=True))
    one = np.arange(6, dtype=np.float32).reshape(2, 3)
    layout = Layout.of(one)
    assert same(layout.restore(layout.flatten(one)), one)


def test_names_decide_not_order() -> None:
    a, b = np.array([1.0]), np.array([2.0, 3.0])
    layout = Layout.of({"a": a, "b": b})
    assert layout.flatten({"b": b, "a": a}).tolist() == [1.0, 2.0, 3.0]


def test_integers_are_rounded_half_to_even_and_limited() -> None:
    layout = Layout.of(
        {"n": np.zeros(5, dtype=np.int8), "u": np.zeros(2, dtype=np.uint8), "b": np.zeros(2, dtype=bool)}
    )
    values = np.array([0.5, 1.5, -2.6, 900.0, -900.0, -3.0, 256.0, 0.49, 0.51])
    back = layout.restore(values, round_integers=True)
    assert back["n"].tolist() == [0, 2, -3, 127, -128]
    assert back["u"].tolist() == [0, 255]
    assert back["b"].tolist() == [False, True]


def test_huge_integers_are_refused() -> None:
    with pytest.raises(UsageError, match="beyond 2\\^53"):
        Layout.of([np.array([2**53 + 1])])


def test_tied_arrays_are_sent_once() -> None:
    shared = np.array([1.0, 2.0])
    layout = Layout.of({"embed": shared, "head": shared, "copy": shared.copy()})
    assert layout.dimension == 4
    back = layout.restore(np.array([5.0, 6.0, 7.0, 8.0]))
    assert back["head"].tolist() == back["embed"].tolist() == [5.0, 6.0]
    assert back["copy"].tolist() == [7.0, 8.0]
    with pytest.raises(UsageError, match="'head' is tied"):
        layout.flatten({"embed": shared, "head": shared + 1, "copy": shared})


@pytest.mark.parametrize(
    "bad", [np.array([1j]), np.array(["a"]), np.array([object()]), np.zeros(2, dtype=np.longdouble)]
)
def test_types_that_cannot_be_aggregated(bad: np.ndarray) -> None:
    with pytest.raises(UsageError, match="can be aggregated"):
        Layout.of({"x": bad})


def test_mismatches_say_what_differs() -> None:
    layout = Layout.of({"a": np.zeros(2)})
    with pytest.raises(UsageError, match=r"missing \['a'\], unknown \['b'\]"):
        layout.flatten({"b": np.zeros(2)})
    with pytest.raises(UsageError, match=r"shape \(3,\)"):
        layout.flatten({"a": np.zeros(3)})
    with pytest.raises(UsageError, match="this update is a list"):
        layout.flatten([np.zeros(2)])
    with pytest.raises(UsageError, match="2 elements"):
        layout.restore(np.zeros(3))
    with pytest.raises(UsageError, match="named by strings"):
        Layout.of({1: np.zeros(2)})
    with pytest.raises(UsageError, match="at least one element"):
        Layout.of([])


def test_torch_tensors_come_back_as_tensors_of_their_type() -> None:
    torch = pytest.importorskip("torch")
    arrays = {
        "b": torch.tensor([1.5, -2.25], dtype=torch.bfloat16),
        "h": torch.tensor([[0.5]], dtype=torch.float16),
        "w": torch.nn.Parameter(torch.ones(2, 2)),
        "n": torch.tensor(3),
    }
    layout = Layout.of(arrays)
    assert [slot.dtype for slot in layout.slots] == ["bfloat16", "float16", "float32", "int64"]
    halves = layout.restore(layout.flatten(arrays) / 2)
    assert halves["n"].dtype == torch.float64
    assert float(halves["n"]) == 1.5
    assert halves["b"].dtype == torch.bfloat16
    back = layout.restore(layout.flatten(arrays), round_integers=True)
    for name, tensor in arrays.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor.detach())
        assert not back[name].requires_grad


def test_bfloat16_tensors_are_never_taken_for_tied() -> None:
    """Their float copies are short-lived and may reuse one address."""
    torch = pytest.importorskip("torch")
    arrays = {str(i): torch.full((64,), float(i), dtype=torch.bfloat16) for i in range(50)}
    layout = Layout.of(arrays)
    assert layout.dimension == 50 * 64
    assert layout.dtype == np.float32
    tied = {"a": arrays["1"], "b": arrays["1"]}
    assert Layout.of(tied).dimension == 64


def test_a_state_dict_comes_back_as_one_that_the_model_loads() -> None:
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    state = model.state_dict()
    layout = Layout.of(state)
    back = layout.restore(layout.flatten(state))
    assert type(back) is type(state)
    model.load_state_dict(back)
    assert all(back[name].device == tensor.device for name, tensor in state.items())
