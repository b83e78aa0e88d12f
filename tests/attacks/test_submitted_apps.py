"""Who may submit an app reads the data: the attack on a real SuperLink and SuperNodes, and what ends it.

The numbers are the rows of docs/threat-model.md, "Attacks that worked". The commands are those of
docs/how-to/flower-deployment.md.
"""

from __future__ import annotations

import json
import stat
import types
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scripts import load_script

pytest.importorskip("flwr")

import yaml
from flower_nodes import LocalGrid, make_nodes
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict
from flwr.supercore.fab import Fab
from flwr.supernode.start_client_internal import _verify_fab

from heterosag.flower import SecureGrid
from heterosag.storage.identities import make_identity

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower"
OPEN, CLOSED = 0, 1
REFUSAL = "The FAB could not be verified."

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "{name}"
version = "1.0.0"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "anybody"

[tool.flwr.app.components]
serverapp = "taken.server:app"
clientapp = "taken.client:app"

[tool.flwr.app.config]
result = ""
"""

CLIENT = """
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()  # no mod


@app.train()
def train(message, context):
    key = Path(context.node_config["heterosag-key"])
    key.with_name("trained").touch()
    update = np.load(context.node_config["data"]).mean(axis=0) - message.content["arrays"]["w"].numpy()
    content = {"arrays": ArrayRecord({"w": Array(update)}), "taken": ConfigRecord({"key": key.read_text()})}
    return Message(RecordDict(content), reply_to=message)
"""

SERVER = """
import json
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict
from flwr.serverapp import ServerApp

app = ServerApp()


@app.main()
def main(grid, context):
    while len(nodes := list(grid.get_node_ids())) < 2:
        time.sleep(0.2)
    content = RecordDict({"arrays": ArrayRecord({"w": Array(np.ones(4))})})
    asked = [Message(content, dst_node_id=node, message_type=MessageType.TRAIN) for node in nodes]
    found = []
    for reply in grid.send_and_receive(asked, timeout=120):
        if reply.has_error():
            found.append({"error": reply.error.reason})
        else:
            update = reply.content["arrays"]["w"].numpy().tolist()
            found.append({"update": update, "key": reply.content["taken"]["key"]})
    Path(context.run_config["result"]).write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def deploy() -> types.ModuleType:
    return load_script(EXAMPLE / "deploy.py")


@pytest.fixture(scope="module")
def hub() -> types.ModuleType:
    return load_script(EXAMPLE / "hub.py")


@pytest.fixture
def federation(deploy: types.ModuleType, tmp_path: Path) -> Iterator[Any]:
    """A SuperLink and two SuperNodes, each with data and a key of its own; one asks who signed an app."""
    deployment = deploy.Deployment(tmp_path, 2)
    try:
        trusted = tmp_path / "trusted.yaml"
        trusted.write_text("".join(deployment.make_key(tmp_path / name) for name in ("owner.key", "reviewer.key")))
        deployment.start_link()
        for place, entities in ((OPEN, None), (CLOSED, trusted)):
            folder = tmp_path / f"node-{place}"
            folder.mkdir()
            make_identity(folder / "node.key")
            np.save(folder / "data.npy", np.arange(12.0).reshape(3, 4) + 100 * place)
            config = f'heterosag-key="{folder}/node.key" data="{folder}/data.npy"'
            deployment.start_node(place, config, entities)
        yield deployment
    finally:
        deployment.kill_all()


def write_app(folder: Path, name: str) -> Path:
    """The same app under one name or another."""
    files = {"pyproject.toml": PROJECT.format(name=name), "taken/__init__.py": ""}
    files |= {"taken/client.py": CLIENT, "taken/server.py": SERVER}
    (folder / name / "taken").mkdir(parents=True)
    for path, text in files.items():
        (folder / name / path).write_text(text)
    return folder / name


def forge(trusted: Path, bundle: Path, signed: Path) -> None:
    """Beside the attacker's own signature of a bundle: another bundle's by a trusted key, and the attacker's in the
    other trusted key's name."""
    (own,), (copied,) = (path.parent.glob(f"{path.name}.*.json") for path in (bundle, signed))
    _, other = yaml.safe_load(trusted.read_text())
    bundle.with_name(f"{bundle.name}.copied.json").write_bytes(copied.read_bytes())
    claimed = json.loads(own.read_bytes()) | {"public_key_id": other}
    bundle.with_name(f"{bundle.name}.claimed.json").write_text(json.dumps(claimed))


@pytest.mark.slow
def test_1_a_foreign_app_reads_data_and_key_unless_the_node_asks_who_signed_it(
    federation: Any, deploy: types.ModuleType
) -> None:
    """Whoever reaches the SuperLink submits an app without our mod.

    One node runs it, and its update and its private key are taken. The other trusts two keys: it neither unpacks nor
    runs what they have not signed, byte for byte, and it runs what one of them has.
    """
    home = federation.home
    closed = home / f"node-{CLOSED}"
    foreign, reviewed = (write_app(home, name) for name in ("foreign", "reviewed"))

    def submit(app: str) -> tuple[list[Any], list[Any]]:
        """What was taken from nodes, and what nodes said instead."""
        result = home / "result.json"
        result.unlink(missing_ok=True)
        federation.call("flwr", "run", app, "loopback", "--run-config", f'result="{result}"')
        found = deploy.wait_for(result, 180)
        taken = sorted((one for one in found if "key" in one), key=lambda one: one["update"])
        return taken, [one["error"] for one in found if "error" in one]

    def secrets(place: int) -> dict[str, Any]:
        folder = home / f"node-{place}"
        update = np.load(folder / "data.npy").mean(axis=0) - 1
        return {"update": update.tolist(), "key": (folder / "node.key").read_text()}

    # An app from anywhere, as the attack was carried out.
    assert submit(str(foreign)) == ([secrets(OPEN)], [REFUSAL])

    # The same app from where signed apps come from, with signatures that are not its own or not of a trusted key.
    signed = federation.sign(reviewed, home / "owner.key")
    federation.make_key(home / "attacker.key")
    forge(home / "trusted.yaml", federation.sign(foreign, home / "attacker.key"), signed)
    assert submit("@anybody/foreign") == ([secrets(OPEN)], [REFUSAL])
    assert not (closed / "trained").exists()
    assert not (closed / "apps").exists()

    # What a trusted key has signed runs, and reads what it likes.
    assert submit("@anybody/reviewed") == ([secrets(OPEN), secrets(CLOSED)], [])
    assert (closed / "trained").exists()


def test_1_a_signature_is_of_one_bundle_by_one_key(hub: types.ModuleType, tmp_path: Path) -> None:
    """Judged by the function that a SuperNode judges by."""
    trusted, other = (yaml.safe_load(hub.make_key(tmp_path / name)) for name in ("owner.key", "other.key"))
    assert stat.S_IMODE((tmp_path / "owner.key").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        hub.make_key(tmp_path / "owner.key")
    key = hub.load_key(tmp_path / "owner.key")
    found = hub.sign(key, b"bundle")
    verifications = {"valid_license": "Valid", found.pop("public_key_id"): json.dumps(found)}
    assert list(verifications) == ["valid_license", *trusted]
    assert _verify_fab(Fab("", b"bundle", verifications), trusted)
    assert not _verify_fab(Fab("", b"bundlf", verifications), trusted)
    assert not _verify_fab(Fab("", b"bundle", verifications), other)
    assert not _verify_fab(Fab("", b"bundle", verifications), dict.fromkeys(trusted, *other.values()))


def test_the_newest_version_of_an_app_is_found_unless_another_is_asked_for(
    hub: types.ModuleType, tmp_path: Path
) -> None:
    for version in ("1.9.0", "1.10.0", "1.2.0"):
        with zipfile.ZipFile(tmp_path / f"{version}.fab", "w") as bundle:
            bundle.writestr("pyproject.toml", PROJECT.format(name="reviewed").replace("1.0.0", version))
    assert hub.find(tmp_path, "@anybody/reviewed", None) == tmp_path / "1.10.0.fab"
    assert hub.find(tmp_path, "@anybody/reviewed", "1.2.0") == tmp_path / "1.2.0.fab"
    assert hub.find(tmp_path, "@anybody/reviewed", "2.0.0") is None
    assert hub.find(tmp_path, "@somebody/reviewed", None) is None


def test_1_a_node_does_not_use_a_key_that_others_can_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from flwr.supercore.task_identity import TaskIdentity

    for name in ("_run_id", "_task_id", "_node_id"):  # as Flower's runtime does before an app may make messages
        monkeypatch.setattr(TaskIdentity, name, 1)
    make_identity(tmp_path / "node.key")
    (tmp_path / "node.key").chmod(0o640)

    def config(place: int) -> dict[str, Any]:
        return {"heterosag-key": str(tmp_path / "node.key")} if place == 0 else {}

    nodes = make_nodes(6, tmp_path, lambda node, before: before, config=config)
    grid = SecureGrid(LocalGrid(nodes), levels=[16], value_range=1.0, options={"subgroup_size": 3, "min_survivors": 2})
    content = RecordDict({"arrays": ArrayRecord({"w": Array(np.zeros(30))})})
    asked = [Message(content, dst_node_id=node.context.node_id, message_type=MessageType.TRAIN) for node in nodes]
    list(grid.send_and_receive(asked))
    assert "LocalFileError" in grid.rounds[0].lost[nodes[0].context.node_id]
