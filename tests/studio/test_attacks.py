"""A curious server and malicious users against a plan of the studio."""

from __future__ import annotations

from studio_server import HAND, Studio

from heterosag.plan import Plan


def test_the_curious_server_and_the_malicious_users(studio: Studio) -> None:
    picks = {"plan": HAND, "subgroups": [0, 1], "malicious": [0, 5]}
    status, found = studio.post("/api/attack", picks)
    design = Plan.build([24, 24, 24, 24], [2, 6, 8, 12], 79_510, value_range=1.0, subgroup_size=8).design
    assert status == 200
    assert found["decoded"]["segments"] == list(design.decodable({0, 1}))
    for row, segment in zip(found["spoiled"]["segments"], design.segments, strict=True):
        assert [tuple(block) for block in row["spoiled"]] == [block for block in segment if {0, 5} & set(block)]
    assert found["spoiled"]["broken"] == []
    _, worst = studio.post("/api/attack", {"plan": HAND, "worst": design.byzantine_tolerance() + 1})
    assert worst["spoiled"]["broken"]
    _, strawman = studio.post("/api/attack", {"plan": HAND | {"design": "multigroup"}, "subgroups": [3]})
    assert strawman["decoded"]["share"] == 1.0


def test_wrong_picks_are_refused(studio: Studio) -> None:
    for picks, field in (
        ({"subgroups": [12]}, "subgroups"),
        ({"malicious": [-1]}, "malicious"),
        ({"lost": list(range(12))}, "lost"),
        ({"worst": 100}, "worst"),
    ):
        status, answer = studio.post("/api/attack", {"plan": HAND, **picks})
        assert (status, answer["field"]) == (422, field)
    assert studio.post("/api/attack", {"plan": 3})[0] == 422
    assert studio.post("/api/round", {"watched": 12})[0] == 422
    assert studio.post("/api/round", {"watched": 5, "gone_mask": [5]})[1]["field"] == "watched"
