"""Names as they are shown, whatever a file system allows in them."""

from cases import each

from heterosag.report.names import printable


@each(
    "given, shown",
    [
        ("plain", "plain"),
        ("Ångström \U0001f600 a&b", "Ångström \U0001f600 a&b"),
        ("\x1b[31mred", "\ufffd[31mred"),
        ("two\nlines\u2028three\x9b", "two\ufffdlines\ufffdthree\ufffd"),
        ("\udcff bytes", "\ufffd bytes"),
    ],
)
def test_what_no_terminal_or_page_can_hold_is_replaced(given: str, shown: str) -> None:
    assert printable(given) == shown


def test_some_may_be_kept() -> None:
    assert printable("a\n\tb\x00", keep="\n\t") == "a\n\tb\ufffd"
