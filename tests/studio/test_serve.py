"""Serving the studio: a folder or a port that cannot be served is named."""

from __future__ import annotations

from pathlib import Path

import pytest
from studio_server import Studio


def test_a_folder_or_port_that_cannot_be_served_is_named(tmp_path: Path, studio: Studio) -> None:
    from heterosag.errors import UsageError
    from heterosag.studio.serve import serve

    with pytest.raises(UsageError, match="no folder"):
        serve(tmp_path / "missing", port=0)
    with pytest.raises(UsageError, match="--port"):
        serve(tmp_path, port=studio.port)


@pytest.mark.parametrize("found", [True, False])
def test_the_page_is_opened_where_it_is_asked_for(
    tmp_path: Path, found: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import uvicorn

    from heterosag.studio import serve as serving

    opened: list[str] = []
    monkeypatch.setattr(serving.webbrowser, "open", lambda address: opened.append(address) or found)
    monkeypatch.setattr(uvicorn.Server, "run", lambda self, sockets: [sock.close() for sock in sockets])
    serving.serve(tmp_path, port=0)
    assert opened == []
    serving.serve(tmp_path, port=0, open_page=True)
    assert len(opened) == 1
    said = capsys.readouterr().out
    assert opened[0] in said
    assert ("no browser could be opened" in said) is not found
