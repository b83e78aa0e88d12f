"""What of a picture a network sees is found from its gradients."""

import pytest

pytest.importorskip("torch")

import torch

from heterosag.training import models
from reproduction.networks import _as_printed, pixels_seen


def test_pixels_beyond_the_pools_are_not_seen() -> None:
    torch.manual_seed(0)
    seen = pixels_seen(_as_printed(padding=0), 100, 0)
    assert seen[:23, :23].mean() > 0.9
    assert not seen[23:].any()
    assert not seen[:, 23:].any()
    assert pixels_seen(torch.nn.Flatten(), 1, 0).all()


def test_the_printed_network_is_the_packages_without_its_crop() -> None:
    own = models.build("cifar10", "cifar10", 0)
    printed = _as_printed(padding=0)
    x = torch.rand((4, 3, 32, 32), generator=torch.Generator().manual_seed(1))
    printed(x)  # shapes of the first dense layer
    printed.load_state_dict(dict(zip(printed.state_dict(), own.state_dict().values(), strict=True)))
    assert torch.allclose(printed(x), own(x), atol=1e-5)
