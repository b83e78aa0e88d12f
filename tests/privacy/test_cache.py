"""Bounds on disk: found again, never believed when damaged, never needed."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from cases import each

from heterosag.privacy import cache
from heterosag.privacy.cache import folder, look_up

INPUTS = (9, 1, 128)


class Source:
    """Computes, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[float]] = []

    def __call__(self, orders: Sequence[float]) -> list[float]:
        self.asked.append(list(orders))
        return [order / 3 for order in orders]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "heterosag"


def ask(*orders: float, restart: bool = True) -> list[list[float]]:
    """What had to be computed for these orders, in a new process."""
    if restart:
        cache._memory.clear()
    source = Source()
    assert look_up(INPUTS, orders, source) == [order / 3 for order in orders]
    return source.asked


def test_what_was_computed_is_found_again(place: Path) -> None:
    assert ask(2.0, 4.0, 2.0) == [[2.0, 4.0]]
    assert ask(4.0, 2.0, restart=False) == []
    assert ask(2.0) == []
    assert ask(2.0, 8.0) == [[8.0]]
    assert ask(2.0, 4.0, 8.0) == []
    assert [path.name for path in place.iterdir()] == [f"rho-{cache.VERSION}-9-1-128.json"]


def test_what_memory_knows_is_not_read_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("read")

    ask(2.0, 4.0)
    monkeypatch.setattr(Path, "open", refuse)
    assert ask(2.0, 4.0, restart=False) == []


def test_what_another_process_writes_meanwhile_is_kept(place: Path) -> None:
    def compute(orders: Sequence[float]) -> list[float]:
        assert ask(4.0) == [[4.0]]
        return [order / 3 for order in orders]

    cache._memory.clear()
    look_up(INPUTS, [2.0], compute)
    assert ask(2.0, 4.0) == []


def test_a_folder_that_does_not_exist_yet_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "not" / "yet"))
    assert ask(2.0) == [[2.0]]
    assert ask(2.0) == []


@each("more", [-1, 1])
def test_as_many_bounds_as_orders_are_computed(more: int, place: Path) -> None:
    cache._memory.clear()
    with pytest.raises(ValueError, match="argument 2"):
        look_up(INPUTS, [2.0, 4.0], lambda orders: [0.5] * (len(orders) + more))
    assert not place.exists()


def test_a_file_of_version_1_is_still_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders 1.5 and 2, whose names are in the opposite order."""
    values = '{"0x1.8000000000000p+0": "0x1.0000000000000p-1", "0x1.0000000000000p+1": "0x1.5555555555555p-1"}'
    checksum = "3061fea212b928deb22c2d558d4c543d51e3c58db404f8d00e20abbdfbab059c"
    place.mkdir(mode=0o700)
    (place / "rho-1-9-1-128.json").write_text(f'{{"values": {values}, "checksum": "{checksum}"}}')
    monkeypatch.setattr(cache, "VERSION", 1)
    assert ask(1.5, 2.0) == []


def test_another_version_knows_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(2.0)
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    assert ask(2.0) == [[2.0]]
    assert len(list(place.iterdir())) == 2


def test_other_inputs_know_nothing(place: Path) -> None:
    ask(2.0)
    [file] = place.iterdir()
    file.rename(place / f"rho-{cache.VERSION}-10-1-128.json")
    source = Source()
    look_up((10, 1, 128), [2.0], source)
    assert source.asked == [[2.0]]


def damaged(content: bytes) -> list[bytes]:
    values = json.loads(content)
    smaller = json.loads(content)
    smaller["values"][(2.0).hex()] = (1e-9).hex()
    return [
        b"",
        content[:-7],
        content + b" {}",
        b"[" * 100_000,
        b"\xff\xfe\x00",
        b"[1, 2]",
        b"3",
        json.dumps(values | {"values": [1]}).encode(),
        json.dumps(values | {"checksum": 5}).encode(),
        json.dumps({"values": values["values"]}).encode(),
        json.dumps(smaller).encode(),
        b" " * (1 << 20) + content,
    ]


@each("kind", range(12))
def test_a_damaged_file_is_ignored_and_written_anew(
    kind: int, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("damaged")))
    ask(2.0)
    [file] = (folder() or Path()).iterdir()
    whole = file.read_bytes()
    file.write_bytes(damaged(whole)[kind])
    assert ask(2.0) == [[2.0]]
    assert file.read_bytes() == whole
    assert ask(2.0) == []


def test_without_a_place_to_write_memory_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "heterosag").write_text("a file where the folder would be")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert ask(2.0) == [[2.0]]
    assert ask(2.0, restart=False) == []
    assert ask(2.0) == [[2.0]]
    assert [path.name for path in tmp_path.iterdir()] == ["heterosag"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of this kind are POSIX's")
@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_folder_that_others_can_write_to_is_left_alone(mode: int, place: Path) -> None:
    assert ask(2.0) == [[2.0]]
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(mode)
    assert ask(2.0, 4.0) == [[2.0, 4.0]]
    assert ask(4.0, restart=False) == []
    assert place.stat().st_mode & 0o777 == mode  # whoever opened it may have had a reason
    place.chmod(0o700)
    assert ask(2.0) == []


@pytest.mark.skipif(os.name != "posix", reason="owners of this kind are POSIX's")
def test_a_folder_of_another_user_is_left_alone(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(2.0) == [[2.0]]
    place.chmod(0o750)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    assert ask(2.0, 4.0) == [[2.0, 4.0]]
    assert place.stat().st_mode & 0o777 == 0o750
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(place.parent))
    assert ask(2.0, 4.0) == [[4.0]]


@pytest.mark.skipif(os.name != "posix", reason="permissions of this kind are POSIX's")
@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_a_file_that_others_can_write_to_is_written_anew(mode: int, place: Path) -> None:
    """Whoever can write it puts another bound there, with its checksum: a client would spend beyond its budget."""
    before = os.umask(0)
    try:
        ask(2.0)
    finally:
        os.umask(before)
    (file,) = place.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    file.chmod(mode)
    assert ask(2.0) == [[2.0]]
    assert file.stat().st_mode & 0o777 == 0o600
    assert ask(2.0) == []


@each("value", [0.0, -1.0, math.nan, math.inf])
def test_a_bound_that_is_none_is_not_taken(value: float, place: Path) -> None:
    ask(2.0)
    cache._write(place, INPUTS, {2.0: value})
    assert ask(2.0) == [[2.0]]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(place: Path) -> None:
    (place / f"rho-{cache.VERSION}-9-1-128.json").mkdir(parents=True)
    assert ask(2.0) == [[2.0]]
    assert len(list(place.iterdir())) == 1


def test_without_a_home_memory_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert folder() is None
    assert ask(2.0) == [[2.0]]
    assert ask(2.0, restart=False) == []


def test_the_folder_is_below_the_home_folder_unless_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for named in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", named)
        assert folder() == tmp_path / ".cache" / "heterosag"
