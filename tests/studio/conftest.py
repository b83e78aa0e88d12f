"""One studio for all tests of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from records import write_run
from studio_server import DAMAGED, Studio


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    root = tmp_path_factory.mktemp("studio")
    folder, outside = root / "runs", root / "outside"
    for place, rounds in ((folder / "steady", 6), (folder / "group" / "inner", 3), (outside / "secret", 2)):
        write_run(place, rounds)
    (folder / "link").symlink_to(outside / "secret")
    (folder / "half").mkdir()
    (folder / "half" / "record.jsonl").symlink_to(outside / "secret" / "record.jsonl")
    for name, text in DAMAGED.items():
        (folder / name).mkdir()
        (folder / name / "record.jsonl").write_bytes(text)
    found = Studio(folder)
    yield found
    assert "Traceback" not in found.close()
