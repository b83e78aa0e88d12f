"""What a node keeps, and where: on its disk, or in a simulation's Context, as the process says."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from flower_nodes import LOOSE, arrays, grid_of, make_nodes, messages, result_of, signed_nodes, train
from flwr.app import ConfigRecord, Context, RecordDict

from heterosag.errors import BudgetError, FaultyServerError, LocalFileError
from heterosag.flower import mod
from heterosag.flower.kept import Kept, in_simulation
from heterosag.plan import Plan
from heterosag.protocol import MemoryReleaseLog, Policy
from heterosag.storage.node_memory import NodeMemory
from heterosag.storage.release_log import FileReleaseLog

ENGINE = "flwr.simulation.ray_transport.ray_actor"


def context(**config: str) -> Context:
    return Context(run_id=3, node_id=5, node_config=dict(config), state=RecordDict(), run_config=dict(config))


def fake_ray(monkeypatch: pytest.MonkeyPatch, *, initialized: bool = True, actor: str | None = "01") -> None:
    runtime = SimpleNamespace(get_actor_id=lambda: actor)
    ray = SimpleNamespace(is_initialized=lambda: initialized, get_runtime_context=lambda: runtime)
    monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As in an actor of Flower's simulation, with a home folder of its own."""
    fake_ray(monkeypatch)
    monkeypatch.setitem(sys.modules, ENGINE, SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.delenv("HETEROSAG_RELEASES", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_a_simulation_is_an_actor_of_its_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, ENGINE, raising=False)
    fake_ray(monkeypatch)
    assert not in_simulation()  # an actor of somebody else's
    monkeypatch.setitem(sys.modules, ENGINE, SimpleNamespace())  # type: ignore[arg-type]
    assert in_simulation()
    fake_ray(monkeypatch, actor=None)
    assert not in_simulation()  # the process that started the engine
    fake_ray(monkeypatch, initialized=False)
    assert not in_simulation()
    monkeypatch.delitem(sys.modules, "ray")
    assert not in_simulation()


def test_a_network_node_keeps_a_folder_whatever_its_configuration_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HETEROSAG_RELEASES", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    told = context(simulation="true", engine="simulation", **{"heterosag-release-log": "none"})
    kept = Kept(None)
    assert kept.folder(told) == tmp_path / ".local/state/heterosag/5"
    assert isinstance(kept.release_log(told), FileReleaseLog)
    assert isinstance(kept.memory(told), NodeMemory)


def test_a_simulation_keeps_a_folder_only_if_asked(
    simulated: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plan = Plan.build([12], [4], 30, value_range=1.0, subgroup_size=3)
    kept = Kept(None)
    assert kept.folder(context()) is None
    assert isinstance(kept.release_log(context()), MemoryReleaseLog)
    assert kept.guard(context(), plan) is None
    assert Kept(None, 2).folder(context()) == simulated / ".local/state/heterosag/5"
    assert Kept(None, 2).guard(context(), plan) is not None
    assert Kept(tmp_path).folder(context()) == tmp_path / "5"
    monkeypatch.setenv("HETEROSAG_RELEASES", str(tmp_path / "asked"))
    assert kept.folder(context()) == tmp_path / "asked/5"


def test_the_memory_of_a_simulated_run_is_in_its_context(simulated: Path) -> None:
    kept, own = Kept(None), context()
    kept.memory(own).note_evaluation()
    with pytest.raises(FaultyServerError, match="evaluate again"):
        kept.memory(own).note_evaluation()
    kept.memory(context()).note_evaluation()
    for damaged in (b"{", b""):
        own.state["heterosag.run"] = ConfigRecord({"memory": damaged})
        with pytest.raises(LocalFileError, match="the memory of this run"):
            kept.memory(own).note_evaluation()
    assert not simulated.exists()


@pytest.mark.parametrize("signed", [False, True])
def test_simulated_rounds_leave_nothing_on_the_disk(signed: bool, simulated: Path, tmp_path: Path) -> None:
    """With identities too, where nodes remember what they have drawn together."""
    if signed:
        nodes, directory = signed_nodes(6, tmp_path, release_log=None)
        grid, _ = grid_of(nodes, directory=directory)
    else:
        nodes = make_nodes(6, tmp_path, train, secure=lambda place: mod(policy=LOOSE, trust_server=True))
        grid, _ = grid_of(nodes)
    for _ in range(2):
        (reply,) = grid.send_and_receive(messages(nodes, arrays()))
        assert np.isfinite(result_of(reply)["double"]).all()
    assert not simulated.exists()
    assert list(tmp_path.iterdir()) == []
    assert "heterosag.run" in nodes[0].context.state


def test_the_budget_of_a_simulated_run_is_in_its_context(simulated: Path, tmp_path: Path) -> None:
    plan = Plan.build(
        [40], [2], 1000, design="secagg", subgroup_size=40, min_block_survivors=32, clipping_norm=1.0,
        noise_multiplier=4.0,
    )  # fmt: skip
    own, policy = context(), Policy(max_epsilon=1.2, delta=1e-5)
    for asked, left in ((None, False), (tmp_path / "asked", True)):
        kept = Kept(asked)
        budget = kept.budget(own, "name-clinic")
        budget.check(plan, policy)
        budget.charge(plan, policy)
        with pytest.raises(BudgetError):
            kept.budget(own, "name-clinic").check(plan, policy)
        assert (tmp_path / "asked/name-clinic").exists() is left
    assert not simulated.exists()
