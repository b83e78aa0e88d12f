"""Plans on a terminal."""

import pytest
from rich.console import Console, RenderableType

from heterosag.plan import CohortPlan, Plan
from heterosag.plan.design import make
from heterosag.report.plans import compare_plans, describe_error, show_cohorts, show_matrix, show_plan


def printed(shown: RenderableType) -> str:
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(shown)
    return capture.get()


def plan(design: str) -> Plan:
    return Plan.build([16, 16], [4, 16], 1000, value_range=1.0, subgroup_size=8, design=design)


def test_a_plan_is_shown_with_what_its_classes_send_and_what_it_guarantees() -> None:
    text = printed(show_plan(plan("perfect")))
    assert "perfect: 32 users, 4 subgroups, 3 segments, 1,000 elements" in text
    assert [line.split()[:4] for line in text.splitlines() if line.strip()[:2] in ("0 ", "1 ")][:2] == [
        ["0", "│", "16", "│"],
        ["1", "│", "16", "│"],
    ]
    assert "inference robustness" in text
    assert "a round fails, 10% dropout" in text
    assert all(f"- {note}"[:60] in text for note in plan("perfect").notes)


def test_plans_are_compared_row_by_row() -> None:
    text = printed(compare_plans([plan(name) for name in ("perfect", "secagg", "multigroup")], dropout=0.25))
    heading, robustness = (next(line for line in text.splitlines() if word in line) for word in ("perfect", "robust"))
    assert heading.index("perfect") < heading.index("secagg") < heading.index("multigroup")
    assert [float(cell) for cell in robustness.replace("│", " ").replace("┃", " ").split()[2:]] == pytest.approx(
        [float(plan(name).inference_robustness()) for name in ("perfect", "secagg", "multigroup")], abs=1e-4
    )
    assert "25% dropout" in text


def test_a_matrix_has_a_row_a_segment_and_is_left_out_where_it_is_too_wide() -> None:
    lines = printed(show_matrix(make("perfect", 5))).splitlines()
    assert len(lines) == 3 + 5
    assert sum(line.count("*") for line in lines[3:]) == 5
    for subgroups in (12, 19, 25):
        assert max(map(len, printed(show_matrix(make("multigroup", subgroups))).splitlines())) <= 80
    assert "not shown" not in printed(show_matrix(make("multigroup", 25)))
    assert "not shown" in printed(show_matrix(make("multigroup", 26)))


def test_a_matrix_says_without_colours_who_codes_together() -> None:
    assert "equal numbers (and colours) in a row code the segment together" in printed(show_matrix(make("perfect", 4)))


def test_tables_of_a_plan_fit_80_columns_and_cut_no_word() -> None:
    console = Console(width=80, color_system=None)
    large = Plan.build([24, 24], [4, 16], 100_000_000, value_range=1.0, subgroup_size=8)
    for one in (plan("perfect"), large):
        with console.capture() as capture:
            console.print(show_plan(one))
        assert max(len(line.rstrip()) for line in capture.get().splitlines()) <= 80
        assert "…" not in capture.get()
        (row,) = (line for line in capture.get().splitlines() if "class ┃ users" in line)
        assert [word.strip() for word in row.split("┃")][1:5] == ["users", "subgroups", "levels", "upload"]
        assert ("85,000.0 kB" in capture.get()) == (one is large)


def test_errors_have_a_unit_and_a_size_to_compare_with() -> None:
    assert describe_error(4.0, 100, 3.0) == "0.2 RMS, 20% of an update"
    assert describe_error(1e-4, 100, 3.0) == "0.001 RMS, 0.1% of an update"
    assert "RMS, " in printed(show_plan(plan("perfect")))


def test_cohorts_are_shown_one_by_one() -> None:
    whole = CohortPlan.build([30, 31], [4, 16], 1000, cohort_size=21, value_range=1.0, subgroup_size=5)
    text = printed(show_cohorts(whole, 0.2))
    assert "perfect: 61 users in 3 cohorts of at most 21, 1,000 elements" in text
    assert "a round fails, 20% dropout" in text
    sizes = [line.split("│")[1].strip() for line in text.splitlines() if line.count("│") == 7][-3:]
    assert sizes == ["21", "20", "20"]
    assert "hidden among the 20 users of its own" in text
