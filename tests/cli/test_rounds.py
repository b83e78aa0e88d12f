"""`heterosag round` as a user runs it."""

import json
from pathlib import Path

import pytest
from command import run_command as run

ROUND = "round --classes 12,12 --levels 4,16 --dimension 500 --subgroup-size 4"


@pytest.mark.parametrize("extra", ["", "--identities"])
def test_a_round_in_json(extra: str) -> None:
    words = f"{ROUND} --drop share=1,mask=2,unmask=1 --malicious 1 --rule median --seed 3 --json {extra}"
    summary = json.loads(run(*words.split()).stdout)
    assert summary["exact"] is True
    assert summary["error"] is None
    assert summary["survivors"] == 20, "four of a subgroup's survivors may be two, which are left out"
    assert len(summary["malicious"]) == 1
    assert [len(users) for users in summary["dropped"].values()] == [0, 1, 2, 0, 1]
    assert [(row["class"], row["level"]) for row in summary["classes"]] == [(0, 4), (1, 16)]
    for row in summary["classes"]:
        assert row["vector_bytes"] < row["sent_bytes"]
    assert 0 < summary["error_rms"] < summary["mean_rms"]
    phases = [row["phase"] for row in summary["phases"]]
    assert phases == ["advertise", "share", "mask", *(["agree"] if extra else []), "unmask"]
    assert all(row["sent_bytes"]["max"] > 0 and row["server_seconds"] > 0 for row in summary["phases"])
    assert summary["error_rms"] < 0.2


def test_a_round_of_cohorts_in_json() -> None:
    words = f"{ROUND} --cohort 12 --drop mask=1 --assignment-seed 3 --json"
    summary = json.loads(run(*words.split()).stdout)
    assert summary["exact"] is True
    assert (summary["cohorts"], summary["users"], summary["survivors"]) == (2, 24, 23)
    assert summary["user_ms"] > 0
    assert summary["failed_cohorts"] == {}


def test_a_round_as_a_table() -> None:
    out = run(*ROUND.split(), "--drop", "mask=1").stdout
    assert "block sums against the plain integer sums: equal" in out
    assert "23 survivors" in out
    assert "advertise" in out
    plain = run(*ROUND.split(), "--plain").stdout
    assert "no cryptography" in plain


def test_a_round_that_fails_says_why_and_exits_with_one() -> None:
    done = run(*ROUND.split(), "--drop", "mask=14", expect=1)
    assert "TooFewSurvivorsError" in done.stdout
    summary = json.loads(run(*ROUND.split(), "--drop", "mask=14", "--json", expect=1).stdout)
    assert summary["error"]["kind"] == "TooFewSurvivorsError"
    assert "thresholds need 13" in summary["error"]["message"]
    malicious_user = json.loads(run(*ROUND.split(), "--malicious", "1", "--json", expect=1).stdout)
    assert malicious_user["error"]["kind"] == "FaultyBlockError"


def test_a_round_from_a_plan_file(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    run(
        "plan", "--classes", "8,8", "--levels", "2,4", "--dimension", "100", "--subgroup-size", "4", "--save", str(file)
    )
    summary = json.loads(run("round", "--plan", str(file), "--drop", "mask=1", "--json").stdout)
    assert summary["users"] == 16
    assert summary["exact"] is True
    done = run("round", "--plan", str(file), "--min-survivors", "2", expect=2)
    assert "--min-survivors cannot be given with --plan" in done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--drop mask", "takes phase=number"),
        ("--drop lunch=1", "before one of the phases"),
        ("--drop mask=99", "cannot hold 99 dropouts"),
        ("--malicious -1", "--malicious is at least 0, not -1"),
        ("--rounds 0", "--rounds is at least 1, not 0"),
        ("--rounds 2 --plain", "leave --plain out"),
        ("--cohort 1", "cohort_size: must be an integer of at least 2"),
        ("--cohort 2", "min_survivors: in cohort 0 of 12"),
        ("--cohort 12 --rounds 2", "--cohort goes with one round"),
        ("--drop share=²", "takes phase=number"),
        (f"--drop share={'9' * 5000}", "takes phase=number"),
        ("--seed -1", "--seed is an integer from 0 to 2^64-1, not -1"),
        ("--seed 18446744073709551616", "--seed is an integer from 0 to 2^64-1, not 18446744073709551616"),
        ("--rounds 1001", "--rounds is at most 1000, not 1001"),
        ("--rule krum", "'krum' is not one of 'mean'"),
    ],
)
def test_mistakes_in_a_round(words: str, complaint: str) -> None:
    done = run(*ROUND.split(), *words.split(), expect=2)
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr
