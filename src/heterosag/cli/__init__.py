"""The command line: `heterosag train`, `optimize`, `plan`, `round`, `report`, `studio`, `identity` and `directory`.

Heavy imports happen inside the commands, so that `heterosag --help` stays quick.
"""

from heterosag.cli import identities, planning, rounds, runs  # noqa: F401 - each adds its commands to the program
from heterosag.cli.application import EXAMPLES, app, main

__all__ = ["EXAMPLES", "app", "main"]
