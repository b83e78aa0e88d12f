"""One studio for all tests of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from studio_server import DAMAGED, Studio, begin_run, write_round


@pytest.fixture(scope="session")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    root = tmp_path_factory.mktemp("studio")
    folder, outside = root / "runs", root / "outside"
    for place, rounds in ((folder / "steady", 6), (folder / "group" / "inner", 3), (outside / "secret", 2)):
        writer = begin_run(place)
        for number in range(1, rounds + 1):
            write_round(writer, number, 0.1 * number)
        writer.write("end", {"rounds": rounds, "seconds": 1.0})
        writer.close()
    (folder / "link").symlink_to(outside / "secret")
    (folder / "half").mkdir()
    (folder / "half" / "record.jsonl").symlink_to(outside / "secret" / "record.jsonl")
    for name, text in DAMAGED.items():
        (folder / name).mkdir()
        (folder / name / "record.jsonl").write_bytes(text)
    found = Studio(folder)
    yield found
    assert "Traceback" not in found.close()
