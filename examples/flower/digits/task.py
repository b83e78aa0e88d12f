"""The model, its data, and how it learns: nothing here knows of secure aggregation."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def load_part(part: int, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One node's share of the training data; `parts` itself is the test data."""
    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    cut = 1437
    chosen = order[cut:] if part == parts else order[:cut][part::parts]
    return torch.tensor(x[chosen] / 16.0, dtype=torch.float32), torch.tensor(y[chosen])


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int = 5) -> float:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
    loss = torch.tensor(0.0)
    for _ in range(epochs):
        for start in range(0, len(y), 16):
            optimiser.zero_grad()
            loss = nn.functional.cross_entropy(model(x[start : start + 16]), y[start : start + 16])
            loss.backward()
            optimiser.step()
    return float(loss.detach())


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())
