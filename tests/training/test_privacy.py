"""Runs within a privacy budget: their noise, their record, and their end."""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

from heterosag.aggregation.clipping import follow_norm
from heterosag.errors import BudgetError, UsageError
from heterosag.plan import Plan
from heterosag.privacy import NoisyRound, epsilon
from heterosag.protocol.rounding import Rounding
from heterosag.report.page import make_page
from heterosag.report.runs import summarise_run, summary_rows
from heterosag.storage.budget import FileBudget
from heterosag.storage.run_log import read_run
from heterosag.training.config import TrainConfig
from heterosag.training.epochs import build_plan, draw_members
from heterosag.training.privacy import RunBudget
from heterosag.training.runs import Run


def config_of(**change: Any) -> TrainConfig:
    given: dict[str, Any] = {"classes": (12,), "levels": (2,), "design": "secagg", "subgroup_size": 12, "rounds": 3}
    given |= {
        "epsilon": 8.0,
        "clip": 0.5,
        "train_samples": 200,
        "checkpoint_every": 2,
        "local_epochs": 1,
        "learning_rate": 0.1,
    }
    return TrainConfig(**given | change)


def one_diverges(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update of every round has an element that is not a number."""
    honest = run._updates

    def updates(number: int, members: list[int]) -> Any:
        found = honest(number, members)
        found[3, 5] = np.nan
        return found

    monkeypatch.setattr(run, "_updates", updates)


def test_the_noise_is_that_of_the_budget() -> None:
    config = config_of(rounds=20)
    plan = build_plan(config, [650])
    assert (plan.clipping_norm, plan.colluders) == (0.5, 1)
    assert plan.min_block_survivors == 12  # nobody is expected to drop out
    assert 7.5 < epsilon(plan, rounds=20, delta=1e-5) <= 8.0
    fewer = build_plan(config_of(dropout=0.1), [650])
    assert fewer.min_block_survivors < 12
    assert fewer.failure_probability() <= 0.01
    given = build_plan(config_of(min_block_survivors=9, attackers=2, attack="sign-flip"), [650])
    assert (given.min_block_survivors, given.honest) == (9, 7)


def test_a_run_records_both_epsilons_and_draws_its_noise_from_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Rounding, "from_seed", lambda *_: pytest.fail("noise from a seed"))
    run = Run(config_of(identities=True), tmp_path / "run")
    run.train()
    record = read_run(tmp_path / "run")
    spent = [line["privacy"] for line in record.rounds]
    for count, one in enumerate(spent, 1):
        assert one["epsilon_server"] == pytest.approx(epsilon(run.plan, rounds=count, delta=1e-5))
        assert one["epsilon_model"] == pytest.approx(epsilon(run.plan, rounds=count, delta=1e-5, view="model"))
    assert spent[-1]["honest"] == run.plan.honest
    assert "over 3 rounds" in spent[-1]["statement"]
    assert "malicious or curious" in spent[-1]["statement"]
    assert record.end is not None
    assert "budget" not in record.end
    page = make_page([record])
    assert "Epsilon over rounds" in page
    assert "Clipping norm over rounds" not in page
    assert spent[-1]["statement"] in page
    rows = dict(summary_rows([summarise_run(record)]))
    assert rows["epsilon: all sums, models only"][0].startswith(f"{spent[-1]['epsilon_server']:.2f}")
    assert rows["honest survivors of a block, clipping norm, error in clipping norms"][0].startswith("11, 0.5, ")


def test_nothing_exact_of_the_updates_is_recorded_beside_an_epsilon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(config_of(rounds=1), tmp_path / "run")
    one_diverges(run, monkeypatch)
    run.train()
    record = read_run(tmp_path / "run")
    [line] = record.rounds
    assert (line["aggregate_error"], line["aggregate_rms"], line["diverged"]) == (None, None, None)
    assert line["clipped_fraction"] is None
    summary = summarise_run(record)
    assert (summary["aggregate_error"], summary["relative_error"]) == (None, None)
    assert "error of the aggregate" not in dict(summary_rows([summary]))
    assert "Error of the aggregate" not in make_page([record])


def test_rounds_that_are_done_again_are_charged_again_and_the_run_ends_at_its_budget(tmp_path: Path) -> None:
    """Its checkpoint is of round 2; the vectors of round 3 have left, and the record of that round is cut."""

    class StopError(Exception):
        pass

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 3:
            raise StopError

    config = config_of(rounds=4)
    run = Run(config, tmp_path / "run")
    run._save = lambda: None  # type: ignore[method-assign]
    with pytest.raises(StopError):
        run.train(stop)
    fresh = Run(config, tmp_path / "other")
    fresh._save()
    fresh.close()
    (tmp_path / "run" / "checkpoint.safetensors").write_bytes(
        (tmp_path / "other" / "checkpoint.safetensors").read_bytes()
    )
    again = Run.resume(tmp_path / "run")
    again.train()
    record = read_run(tmp_path / "run")
    assert record.end is not None
    assert len(record.rounds) == record.end["rounds"] < 4
    assert "this round would exceed" in record.end["budget"]
    assert record.rounds[-1]["privacy"]["epsilon_server"] <= 8.0


def test_the_view_of_the_model_needs_less_noise_and_is_kept_too(tmp_path: Path) -> None:
    blocks: dict[str, Any] = {"classes": (48,), "design": "perfect", "subgroup_size": 8, "min_block_survivors": 12}
    server, model = (build_plan(config_of(**blocks, view=view, rounds=20), [9000]) for view in ("server", "model"))
    assert model.noise_multiplier < server.noise_multiplier
    assert 7.5 < epsilon(NoisyRound.of(model), rounds=20, delta=1e-5, view="model") <= 8.0
    budget = RunBudget(config_of(view="model", rounds=20), tmp_path)
    for _ in range(20):
        spent = budget.charge(model, range(48))
    assert spent["epsilon_model"] <= 8.0 < spent["epsilon_server"]
    with pytest.raises(BudgetError):
        budget.charge(model, range(48))


def test_a_rule_other_than_the_mean_has_no_epsilon_of_the_model(tmp_path: Path) -> None:
    spent = RunBudget(config_of(rule="median"), tmp_path).charge(build_plan(config_of(), [650]), range(12))
    assert spent["epsilon_model"] is None


def test_without_cryptography_nothing_is_claimed(tmp_path: Path) -> None:
    Run(config_of(secure=False, rounds=1), tmp_path / "run").train()
    record = read_run(tmp_path / "run")
    [line] = record.rounds
    assert line["privacy"]["simulated"]
    assert line["privacy"]["statement"].startswith("simulated, no privacy")
    assert dict(summary_rows([summarise_run(record)]))["epsilon: all sums, models only"] == ["simulated, no privacy"]


def test_an_update_that_is_not_finite_takes_part_as_noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run(config_of(secure=False, rounds=1), tmp_path / "run")
    one_diverges(run, monkeypatch)
    run.train()
    [line] = read_run(tmp_path / "run").rounds
    assert (line["survivors"], line["error"]) == (12, None)
    assert np.isfinite(run.vector).all()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"range_rule": "minmax"}, "range follows from the noise"),
        ({"value_range": 0.1}, "range follows from the noise"),
        ({"view": "model", "rule": "median"}, "about the mean"),
        ({"epsilon": 0.0}, "epsilon is above 0"),
        ({"delta": 0.0}, r"delta is a probability above 0 and below 1, not 0\.0"),
        ({"clip": 0.0}, r"clip is above 0, not 0\.0"),
        ({"epsilon": None, "view": "model"}, "give epsilon too"),
        ({"epsilon": None, "min_block_survivors": 9}, "give epsilon too"),
        ({"epsilon": None, "adaptive_clip": True}, "give epsilon too"),
    ],
)
def test_settings_that_do_not_go_with_a_budget(change: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        dataclasses.replace(config_of(), **change)


def test_the_plan_goes_on_without_faulty_users(tmp_path: Path) -> None:
    run = Run(config_of(min_block_survivors=9), tmp_path / "run")
    run._go_on(dataclasses.replace(run._state, faulty=(3,)))
    run.close()
    assert isinstance(run.plan, Plan)
    assert (len(run.plan.users), run.plan.noise_multiplier > 0, run.plan.honest) == (11, True, 8)


def test_the_clipping_norm_follows_and_its_bit_is_paid_for(tmp_path: Path) -> None:
    config = config_of(adaptive_clip=True, clip=20.0, secure=False)
    plain, plan = (build_plan(config_of(adaptive_clip=bit, levels=(6,)), [650]) for bit in (False, True))
    assert plan.adaptive_clip
    assert plain.noise_multiplier < plan.noise_multiplier < 1.3 * plain.noise_multiplier
    assert 7.0 < epsilon(plan, rounds=3, delta=1e-5) <= 8.0
    Run(config, tmp_path / "run").train()
    record = read_run(tmp_path / "run")
    assert "Clipping norm over rounds" in make_page([record])
    lines = [line["privacy"] for line in record.rounds]
    assert lines[0]["clipping_norm"] == 20.0 > lines[1]["clipping_norm"] > lines[2]["clipping_norm"]
    for before, after in pairwise(lines):
        moved = follow_norm(before["clipping_norm"], before["within_norm"])
        assert after["clipping_norm"] == pytest.approx(moved)
        assert after["noise_multiplier"] == before["noise_multiplier"]


def test_a_run_that_goes_on_has_the_clipping_norm_it_had(tmp_path: Path) -> None:
    run = Run(config_of(adaptive_clip=True, clip=20.0, secure=False), tmp_path / "run")
    line, after = run._round(1)
    run._writer.write("round", line)
    run._go_on(after)
    run._save()
    run.close()
    again = Run.resume(tmp_path / "run")
    again.close()
    assert again._state.half_width == after.half_width < 20.0


def test_with_partial_participation_a_user_is_charged_for_its_own_rounds(tmp_path: Path) -> None:
    flipped: dict[str, Any] = {"attack": "sign-flip", "attackers": 2, "rounds": 6, "seed": 1}
    config = config_of(classes=(24,), participation=0.5, **flipped)
    drawn = [draw_members(config, number)[0] for number in range(1, 7)]
    counts = Counter(user for members in drawn for user in members)
    most = max(counts.values())
    assert most < 6
    run = Run(config, tmp_path / "run")
    assert len(run.plan.users) == 12
    assert run.plan.noise_multiplier < build_plan(config_of(**flipped), [650]).noise_multiplier
    run.train()
    record = read_run(tmp_path / "run")
    assert len(record.rounds) == 6
    spent = [line["privacy"] for line in record.rounds]
    for number, one in enumerate(spent, 1):
        rounds = max(Counter(user for members in drawn[:number] for user in members).values())
        assert one["epsilon_server"] == pytest.approx(epsilon(run.plan, rounds=rounds, delta=1e-5))
    assert f"over {most} rounds" in spent[-1]["statement"]
    kept = [FileBudget(tmp_path / "run" / "privacy" / f"user-{user}").rounds for user in range(24)]
    assert kept == [counts[user] for user in range(24)]
    with pytest.raises(BudgetError):
        RunBudget(config, tmp_path / "run").charge(run.plan, [*range(24)])
    assert kept == [FileBudget(tmp_path / "run" / "privacy" / f"user-{user}").rounds for user in range(24)]


def test_attackers_are_among_all_users_of_a_run_with_partial_participation(tmp_path: Path) -> None:
    run = Run(config_of(classes=(24,), participation=0.5, attack="sign-flip", attackers=4), tmp_path / "run")
    run.close()
    assert len(run.plan.users) == 12 <= max(run.attackers)
    run._go_on(dataclasses.replace(run._state, faulty=(3,)))
    assert len(run.plan.users) == 12


def test_cohorts_have_one_noise_and_their_budget_holds_in_each(tmp_path: Path) -> None:
    config = config_of(classes=(25,), cohort=13, rounds=2)
    run = Run(config, tmp_path / "run")
    assert [len(plan.users) for plan in run.plan.plans] == [13, 12]
    run.train()
    spent = [line["privacy"] for line in read_run(tmp_path / "run").rounds]
    assert spent[-1]["epsilon_server"] <= 8.0
    for plan in run.plan.plans:
        assert epsilon(plan, rounds=2, delta=1e-5) <= spent[-1]["epsilon_server"] + 1e-9
    assert spent[-1]["honest"] == run.plan.honest
    assert "over 2 rounds" in spent[-1]["statement"]
    assert read_run(tmp_path / "run").end == {**read_run(tmp_path / "run").end, "rounds": 2}  # type: ignore[dict-item]
