"""How long a user waits before anything happens: starting Python with us, against starting it with NumPy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from bench.rows import Row, in_turn


def rows() -> Iterator[Row]:
    """Import and --help against a bare `import numpy`."""

    def run(*words: str) -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)

    for name, words in (
        ("import heterosag / import numpy", ("-c", "import heterosag")),
        ("heterosag --help / import numpy", ("-m", "heterosag", "--help")),
        ("import heterosag.Plan / import numpy", ("-c", "import heterosag; heterosag.Plan")),
    ):
        yield Row.of(name, *in_turn(partial(run, *words), partial(run, "-c", "import numpy")), goal=3.0)
