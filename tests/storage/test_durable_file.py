"""A file is replaced as a whole, and what was written is on the disk with its name."""

import multiprocessing
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
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_what_a_crash_left_behind_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".file.tmp").mkdir()  # whatever has the name that every write used to have
    with monkeypatch.context() as killed:
        killed.setattr(Path, "replace", lambda *_: os._exit(3))
        child = multiprocessing.get_context("fork").Process(target=replace_file, args=(tmp_path / "file", b"half"))
        child.start()
        child.join()
    assert child.exitcode == 3
    replace_file(tmp_path / "file", b"one")
    assert (tmp_path / "file").read_bytes() == b"one"
    left = [path.read_bytes() for path in tmp_path.glob(".file.*.tmp")]
    assert left == [b"half"]


def test_two_that_write_at_once_do_not_write_into_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one name for all, the one renamed what the other had just begun, and the other found nothing to rename."""
    replace = Path.replace

    def interrupted(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        replace_file(tmp_path / "file", b"another")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    replace_file(tmp_path / "file", b"one")
    assert (tmp_path / "file").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_link_that_somebody_planted_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"precious")
    (tmp_path / ".file.tmp").symlink_to(tmp_path / "victim")
    replace_file(tmp_path / "file", b"one")
    assert (tmp_path / "victim").read_bytes() == b"precious"
    assert not (tmp_path / "file").is_symlink()


def test_where_the_file_is_a_link_the_one_that_it_leads_to_is_replaced(tmp_path: Path) -> None:
    """Or else whoever reads that one goes on with the old content, a revoked user's key for instance."""
    (tmp_path / "far").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "far" / "file")
    for content in (b"one", b"another"):
        replace_file(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "far" / "file").read_bytes() == content
    (tmp_path / "round").symlink_to(tmp_path / "round")
    with pytest.raises(OSError, match="symbolic links"):
        replace_file(tmp_path / "round", b"one")
    assert (tmp_path / "round").is_symlink()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "file", "link", "round"]


def test_a_file_keeps_its_permissions_and_a_new_one_is_its_owners(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        replace_file(tmp_path / "file", b"one")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600
        (tmp_path / "file").chmod(0o644)
        replace_file(tmp_path / "file", b"another")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644
    finally:
        os.umask(before)


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


MAKERS: dict[str, Callable[[Path], object]] = {
    "budget": lambda folder: FileBudget(folder),
    "releases": lambda folder: FileReleaseLog(folder),
    "ledger": lambda folder: LedgerFile(folder, PLAN, sets_below=2),
    "memory": lambda folder: NodeMemory(folder, 7).note_enrolled(PLAN),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize("mode", [0o777, 0o775, 0o702, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(
    mode: int, make: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever can puts an earlier state back: a client then releases a second set of shares, or spends twice."""
    folder = tmp_path / "node"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(LocalFileError, match=r"node can be written to by others than its owner: chmod go-w it"):
        make(folder)
    assert list(folder.iterdir()) == []
    folder.chmod(mode & ~0o022)
    make(folder)
    make(tmp_path / "node" / "own")
    folder.chmod(mode)
    make(tmp_path / "node" / "own")  # one's own below one of all, as below /tmp
    monkeypatch.setattr(durable_file, "_HAS_MODES", False)  # as on Windows
    make(folder)


@pytest.mark.skipif(os.name != "posix", reason="owners of this kind are POSIX's")
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_folder_of_another_user_is_refused(
    make: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = os.geteuid()
    if mine == 0:
        os.chown(tmp_path, 12345, -1)
    else:
        monkeypatch.setattr(durable_file.os, "geteuid", lambda: mine + 1)
    with pytest.raises(LocalFileError, match="is another user's, who could replace what is kept in it: chown it"):
        make(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_no_folder_that_is_made_can_be_written_to_by_others(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(tmp_path / "nodes" / "alice")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "nodes").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "nodes" / "alice").stat().st_mode) == 0o700


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
