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
