"""A plan as a person sees it, in a line and in a notebook."""

from paper_plan import PAPER

from heterosag.plan import Plan


def test_a_plan_is_shown_at_a_glance() -> None:
    plan = Plan.build(**PAPER)
    assert repr(plan) == (
        "<Plan of 25 users in 5 subgroups, perfect design: 79,510 elements, levels 2,6,8,10,12, robustness 0.8, "
        "Byzantine tolerance 1>"
    )
    shown = plan._repr_html_()
    assert shown.count("<tr>") == 1 + 5 + 4 + 5
    assert "<th>least survivors of a subgroup</th><td>3</td>" in shown
    assert shown.count("<td>*</td>") == 5  # a star a segment
    assert shown.count("background: hsl(0 60% 80%)") == 2 * 4, "subgroup 0 codes with one other in four segments"
