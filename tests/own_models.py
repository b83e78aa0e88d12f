"""Models that a user brings along, as `own_models:make_conv`."""

from __future__ import annotations

from torch import nn


def make_conv() -> nn.Module:
    """A model that is not a chain of linear layers."""
    return nn.Sequential(nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(108, 10))


def not_a_model() -> int:
    return 3
