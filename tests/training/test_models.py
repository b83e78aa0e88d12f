"""The models that come along, and those that a user brings."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from heterosag.errors import UsageError
from heterosag.training import local as users
from heterosag.training import models
from heterosag.training.data import DataSet


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


# --- a file in the current folder -----------------------------------------------------------------------------------


@pytest.fixture
def mynets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that a user writes, in the current folder."""
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("mynets", None)  # another test's, or a page's
    yield tmp_path / "mynets.py"
    sys.modules.pop("mynets", None)


def test_a_model_is_found_in_the_current_folder_and_the_path_is_as_before(mynets: Path) -> None:
    (mynets.parent / "width_of_mynets.py").write_text("WIDTH = 7\n")
    mynets.write_text(
        "from torch import nn\n"
        "def net():\n"
        "    from width_of_mynets import WIDTH\n"
        "    return nn.Sequential(nn.Linear(64, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))\n"
    )
    before = list(sys.path)
    assert models.count_parameters("mynets:net", "digits") == 65 * 7 + 80
    assert sys.path == before
    with pytest.raises(
        UsageError, match="No module named 'mynet'; modules are looked for in the current folder"
    ) as told:
        models.build("mynet:net", "digits", 0)
    assert str(mynets.parent) in str(told.value)
    assert sys.path == before


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def net(width): ...", r"missing 1 required positional argument: 'width'.*function without arguments"),
        ("def net(): return 1 / 0", r"ZeroDivisionError: division by zero \(mynets.py, line 1\)"),
        ("def net(:", r"SyntaxError: .*\(mynets.py, line 1\)"),
        ("def net(): ...", "made a NoneType, not a torch.nn.Module: the factory must return the model"),
        ("net = 3", "'int' object is not callable"),
        ("from torch import nn\nnet = nn.ReLU", "no parameters to train"),
        ("from torch import nn\ndef net(): return nn.LazyLinear(10)", "has lazy layers"),
    ],
)
def test_a_factory_that_makes_no_model_is_refused_in_one_line(mynets: Path, code: str, said: str) -> None:
    mynets.write_text(code + "\n")
    with pytest.raises(UsageError, match=said) as told:
        models.build("mynets:net", "digits", 0)
    assert "\n" not in str(told.value)


# --- models that take the data --------------------------------------------------------------------------------------


def like(name: str, *shape: int) -> DataSet:
    rng = np.random.default_rng(0)
    x, y = rng.random((20, *shape), dtype=np.float32), np.arange(20) % 10
    return DataSet(name=name, train_x=x, train_y=y, test_x=x, test_y=y)


def test_the_models_that_come_along_take_their_data() -> None:
    for name, data in (("mnist", like("mnist", 784)), ("cifar10", like("cifar10", 3, 32, 32))):
        models.check_model(name, models.build(name, name, 0), data)


class Pair(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x), x  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("model", "data", "said"),
    [
        (
            nn.Linear(63, 10),
            like("digits", 64),
            r"\(N, 64\).*RuntimeError: mat1 .*: its first layer must take 64 inputs",
        ),
        (nn.Conv2d(1, 3, 3), like("digits", 64), r"\(N, 64\).*begin a .* with nn.Unflatten\(1, \(1, 8, 8\)\)"),
        (nn.Conv2d(1, 3, 3), like("mnist", 784), r"\(N, 784\).*nn.Unflatten\(1, \(1, 28, 28\)\)"),
        (nn.Conv2d(1, 3, 3), like("wine", 13), r"nn.Unflatten\(1, \(channels, height, width\)\)"),
        (nn.Linear(3072, 10), like("cifar10", 3, 32, 32), r"\(N, 3, 32, 32\).*3 channels.*Flatten\(\).*3072 inputs"),
        (nn.Linear(64, 7), like("digits", 64), r"shape \(2, 7\).*10 classes, so its last layer must have 10 outputs"),
        (nn.Unflatten(1, (8, 8)), like("digits", 64), r"shape \(2, 8, 8\)"),
        (nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (1, 128)), nn.Linear(128, 10)), like("digits", 64), r"\(1, 10\)"),
        (Pair(64, 10), like("digits", 64), "returns a tuple, not a tensor"),
        (nn.Linear(64, 10).double(), like("digits", 64), "dtype"),
    ],
)
def test_a_model_that_cannot_take_the_data_is_refused_in_one_line(model: nn.Module, data: DataSet, said: str) -> None:
    with pytest.raises(UsageError, match=said) as told:
        models.check_model("mynets:net", model, data)
    assert "\n" not in str(told.value)
    assert f"models of {data.name} get batches of shape (N, " in str(told.value)


def test_the_check_leaves_the_model_and_the_generator_as_they_are() -> None:
    model = nn.Sequential(nn.Linear(64, 10), nn.BatchNorm1d(10), nn.Dropout(0.5))
    before, drawn = {name: value.clone() for name, value in model.state_dict().items()}, torch.random.get_rng_state()
    models.check_model("mynets:net", model, like("digits", 64))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert model.training


def test_running_statistics_are_part_of_an_update_and_other_buffers_are_not() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.BatchNorm1d(3, track_running_stats=False))
    model.register_buffer("constant", torch.ones(5))
    shapes = [tuple(array.shape) for array in models.arrays_of(model)]
    assert shapes == [(3, 4), (3,), (3,), (3,), (3,), (3,), (3,), (3,)]
    assert models.arrays_of(model)[-1] is model[1].running_var
