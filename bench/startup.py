"""How long a user waits before anything happens: starting Python with us, against starting it with NumPy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from bench.rows import Row, ratio


def rows() -> Iterator[Row]:
    """Import and --help against a bare `import numpy`."""

    def run(*words: str) -> None:
        subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)

    for name, words in (
        ("import heterosag / import numpy", ("-c", "import heterosag")),
        ("heterosag --help / import numpy", ("-m", "heterosag", "--help")),
        ("import heterosag.Plan / import numpy", ("-c", "import heterosag; heterosag.Plan")),
    ):
        value = ratio(partial(run, *words), partial(run, "-c", "import numpy"))
        yield Row(name=name, ratio=value, goal=3.0, better="lower")
