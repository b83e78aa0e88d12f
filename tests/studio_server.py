"""A studio in a process of its own, with records of runs to show."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any


class Studio:
    """A studio in a process of its own, and plain HTTP to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        code = "import sys, pathlib, heterosag.studio.serve as s; s.serve(pathlib.Path(sys.argv[1]), port=0)"
        words = [sys.executable, "-c", code, str(folder)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", said)
        assert found, said
        self.port = int(found[1])
        self.base = f"http://127.0.0.1:{self.port}"

    def request(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """One request, its path and headers as given."""
        named = {"host": f"127.0.0.1:{self.port}", **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in named.items():
                connection.putheader(name, value)
            if body is not None and "content-length" not in named:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders()
            if body is not None:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    connection.send(body)
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def post(self, path: str, form: Any) -> tuple[int, Any]:
        status, _, body = self.request("POST", path, json.dumps(form).encode(), content_type="application/json")
        return status, json.loads(body)

    def get(self, path: str) -> tuple[int, Any]:
        status, _, body = self.request("GET", path)
        return status, json.loads(body)

    def close(self) -> str:
        """End it, and hand over what it complained about."""
        self.process.terminate()
        _, complaints = self.process.communicate(timeout=20)
        return complaints


_HEAD = b'{"kind": "run", "format": 2, "config": {}, "plan": {}}\n'

DAMAGED = {
    "damaged-bytes": b"\xff\xfe\n\n",
    "damaged-head": b'{"kind": "run", "format": 1}\n',
    "damaged-config": b'{"kind": "run", "format": 1, "config": null, "plan": {}}\n',
    "damaged-round": b'{"kind": "run", "format": 1, "config": {}, "plan": {}}\n{"kind": "round"}\n',
    "damaged-empty": b"",
    "damaged-time": _HEAD.replace(b"}\n", b', "started": "yesterday"}\n'),
    "damaged-number": _HEAD.replace(b"}\n", b', "started": 5}\n'),
    "damaged-rounds": _HEAD.replace(b'"config": {}', b'"config": {"rounds": NaN}'),
    "damaged-depth": b"[" * 100_000 + b"\n" + _HEAD,
    "damaged-digits": _HEAD + b'{"kind": "round", "round": 1, "accuracy": 1' + b"0" * 400 + b"}\n",
}


HAND = {"mode": "hand", "classes": "24,24,24,24", "levels": "2,6,8,12", "subgroup_size": 8}
