"""Models that a user brings along, as `own_models:make_conv`."""

from __future__ import annotations

import torch
from torch import nn


def make_conv() -> nn.Module:
    """A model that is not a chain of linear layers."""
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(108, 10))


def make_conv_with_dropout() -> nn.Module:
    """A model that draws something while it trains, and has parameters that it does not use."""
    model = nn.Sequential(*make_conv(), nn.Dropout(0.3))
    model.register_parameter("unused", nn.Parameter(torch.ones(3)))
    return model


def make_dense() -> nn.Module:
    """Neither a plain chain of linear layers and ReLUs, nor with convolutions."""
    return nn.Sequential(nn.Linear(64, 8), nn.Tanh(), nn.Linear(8, 10))


def not_a_model() -> int:
    return 3
