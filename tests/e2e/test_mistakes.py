"""The likeliest mistakes, and that each message says what to do about it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from heterosag import Plan, Simulation, aggregate
from heterosag.errors import HeteroSagError
from heterosag.planner import read_rates
from heterosag.protocol import RoundId
from heterosag.storage.identities import load_identity, make_identity
from heterosag.storage.run_log import read_run


def plan(**changes: Any) -> Plan:
    return Plan.build(
        **{"classes": [8, 8], "levels": [4, 8], "dimension": 100, "value_range": 1.0, "subgroup_size": 4} | changes
    )


def updates(value: float = 0.1, count: int = 100) -> np.ndarray:
    return np.full((16, count), value)


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "one level for two classes": (lambda: plan(levels=[4]), "2 classes need 2 levels, not 1"),
    "fast class first": (lambda: plan(levels=[8, 4]), "classes are listed slowest first, so use at least 8"),
    "an array for a list": (lambda: plan(classes=np.array([8, 8])), r"must be a list .* like \[8, 8\]"),
    "an array for a number": (lambda: plan(dimension=np.array([30])), r"must be an integer .* not array"),
    "a weight of nothing": (lambda: aggregate(plan(), updates(), weights=[0] * 16), "from 1 to 1, not 0$"),
    "too few users": (
        lambda: plan(classes=[2], levels=[4]),
        "3 is more than the 2 users of the smallest block: add users, or lower it",
    ),
    "a design that is not": (lambda: plan(design="best"), "is not one of perfect, paper"),
    "updates of another model": (lambda: aggregate(plan(), updates(count=50)), "build it with dimension=50"),
    "one row too few": (lambda: aggregate(plan(), updates()[1:]), "16 users, but there are 15 updates"),
    "training diverged": (
        lambda: aggregate(plan(), updates(np.nan)),
        "100 of 100 values are NaN or infinite, the first at place 0",
    ),
    "keys as text": (lambda: aggregate(plan(), {"0": updates()[0]}), "16 users: 0, 1, 2, ..."),
    "somebody forgotten": (lambda: aggregate(plan(), {0: updates()[0]}), "give one, or name it in dropped"),
    "unplanned weights": (lambda: aggregate(plan(), updates(), weights=[2] * 16), "with a larger max_weight"),
    "unplanned metrics": (
        lambda: aggregate(plan(), updates(), metrics={user: {"loss": 1.0} for user in range(16)}),
        "build it with the metrics you give",
    ),
    "a list of dropouts": (
        lambda: aggregate(plan(), updates(), simulate=Simulation(dropped=[3])),
        r"like \{3: 'mask'\}",
    ),  # type: ignore[arg-type]
    "a phase that is not": (
        lambda: aggregate(plan(), updates(), simulate=Simulation(dropped={3: "training"})),
        "one of the phases advertise, share, mask, agree, unmask",
    ),
    "a rule that is not": (lambda: aggregate(plan(), updates(), rule="krum"), "choose one of mean, "),
    "a session of text": (lambda: RoundId(session="monday"), "session is bytes, not 'monday'"),  # type: ignore[arg-type]
    "a file of rates that is not": (lambda: read_rates("links.csv"), "'links.csv', which is no file either"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_what_to_do(mistake: str) -> None:
    action, words = MISTAKES[mistake]
    with pytest.raises(HeteroSagError, match=words):
        action()


def test_a_malicious_user_under_the_mean_is_told_which_rules_tolerate_it() -> None:
    rows = updates()
    rows[0] = 9.67  # sixteen levels up: a block of eight with four levels adds up to some 28, and honest ones to 24
    with pytest.raises(HeteroSagError, match="median and trimmed_mean can"):
        aggregate(plan(), rows, simulate=Simulation(malicious=[0], rounding_seed=0), rule="mean")


def test_mistakes_with_files(tmp_path: Path) -> None:
    with pytest.raises(HeteroSagError, match=r"holds no run$"):
        read_run(tmp_path)
    (tmp_path / "monday").mkdir()
    (tmp_path / "monday" / "record.jsonl").write_text("{}", encoding="utf-8")
    with pytest.raises(HeteroSagError, match="holds no run: its runs are monday"):
        read_run(tmp_path)
    make_identity(tmp_path / "key")
    with pytest.raises(HeteroSagError, match="is there already and is not written over"):
        make_identity(tmp_path / "key")
    with pytest.raises(HeteroSagError, match=r"cannot read .*nothing"):
        load_identity(tmp_path / "nothing")


def test_a_misspelt_setting_is_guessed() -> None:
    from heterosag.training.config import TrainConfig

    with pytest.raises(HeteroSagError, match="no setting is called 'clases': did you mean 'classes'"):
        TrainConfig.from_toml("clases = [8]")
    with pytest.raises(HeteroSagError, match="there are "):
        TrainConfig.from_toml("xyzzy = 1")
    with pytest.raises(HeteroSagError, match="2 classes need 2 levels, not 1"):
        TrainConfig.from_toml("classes = [8, 8]\nlevels = [4]")
