"""The model, its data, and how it learns: nothing here knows of secure aggregation."""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

TESTED = 114  # patients whom nobody trains on


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(30, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))


def load_clinic(clinic: int, clinics: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One clinic's patients, the first clinic having fewest; `clinics` itself is the test data."""
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(axis=0)) / x.std(axis=0)  # scales that everybody agreed on
    order = np.random.default_rng(0).permutation(len(y))
    tested, trained = order[:TESTED], order[TESTED:]
    sizes = np.arange(clinics) + clinics / 2  # the largest has some three times the patients of the smallest
    ends = (np.cumsum(sizes) / sizes.sum() * len(trained)).astype(int)
    chosen = tested if clinic == clinics else np.split(trained, ends)[clinic]
    return torch.tensor(x[chosen], dtype=torch.float32), torch.tensor(y[chosen])


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int = 2) -> float:
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
    loss = torch.tensor(0.0)
    model.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(8):
            if len(rows) > 1:  # a batch of one has no variance
                optimiser.zero_grad()
                loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
                loss.backward()
                optimiser.step()
    return float(loss.detach())


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    model.eval()
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())
