"""The Flower examples as a user runs them, in `make test-all`: one in simulation, one deployed on loopback."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scripts import load_script

from heterosag.storage.run_log import find_runs, read_run

pytest.importorskip("flwr")
pytest.importorskip("ray")
pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "flower"
_STARTS = 4  # tries


@pytest.fixture(scope="module")
def deploy() -> types.ModuleType:
    return load_script(EXAMPLE / "deploy.py")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A Flower home of its own; whatever a run leaves behind in it is ended."""
    yield tmp_path
    for process in _living(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)


def _living(home: Path) -> list[int]:
    """Processes that belong to a Flower home: it is in the environment of all that its commands start."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"FLWR_HOME={home}".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
    return found


def _simulate(app: Path, settings: str, nodes: int, home: Path, deploy: types.ModuleType) -> dict[str, Any]:
    """What the app wrote to its `result` when it ended."""
    result = home / "result.json"
    words = [
        str(Path(sys.executable).parent / "flwr"), "run", str(app), "local", "--stream",
        "--run-config", f'{settings} result="{result}"',
        "--federation-config", f"num-supernodes={nodes} client-resources-num-cpus=1",
    ]  # fmt: skip
    for _ in range(_STARTS):
        # Ports of its own: on the fixed ones somebody else's SuperLink may listen, and end in the middle of the run.
        http, control = map(str, deploy.free_ports(2))
        ports = {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": http, "FLWR_LOCAL_CONTROL_API_PORT": control}
        environment = deploy.environment(home) | ports
        del environment["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"]  # nobody sets it by hand
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=environment)
        if "Failed to start local SuperLink" not in done.stdout + done.stderr:
            break
        for process in _living(home):  # Flower waits 15 seconds for it, too few where other tests keep all cores busy
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    try:
        found: dict[str, Any] = deploy.wait_for(result, 120)
    except TimeoutError as error:
        pytest.fail(f"{error}: {done.stdout[-3000:]} {done.stderr[-3000:]}")
    return found


@pytest.mark.slow
def test_the_clinics_in_simulation(home: Path, deploy: types.ModuleType) -> None:
    """BatchNorm, FedAdam, weights and two classes of links; the record is where the run configuration says."""
    found = _simulate(EXAMPLE / "clinics", f'rounds=3 record="{home / "runs"}"', 12, home, deploy)
    assert found["survivors"] == [12, 12, 12]
    assert found["trips"] == [5, 2, 2]
    assert min(found["accuracy"][-1], found["accuracy_of_clinics"][-1]) > 0.7 > found["accuracy"][0]
    (record,) = find_runs(home / "runs")
    assert record.name.startswith("run-")
    assert read_run(record).config["classes"] == [6, 6]


@pytest.mark.slow
@pytest.mark.longest
def test_the_example_deployed(home: Path, deploy: types.ModuleType) -> None:
    """SuperLink and six SuperNodes: one is malicious, one is killed in the middle of the second round."""
    found = deploy.run(6, 2, home, more='rule="mean"')  # so few nodes in two classes have one block
    first, entry = found["rounds"]
    assert not first["error"]
    assert not entry["error"]
    assert (first["survivors"], entry["nodes"]) == (6, 6)
    assert [first["trips"], entry["trips"]] == [5, 2]  # classes are asked for once; the second was set up ahead
    assert entry["survivors"] in (4, 5)  # its partner in a subgroup of two is alone, and is left out with it
    assert any("mask" in why for why in entry["lost"].values())
    assert len(entry["lost"]) == 6 - entry["survivors"]
    # Assignment and rounding are drawn anew each time, and a malicious user among five may undo what was learned.
    assert max(found["accuracy"][1:]) > max(0.1, found["accuracy"][0])
    assert found["loopback_bytes"] > entry["wire_bytes_up"] > entry["protocol_bytes_up"] > 0
    deadline = time.monotonic() + 15
    while _living(home) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert _living(home) == []
