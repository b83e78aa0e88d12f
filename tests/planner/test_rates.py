"""Rates as a text, a file or a distribution gives them."""

from pathlib import Path
from statistics import median

import pytest

from heterosag.errors import UsageError
from heterosag.planner.rates import read_rates, spread_rates


def test_a_text_names_rates_and_how_many_users_have_them() -> None:
    assert read_rates("0.5x2,4") == (0.5, 0.5, 4.0)
    for text in ("1x1000000000", "1x0", "1x-20"):
        with pytest.raises(UsageError, match=f"{text} in the rates names no number of users from 1 to 100,000"):
            read_rates(text)
    for text in ("", "1xx9", "fast", "1x2x3", "a" * 5000, "a\x00"):
        with pytest.raises(UsageError, match="rates are numbers"):
            read_rates(text)


def test_a_file_has_a_user_a_line_and_may_have_a_heading(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("user,rate\na,0.5\n\nb,2\n")
    assert read_rates(str(path)) == (0.5, 2.0)
    path.write_text("user,rate\na,0.5\nb,2 Mb\n")
    with pytest.raises(UsageError, match="line 3 of"):
        read_rates(str(path))
    path.write_text("rate\n")
    with pytest.raises(UsageError, match=r"rates.csv holds no rates: it has a line for each user, which ends with"):
        read_rates(str(path))
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot read"):
        read_rates(str(path))


def test_a_distribution_is_the_same_each_time_and_has_its_median() -> None:
    rates = read_rates("lognormal:2:0.5:41")
    assert rates == spread_rates(2.0, 0.5, 41) == tuple(sorted(rates))
    assert median(rates) == pytest.approx(2.0)
    for text in ("lognormal:1", "lognormal:1:2:x", "lognormal:-1:1:9", "lognormal:1:1:3"):
        with pytest.raises(UsageError, match="distribution"):
            read_rates(text)
    with pytest.raises(
        UsageError, match=r"a spread of 1000 is too large: it is the standard deviation of the logarithm"
    ):
        spread_rates(1.0, 1000.0, 50)
