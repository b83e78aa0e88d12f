"""The studio over real HTTP: who is answered, with which headers, and which bodies are read."""

from __future__ import annotations

import json
import re

import pytest
from studio_server import HAND, Studio


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:PORT", "127.0.0.1.evil.example:PORT", "127.0.0.1:1", "a@127.0.0.1:PORT", "", "["],
)
def test_a_foreign_host_is_refused(studio: Studio, host: str) -> None:
    for method, path in (("GET", "/"), ("GET", "/api/runs"), ("POST", "/api/plan")):
        status, _, body = studio.request(method, path, host=host.replace("PORT", str(studio.port)))
        assert status in (400, 421)
        assert b"Traceback" not in body


def test_localhost_is_this_machine_too(studio: Studio) -> None:
    assert studio.request("GET", "/", host=f"localhost:{studio.port}")[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost:PORT"])
def test_a_foreign_origin_is_refused(studio: Studio, origin: str) -> None:
    origin = origin.replace("PORT", str(studio.port))
    body = json.dumps(HAND).encode()
    assert studio.request("POST", "/api/plan", body, content_type="application/json", origin=origin)[0] == 403
    assert studio.request("GET", "/api/runs", origin=origin)[0] == 403


def test_another_site_may_link_to_the_page_but_not_read_from_it(studio: Studio) -> None:
    assert studio.request("GET", "/api/runs", sec_fetch_site="cross-site", sec_fetch_dest="script")[0] == 403
    assert studio.request("GET", "/", sec_fetch_site="cross-site", sec_fetch_dest="document")[0] == 200


def test_every_answer_has_the_strict_headers(studio: Studio) -> None:
    for path in ("/", "/studio.js", "/plots.js", "/api/runs", "/nothing"):
        _, headers, _ = studio.request("GET", path)
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    page = studio.request("GET", "/")[2].decode()
    assert not re.search(r"<script(?![^>]*src=)|\son\w+=|style=|https?://", page)


@pytest.mark.parametrize("path", ["/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "//etc/passwd", "/%2fetc/passwd"])
def test_no_file_outside_the_page_is_served(studio: Studio, path: str) -> None:
    status, _, body = studio.request("GET", path)
    assert status == 404
    assert b"import" not in body


def test_bodies_are_small_and_json(studio: Studio) -> None:
    large = json.dumps({"rates": "1," * 40_000}).encode()
    assert studio.request("POST", "/api/plan", large, content_type="application/json")[0] == 413
    chunked = b"".join(b"3e8\r\n" + b" " * 1000 + b"\r\n" for _ in range(70)) + b"0\r\n\r\n"
    status = studio.request(
        "POST", "/api/plan", chunked, content_type="application/json", transfer_encoding="chunked", content_length="0"
    )[0]
    assert status in (400, 413)
    assert studio.request("POST", "/api/plan", b"mode=hand", content_type="text/plain")[0] == 415
    for body in (
        b"",
        b"[]",
        b"nonsense",
        b"[" * 60_000,
        b'{"deadline": NaN}',
        b'{"users": ' + b"9" * 5000 + b"}",
        b"\xff",
    ):
        assert studio.request("POST", "/api/plan", body, content_type="application/json")[0] == 422
    assert studio.request("GET", "/api/plan")[0] == 404
