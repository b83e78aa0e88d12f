"""A convolution and the pooling behind it, with gradients through the maxima only.

A maximum passes its gradient to one of the elements that it was taken over, so that of a pool of four by four one
sixteenth of what the convolution gave has a gradient at all. PyTorch's backward pass multiplies the others too, which
are zero. Here only those that have one are looked at, in a loop that Numba compiles; without Numba PyTorch does it.
Both give the same gradients but for the order in which floats are added.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from heterosag.vector import _numba

__all__ = ["convolve_and_pool", "prepare"]

_Array = npt.NDArray[Any]


def convolve_and_pool(x: torch.Tensor, layer: nn.Conv2d, size: int) -> torch.Tensor:
    """The maxima of a convolution over squares that do not overlap.

    Args:
        x: A batch of pictures, samples x channels x rows x columns.
        layer: The convolution, with a bias, of stride 1 and in one group; its padding is of zeros.
        size: Rows and columns of a square; what is left over at the lower and right ends is left out.

    Returns:
        What `max_pool2d(layer(x), size)` returns. Its gradients cannot be differentiated again.

    Example:
        >>> layer = nn.Conv2d(3, 8, 3)
        >>> convolve_and_pool(torch.zeros(1, 3, 10, 10), layer, 4).shape
        torch.Size([1, 8, 2, 2])
    """
    if not torch.is_grad_enabled() or _numba.find(_add_gradients, _numba.WORTH) is None:
        return functional.max_pool2d(layer(x), size)
    rows, columns = (int(padding) for padding in layer.padding)
    if rows or columns:
        x = functional.pad(x, (columns, columns, rows, rows))
    found: torch.Tensor = _ConvolveAndPool.apply(x, layer.weight, layer.bias, size)  # type: ignore[no-untyped-call]
    return found


@lru_cache
def prepare() -> None:
    """Load the compiled loop here, so that processes forked from this one have it: each would take a second for it."""
    loop = _numba.find(_add_gradients, _numba.WORTH)
    if loop is not None:
        nothing = np.zeros((0, 1, 1), dtype=np.float32)
        loop(nothing, nothing, nothing, np.zeros((0, 1, 1), dtype=np.int64), 1, 1, nothing, nothing)


class _ConvolveAndPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, size: int) -> torch.Tensor:
        convolved = functional.conv2d(x, weight, bias)
        pooled, places = functional.max_pool2d(convolved, size, return_indices=True)
        ctx.save_for_backward(x, weight, places)
        ctx.width = convolved.shape[3]
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, places = ctx.saved_tensors
        rows, kernel = (_channels_last(tensor).flatten(2).numpy() for tensor in (x, weight))
        of_rows, of_kernel = np.zeros_like(rows), np.zeros_like(kernel)
        loop = _numba.find(_add_gradients, _numba.WORTH) or _add_gradients
        slopes, where = (_channels_last(tensor).flatten(1, 2).numpy() for tensor in (slope, places))
        loop(rows, kernel, slopes, where, ctx.width, x.shape[1], of_rows, of_kernel)
        return _channels_first(of_rows, x), _channels_first(of_kernel, weight), slope.sum((0, 2, 3)), None


def _channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last).permute(0, 2, 3, 1)


def _channels_first(found: _Array, like: torch.Tensor) -> torch.Tensor:
    """The inverse of `_channels_last` with columns and channels flattened."""
    count, channels, rows, columns = like.shape
    return torch.from_numpy(found).view(count, rows, columns, channels).permute(0, 3, 1, 2)


def _add_gradients(
    x: _Array,
    weight: _Array,
    slopes: _Array,
    places: _Array,
    width: int,
    channels: int,
    of_x: _Array,
    of_weight: _Array,
) -> None:
    """Add to the gradients of pictures and kernels, rows of columns times channels, what every maximum passes on.

    `places` says where each maximum was found, as an index into what the convolution gave, whose rows have `width`.
    """
    rows, length = weight.shape[1], weight.shape[2]
    for sample in range(slopes.shape[0]):
        for pool in range(slopes.shape[1]):
            for feature in range(slopes.shape[2]):
                slope = slopes[sample, pool, feature]
                if slope == 0:
                    continue
                top = places[sample, pool, feature] // width
                left = (places[sample, pool, feature] - top * width) * channels
                for row in range(rows):
                    seen, kernel = x[sample, top + row, left : left + length], weight[feature, row]
                    of_seen, of_kernel = of_x[sample, top + row, left : left + length], of_weight[feature, row]
                    for place in range(length):
                        of_kernel[place] += slope * seen[place]
                        of_seen[place] += slope * kernel[place]
