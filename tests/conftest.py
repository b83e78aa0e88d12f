"""Settings for all tests: one thread a process, as many examples as there is time for, and what reproduces a failure.

`make test` runs two processes at once on two cores: with threads of their own they only get into each other's way.
`HYPOTHESIS_PROFILE=thorough` (as in `make test-all`) looks at twice as many examples. They are the same in every
run, so that a change passes or fails for what it is; `HYPOTHESIS_PROFILE=random` looks for new ones.
"""

import gc
import os
from collections.abc import Iterator
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # before NumPy or torch are imported, and for the commands that tests run

os.umask(0o022)  # what tests write is its owner's, as directories of public keys have to be

import pytest  # noqa: E402
from browser import Browser  # noqa: E402
from hypothesis import settings  # noqa: E402

RANDOM = os.environ.get("HYPOTHESIS_PROFILE") == "random"
settings.register_profile("ours", deadline=None, print_blob=True, derandomize=not RANDOM)
settings.load_profile("ours")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, in whatever order the others come: it runs beside them, not after them."""
    items.sort(key=lambda item: item.get_closest_marker("longest") is None)


def pytest_collection_finish() -> None:
    """What was imported so far stays: looking through it for garbage takes a tenth of the tests' time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def bounds_of_the_session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Privacy bounds that tests compute are kept among the tests' own files, once for all tests of a session."""
    place = tmp_path_factory.mktemp("cache")
    fonts = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "matplotlib"
    with pytest.MonkeyPatch.context() as patch:
        if "MPLCONFIGDIR" not in os.environ:
            patch.setenv("MPLCONFIGDIR", str(fonts))  # where it knows this machine's fonts already
        patch.setenv("XDG_CACHE_HOME", str(place))
        yield place


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One headless Chromium for all tests of pages."""
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()
