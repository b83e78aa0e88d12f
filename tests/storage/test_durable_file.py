"""A file is replaced as a whole, and what was written is on the disk with its name."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from heterosag.errors import LocalFileError
from heterosag.plan import Plan
from heterosag.protocol import Policy
from heterosag.storage import durable_file
from heterosag.storage.budget import FileBudget
from heterosag.storage.directories import save_directory
from heterosag.storage.durable_file import make_folder, replace_file
from heterosag.storage.ledger_file import LedgerFile
from heterosag.storage.node_memory import NodeMemory
from heterosag.storage.release_log import FileReleaseLog


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


def test_a_folder_that_was_just_made_is_on_the_disk_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a power failure takes the folder back, and with it the first charge of a budget."""
    synced: list[Path] = []
    monkeypatch.setattr(durable_file, "_sync", synced.append)
    node = tmp_path / "nodes" / "alice"
    make_folder(node)
    assert node.stat().st_mode & 0o777 == 0o700
    assert synced == [tmp_path, tmp_path / "nodes"]
    make_folder(node)
    assert len(synced) == 2
    for number, make in enumerate((FileBudget, FileReleaseLog, lambda path: LedgerFile(path, PLAN, sets_below=2))):
        make(node / str(number))
        assert synced[2:] == [node] * (number + 1)
    NodeMemory(node / "memory", 7).note_evaluation()
    assert synced[5:] == [node, node / "memory"]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("budget.json", lambda folder: FileBudget(folder).rounds),
        ("budget-copy.json", lambda folder: FileBudget(folder).rounds),
        ("ledger.json", lambda folder: LedgerFile(folder, PLAN, sets_below=2)),
        ("run-7.json", lambda folder: NodeMemory(folder, 7).has_enrolled(PLAN)),
    ],
)
def test_what_cannot_be_opened_does_not_count_as_missing(
    name: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    """`Path.exists` says False to a link that leads to itself, so a budget behind one counted as unspent."""
    (tmp_path / name).symlink_to(tmp_path / name)
    with pytest.raises(LocalFileError, match="cannot read"):
        read(tmp_path)


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
