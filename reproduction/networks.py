"""The networks of tables 5 and 6: how many parameters they have, and what of a picture they look at.

Which pixels can change a network's output is found by computing its gradient with respect to pictures, for many random
pictures and weights. The network is built here layer by layer as the table prints it, without the crop that the
package's own has.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from heterosag.training import models
from reproduction.outcome import OURS, Holds, Outcome, Scale, Table, Verdict
from reproduction.running import Job

__all__ = ["networks", "pixels_seen"]

_SIDE = 32
_PRINTED = {"mnist": 79_510}  # what the paper says; of its network for CIFAR-10 it gives the shapes only


def _as_printed(*, padding: int) -> nn.Module:
    """Table 6, layer by layer; with a padding of 1 in the second convolution, the network of the authors' code."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(3, 3),
        nn.Conv2d(16, 64, 4, padding=padding),
        nn.ReLU(),
        nn.MaxPool2d(4, 4),
        nn.Flatten(),
        nn.LazyLinear(384),
        nn.ReLU(),
        nn.Linear(384, 192),
        nn.ReLU(),
        nn.Linear(192, 10),
    )


def pixels_seen(model: nn.Module, pictures: int, seed: int) -> np.ndarray:
    """Which pixels of a picture a network's output depends on.

    Args:
        model: Of pictures with three colours.
        pictures: How many random ones to try.
        seed: Of these.

    Returns:
        For every pixel whether some picture's output has a gradient there.
    """
    x = torch.rand((pictures, 3, _SIDE, _SIDE), generator=torch.Generator().manual_seed(seed), requires_grad=True)
    (slopes,) = torch.autograd.grad(model(x).abs().sum(), x)
    seen: np.ndarray = (slopes.abs().sum(dim=(0, 1)) > 0).numpy()
    return seen


def networks(job: Job) -> Outcome:
    """Parameters, and the part of a picture that the network for CIFAR-10 sees."""
    pictures = 100 if job.scale is Scale.TINY else 1000
    counts = {
        name: sum(parameter.numel() for parameter in models.build(name, "cifar10", job.seed).parameters())
        for name in ("mnist", "cifar10", "cifar10-padded")
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed)
        seen = {name: pixels_seen(_as_printed(padding=p), pictures, job.seed) for name, p in _NETWORKS.items()}
    sides = {name: _side(found) for name, found in seen.items()}
    features = sides["as printed"], sides["authors' code"]
    return Outcome(
        text=(
            f"Pixels with a gradient in any of {pictures:,} random pictures. The pools leave out rows and columns that "
            "do not fill a window: with the printed shapes the network looks at the first "
            f"{features[0]} of {_SIDE} rows and columns only, {features[0] ** 2 / _SIDE**2:.0%} of a picture; with the "
            f"padding of 1 in the second convolution that the authors' code has, at the first {features[1]}. That "
            f"code's first dense layer has 256 inputs instead of 64, {counts['cifar10-padded']:,} parameters instead "
            f"of {counts['cifar10']:,}: the table may be a misprint. Both networks can be trained.",
        ),
        verdicts=(
            Verdict(
                claim="The network for MNIST has 79,510 parameters",
                paper=f"{_PRINTED['mnist']:,}",
                found=f"{counts['mnist']:,}",
                holds=Holds.of(counts["mnist"] == _PRINTED["mnist"]),
            ),
            Verdict(
                claim="The network for CIFAR-10, as printed, looks at a part of a picture only",
                paper=OURS,
                found=f"{features[0]} x {features[0]} of {_SIDE} x {_SIDE} pixels",
                holds=Holds.of(features[0] < _SIDE),
                note=f"{features[1]} x {features[1]} in the authors' code",
            ),
        ),
        tables=(
            Table(
                name="networks",
                title="Parameters",
                head=("network", "parameters", "rows and columns seen"),
                rows=(
                    ("MNIST", f"{counts['mnist']:,}", "28"),
                    ("CIFAR-10, as printed", f"{counts['cifar10']:,}", str(features[0])),
                    ("CIFAR-10, authors' code", f"{counts['cifar10-padded']:,}", str(features[1])),
                ),
            ),
        ),
        values={"seen": float(features[0]), "seen_padded": float(features[1])},
    )


_NETWORKS = {"as printed": 0, "authors' code": 1}


def _side(seen: np.ndarray) -> int:
    """The last row or column of which a pixel is seen."""
    return int(max(np.flatnonzero(seen.any(axis=1)).max(), np.flatnonzero(seen.any(axis=0)).max())) + 1
