"""The naive implementation, which knows only the pages and the vectors."""

import ast
import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from heterosag.crypto.field import PRIME
from heterosag.crypto.identity import _SMALL_ORDER

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NAIVE = ("naive_wire", "naive_round", "naive_plan", "naive_trips", "naive_machines", "naive_vectors")
VECTORS = ROOT / "tests" / "vectors"

# In every vector file: values of which each, when it is changed alone, must be noticed
PLACES: dict[str, list[str]] = {
    "admissibility": ["cases 0 plan", "cases 1 made_admissible 0", "must_fail 0 reason"],
    "assignment": ["cases 1 order 3", "cases 5 subgroups 0 1 0", "cases 6 seed_bytes", "must_fail 0 error"],
    "cohorts": [
        "cases 1 cohorts 0 assignment_seed",
        "cases 0 encoding",
        "cases 2 digest",
        "cases 4 digest",
        "must_fail 0 error",
    ],
    "contexts": ["cases 0 frame", "cases 1 plan_digest", "cases 0 c0", "cases 1 c1", "cases 2 c2"],
    "enrolment": ["cases 0 users 5 reveal_message", "cases 0 reveals_message", "cases 0 seed", "must_fail 18 error"],
    "enrolment_cohorts": ["cases 0 commitments_message", "cases 0 reveals_messages 2", "cases 0 plan_digests 1"],
    "keys": ["cases 0 public", "cases 1 key", "cases 4 shared", "cases 5 adds", "must_fail 0 error"],
    "keystream": ["cases 0 bytes", "cases 4 words 0", "must_fail 0 error"],
    "labels": ["cases 0 result", "cases 8 result", "cases 11 result", "cases 18 result"],
    "machines": [
        "cases 0 client_is",
        "cases 0 steps 1 gives",
        "cases 7 steps 4 gives",
        "cases 20 steps 0 gives",
        "must_fail 0 steps 2 gives",
    ],
    "masks": ["cases 0 masked 2 auxiliary 0", "cases 1 masks 0 offsets 1", "cases 5 packed"],
    "messages": ["cases 0 bytes", "cases 22 size_limit", "cases 22 fields nonces 0", "must_fail 238 error"],
    "noise": ["cases 0 thresholds 1", "cases 1 counts 0", "cases 2 decoded 0", "cases 9 starts 3", "cases 11 trials"],
    "packing": ["cases 0 bytes", "cases 63 elements 0"],
    "plan": ["cases 0 digest", "cases 9 subgroups 0 1 0", "cases 1 metric_lanes 2", "cases 11 vector_sizes 0"],
    "plan_limits": ["cases 0 digest", "cases 11 change users 8", "must_fail 0 error", "bases weighted assignment_seed"],
    "quantize": ["cases 0 quantized 0", "cases 1 clipped", "cases 2 decoded 0", "cases 3 bits"],
    "refusals_client": ["cases 0 answer", "must_fail 0 error", "must_fail 2 client_is", "must_fail 71 client_is"],
    "refusals_server": ["must_fail 0 error", "must_fail 37 error"],
    "refusals_sparse": ["must_fail 0 error", "must_fail 6 client_is", "must_fail 13 error"],
    "refusals_vectors": ["cases 0 block sums 0", "cases 8 block auxiliary weight", "must_fail 0 error"],
    "rotation": ["cases 0 signs 0", "cases 2 rotated 0", "cases 3 restored 0"],
    "round_noise": ["cases 0 users 3 cells 3 elements 0", "cases 0 within_norm", "cases 0 aggregate 0"],
    "round_plain": ["cases 0 users 8 mask_public", "cases 0 server_sends 1 bytes", "cases 0 blocks 0 sums 0"],
    "round_signed": ["cases 0 users 4 cells 0 elements 0", "cases 0 users_send 9 bytes", "cases 0 metrics loss"],
    "round_sparse": ["cases 0 users_send 30 bytes", "cases 0 server_sends 12 bytes", "cases 0 blocks 5 sums 0"],
    "seal": ["cases 0 key", "cases 0 nonce", "cases 1 associated", "cases 1 sealed"],
    "settling": ["cases 0 steps 2 gives", "cases 5 steps 3 gives", "plans frame", "must_fail 0 client_is"],
    "shamir": ["cases 0 shares 0", "cases 3 coefficients 0", "cases 4 secret", "cases 2 threshold"],
    "sharing": ["cases 0 holders 0 0", "cases 1 order 0", "cases 2 share_threshold"],
    "signatures": ["cases 0 signature", "cases 1 signed", "cases 2 public"],
}


@pytest.fixture(scope="module")
def naive() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLES))
        yield importlib.import_module("naive_vectors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(VECTORS, tmp_path / "vectors"))


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLES / f"{program}.py"), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def read(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return found


def write(folder: Path, name: str, vectors: dict[str, Any]) -> None:
    (folder / f"{name}.json").write_text(json.dumps(vectors), encoding="utf-8")


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    if value is None:
        return []
    try:
        bytes.fromhex(value)
    except ValueError:
        return value + "x"
    return value[:-1] + ("1" if value[-1] == "0" else "0")


def test_it_makes_every_message_of_all_rounds() -> None:
    done = run("naive_round", VECTORS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "195 messages reproduced"


@pytest.mark.long
def test_it_makes_every_case_and_refuses_every_must_fail_case() -> None:
    files = [read(VECTORS, path.stem) for path in VECTORS.glob("*.json")]
    cases = [case for vectors in files for case in vectors["cases"] if case.get("function") != "simulated_rounding"]
    refused = sum(len(vectors["must_fail"]) for vectors in files)
    done = run("naive_vectors", VECTORS)
    assert done.returncode == 0, done.stdout + done.stderr
    last = f"{len(files)} files: {len(cases)} cases computed, {refused} refused"
    assert done.stdout.splitlines()[-1] == last


@pytest.mark.parametrize("program", NAIVE)
def test_it_imports_nothing_of_the_package(program: str) -> None:
    names = set()
    for node in ast.walk(ast.parse((EXAMPLES / f"{program}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add((node.module or "").partition(".")[0])
    assert names - set(sys.stdlib_module_names) <= {"cryptography", *NAIVE}


def test_the_round_ends_at_a_changed_message(folder: Path) -> None:
    vectors = read(folder, "round_plain")
    message = vectors["cases"][0]["users_send"][-1]
    message["bytes"] = changed(message["bytes"])
    write(folder, "round_plain", vectors)
    assert run("naive_round", folder).returncode == 1


def test_values_to_change_are_listed_for_every_file() -> None:
    assert sorted(PLACES) == sorted(path.stem for path in VECTORS.glob("*.json"))


@pytest.mark.long
@pytest.mark.parametrize(("name", "place"), [(name, place) for name in PLACES for place in PLACES[name]])
def test_it_notices_a_changed_value(naive: ModuleType, folder: Path, name: str, place: str) -> None:
    vectors = read(folder, name)
    *path, last = [int(step) if step.isdigit() else step for step in place.split()]
    inside: Any = vectors
    for step in path:
        inside = inside[step]
    inside[last] = changed(inside[last])
    write(folder, name, vectors)
    with pytest.raises((SystemExit, naive.RefusedError)):
        naive.check_file(folder, name)


def test_it_notices_a_must_fail_case_that_does_not_fail(naive: ModuleType, folder: Path) -> None:
    vectors = read(folder, "messages")
    vectors["must_fail"][0]["bytes"] = vectors["cases"][0]["bytes"]
    write(folder, "messages", vectors)
    with pytest.raises(SystemExit, match="not refused: no bytes"):
        naive.check_file(folder, "messages")
    vectors = read(folder, "refusals_client")
    roster = next(sent for sent in read(folder, "round_plain")["cases"][0]["server_sends"] if sent["phase"] == "share")
    case = next(case for case in vectors["must_fail"] if case["name"] == "roster of another round")
    case["messages"] = [roster["bytes"]]
    write(folder, "refusals_client", vectors)
    with pytest.raises(SystemExit, match="not refused: roster of another round"):
        naive.check_file(folder, "refusals_client")


def test_it_knows_no_case_that_is_not_in_its_tables(naive: ModuleType, folder: Path) -> None:
    vectors = read(folder, "labels")
    vectors["cases"].append(vectors["cases"][0] | {"function": "unheard of"})
    write(folder, "labels", vectors)
    with pytest.raises(KeyError, match="unheard of"):
        naive.check_file(folder, "labels")


def test_a_client_that_refused_is_dead_and_a_masked_one_is_settled(naive: ModuleType) -> None:
    case = naive.load(read(VECTORS, "round_plain"))["cases"][0]
    terms, directory = naive.recorded(case)
    faulty = sys.modules["naive_wire"].FaultyServerError
    roster, inbox = (naive.sent(case, phase)[0][0][1] for phase in ("share", "mask"))
    dead, masked = (naive.User(terms, dict(case["users"][0]), directory) for _ in range(2))
    dead.answer("advertise", b"")
    refused = [one for one in read(VECTORS, "refusals_client")["must_fail"] if one["name"] == "roster of another round"]
    for message in (bytes.fromhex(refused[0]["messages"][0]), roster):
        with pytest.raises(faulty):
            dead.answer("share", message)
    other_number = type(terms)(terms.plan, terms.session, terms.number + 1, terms.model)
    other_model = type(terms)(terms.plan, terms.session, terms.number, b"another model".ljust(32))
    with pytest.raises(faulty):
        masked.settle(other_number)
    masked.settle(other_model)
    masked.settle(terms)
    for phase, message in (("advertise", b""), ("share", roster), ("mask", inbox)):
        masked.answer(phase, message)
    masked.settle(terms)
    with pytest.raises(faulty):
        masked.settle(other_model)


def test_a_client_begins_with_a_good_directory_only(naive: ModuleType) -> None:
    case = naive.load(read(VECTORS, "round_signed"))["cases"][0]
    terms, directory = naive.recorded(case)
    small = sys.modules["naive_wire"].is_small_order
    assert {y for y in (0, 1, PRIME - 1, *_SMALL_ORDER) if small(y.to_bytes(32, "little"))} == set(_SMALL_ORDER)
    assert not any(map(small, directory.values()))
    lacking = {user: key for user, key in directory.items() if user != 7}
    for bad in (lacking, directory | {0: directory[1]}, directory | {1: bytes(32)}):
        with pytest.raises(sys.modules["naive_wire"].UsageError):
            naive.User(terms, dict(case["users"][0]), bad)


class Answering:
    """A user of one round that answers everything but what is said to be bad."""

    def answer(self, phase: str, message: bytes) -> bytes:
        if message == b"bad":
            raise sys.modules["naive_wire"].FaultyServerError("bad")
        return phase.encode()


def test_a_user_keeps_two_rounds_in_a_row(naive: ModuleType) -> None:
    user = sys.modules[naive.run_recorded_in_a_row.__module__].RoundsOfUser(lambda _: Answering())
    assert user.answer([(5, "advertise", b"")]) == [(5, "advertise", b"advertise")]
    assert user.answer([(6, "advertise", b""), (5, "share", b"")])[0] == (5, "share", b"share")
    assert user.answer([(5, "mask", b""), (7, "advertise", b"")]) == [(5, "mask", b"mask")]  # no third round
    assert user.answer([(5, "unmask", b""), (6, "mask", b"")]) == [(5, "unmask", b"unmask")]  # keys and shares only
    assert user.answer([(6, "unmask", b"")]) == []  # what was refused is forgotten
    assert user.answer([(8, "advertise", b"")]) != []
    assert user.answer([(7, "advertise", b"")]) == []  # below one that is kept
    assert user.answer([(8, "share", b"bad"), (9, "advertise", b"")]) == [(9, "advertise", b"advertise")]
    assert list(user.kept) == [9]
    for parts in ([], [(9, "share", b""), (9, "share", b"")], [(number, "share", b"") for number in range(9, 13)]):
        with pytest.raises(sys.modules["naive_wire"].FaultyServerError):
            user.answer(parts)
    assert list(user.kept) == [9]
