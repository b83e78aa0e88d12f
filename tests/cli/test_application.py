"""The program itself: version, help, and how an error ends it."""

from command import run_command as run


def test_version_and_help() -> None:
    import heterosag

    assert run("--version").stdout == f"heterosag {heterosag.__version__}\n"
    assert "plan" in run("--help").stdout
    assert "--subgroup-size" in run("plan", "--help").stdout
