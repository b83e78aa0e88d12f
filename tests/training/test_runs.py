"""Runs: who is left out, and what a record says."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")


from heterosag.storage.run_log import read_run
from heterosag.training.config import TrainConfig
from heterosag.training.runs import Run


@pytest.mark.parametrize("range_rule", ["adaptive", "minmax"])
def test_training_that_diverges_is_a_dropout_and_named(range_rule: str, tmp_path: Path) -> None:
    config = TrainConfig(
        classes=(8,), levels=(16,), subgroup_size=4, rounds=2, learning_rate=1e38, local_epochs=3, secure=False,
        range_rule=range_rule,
    )  # fmt: skip
    Run(config, tmp_path / "run").train()
    lines = read_run(tmp_path / "run").rounds
    assert len(lines) == 2
    assert lines[0]["diverged"] > 0
    assert "diverged: lower learning_rate" in lines[0]["error"]["message"]


def test_every_line_of_a_record_fingerprints_the_model(tmp_path: Path) -> None:
    config = TrainConfig(classes=(8,), levels=(4,), subgroup_size=4, rounds=3, secure=False)
    Run(config, tmp_path / "one").train()
    Run(config, tmp_path / "two").train()
    one, two = (read_run(tmp_path / name).rounds for name in ("one", "two"))
    assert [line["model"] for line in one] == [line["model"] for line in two]
    assert len({line["model"] for line in one}) == 3


@pytest.mark.parametrize("rule", ["median", "mean"])
def test_a_user_who_dealt_false_shares_is_left_out_afterwards(
    rule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The median goes on without its subgroup, the mean loses one round; the next plan is without it, and a run that
    goes on later knows."""
    from heterosag.crypto.keys import RoundSecrets
    from heterosag.protocol.client import Client, Polynomials

    honest = Client.share

    def share(self: Client, message: bytes, **options: Any) -> bytes:
        if self.user == 30:
            options["polynomials"] = Polynomials.draw(self.plan, RoundSecrets.generate())
        return honest(self, message, **options)

    monkeypatch.setattr(Client, "share", share)
    config = TrainConfig(
        classes=(12, 20), levels=(4, 8), rule=rule, subgroup_size=4, rounds=3, train_samples=300, checkpoint_every=2
    )  # type: ignore[arg-type]

    class StopError(Exception):
        pass

    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise StopError

    with pytest.raises(StopError):
        Run(config, tmp_path / "run").train(stop)
    run = Run.resume(tmp_path / "run")
    run.train()
    assert 30 not in run.plan.users
    first, second, third = read_run(tmp_path / "run").rounds
    assert (first["error"] is None) == (rule == "median")
    assert [line["faulty_users"] for line in (first, second, third)] == [[30], [], []]
    assert [line["participants"] for line in (first, second, third)] == [32, 31, 31]
    assert [line["survivors"] for line in (second, third)] == [31, 31]
    assert third["ledger"]["rounds"] == 1, "the same survivors twice, in an epoch of their own"


def test_a_class_of_faulty_users_only_is_not_planned_for(tmp_path: Path) -> None:
    config = TrainConfig(classes=(1, 12), levels=(4, 8), design="secagg", subgroup_size=13, train_samples=300, rounds=1)
    run = Run(config, tmp_path / "run")
    run._go_on(dataclasses.replace(run._state, faulty=(0,)))
    assert (run.plan.classes, run.plan.levels, run.plan.users) == ((12,), (8,), tuple(range(1, 13)))
    run.train()
    assert read_run(tmp_path / "run").rounds[0]["survivors"] == 12
