"""A file is replaced as a whole, and what was written is on the disk with its name."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from heterosag.plan import Plan
from heterosag.protocol import Policy
from heterosag.storage import durable_file
from heterosag.storage.budget import FileBudget
from heterosag.storage.directories import save_directory
from heterosag.storage.durable_file import replace_file
from heterosag.storage.ledger_file import LedgerFile
from heterosag.storage.node_memory import NodeMemory


def test_a_file_is_made_and_replaced(tmp_path: Path) -> None:
    for content in (b"one", b"another", b""):
        replace_file(tmp_path / "file", content)
        assert (tmp_path / "file").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_file(tmp_path / "file", b"one")

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        replace_file(tmp_path / "file", b"another")
    assert (tmp_path / "file").read_bytes() == b"one"


def test_where_folders_cannot_be_opened_the_file_is_written_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable_file, "_FOLDER", None)
    replace_file(tmp_path / "file", b"one")
    assert (tmp_path / "file").read_bytes() == b"one"


PLAN = Plan.build([12], [4], 30, value_range=1.0, subgroup_size=3)
NOISY = Plan.build(
    [40],
    [2],
    2000,
    design="secagg",
    subgroup_size=40,
    min_block_survivors=32,
    clipping_norm=1.0,
    noise_multiplier=4.0,
)


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: LedgerFile(folder, PLAN, sets_below=2).note(frozenset(range(12))),
        lambda folder: NodeMemory(folder, 7).note_round(Policy(), PLAN, b"model"),
        lambda folder: FileBudget(folder).charge(NOISY, Policy()),
        lambda folder: save_directory(folder / "everybody.json", {"alice": bytes(32)}),
    ],
    ids=["ledger", "memory", "budget", "directory"],
)
def test_whatever_must_outlive_a_crash_is_on_the_disk_with_its_name(
    write: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename that is not on the disk yet is undone by a crash: the node would have forgotten what it gave out."""
    seen: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(handle: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def renamed(self: Path, target: Path) -> Path:
        seen.append("rename")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write(tmp_path)
    assert seen[:3] == ["file", "rename", "folder"]
    assert seen[3:] in ([], seen[:3])  # a budget is in two files
