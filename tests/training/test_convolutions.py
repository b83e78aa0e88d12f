"""A convolution with its pooling: the gradients of PyTorch, with the compiled loop, with it as written, and without."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from heterosag.training import convolutions
from heterosag.training.convolutions import convolve_and_pool
from heterosag.vector import _numba

SHAPES = [  # channels, features, kernel, padding, rows, columns, pool
    (16, 64, 4, 0, 7, 7, 4),
    (16, 64, 4, 1, 10, 10, 4),
    (3, 5, 3, 0, 12, 9, 3),  # pools leave columns out
    (1, 2, 2, 2, 5, 6, 2),
]


def gradients(layer: nn.Conv2d, x: torch.Tensor, pooled: torch.Tensor) -> tuple[torch.Tensor, ...]:
    weights = torch.linspace(-1, 1, pooled.numel(), dtype=x.dtype).reshape(pooled.shape)
    loss = (torch.relu(pooled) * weights).sum()  # behind a ReLU some maxima have no gradient
    return torch.autograd.grad(loss, [x, *layer.parameters()])


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("loop", ["compiled", "as written", "none"])
def test_values_and_gradients_are_those_of_the_two_layers(
    shape: tuple[int, ...], loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setattr(_numba, "_compile", lambda written: written if loop == "as written" else None)
    channels, features, kernel, padding, rows, columns, pool = shape
    torch.manual_seed(0)
    layer = nn.Conv2d(channels, features, kernel, padding=padding).double()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(3, channels, rows, columns))).requires_grad_()
    found, expected = convolve_and_pool(x, layer, pool), functional.max_pool2d(layer(x), pool)
    assert torch.allclose(found, expected, atol=1e-12)
    for one, other in zip(gradients(layer, x, found), gradients(layer, x, expected), strict=True):
        assert one.shape == other.shape
        assert torch.allclose(one, other, atol=1e-12)
        assert other.any()


def test_gradients_are_not_differentiated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_numba, "_compile", lambda written: written)
    layer, x = nn.Conv2d(1, 1, 2), torch.rand(1, 1, 5, 5)
    (slope,) = torch.autograd.grad(convolve_and_pool(x, layer, 2).square().sum(), [layer.weight], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_what_is_prepared_is_what_gradients_need() -> None:
    """A signature of its own would be compiled in every process that trains, once a round."""
    pytest.importorskip("numba")
    _numba._compile.cache_clear()
    convolutions.prepare.cache_clear()
    convolutions.prepare()
    loop: Any = _numba.find(convolutions._add_gradients, _numba.WORTH)
    assert len(loop.signatures) == 1
    layer = nn.Conv2d(3, 4, 3)
    x = torch.rand(2, 3, 10, 10, requires_grad=True)
    gradients(layer, x, convolve_and_pool(x, layer, 4))
    assert len(loop.signatures) == 1
