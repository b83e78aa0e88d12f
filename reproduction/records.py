"""Records of trained runs, small enough to commit: what verdicts, tables and figures of the experiments are made from.

A folder of records has a file for each item, ITEM.json, with an entry for each run, SETTING/seed-N: its configuration
and a list for each value of its rounds. Long experiments are trained in parts, on whatever machine has time; each part
adds its runs to the folder, and whoever has the folder judges all of them without training.

The version of a run names the commit that was checked out when it was trained, as in 0.2.0+g1f6d32bdbe, with `-dirty`
if code was changed; of a run that was trained in parts, the commit of its last part. Of runs that began before
2026-11-18T16:00 it is the last commit before they began, found afterwards.
"""

from __future__ import annotations

import json
import subprocess  # noqa: TID251 - asks git for the commit
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from heterosag.errors import UsageError
from heterosag.storage.run_log import RunRecord

__all__ = ["find_commit", "keep", "kept", "seconds_of"]

_DIGESTS = 3  # of the model, after the first rounds: secure rounds are compared with those


def kept(folder: Path, item: str) -> dict[str, RunRecord]:
    """The runs of an item, by name.

    Args:
        folder: The folder of records; it need not exist.
        item: The item's name.

    Returns:
        Records with the values that `keep` keeps.

    Raises:
        UsageError: The item's file cannot be read.
    """
    path = folder / f"{item}.json"
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: _unpack(path, one) for name, one in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} holds no records of runs ({error!r}): restore it, or name another folder") from None


def keep(folder: Path, item: str, runs: Mapping[str, RunRecord], commit: str = "") -> None:
    """Add runs to the records of an item, in the place of shorter ones of the same name.

    Args:
        folder: The folder of records, made where there is none.
        item: The item's name.
        runs: Records by name.
        commit: What `find_commit` said before they were trained.
    """
    before = kept(folder, item)
    longer = {name: one for name, one in runs.items() if name not in before or _length(one) > _length(before[name])}
    if not longer:
        return
    named = {
        name: replace(one, version=f"{one.version}+g{commit}" if commit else one.version)
        for name, one in longer.items()
    }
    packed = {name: _pack(one) for name, one in sorted((before | named).items())}
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / f"{item}.tmp"
    fresh.write_text(_lines(packed), encoding="utf-8")
    fresh.replace(folder / f"{item}.json")


def seconds_of(record: RunRecord) -> float:
    """Seconds that a run's rounds took.

    Args:
        record: Of the run.

    Returns:
        Their sum.
    """
    return float(sum(sum(line["seconds"].values()) for line in record.rounds))


def find_commit() -> str:
    """The commit of the code.

    Returns:
        As in "1f6d32bdbe", with "-dirty" behind it if anything but pages, summaries and baselines has changed since;
        "" outside a repository.
    """
    code = [":/", ":(top,exclude)docs", ":(top,exclude,glob)*.md", ":(top,exclude)bench/baseline.json"]
    try:
        commit = _ask_git("rev-parse", "--short=10", "HEAD")
        changed = _ask_git("status", "--porcelain", "--untracked-files=no", "--", *code)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{commit}-dirty" if changed else commit


def _ask_git(*words: str) -> str:
    asked = subprocess.run(  # noqa: S603 - no word is a stranger's
        ["git", *words],  # noqa: S607 - whichever git there is
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    return asked.stdout.strip()


def _length(record: RunRecord) -> int:
    return len(record.rounds)


def _lines(packed: Mapping[str, Mapping[str, Any]]) -> str:
    """JSON with a line for each value of a run, which is how a difference is read."""
    runs = [
        f"{json.dumps(name)}: {{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(one[key])}" for key in one) + "\n}"
        for name, one in packed.items()
    ]
    return "{\n" + ",\n".join(runs) + "\n}\n"


def _pack(record: RunRecord) -> dict[str, Any]:
    subgroups = record.plan["subgroups"]
    return {
        "version": record.version,
        "started": record.started,
        "config": record.config | {"data_dir": ""},
        "subgroups": subgroups if isinstance(subgroups, int) else len(subgroups),
        "accuracy": [line["accuracy"] for line in record.rounds],
        "aggregate_error": [_short(line["aggregate_error"]) for line in record.rounds],
        "sent_bytes_of_the_slowest": [_sent(line) for line in record.rounds],
        "errors": {str(line["round"]): line["error"] for line in record.rounds if line["error"] is not None},
        "models": [line["model"] for line in record.rounds[:_DIGESTS]],
        "seconds": _short(seconds_of(record)),
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _sent(line: Mapping[str, Any]) -> int:
    return round(sum(sizes[0] or 0 for sizes in line["sent_bytes"].values()))


def _unpack(path: Path, packed: Mapping[str, Any]) -> RunRecord:
    rounds = len(packed["accuracy"])
    models = [*packed["models"], *[None] * (rounds - len(packed["models"]))]
    columns = zip(
        packed["accuracy"], packed["aggregate_error"], packed["sent_bytes_of_the_slowest"], models, strict=True
    )
    return RunRecord(
        folder=path,
        config=packed["config"],
        plan={"subgroups": packed["subgroups"]},
        rounds=tuple(
            {
                "kind": "round",
                "round": number,
                "accuracy": accuracy,
                "aggregate_error": error,
                "sent_bytes": {"all": [sent]},
                "error": packed["errors"].get(str(number)),
                "model": model,
                "seconds": {"all": packed["seconds"] / rounds},
            }
            for number, (accuracy, error, sent, model) in enumerate(columns, start=1)
        ),
        end=None,
        started=packed["started"],
        version=packed["version"],
    )
