"""The guarantees on the Plan tab: the plan's own numbers beside the paper's claims."""

from __future__ import annotations

from heterosag.plan import Plan
from heterosag.plan.summary import summarise
from heterosag.studio.guarantees import list_guarantees


def test_a_claim_of_the_paper_that_fails_is_marked() -> None:
    plan = Plan.build([24, 24, 24, 24], [2, 6, 8, 12], 79_510, value_range=1.0, subgroup_size=8)
    robust = next(list_guarantees(plan, summarise(plan)))
    assert robust["value"] == "0.9091"
    assert not robust["holds"]
    assert "0.8333" in robust["claim"]
    assert "0.5" in robust["claim"]
    prime = Plan.build([25], [4], 1000, value_range=1.0, subgroup_size=5, design="paper")
    assert next(list_guarantees(prime, summarise(prime)))["holds"]


def test_one_block_of_everybody_is_held_against_no_claim_of_pairs() -> None:
    plan = Plan.build([40], [2], 900, design="secagg", subgroup_size=40, value_range=1.0)
    found = {one["name"]: one for one in list_guarantees(plan, summarise(plan))}
    assert [found[name]["claim"] for name in ("Inference robustness", "A lone survivor is exposed")] == [None, None]
    assert {"Rounding noise", "Bias of clipping"} <= found.keys()
    noisy = Plan.build([40], [2], 900, design="secagg", subgroup_size=40, min_block_survivors=32, clipping_norm=1.0,
                       noise_multiplier=4.0)  # fmt: skip
    names = {one["name"] for one in list_guarantees(noisy, summarise(noisy))}
    assert "Noise" in names
    assert not {"Rounding noise", "Bias of clipping"} & names
