"""The model, its data, and how it learns: nothing here knows of secure aggregation.

A node starts a process for every message, so what is imported here is paid for in every round: importing scikit-learn
takes longer than this training, and so does an optimiser of torch.optim, which loads PyTorch's compiler.
"""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import nn


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def load_part(part: int, parts: int) -> tuple[torch.Tensor, torch.Tensor]:
    """One node's part of scikit-learn's digits; `parts` itself is the test data."""
    installed = find_spec("sklearn")
    if installed is None or installed.origin is None:
        raise ModuleNotFoundError("pip install scikit-learn, whose digits this app trains on")
    table = np.loadtxt(Path(installed.origin).with_name("datasets") / "data" / "digits.csv.gz", delimiter=",")
    x, y = table[:, :-1], table[:, -1].astype(np.int64)
    order = np.random.default_rng(0).permutation(len(y))
    cut = 1437
    chosen = order[cut:] if part == parts else order[:cut][part::parts]
    return torch.tensor(x[chosen] / 16.0, dtype=torch.float32), torch.tensor(y[chosen])


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int = 5, rate: float = 0.2) -> float:
    """Stochastic gradient descent in batches of 16."""
    parameters = list(model.parameters())
    loss = torch.tensor(0.0)
    for _ in range(epochs):
        for start in range(0, len(y), 16):
            loss = nn.functional.cross_entropy(model(x[start : start + 16]), y[start : start + 16])
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    parameter -= rate * gradient
    return float(loss.detach())


def accuracy(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> float:
    with torch.no_grad():
        return float((model(x).argmax(dim=1) == y).float().mean())
