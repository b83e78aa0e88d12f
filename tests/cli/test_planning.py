"""`heterosag plan` and `heterosag optimize` as a user runs them."""

import json
import shlex
from pathlib import Path

import pytest
from command import run_command as run

from heterosag.cli.application import EXAMPLES

KEYS = {
    "design", "subgroups", "segments", "levels", "bits", "inference_robustness", "byzantine_tolerance",
    "leak_probability", "failure_probability", "upload_bits", "expansion", "notes",
}  # fmt: skip


def test_plan_prints_a_table_and_the_matrix() -> None:
    out = run("plan").stdout
    assert "25 users, 5 subgroups, 5 segments, 79,510 elements" in out
    assert "inference robustness" in out
    assert "0.8000" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["0", "0", "0", "2", "*", "2"] in lines


def test_plan_says_that_it_is_of_the_defaults_where_nothing_was_asked_for() -> None:
    assert run("plan").stdout.startswith("no flags: this is the plan of the defaults; ")
    for words in ("plan --classes 5,5,5,5,5", "plan --json"):
        assert "no flags" not in run(*words.split()).stdout


def test_plan_in_json_has_every_key() -> None:
    summary = json.loads(run("plan", "--json").stdout)
    assert summary.keys() >= KEYS
    assert summary["leak_probability"].keys() >= {"one", "any", "with_min_survivors"}
    assert summary["upload_bits"] == sorted(summary["upload_bits"])
    assert summary["class_levels"] == [4, 26, 26, 26, 26]
    paper = json.loads(run("plan", "--json", "--levels", "2,6,8,10,12", "--no-fill-levels").stdout)
    assert paper["upload_bits"] == [302138, 429354, 477060, 477060, 477060]


def test_save_and_load(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    made = json.loads(run("plan", "--classes", "8,8", "--levels", "2,4", "--save", str(file), "--json").stdout)
    loaded = json.loads(run("plan", "--plan", str(file), "--json").stdout)
    assert loaded == made
    assert json.loads(run("plan", "--plan", str(file), "--dropout", "0.2", "--json").stdout)["dropout"] == 0.2


def test_compare_shows_designs_side_by_side() -> None:
    words = "plan --classes 24,24,24,24 --levels 2,6,8,12 --subgroup-size 8 --compare secagg,paper-composite,perfect"
    out = run(*words.split()).stdout
    assert "secagg" in out
    assert "claims a robustness of 0.8333 here; it is 0.5" in " ".join(out.split())
    plans = json.loads(run(*words.split(), "--json").stdout)["plans"]
    assert [plan["design"] for plan in plans] == ["secagg", "paper-composite", "perfect"]


def test_plans_of_cohorts_in_json() -> None:
    split = json.loads(run("plan", "--classes", "12,12", "--levels", "2,4", "--cohort", "12", "--json").stdout)
    assert [one["classes"] for one in split["cohorts"]] == [[6, 6], [6, 6]]
    words = "optimize --rates 0.5x12,2x12 --dimension 2000 --deadline 0.1 --cohort 12"
    found = json.loads(run(*words.split(), "--json").stdout)
    assert [one["users"] for one in found["plan"]["cohorts"]] == [12, 12]
    assert "24 users in 2 cohorts" in run(*words.split()).stdout
    assert "--cohort goes with the plan of the flags" in run("plan", "--cohort", "9", "--save", "x", expect=2).stderr
    assert "plan for the --users of one" in run("optimize", "--epsilon", "8", "--cohort", "9", expect=2).stderr


def test_optimize_finds_a_plan_that_the_other_commands_take(tmp_path: Path) -> None:
    words = ["optimize", "--rates", "0.5x8,2x8", "--dimension", "2000", "--deadline", "0.1", "--json"]
    found = json.loads(run(*words, "--save", str(tmp_path / "plan.toml")).stdout)
    assert found["lower_bound"] <= found["error"]
    assert found["error"] == pytest.approx(found["plan"]["quantization_error"] + found["plan"]["clip_bias"])
    assert max(found["upload_seconds"]) <= 0.1
    assert found["order"] == list(range(16))
    done = json.loads(run("round", "--plan", str(tmp_path / "plan.toml"), "--json").stdout)
    assert done["exact"] is True
    shown = run(*words[:-1]).stdout
    assert "error of the mean at most" in shown
    assert "what to do next:" in shown
    assert "what would help most" in shown


def test_rates_from_a_file_and_a_distribution(tmp_path: Path) -> None:
    (tmp_path / "rates.csv").write_text("user,rate\na,0.5\nb,2\n" + "".join(f"u{n},1\n" for n in range(10)))
    words = ["optimize", "--dimension", "2000", "--deadline", "0.5", "--json", "--rates"]
    assert json.loads(run(*words, str(tmp_path / "rates.csv")).stdout)["plan"]["users"] == 12
    assert json.loads(run(*words, "lognormal:2:0.5:40").stdout)["plan"]["users"] == 40
    (tmp_path / "bad.csv").write_text("user,rate\na,0.5\nb,2 Mb\n")
    assert "line 3 of" in run(*words, str(tmp_path / "bad.csv"), expect=2).stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--deadline 1", "needs the users' upload rates"),
        ("--rates 1x9", "give a deadline"),
        ("--rates 1xx9 --deadline 1", "rates are numbers"),
        ("--rates lognormal:1 --deadline 1", "lognormal:MEDIAN"),
        ("--rates 1x9 --deadline 0.0001", "contradict each other"),
        ("--from nowhere", "holds no run"),
        ("--from nowhere --rates 1x9", "--from takes rates"),
        ("--from nowhere --dimension 99", "--from takes rates"),
        ("--rates 1x9 --deadline 1 --range=-1", "in rising order"),
        ("--rates lognormal:1:1000:50 --deadline 1", "is too large: it is the standard deviation of the logarithm"),
        ("--rates 1x1000000000 --deadline 1", "names no number of users from 1 to 100,000"),
    ],
)
def test_requirements_that_cannot_be_met_say_why(words: str, says: str) -> None:
    done = run("optimize", *words.split(), expect=2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_optimize_finds_a_private_plan(tmp_path: Path) -> None:
    words = ["optimize", "--epsilon", "8", "--delta", "1e-5", "--rounds", "20", "--clip", "0.5", "--users", "60"]
    words += ["--dimension", "900"]
    found = json.loads(run(*words, "--json", "--save", str(tmp_path / "plan.toml")).stdout)
    assert found["epsilon_server"] <= 8
    assert found["chosen"]["subgroups"] == 1
    assert found["plan"]["value_range"] == [-0.5, 0.5]
    assert all(one["error"] > found["error_in_clipping_norms"] for one in found["others"])
    done = json.loads(run("round", "--plan", str(tmp_path / "plan.toml"), "--json").stdout)
    assert done["exact"] is True
    shown = run(*words).stdout
    assert "against whoever sees all sums" in shown
    assert "differential privacy" in shown
    by_rates = json.loads(run(*words[:9], "--rates", "1x60", "--dimension", "900", "--json").stdout)
    assert by_rates["chosen"] == found["chosen"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        pytest.param("--epsilon 8 --rounds 20 --users 96", "much of the accuracy is lost", marks=pytest.mark.slow),
        ("--epsilon 8 --deadline 3", "--deadline does not go with --epsilon: leave one of them out"),
        ("--epsilon 8 --delta 1e-6 --bits 3", "--bits does not go with --epsilon"),
        ("--epsilon 8 --ranges single", "--ranges does not go with --epsilon"),
        ("--epsilon 8 --value-range 1", "--range does not go with --epsilon"),
        ("--epsilon 8 --from nowhere", "--from does not go with --epsilon"),
        ("--rates 1x9 --deadline 1 --clip 3", "--clip goes with --epsilon: give that too, or leave --clip out"),
        ("--delta 1e-6", "--delta goes with --epsilon: give that too"),
        ("--epsilon 8 --rates 1x50 --users 60", "--rates says how many users there are: leave --users out"),
        ("--epsilon 8 --clip 0", "clip is a positive number"),
        ("--epsilon 8 --users 3", "users is at least 4, not 3"),
    ],
)
def test_private_requirements_that_cannot_be_met_say_why(words: str, says: str) -> None:
    done = run("optimize", *words.split(), expect=2)
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_better_plan_from_a_run(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    words = (
        "train --classes 8,8 --levels 2,4 --rates 0.2,2 --subgroup-size 4 --min-survivors 2 --rounds 2 --no-secure "
        "--quiet"
    )
    run(*words.split(), "--out", str(tmp_path / "run"))
    found = json.loads(run("optimize", "--from", str(tmp_path / "run"), "--json").stdout)
    assert found["error"] < found["error_before"]
    assert found["plan"]["users"] == 16
    assert "the plan of the run" in run("optimize", "--from", str(tmp_path / "run")).stdout


@pytest.mark.parametrize("example", [*EXAMPLES["optimize"], *EXAMPLES["plan"]])
def test_the_examples_of_the_help_do_what_they_show(example: str, tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text("rate\n" + "0.5\n2\n8\n" * 20)
    _, *words = shlex.split(example)
    assert run(*words, cwd=tmp_path).stdout
    saved = tmp_path / "p.toml"
    assert saved.exists() is ("--save" in words)
    if words[0] == "optimize" and saved.exists():  # the example of train goes on with it
        assert "3,610 elements" in run("plan", "--plan", str(saved)).stdout
