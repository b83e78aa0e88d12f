"""The command line as a user runs it."""

import json
from pathlib import Path

import pytest
from command import run_command as run

KEYS = {
    "design", "subgroups", "segments", "levels", "bits", "inference_robustness", "byzantine_tolerance",
    "leak_probability", "failure_probability", "upload_bits", "expansion", "notes",
}  # fmt: skip


def test_version_and_help() -> None:
    import heterosag

    assert run("--version").stdout == f"heterosag {heterosag.__version__}\n"
    assert "plan" in run("--help").stdout
    assert "--subgroup-size" in run("plan", "--help").stdout


def test_plan_prints_a_table_and_the_matrix() -> None:
    out = run("plan").stdout
    assert "25 users, 5 subgroups, 5 segments, 79,510 elements" in out
    assert "inference robustness" in out
    assert "0.8000" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["0", "0", "0", "2", "*", "2"] in lines


@pytest.mark.parametrize("flag", ["--range", "--value-range"])
def test_a_range_has_one_name_for_every_command(flag: str) -> None:
    assert json.loads(run("plan", flag, "0.1", "--json").stdout)["value_range"] == [-0.1, 0.1]
    for command in ("optimize", "round", "train"):
        assert flag in run(command, "--help").stdout.replace(",", "").split()


def test_plan_in_json_has_every_key() -> None:
    summary = json.loads(run("plan", "--json").stdout)
    assert summary.keys() >= KEYS
    assert summary["leak_probability"].keys() >= {"one", "any", "with_min_survivors"}
    assert summary["upload_bits"] == sorted(summary["upload_bits"])
    assert summary["class_levels"] == [4, 26, 26, 26, 26]
    paper = json.loads(run("plan", "--json", "--levels", "2,6,8,10,12", "--no-fill-levels").stdout)
    assert paper["upload_bits"] == [302138, 429354, 477060, 477060, 477060]


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


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("plan --classes 5,x", "classes: must be integers"),
        ("plan --range a,b", "range: must be numbers"),
        ("plan --min-survivors 9", "min_survivors: 9 is more than the 5 users"),
        ("plan --design paper --classes 5,5,5,5,5,5", "ask for design='paper-composite' by name"),
        ("plan --plan /no/such/file.toml", "cannot read /no/such/file.toml"),
        ("plan --save /no/such/dir/plan.toml", "save: cannot write"),
        ("plan --compare secagg,nonsense", "design: 'nonsense' is not one of"),
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
    assert "--min-survivors cannot be given with --plan" in done.stderr


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


def test_plans_of_cohorts_in_json() -> None:
    split = json.loads(run("plan", "--classes", "12,12", "--levels", "2,4", "--cohort", "12", "--json").stdout)
    assert [one["classes"] for one in split["cohorts"]] == [[6, 6], [6, 6]]
    words = "optimize --rates 0.5x12,2x12 --dimension 2000 --deadline 0.1 --cohort 12"
    found = json.loads(run(*words.split(), "--json").stdout)
    assert [one["users"] for one in found["plan"]["cohorts"]] == [12, 12]
    assert "24 users in 2 cohorts" in run(*words.split()).stdout
    assert "--cohort goes with the plan of the flags" in run("plan", "--cohort", "9", "--save", "x", expect=2).stderr
    assert "plan for the --users of one" in run("optimize", "--epsilon", "8", "--cohort", "9", expect=2).stderr


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
        ("--malicious -1", "cannot hold"),
        ("--cohort 1", "cohort_size: must be an integer of at least 2"),
        ("--cohort 2", "min_survivors: in cohort 0 of 12"),
        ("--cohort 12 --rounds 2", "--cohort goes with one round"),
        ("--rule krum", "'krum' is not one of 'mean'"),
    ],
)
def test_mistakes_in_a_round(words: str, complaint: str) -> None:
    done = run(*ROUND.split(), *words.split(), expect=2)
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


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
        ("--rates 1x9 --deadline 1 --range=-1", "in rising order"),
        ("--rates lognormal:1:1000:50 --deadline 1", "beyond every link"),
        ("--rates 1x1000000000 --deadline 1", "4 to 100000 users"),
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
        ("--epsilon 8 --deadline 3", "go with --epsilon"),
        ("--rates 1x9 --deadline 1 --clip 3", "go with --epsilon"),
        ("--epsilon 8 --clip 0", "clip is a positive number"),
        ("--epsilon 8 --users 3", "4 users or more"),
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
