"""Sweeps are fitted by what they were made of: keys, quantizing and packing do not hide how masks grow."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")


from heterosag.plan import Plan
from reproduction import scaling
from reproduction.computation import Measured, measure_round
from reproduction.fits import Estimate
from reproduction.outcome import Holds, Outcome, Scale
from reproduction.running import Job

PLAN = Plan.build([16], [2], 64, value_range=1.0, subgroup_size=8)


def play(monkeypatch: pytest.MonkeyPatch, masks: Callable[[str, int], float], *, server: float = 1.0) -> Outcome:
    """The item on made-up rounds: so many masks an element by design and users, 50 microseconds a key, 2 ns a bit."""

    def made_up(design: str, users: int, size: int, seed: int, *, subgroup_size: int) -> Measured:
        del seed, subgroup_size
        slow = server if design == "paper-composite" else 1.0
        return Measured(
            plan=PLAN,
            phases={"share": 1e-6 * users**2, "mask": 5e-5 * users + size * (2e-9 + 1e-10 * masks(design, users))},
            server=slow * 1e-9 * users * (1000 + size),
            sent=100 * users + size / 8,
            handled=users * (100 * users + size / 8),
        )

    monkeypatch.setattr(scaling, "measure_round", made_up)
    return scaling.proposition_2(Job(scale=Scale.TINY, seed=0, folder=Path(), say=lambda line: None))


def count_masks(design: str, users: int) -> float:
    return {"secagg": float(users), "paper-composite": 16.0, "multigroup": 0.0}[design]


def test_the_proposition_is_found_true_where_it_was_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    found = play(monkeypatch, count_masks)
    assert [verdict.holds for verdict in found.verdicts] == [Holds.YES] * 4
    assert found.values["secagg_masks"] == pytest.approx(1)
    assert found.values["heterosag_masks"] == pytest.approx(0, abs=1e-6)
    assert "masking nowhere" in found.text[2]
    masks = {row[0]: row[1:] for row in found.tables[1].rows}
    assert masks["16"] == ("1.60", "1.60")
    assert masks["one user more, ps"][0].startswith("100.00 ")


@pytest.mark.parametrize(("power", "holds"), [(0.32, Holds.PARTLY), (0.59, Holds.PARTLY), (1.0, Holds.NO)])
def test_other_slopes_are_not_what_is_claimed(monkeypatch: pytest.MonkeyPatch, power: float, holds: Holds) -> None:
    def masks(design: str, users: int) -> float:
        return {"secagg": float(users), "paper-composite": users**power, "multigroup": 0.0}[design]

    assert play(monkeypatch, masks).verdicts[0].holds is holds


def test_where_heterosag_is_slower_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    found = play(monkeypatch, count_masks, server=1.5)
    assert "the server in 12 of 12 places" in found.text[2]
    assert "(1.50 times SecAg's)" in found.text[2]


def test_a_cost_is_linear_unless_its_exponent_is_above_one() -> None:
    """Seconds may be a little above: vectors outgrow the caches, and on a quiet machine the interval is narrow."""
    one: Any = scaling._linear
    assert one(Estimate(value=0.8, error=0.05), 0.01)
    assert one(Estimate(value=1.1, error=0.05), 0.01)
    assert not one(Estimate(value=1.2, error=0.05), 0.01)
    assert not one(Estimate(value=1.08, error=0.01), 0.01)
    assert one(Estimate(value=1.08, error=0.01), 0.1)
    assert not one(Estimate(value=1.2, error=0.03), 0.1)


def test_a_round_is_measured_by_phase_and_in_bytes() -> None:
    found = measure_round("paper-composite", 24, 500, 0, subgroup_size=8)
    assert found.user == pytest.approx(sum(found.phases.values()))
    assert found.phase("mask") > 0
    assert found.server > 0
    assert found.handled > 24 * found.sent / 2 > 500 * 24 / 8 / 2
    assert replace(found, phases={}).user == 0
