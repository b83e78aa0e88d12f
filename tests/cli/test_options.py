"""Flags that several commands share, and mistakes in them."""

import json
from pathlib import Path

import pytest
from cases import each
from command import run_command as run


@pytest.mark.parametrize("flag", ["--range", "--value-range"])
def test_a_range_has_one_name_for_every_command(flag: str) -> None:
    assert json.loads(run("plan", flag, "0.1", "--json").stdout)["value_range"] == [-0.1, 0.1]
    for command in ("optimize", "round", "train"):
        assert flag in run(command, "--help").stdout.replace(",", "").split()


@each("words", ["plan", "optimize --rates 1x20 --deadline 2", "round --cohort 24"])
def test_a_range_whose_squares_overflow_is_refused(words: str) -> None:
    done = run(*words.split(), "--range=-1,1e154", "--json", expect=2)
    assert "range: must be within -1000000000 and 1000000000, not '-1,1e154'" in done.stderr


def test_every_flag_arrives() -> None:
    words = (
        "plan --json --classes 12,15 --levels 3,9 --dimension 1000 --design paper-composite --subgroup-size 4 "
        "--range -0.5,2 --min-survivors 2 --dropout 0.25 --max-weight 3 --min-robustness 0.25 --colluders 1 "
        "--assignment-seed 9 --sharing complete"
    )
    summary = json.loads(run(*words.split()).stdout)
    assert summary["design"] == "paper-composite"
    assert summary["classes"] == [12, 15]
    assert summary["class_levels"] == [3, 9]
    assert summary["dimension"] == 1000
    assert len(summary["subgroups"]) == 6
    assert summary["value_range"] == [-0.5, 2.0]
    assert summary["min_survivors"] == 2
    assert summary["dropout"] == 0.25
    assert summary["max_weight"] == 3
    assert summary["min_robustness"] == 0.25
    assert summary["colluders"] == 1
    assert summary["subgroups"][0]["users"] != [0, 1, 2, 3]


def test_levels_fill_their_rings_unless_they_are_to_stay() -> None:
    words = ("plan", "--json", "--levels", "2,6,8,10,12")
    assert json.loads(run(*words).stdout)["levels"][0] == [2, 13, 13]
    assert json.loads(run(*words, "--no-fill-levels").stdout)["levels"][0] == [2, 8, 10]


def test_levels_follow_rates_and_a_deadline() -> None:
    words = [
        "plan",
        "--json",
        "--classes",
        "12,12",
        "--subgroup-size",
        "6",
        "--dimension",
        "1000",
        "--levels",
        "auto",
        "--rates",
        "1,8",
    ]
    found = [json.loads(run(*words, "--deadline", text).stdout)["class_levels"] for text in ("0.005", "0.01")]
    assert found[0][0] < found[0][1]
    assert found[0][0] < found[1][0]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("plan --classes 5,x", "classes: must be integers"),
        ("plan --range a,b", "range: must be numbers"),
        ("plan --min-survivors 9", "min_survivors: 9 is more than the 5 users"),
        ("plan --design paper --classes 5,5,5,5,5,5", "ask for design='paper-composite' by name"),
        ("plan --plan /no/such/file.toml", "cannot read /no/such/file.toml"),
        ("plan --save /no/such/dir/plan.toml", "heterosag: cannot write /no/such/dir/plan.toml: "),
        ("plan --save /no/such/dir/plan.toml", "; choose another file with --save"),
        ("plan --compare secagg,nonsense", "design: 'nonsense' is not one of"),
        ("plan --compare secagg,perfect --design paper", "leave --design out"),
        ("plan --levels 2,4,4,4,4 --rates 1,2,3,4,5", "rates: is what levels='auto' chooses from, and has no effect"),
        ("round --levels 2,4,4,4 --deadline 3", "deadline: is what levels='auto' chooses from, and has no effect"),
        ("round --design secagg --rule median", "the rule 'median' has no effect on one block"),
        ("round --classes 16 --subgroup-size 16 --rule trimmed_mean", "has no effect on one block"),
    ],
)
def test_mistakes_get_one_line_that_says_what_to_do(words: str, complaint: str) -> None:
    done = run(*words.split(), expect=2)
    assert complaint in done.stderr
    assert done.stderr.startswith("heterosag: ")
    assert done.stderr.count("\n") == 1
    assert "Traceback" not in done.stderr


def test_flags_beside_a_plan_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    run("plan", "--save", str(file))
    done = run("plan", "--plan", str(file), "--min-survivors", "2", expect=2)
    assert "--min-survivors cannot be given with --plan: change the value in the file" in done.stderr
    done = run("plan", "--plan", str(file), "--compare", "secagg,perfect", expect=2)
    assert done.stderr == "heterosag: --compare goes with the plan of the flags: leave --plan out\n"


def test_one_plan_of_several_is_not_saved(tmp_path: Path) -> None:
    done = run("plan", "--compare", "secagg,perfect", "--save", str(tmp_path / "plan.toml"), expect=2)
    assert "--save writes one plan: leave --compare out, and name its design with --design" in done.stderr
    assert not (tmp_path / "plan.toml").exists()
