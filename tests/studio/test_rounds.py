"""A round that the studio steps through."""

from __future__ import annotations

import pytest
from studio_server import Studio


@pytest.mark.parametrize("signed", [False, True])
def test_a_round_is_real_and_counts_every_byte(studio: Studio, signed: bool) -> None:
    status, told = studio.post("/api/round", {"watched": 2, "identities": signed, "gone_mask": [5], "gone_unmask": [7]})
    assert status == 200
    assert told["error"] is None
    phases = [step["phase"] for step in told["steps"]]
    assert phases == ["advertise", "share", "mask", *(["agree"] if signed else []), "unmask"]
    for step in told["steps"]:
        assert sum(part["bytes"] for part in step["message"]) == step["up"][2]
    assert 5 not in told["result"]["survivors"]
    assert told["result"]["largest_distance"] < 0.6
    masked = next(step for step in told["steps"] if step["phase"] == "mask")["vector"]
    assert all(0 <= level < cell["level"] for cell in masked for level in cell["levels"])


def test_a_round_that_fails_says_why(studio: Studio) -> None:
    status, told = studio.post("/api/round", {"gone_mask": [3, 4, 5, 6, 7, 8, 9]})
    assert status == 200
    assert told["error"]["kind"] == "TooFewSurvivorsError"
    assert told["result"] is None


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("phase", "silent"), [("advertise", 1), ("share", 1), ("mask", 1), ("unmask", 0)])
def test_a_watched_user_who_is_left_out_with_its_subgroup_sends_nothing_more(
    studio: Studio, phase: str, silent: int, signed: bool
) -> None:
    status, told = studio.post("/api/round", {"watched": 0, "identities": signed, f"gone_{phase}": [1, 2]})
    assert status == 200
    assert told["error"] is None
    steps = told["steps"]
    left_out = [step["phase"] for step in steps if "left out" in step["user_knows"][0]]
    phases = [step["phase"] for step in steps]
    assert left_out == (phases[phases.index(phase) :] if silent else [])
    for step in steps:
        assert sum(part["bytes"] for part in step["message"]) == step["up"][0]
        nothing = step["phase"] in left_out and step["phase"] != phase
        assert (step["message"][0]["name"] == "nothing") is nothing
        assert (step["vector"] is not None) is (step["phase"] == "mask" and not nothing)
    assert (0 in told["result"]["survivors"]) is not bool(silent)
