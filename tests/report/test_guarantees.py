"""What is guaranteed and exposed, in words."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from records import begin_run, write_cohorts, write_round, write_run

from heterosag.plan import Plan
from heterosag.plan.summary import summarise
from heterosag.report.guarantees import describe_guarantees
from heterosag.storage.run_log import RunRecord, read_run


def words_of(run: RunRecord) -> dict[str, str]:
    return dict(describe_guarantees(run))


def test_a_round_says_how_many_users_a_sum_has_and_how_much_it_exposes(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 2)
    words = words_of(run)
    assert "No sum over fewer than 3 survivors of a subgroup is unmasked" in words["One user's update"]
    exposed = f"at most {1 - run.plan['inference_robustness']:.1%} of the segments"
    assert "cut into 5 segments, and in each the server sees sums of 8 users" in words["A round"]
    assert exposed in words["A round"]
    assert "worst round" not in words["A round"]
    least = replace(run, rounds=(run.rounds[0], run.rounds[1] | {"inference_robustness": 0.5}))
    assert "50.0% in the worst round of this run" in words_of(least)["A round"]


def test_one_block_exposes_one_sum(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 1)
    one = Plan.build([24], [8], 1000, value_range=1.0, design="secagg")
    assert "one sum of all 24 users" in words_of(replace(run, plan=summarise(one)))["A round"]
    assert "segments" in words_of(write_cohorts(tmp_path / "two"))["A round"]


@pytest.mark.parametrize(
    ("ledger", "said"),
    [
        (None, "Nobody kept account"),
        ({"exposed_users": 0, "exposed_pairs": 0}, "isolate no user and no pair"),
        ({"exposed_users": 1, "exposed_pairs": 2}, "isolate 1 user and 2 pairs"),
    ],
)
def test_all_rounds_together_say_whom_differences_isolate(
    ledger: dict[str, Any] | None, said: str, tmp_path: Path
) -> None:
    writer = begin_run(tmp_path / "one")
    write_round(writer, 1, 0.1, ledger=ledger)
    writer.close()
    assert said in words_of(read_run(tmp_path / "one"))["All rounds together"]


def test_the_mean_tolerates_nobody(tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 1)
    assert words_of(run)["Malicious users"] == "The median of the blocks tolerates one, wherever it is."
    mean = replace(run, config=run.config | {"rule": "mean"})
    assert words_of(mean)["Malicious users"].startswith("The mean tolerates none;")
    two = replace(run, config=run.config | {"rule": "trimmed_mean"}, plan=run.plan | {"byzantine_tolerance": 2})
    assert words_of(two)["Malicious users"].endswith("the median tolerates 2, wherever they are.")


@pytest.mark.parametrize("design", ["perfect", "secagg"])
def test_a_plain_run_hides_nothing_and_says_what_its_plan_would(design: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "one", 1)
    plan = Plan.build([24], [8], 1000, value_range=1.0, subgroup_size=4, design=design)
    secure = replace(run, plan=summarise(plan))
    plain = words_of(replace(secure, config=run.config | {"secure": False}))
    assert "This run" not in words_of(secure)
    assert next(iter(plain)) == "This run"
    assert plain["This run"].startswith("Nothing was hidden: ")
    assert plain["One user's update"].startswith("The server would never see it.")
    assert "survivors of a subgroup would be unmasked" in plain["One user's update"]
    assert "the server would see" in plain["A round"].lower()
    assert "could rebuild the secrets" in plain["Dropouts"]
    assert "fewer would learn nothing" in plain["Dropouts"]
    assert "would have to agree" in plain["Dropouts"]
    assert plain["Malicious users"] == words_of(secure)["Malicious users"]  # the rule is the same in plaintext
    for claim in ("never sees", " is unmasked", "server sees", "it learns", "fewer learn", "must agree"):
        assert claim not in " ".join(plain.values())
