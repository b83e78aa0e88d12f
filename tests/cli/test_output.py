"""What commands print and write, and what they say is missing."""

import importlib.util
import json
from pathlib import Path

import pytest

from heterosag.cli import output
from heterosag.errors import UsageError


def test_only_what_is_asked_for_is_made(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_found(lambda: {"a": 1}, lambda: pytest.fail("shown too"), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"a": 1}
    output.print_found(lambda: pytest.fail("found too"), lambda: "a table", as_json=False)
    assert capsys.readouterr().out == "a table\n"


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    output.write_file(tmp_path / "plan.toml", "a = 1\n")
    assert (tmp_path / "plan.toml").read_text(encoding="utf-8") == "a = 1\n"
    with pytest.raises(UsageError, match=r"^cannot write .*plan\.toml.*; choose another file with --save$"):
        output.write_file(tmp_path / "nowhere" / "plan.toml", "")


def test_a_missing_module_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"uvicorn"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in missing else object())
    output.need_extra("torch", "training")
    with pytest.raises(UsageError, match=r"needs uvicorn: pip install 'heterosag\[studio\]'"):
        output.need_extra("uvicorn", "studio")
    missing = {"sklearn"}
    with pytest.raises(UsageError, match=r"needs sklearn: pip install 'heterosag\[training\]'"):
        output.need_extra("torch", "training")
