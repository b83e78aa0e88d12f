"""The lines of a run's record, checked as they are read: what a run writes has these types, wherever it says it.

Most values may be missing, since runs on Flower and older versions say less; who needs one asks for it
(`RunRecord.require`). What nobody reads is not checked, so that a record may say more than this.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

__all__ = ["check_line"]

_LARGEST = 1e300  # the sum over all rounds is finite too
_MOST = 10**18

_Number = Annotated[float, msgspec.Meta(ge=-_LARGEST, le=_LARGEST)]
_Amount = Annotated[float, msgspec.Meta(ge=0, le=_LARGEST)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=_MOST)]
_Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]  # a setting may be as large
_Users = Annotated[int, msgspec.Meta(ge=0, le=10**8)]
_Scalar = str | int | float | bool | None
_Some = msgspec.Meta(min_length=1)


class _Error(msgspec.Struct):
    kind: str
    message: str


class _Config(msgspec.Struct):
    attack: str | UnsetType = UNSET
    attackers: int | UnsetType = UNSET
    classes: Annotated[list[_Users], msgspec.Meta(min_length=1, max_length=1024)] | UnsetType = UNSET
    data: str | UnsetType = UNSET
    deadline: _Finite | UnsetType | None = UNSET
    design: str | UnsetType = UNSET
    download_rates: list[_Finite] | UnsetType = UNSET
    engine: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    partition: str | UnsetType = UNSET
    rates: list[_Finite] | UnsetType = UNSET
    rounds: int | UnsetType = UNSET
    rule: str | UnsetType = UNSET
    secure: bool | UnsetType = UNSET
    train_samples: int | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        for rates in (self.rates, self.download_rates):
            if rates and self.classes and len(rates) not in (1, len(self.classes)):
                raise ValueError(f"{len(rates)} rates for {len(self.classes)} classes")


class _Leak(msgspec.Struct):
    block: _Number


class _Subgroup(msgspec.Struct):
    user_class: _Count = msgspec.field(name="class")
    users: list[Any]


class _Cohort(msgspec.Struct):
    users: _Count
    inference_robustness: _Number
    byzantine_tolerance: _Count


class _Plan(msgspec.Struct):
    agree_quorum: _Count | UnsetType = UNSET
    byzantine_tolerance: _Count | UnsetType = UNSET
    class_levels: list[_Count] | UnsetType = UNSET
    clip_bias: _Number | UnsetType = UNSET
    cohorts: list[_Cohort] | UnsetType = UNSET
    design: str | UnsetType = UNSET
    dimension: _Count | UnsetType = UNSET
    dropout: _Number | UnsetType = UNSET
    failure_probability: _Number | UnsetType = UNSET
    inference_robustness: _Number | UnsetType = UNSET
    inference_robustness_exact: bool | UnsetType = UNSET
    leak_probability: _Leak | UnsetType = UNSET
    max_weight: _Amount | UnsetType = UNSET
    min_survivors: _Count | UnsetType = UNSET
    notes: list[str] | UnsetType = UNSET
    quantization_error: _Number | UnsetType = UNSET
    ranges: str | UnsetType = UNSET
    segments: Annotated[list[Annotated[list[list[_Count]], _Some]], _Some] | UnsetType = UNSET
    share_threshold: _Count | UnsetType = UNSET
    subgroups: list[_Subgroup] | UnsetType = UNSET
    users: _Count | UnsetType = UNSET
    value_range: tuple[_Finite, _Finite] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if not (self.subgroups is UNSET or self.segments is UNSET):
            named = {subgroup for segment in self.segments for block in segment for subgroup in block}
            if not named <= set(range(len(self.subgroups))):
                raise ValueError(f"blocks of other subgroups than the {len(self.subgroups)}")


class _Run(msgspec.Struct):
    config: _Config
    plan: _Plan
    command: str | None = None
    started: str | None = None
    version: str | None = None

    def __post_init__(self) -> None:
        if self.started is not None and datetime.fromisoformat(self.started).utcoffset() is None:
            raise ValueError("a time without its zone")


class _Ledger(msgspec.Struct):
    exposed_users: _Count
    exposed_pairs: _Count


class _Privacy(msgspec.Struct):
    clipping_norm: _Number | UnsetType = UNSET
    delta: _Number | UnsetType = UNSET
    epsilon_model: _Number | UnsetType | None = UNSET
    epsilon_server: _Number | UnsetType = UNSET
    error_in_clipping_norms: _Number | UnsetType = UNSET
    honest: _Count | UnsetType = UNSET
    simulated: bool | UnsetType = UNSET
    statement: str | UnsetType = UNSET


class _Round(msgspec.Struct):
    round: _Count
    accuracy: _Number | UnsetType | None = UNSET
    aggregate_error: _Number | UnsetType | None = UNSET
    aggregate_rms: _Number | UnsetType | None = UNSET
    clipping_warning: str | UnsetType | None = UNSET
    cohort_survivors: list[_Count] | UnsetType = UNSET
    dropped: dict[str, _Count] | UnsetType = UNSET
    error: _Error | UnsetType | None = UNSET
    failed_cohorts: dict[Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,9}$")], _Error] | UnsetType = UNSET
    faulty_blocks: _Count | UnsetType = UNSET
    inference_robustness: _Number | UnsetType | None = UNSET
    ledger: _Ledger | UnsetType | None = UNSET
    loss: _Number | UnsetType | None = UNSET
    missed_deadline: _Count | UnsetType = UNSET
    participants: _Count | UnsetType = UNSET
    privacy: _Privacy | UnsetType = UNSET
    refusals: _Count | UnsetType = UNSET
    round_seconds: _Amount | UnsetType = UNSET
    sent_bytes: dict[str, list[_Amount | None]] | UnsetType = UNSET
    server_seconds: dict[str, _Amount] | UnsetType = UNSET
    survivors: _Count | UnsetType = UNSET
    trips: _Count | UnsetType = UNSET
    upload_seconds: list[_Amount] | UnsetType = UNSET
    user_seconds: dict[str, _Amount] | UnsetType = UNSET
    wire_bytes: dict[str, _Amount] | UnsetType = UNSET

    def __post_init__(self) -> None:
        if self.sent_bytes and len({len(sizes) for sizes in self.sent_bytes.values()}) > 1:
            raise ValueError("not as many sizes in every phase")


class _Evaluation(msgspec.Struct):
    round: _Count
    accuracy: _Number | None = None
    loss: _Number | None = None


class _End(msgspec.Struct):
    budget: str | None = None
    seconds: _Amount | None = None


_KINDS = {"run": _Run, "round": _Round, "evaluation": _Evaluation, "end": _End}


def check_line(line: Mapping[str, Any]) -> None:
    """Refuse a line that no run writes; one of a kind that is not known is taken as it is.

    Args:
        line: The line, in the words of this version.

    Raises:
        ValueError: It lacks a value that it must have, or one has another type or size; the message says which.
    """
    if line["kind"] in _KINDS:
        msgspec.convert(line, _KINDS[line["kind"]])
    if line["kind"] == "run":
        msgspec.convert(line["config"], dict[str, _Scalar | list[_Scalar]])
