"""`python -m heterosag` is the command `heterosag`."""

from heterosag.cli import main

main()
