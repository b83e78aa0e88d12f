"""The models that come along, and those that a user brings."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from heterosag.errors import UsageError
from heterosag.training import local as users
from heterosag.training import models


def test_the_papers_models_have_its_sizes_and_initialisation() -> None:
    mnist = models.build("auto", "mnist", 0)
    assert sum(p.numel() for p in mnist.parameters()) == 79_510
    cifar = models.build("cifar10", "cifar10", 0)
    shapes = [tuple(p.shape) for p in cifar.parameters() if p.ndim > 1]
    assert shapes == [(16, 3, 3, 3), (64, 16, 4, 4), (384, 64), (192, 384), (10, 192)]
    assert cifar(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    for model in (mnist, cifar):
        assert all(not p.any() for name, p in model.named_parameters() if name.endswith("bias"))
    bound = (6 / (3 * 9 + 16 * 9)) ** 0.5
    first = next(cifar.parameters())
    assert 0.9 * bound < float(first.detach().abs().max()) <= bound
    again = models.build("auto", "mnist", 0)
    assert np.array_equal(users.flatten(mnist), users.flatten(again))
    assert not np.array_equal(users.flatten(mnist), users.flatten(models.build("auto", "mnist", 1)))


def test_a_model_of_ones_own() -> None:
    assert sum(p.numel() for p in models.build("own_models:make_conv", "digits", 0).parameters()) == 30 + 1090
    for name, match in (
        ("nothing", "no model is called"),
        ("no.such.module:x", "cannot make"),
        ("own_models:nothing", "cannot make"),
        ("own_models:not_a_model", "made a int"),
    ):
        with pytest.raises(UsageError, match=match):
            models.build(name, "digits", 0)


def printed(model: torch.nn.Module, padding: int, x: torch.Tensor) -> torch.Tensor:
    """The network in the order of the paper's table, on whole pictures."""
    w = dict(model.named_parameters())
    x = functional.max_pool2d(torch.relu(functional.conv2d(x, w["conv1.weight"], w["conv1.bias"])), 3, 3)
    x = torch.relu(functional.conv2d(x, w["conv2.weight"], w["conv2.bias"], padding=padding))
    x = functional.max_pool2d(x, 4, 4).flatten(1)
    for name in ("fc1", "fc2"):
        x = torch.relu(functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"]))
    return functional.linear(x, w["fc3.weight"], w["fc3.bias"])


@pytest.mark.parametrize(("name", "padding", "size"), [("cifar10", 0, 117_706), ("cifar10-padded", 1, 191_434)])
def test_the_networks_for_cifar_10_compute_what_the_paper_and_its_code_say(name: str, padding: int, size: int) -> None:
    """Pooling first and leaving out what the pools leave out change neither logits nor gradients."""
    model = models.build(name, "cifar10", 0).double()
    parameters = list(model.parameters())
    assert sum(parameter.numel() for parameter in parameters) == size
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(6, 3, 32, 32)))
    y = torch.arange(6)
    found, expected = model(x), printed(model, padding, x)
    assert torch.allclose(found, expected, atol=1e-12)
    slopes, others = (
        torch.autograd.grad(functional.cross_entropy(logits, y), parameters) for logits in (found, expected)
    )
    assert all(torch.allclose(one, other, atol=1e-12) for one, other in zip(slopes, others, strict=True))
    assert all(slope.any() for slope in slopes)
