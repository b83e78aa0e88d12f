"""What a run leaves behind: a folder with its configuration, its plan, and an append-only record.

`record.jsonl` has one JSON object a line: first the run (kind "run"; what it is, when it began, with which version, and
the command that repeats it), then one line for each round (kind "round"), at last the end (kind "end"). A round that is
judged only later has one more line (kind "evaluation"), which the reader puts into the round's. Lines are written whole
and flushed, so that a killed run leaves a readable record; a last line that was cut off is ignored by the reader.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from heterosag.aggregation.clip_counts import measure_clipping
from heterosag.aggregation.cohorts import CombinedCohorts
from heterosag.aggregation.combine import Combined
from heterosag.errors import FailedCohortsError, HeteroSagError, UsageError
from heterosag.plan import CohortPlan, Plan, User
from heterosag.storage.locks import hold, is_held
from heterosag.storage.run_lines import check_line
from heterosag.version import __version__

__all__ = [
    "FAILED",
    "FORMAT",
    "RECORD",
    "RunRecord",
    "RunWriter",
    "describe_error",
    "describe_failures",
    "describe_round",
    "find_runs",
    "is_written",
    "read_run",
]

RECORD = "record.jsonl"
"""The record's file in a run's folder."""

FORMAT = 2
"""Of the record that is written; one of format 1 is read too, others are refused."""

_FRESH = 600  # seconds since the last line, after which a run counts as interrupted where files cannot be locked

_HEAD = b'{"kind": "run", '

_RENAMED = {
    "clear": "plaintext",
    "clipped_share": "clipped_fraction",
    "floor": "min_survivors",
    "shown_pairs": "exposed_pairs",
    "shown_segments": "exposed_segments",
    "shown_users": "exposed_users",
    "weight_bound": "max_weight",
    "with_floor": "with_min_survivors",
}
"""What format 1 called some keys."""

FAILED: dict[str, Any] = {
    "survivors": 0,
    "inference_robustness": None,
    "byzantine_tolerance": None,
    "faulty_blocks": 0,
    "faulty_users": [],
    "refusals": 0,
    "clipped_fraction": None,
    "aggregate_error": None,
    "aggregate_rms": None,
    "sent_bytes": {},
    "upload_seconds": [],
    "round_seconds": 0.0,
    "user_seconds": {},
    "server_seconds": {},
}
"""What a round that failed has to say for itself; a round that did not replaces all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """A run as its record tells it.

    Args:
        folder: Where it is.
        config: The run's configuration.
        plan: The summary of its plan.
        rounds: A line a round.
        end: The line of its end, None if it has none yet.
        started: When it began, as UTC in ISO 8601; None in a record of 0.1.0, like the next two.
        version: The version of heterosag that ran it.
        command: A command that repeats it, None also where another program began it, as on Flower.
    """

    folder: Path
    config: dict[str, Any]
    plan: dict[str, Any]
    rounds: tuple[dict[str, Any], ...]
    end: dict[str, Any] | None
    started: str | None = None
    version: str | None = None
    command: str | None = None

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    def require(
        self,
        *,
        config: Iterable[str] = (),
        plan: Iterable[str] = (),
        rounds: Iterable[str] = (),
        good_rounds: Iterable[str] = (),
    ) -> None:
        """Refuse a record that does not say what somebody needs of it.

        Args:
            config: Names of settings.
            plan: Names in the summary of the plan.
            rounds: What every round must say; a name in another ("privacy.delta") only where that one is.
            good_rounds: What every round must say that ended well; sizes and times must be those of every class.

        Raises:
            UsageError: Something is missing; the message says what.
        """
        rounds, good_rounds = (*rounds, "error"), tuple(good_rounds)
        _require(self.name, "its run", self.config, config)
        _require(self.name, "its plan", self.plan, plan)
        for number, line in enumerate(self.rounds, start=1):
            where = f"round {line.get('round', number)}"
            _require(self.name, where, line, rounds)
            if line["error"] is None:
                _require(self.name, where, line, good_rounds)
                by_class = [*line.get("sent_bytes", {}).values(), *filter(None, [line.get("upload_seconds")])]
                if any(len(one) < len(self.config.get("classes", ())) for one in by_class):
                    raise UsageError(f"the record of {self.name} is damaged: {where} does not say all of every class")


class RunWriter:
    """Appends to a run's record, as the only program that does, where the system can lock files.

    Args:
        folder: One that holds no run yet, which is made; or with `resume` the folder of a run.
        resume: Go on with the run that the folder holds; `cut` says from where.

    Raises:
        UsageError: The folder holds a run already, or none to go on with; another program writes it; or it cannot be
            written.
    """

    def __init__(self, folder: Path, *, resume: bool = False) -> None:
        self.folder = folder
        self._path = folder / RECORD
        if resume and not self._path.exists():
            raise UsageError(f"{folder} holds no run")
        try:
            if not resume:
                folder.mkdir(parents=True, exist_ok=True)
            self._file, held = self._open()
        except OSError as error:
            raise UsageError(f"cannot write the record {self._path}: {error}") from None
        if not resume and not self._is_free():
            self._file.close()
            raise UsageError(f"{folder} holds a run already: choose another folder, or go on with --resume")
        if not held:
            self._file.close()
            raise UsageError(f"the run in {folder} is being written by another program: wait until that has ended")
        if not resume:
            self._file.truncate(0)

    def _open(self) -> tuple[BinaryIO, bool]:
        """The record, and whether it is this program's; once more where `discard` removed it in the meantime."""
        file = self._path.open("ab")
        held = hold(file)
        if os.fstat(file.fileno()).st_nlink == 0:
            file.close()
            file = self._path.open("ab")
            held = hold(file)
        return file, held

    def _is_free(self) -> bool:
        """Whether there is no run in the record yet: nothing, or the beginning of a head that was cut off."""
        data = self._path.read_bytes()
        return b"\n" not in data and data[: len(_HEAD)] == _HEAD[: len(data)]

    def begin(self, config: Mapping[str, Any], plan: Mapping[str, Any], *, command: str | None = None) -> None:
        """Append the run's own line, which also says when it began and with which version.

        Args:
            config: The run's configuration, in JSON types.
            plan: The summary of its plan.
            command: A command that repeats the run.

        Raises:
            ValueError: JSON cannot hold some of it; the folder holds no run then.
        """
        head = {
            "format": FORMAT,
            "version": __version__,
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": command,
            "config": config,
            "plan": plan,
        }
        try:
            self.write("run", head)
        except BaseException:
            self.discard()
            raise

    def write(self, kind: str, values: dict[str, Any]) -> None:
        """Append one line and see it on the disk.

        Args:
            kind: `run`, `round` or `end`.
            values: The line, in JSON types.
        """
        self._append(json.dumps({"kind": kind, **values}, allow_nan=False).encode() + b"\n")

    def cut(self, rounds: int) -> None:
        """Keep the run's line and its first rounds: what came after the checkpoint is done again.

        The file stays the same one, so that it is this program's all the time.

        Args:
            rounds: How many rounds to keep.

        Raises:
            UsageError: The record is damaged; the message says where.
        """
        lines = self._path.read_bytes().splitlines(keepends=True)
        end, later, kept = 0, bytearray(), True
        for data, line in zip(lines, _lines(self._path), strict=False):  # the last line may be cut off
            stays = line["kind"] == "run" or (line["kind"] in ("round", "evaluation") and line["round"] <= rounds)
            kept = kept and stays and data.endswith(b"\n")
            if kept:
                end += len(data)
            elif stays:
                later += data.rstrip(b"\n") + b"\n"
        self._file.truncate(end)
        self._append(bytes(later))

    def discard(self) -> None:
        """Remove the record of a run that has not begun."""
        if os.name == "nt":  # which removes no open file
            self._file.close()
        self._path.unlink()
        self._file.close()

    def close(self) -> None:
        """Close the file; the record stays."""
        self._file.close()

    def _append(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()
        os.fsync(self._file.fileno())


def describe_round(
    plan: Plan | CohortPlan,
    combined: Combined | CombinedCohorts,
    sent: Mapping[str, Mapping[User, int]],
    user_classes: Mapping[User, int],
    classes: int,
) -> dict[str, Any]:
    """What every engine says of a round that ended well.

    Args:
        plan: The plan of the round, or its cohorts.
        combined: What it gave.
        sent: Bytes by phase and user.
        user_classes: The survivors' classes.
        classes: How many classes there are.

    Returns:
        The values of a line; of cohorts also how many users of each survived, and why those failed that did.
    """
    cohorts: dict[str, Any] = {}
    if isinstance(plan, CohortPlan) and isinstance(combined, CombinedCohorts):
        survivors = {one.cohort: len(one.survivors) for one in combined.cohorts}
        cohorts = {
            "cohort_survivors": [survivors.get(index, 0) for index in range(len(plan.plans))],
            "failed_cohorts": describe_failures(combined.failed),
        }
    return cohorts | {
        "survivors": len(combined.survivors),
        "inference_robustness": combined.inference_robustness,
        "byzantine_tolerance": combined.byzantine_tolerance,
        "faulty_blocks": len(combined.faulty_blocks),
        "faulty_users": list(combined.faulty_users),
        "clipped_fraction": None if plan.noise_multiplier else measure_clipping(plan, combined),  # noise has no counts
        "sent_bytes": {
            phase: [
                _mean([size for user, size in by.items() if user_classes.get(user) == index])
                for index in range(classes)
            ]
            for phase, by in sent.items()
        },
    }


def describe_failures(failed: Mapping[int, HeteroSagError]) -> dict[str, dict[str, str]]:
    """Why cohorts failed, in JSON types.

    Args:
        failed: The error of each, by the cohort's index.

    Returns:
        By the index as text, the kind of the error and what it says.
    """
    return {str(index): {"kind": type(one).__name__, "message": str(one)} for index, one in sorted(failed.items())}


def describe_error(error: HeteroSagError) -> dict[str, Any]:
    """What a line says of a round that failed.

    Args:
        error: Why it did.

    Returns:
        The error, and where all cohorts failed each one's.
    """
    found: dict[str, Any] = {"error": {"kind": type(error).__name__, "message": str(error)}}
    if isinstance(error, FailedCohortsError):
        found["cohort_survivors"] = [0] * len(error.errors)
        found["failed_cohorts"] = describe_failures(error.errors)
    return found


def _mean(values: list[int]) -> float | None:
    """None where nobody sent anything: a class may have no survivors."""
    return sum(values) / len(values) if values else None


def find_runs(folder: Path) -> list[Path]:
    """The runs that a folder names: itself where it holds one, or else those directly below it, oldest first.

    Args:
        folder: The folder of a run, or one of runs.

    Returns:
        The folders of runs.

    Raises:
        UsageError: There is none.
    """
    if (folder / RECORD).exists():
        return [folder]
    below = sorted(folder.glob(f"*/{RECORD}"), key=lambda record: (record.stat().st_mtime_ns, record))
    if not below:
        raise UsageError(f"{folder} holds no run, and no folder in it does")
    return [record.parent for record in below]


def read_run(folder: Path) -> RunRecord:
    """The run in a folder; an error that says what is wrong where there is none.

    Args:
        folder: The folder of a run.

    Returns:
        The record, without a last line that was cut off.

    Raises:
        UsageError: The folder holds no run, or its record is damaged; the message says where.
    """
    lines = _lines(folder / RECORD)
    head = [line for line in lines if line["kind"] == "run"]
    ends = [line for line in lines if line["kind"] == "end"]
    judged: dict[Any, dict[str, Any]] = {}
    for line in lines:
        if line["kind"] == "evaluation":
            judged[line.get("round")] = {name: line.get(name) for name in ("accuracy", "loss")}
    return RunRecord(
        folder=folder,
        config=head[0]["config"],
        plan=head[0]["plan"],
        rounds=tuple(line | judged.get(line["round"], {}) for line in lines if line["kind"] == "round"),
        end=ends[-1] if ends else None,
        started=head[0].get("started"),
        version=head[0].get("version"),
        command=head[0].get("command"),
    )


def is_written(folder: Path) -> bool:
    """Whether some program has this run's record open for writing; without that, a run without an end is interrupted.

    Args:
        folder: The folder of a run.

    Returns:
        Whether somebody writes it; on a system without locks, whether it was written in the last ten minutes.
    """
    path = folder / RECORD
    try:
        with path.open("rb") as file:
            return is_held(file)
    except OSError:
        return time.time() - path.stat().st_mtime < _FRESH if path.exists() else False


def _require(name: str, where: str, found: Mapping[str, Any], wanted: Iterable[str]) -> None:
    for one in wanted:
        inner = found
        *outer, last = one.split(".")
        for step in outer:
            inner = inner.get(step, {last: None})
        if last not in inner:
            raise UsageError(f"the record of {name} is damaged, or of another program: {where} does not say {one}")


def _rename(found: dict[str, Any]) -> dict[str, Any]:
    return {_RENAMED.get(key, key): value for key, value in found.items()}


def _lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of a record, checked."""
    found = []
    text = _text(path)
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            value = json.loads(line, object_hook=_rename)
            if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
                raise ValueError
        except (ValueError, RecursionError):
            if number == text.count("\n") + 1:  # the last line, cut off in the middle
                break
            raise UsageError(f"line {number} of {path} is damaged") from None
        found.append(value)
    formats = [line.get("format") for line in found if line["kind"] == "run"]
    if formats[:1] not in ([1], [FORMAT]):
        raise UsageError(f"{path} does not begin with a run of format 1 or {FORMAT}")
    for number, value in enumerate(found, start=1):
        try:
            check_line(value)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"line {number} of {path} is not one that a run writes: {error}") from None
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        below = sorted(found.parent.name for found in path.parent.glob(f"*/{path.name}"))
        hint = f": its runs are {', '.join(below)}" if below else ""
        raise UsageError(f"{path.parent} holds no run{hint}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is damaged: it is not text in UTF-8") from None
    except OSError as error:
        raise UsageError(f"cannot read the record {path}: {error}") from None
