"""The studio over real HTTP, and in headless Chromium driven over the DevTools protocol."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import re
import select
import shutil
import subprocess
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from heterosag.plan import Plan, costs
from heterosag.storage.run_log import FORMAT, RunWriter

# --- a studio to talk to ------------------------------------------------------------------------------------------

CONFIG: dict[str, Any] = {
    "data": "digits", "design": "perfect", "rule": "median", "attack": "none", "attackers": 0, "secure": True,
    "classes": [12, 12], "rounds": 6,
}  # fmt: skip


def begin_run(folder: Path) -> RunWriter:
    plan = Plan.build([12, 12], [2, 8], 1000, value_range=1.0, subgroup_size=4)
    writer = RunWriter(folder)
    writer.write("run", {"format": FORMAT, "config": CONFIG, "plan": costs.summarise(plan)})
    return writer


def write_round(writer: RunWriter, number: int, accuracy: float) -> None:
    line = {
        "round": number, "participants": 24, "error": None, "survivors": 24 - number % 3, "refusals": number % 2,
        "missed_deadline": 0, "faulty_blocks": 0, "inference_robustness": 0.8, "aggregate_error": 0.1,
        "sent_bytes": {"share": [4000.0, 4000.0], "mask": [1900.0, 2300.0]}, "round_seconds": 0.5,
        "user_seconds": {}, "server_seconds": {}, "accuracy": accuracy,
    }  # fmt: skip
    writer.write("round", line)


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


DAMAGED = {
    "damaged-bytes": b"\xff\xfe\n\n",
    "damaged-head": b'{"kind": "run", "format": 1}\n',
    "damaged-config": b'{"kind": "run", "format": 1, "config": null, "plan": {}}\n',
    "damaged-round": b'{"kind": "run", "format": 1, "config": {}, "plan": {}}\n{"kind": "round"}\n',
    "damaged-empty": b"",
}


@pytest.fixture(scope="module")
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


HAND = {"mode": "hand", "classes": "24,24,24,24", "levels": "2,6,8,12", "subgroup_size": 8}


# --- what the page asks for ---------------------------------------------------------------------------------------


def test_a_plan_by_hand_is_the_plan_of_its_exports(studio: Studio) -> None:
    status, plan = studio.post("/api/plan", HAND)
    assert status == 200
    built = Plan.build([24, 24, 24, 24], [2, 6, 8, 12], 79_510, value_range=1.0, subgroup_size=8)
    assert plan["digest"] == built.digest.hex() == Plan.from_toml(plan["exports"]["toml"]).digest.hex()
    assert [row["bytes"] for row in plan["classes"]] == [max(built.vector_sizes()[3 * g : 3 * g + 3]) for g in range(4)]
    robust = plan["guarantees"][0]
    assert robust["value"] == "0.9091"
    assert not robust["holds"]
    assert "0.8333" in robust["claim"]
    assert "0.5" in robust["claim"]
    scope: dict[str, Any] = {}
    exec(plan["exports"]["python"].replace("print", ""), scope)
    assert scope["plan"].digest == built.digest
    command = plan["exports"]["command"].replace("\\\n", " ").split()
    assert command[0] == "heterosag"
    words = [sys.executable, "-m", *command, "--json"]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert told["digest"] == plan["digest"]


def test_wishes_give_a_plan_within_the_deadline_and_a_curve_through_it(studio: Studio) -> None:
    form = {"rates_kind": "list", "rates": "1 x 24, 2 x 24, 4 x 24, 8 x 24", "deadline": 1.0}
    status, plan = studio.post("/api/plan", form)
    assert status == 200
    assert all(row["seconds"] <= 1.0 for row in plan["classes"])
    assert plan["proposal"]["lower_bound"] <= plan["error"]
    scope: dict[str, Any] = {}
    exec(plan["exports"]["python"].replace("print", ""), scope)
    assert scope["plan"].digest.hex() == plan["digest"]
    _, longer = studio.post("/api/plan", form | {"deadline": 2.0})
    assert longer["error"] < plan["error"]
    _, traced = studio.post("/api/trade-off", form)
    errors = [error for _, error in traced["curve"] if error is not None]
    assert errors == sorted(errors, reverse=True)
    assert traced["chosen"][0] == 1.0


def test_impossible_wishes_get_the_nearest_plan_and_the_contradiction(studio: Studio) -> None:
    status, plan = studio.post("/api/plan", {"deadline": 0.01})
    assert status == 200
    assert "contradict" in plan["problem"]
    assert plan["warnings"]


def test_the_curious_server_and_the_liars(studio: Studio) -> None:
    picks = {"plan": HAND, "subgroups": [0, 1], "malicious": [0, 5]}
    status, found = studio.post("/api/attack", picks)
    design = Plan.build([24, 24, 24, 24], [2, 6, 8, 12], 79_510, value_range=1.0, subgroup_size=8).design
    assert status == 200
    assert found["decoded"]["segments"] == list(design.decodable({0, 1}))
    for row, segment in zip(found["spoiled"]["segments"], design.segments, strict=True):
        assert [tuple(block) for block in row["spoiled"]] == [block for block in segment if {0, 5} & set(block)]
    assert found["spoiled"]["broken"] == []
    _, worst = studio.post("/api/attack", {"plan": HAND, "worst": design.byzantine_tolerance() + 1})
    assert worst["spoiled"]["broken"]
    _, strawman = studio.post("/api/attack", {"plan": HAND | {"design": "multigroup"}, "subgroups": [3]})
    assert strawman["decoded"]["share"] == 1.0


@pytest.mark.parametrize("signed", [False, True])
def test_a_round_is_real_and_counts_every_byte(studio: Studio, signed: bool) -> None:
    status, told = studio.post("/api/round", {"watched": 2, "identities": signed, "gone_mask": [5], "gone_unmask": [7]})
    assert status == 200
    assert told["error"] is None
    phases = [step["phase"] for step in told["steps"]]
    assert phases == ["advertise", "share", "mask", *(["agree"] if signed else []), "unmask"]
    for step in told["steps"]:
        assert sum(part["bytes"] for part in step["message"]) == step["up"][2]
    assert 5 not in told["result"]["survivors"]
    assert told["result"]["largest_distance"] < 0.6
    masked = next(step for step in told["steps"] if step["phase"] == "mask")["vector"]
    assert all(0 <= level < cell["level"] for cell in masked for level in cell["levels"])


def test_a_round_that_fails_says_why(studio: Studio) -> None:
    status, told = studio.post("/api/round", {"gone_mask": [3, 4, 5, 6, 7, 8, 9]})
    assert status == 200
    assert told["error"]["kind"] == "TooFewSurvivorsError"
    assert told["result"] is None


def test_runs_are_listed_shown_and_compared(studio: Studio) -> None:
    _, listed = studio.get("/api/runs")
    names = {run["name"] for run in listed["runs"]}
    assert {"steady", "group/inner"} <= names
    assert not names & {"link", "half", "secret"}
    status, run = studio.get("/api/runs/group/inner")
    assert status == 200
    assert [point["round"] for point in run["points"]] == [1, 2, 3]
    assert run["points"][2]["seconds"] == pytest.approx(1.5)
    assert run["points"][0]["bytes"] == [5900.0, 6300.0]
    _, compared = studio.get("/api/compare?run=steady&run=group/inner")
    assert {"name": "rounds (failed)", "cells": ["6 (0)", "3 (0)"]} in compared["rows"]


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_record_is_listed_with_its_problem(studio: Studio, name: str) -> None:
    _, listed = studio.get("/api/runs")
    assert next(run for run in listed["runs"] if run["name"] == name)["problem"]
    for path in (f"/api/runs/{name}", f"/api/compare?run={name}"):
        status, answer = studio.get(path)
        assert status == 422
        assert str(studio.folder) not in answer["error"]


def test_rounds_arrive_as_they_are_written(studio: Studio) -> None:
    writer = begin_run(studio.folder / "streamed")
    write_round(writer, 1, 0.2)
    connection = http.client.HTTPConnection("127.0.0.1", studio.port, timeout=20)
    connection.request("GET", "/api/events?run=streamed")
    answer = connection.getresponse()
    assert answer.getheader("content-type", "").startswith("text/event-stream")

    def next_event(kind: str) -> Any:
        while True:
            line = answer.readline().decode()
            assert line
            if line.strip() == f"event: {kind}":
                return json.loads(answer.readline().decode().removeprefix("data: "))

    assert len(next_event("run")["points"]) == 1
    write_round(writer, 2, 0.3)
    assert [point["round"] for point in next_event("rounds")["points"]] == [2]
    writer.write("evaluation", {"round": 2, "accuracy": 0.9, "loss": 0.1})
    assert next_event("rounds")["points"][0]["accuracy"] == 0.9
    writer.write("end", {"rounds": 2, "seconds": 1.0})
    assert next_event("rounds")["finished"]
    writer.close()
    connection.close()


# --- what is refused ----------------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    "name",
    [
        "../outside/secret", "..%2Foutside%2Fsecret", "%2e%2e/outside/secret", "%2e%2e%2foutside%2fsecret", "link",
        "link/../../outside/secret", "half", "..", ".", "", "%00", "steady%00", "/etc", "%2Fetc%2Fpasswd",
        "..%5Coutside", "steady/../../outside/secret", "steady/record.jsonl", "%252e%252e/outside", "x" * 5000,
    ],
)  # fmt: skip
def test_a_run_is_named_by_the_listing_and_by_nothing_else(studio: Studio, name: str) -> None:
    for path in (f"/api/runs/{name}", f"/api/compare?run={urllib.parse.quote(name)}", f"/api/compare?run={name}"):
        status, _, body = studio.request("GET", path)
        assert 400 <= status < 500
        assert set(json.loads(body)) == {"error", "field"}
        assert b"outside" not in body
        assert str(studio.folder).encode() not in body


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


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"users": 10_001}, "users"),
        ({"users": 1e300}, "users"),
        ({"users": "96"}, "users"),
        ({"users": None}, "users"),
        ({"rates_kind": "list", "rates": "1 x 10001"}, "rates"),
        ({"rates_kind": "list", "rates": "1e999"}, "rates"),
        ({"rates_kind": "list", "rates": "one"}, "rates"),
        ({"dimension": 10**9 + 1}, "dimension"),
        ({"deadline": -1}, "deadline"),
        ({"limit": "bits", "bits": 10**30}, "bits"),
        ({"dropout": 0.7}, "dropout"),
        ({"min_survivors": 1}, "min_survivors"),
        ({"slowest": 5, "fastest": 1}, "fastest"),
        ({"most_subgroups": 65}, "most_subgroups"),
        ({"mode": "magic"}, "mode"),
        (HAND | {"classes": "5000,5001"}, "classes"),
        (HAND | {"classes": "9" * 30}, "classes"),
        (HAND | {"classes": "-5,5"}, "classes"),
        (HAND | {"subgroup_size": 1}, "subgroup_size"),
        (HAND | {"levels": "2,6"}, "levels"),
        (HAND | {"levels": "6,2,8,12"}, "levels[1]"),
        (HAND | {"design": "paper"}, "design"),
        (HAND | {"class_rates": "1"}, "class_rates"),
        (HAND | {"max_weight": 10**12}, "max_weight"),
    ],
)
def test_numbers_out_of_bounds_name_their_field_at_once(studio: Studio, form: dict[str, Any], field: str) -> None:
    began = time.monotonic()
    for path in ("/api/plan", "/api/trade-off"):
        status, answer = studio.post(path, form)
        assert status == 422
        assert answer["field"] == field
        assert field.split("[")[0] in answer["error"]
    assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "form",
    [
        {"users": 10_000, "most_subgroups": 64, "dimension": 10**9, "deadline": 10_000},
        HAND | {"classes": "2500,2500,2500,2500", "subgroup_size": 160, "design": "paper-composite"},
    ],
)
def test_the_largest_plans_of_the_page_take_seconds(studio: Studio, form: dict[str, Any]) -> None:
    began = time.monotonic()
    assert studio.post("/api/plan", form)[0] == 200
    assert time.monotonic() - began < 20


def test_wrong_picks_are_refused(studio: Studio) -> None:
    for picks, field in (
        ({"subgroups": [12]}, "subgroups"),
        ({"malicious": [-1]}, "malicious"),
        ({"lost": list(range(12))}, "lost"),
        ({"worst": 100}, "worst"),
    ):
        status, answer = studio.post("/api/attack", {"plan": HAND, **picks})
        assert (status, answer["field"]) == (422, field)
    assert studio.post("/api/attack", {"plan": 3})[0] == 422
    assert studio.post("/api/round", {"watched": 12})[0] == 422
    assert studio.post("/api/round", {"watched": 5, "gone_mask": [5]})[1]["field"] == "watched"


def test_a_folder_or_port_that_cannot_be_served_is_named(tmp_path: Path, studio: Studio) -> None:
    from heterosag.errors import UsageError
    from heterosag.studio.serve import serve

    with pytest.raises(UsageError, match="no folder"):
        serve(tmp_path / "missing", port=0)
    with pytest.raises(UsageError, match="--port"):
        serve(tmp_path, port=studio.port)


# --- a browser ----------------------------------------------------------------------------------------------------

# Chromium reads commands from descriptor 3 and writes to 4; this puts two pipes there.
_LAUNCH = """
import fcntl, os, sys
reads, writes = (fcntl.fcntl(int(word), fcntl.F_DUPFD, 10) for word in sys.argv[1:3])
os.dup2(reads, 3); os.dup2(writes, 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""


class Browser:
    """One page of headless Chromium, over the DevTools protocol on a pipe: no driver, no port, no dependency."""

    def __init__(self, chromium: str, profile: Path) -> None:
        to_read, self._to = os.pipe()
        self._from, to_write = os.pipe()
        words = [
            sys.executable, "-c", _LAUNCH, str(to_read), str(to_write), chromium, "--headless=new", "--no-sandbox",
            "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
            "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(words, pass_fds=(to_read, to_write), stdout=quiet, stderr=quiet)
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, ""
        self.events: list[dict[str, Any]] = []
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **values: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": values}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]  # type: ignore[no-any-return]
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._from], [], [], 30)[0], "the browser does not answer"
            data = os.read(self._from, 1 << 20)
            assert data, "the browser has gone"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(line)  # type: ignore[no-any-return]

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, script: str, seconds: float = 15) -> None:
        """Until the expression is true."""
        end = time.monotonic() + seconds
        while not self.run(f"Boolean({script})"):
            assert time.monotonic() < end, f"never true: {script}"
            time.sleep(0.05)

    def open(self, address: str, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        self.call("Page.navigate", url="about:blank")
        self.events.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && document.querySelector('#matrix td')")

    def press(self, key: str) -> None:
        codes = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39, "ArrowDown": 40}
        text = {"text": "\r" if key == "Enter" else key} if key in ("Enter", " ") else {}
        for kind in ("keyDown", "keyUp"):
            spelled = text if kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=codes[key], **spelled)

    def set(self, field: str, value: str) -> None:
        """Change a control as a person's input does."""
        self.run(
            f"(() => {{ const box = document.querySelector({json.dumps(field)}); box.value = {json.dumps(value)};"
            "for (const kind of ['input', 'change']) box.dispatchEvent(new Event(kind, { bubbles: true })); })()"
        )

    def click(self, what: str) -> None:
        self.run(f"document.querySelector({json.dumps(what)}).click()")

    def screenshot(self, path: Path, *, whole: bool = False) -> None:
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def complaints(self) -> list[Any]:
        """Errors and warnings of the console, and requests that went elsewhere."""
        self.run("new Promise((done) => setTimeout(done, 100))")
        found: list[Any] = []
        for event in self.events:
            values = event.get("params", {})
            match event.get("method"):
                case "Runtime.consoleAPICalled" if values["type"] in ("error", "warning", "assert"):
                    found.append(values["args"])
                case "Runtime.exceptionThrown":
                    found.append(values["exceptionDetails"])
                case "Log.entryAdded" if values["entry"]["level"] in ("error", "warning"):
                    found.append(values["entry"])
                case "Network.requestWillBeSent":
                    address = values["request"]["url"]
                    if not address.startswith(("http://127.0.0.1:", "blob:http://127.0.0.1:")):
                        found.append(address)
        return found

    def close(self) -> None:
        self._session = ""
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self._to)
        os.close(self._from)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("no Chromium on this machine: install it to check the studio in a browser")
    found = Browser(chromium, tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


SHOWN = "document.querySelector('#planned').getAttribute('aria-busy') === 'false'"
FIGURES = "['#figures', '#warnings', '#export'].map((id) => document.querySelector(id).textContent).join('')"


def change(browser: Browser, field: str, value: str) -> tuple[str, str]:
    """The figures and the export before and after a control is changed."""
    browser.wait(SHOWN)
    before = browser.run(FIGURES)
    browser.set(field, value)
    browser.wait(f"{SHOWN} && ({FIGURES}) !== {json.dumps(before)}")
    return before, browser.run(FIGURES)


@pytest.mark.slow
def test_every_control_changes_the_numbers(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    changes = {
        "users": "120", "slowest": "1.5", "fastest": "30", "dimension": "60000", "deadline": "0.5", "dropout": "0.05",
        "attackers": "3", "min_survivors": "4", "most_subgroups": "14", "most_classes": "2", "value_range": "2",
        "max_weight": "3", "rates_kind": "lognormal", "median": "6", "spread": "0.5", "corrupt": "0.2",
    }  # fmt: skip
    for name, value in changes.items():
        change(browser, f"#f-{name}", value)
    browser.open(f"{studio.base}/#plan")
    change(browser, "#f-rates_kind", "list")
    change(browser, "#f-rates", "1 x 48, 3 x 48")
    change(browser, "#f-limit", "bits")
    change(browser, "#f-bits", "600000")
    change(browser, "#f-mode", "hand")
    change(browser, "#f-classes", "30,30,30,30")
    change(browser, "#f-levels", "2,4,8,16")
    change(browser, "#f-class_rates", "0.5,2,4,8")
    change(browser, "#f-subgroup_size", "6")
    change(browser, "#f-design", "multigroup")
    change(browser, "#f-colluders", "3")
    browser.click("#f-fill_levels")
    browser.wait("document.querySelector('#export').textContent.includes('fill_levels = true')")
    browser.run("document.querySelector('[aria-label=\"Subgroup size, slider\"]').value = 500")
    browser.run("document.querySelector('[aria-label=\"Subgroup size, slider\"]').dispatchEvent(new Event('input'))")
    browser.wait("document.querySelector('#export').textContent.includes('subgroup_size = 20')")
    assert browser.complaints() == []


def test_a_wrong_value_is_pointed_at_and_the_last_plan_stays(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait(SHOWN)
    browser.set("#f-users", "20000")
    browser.wait("document.querySelector('#f-users').getAttribute('aria-invalid') === 'true'")
    assert "10,000" in browser.run("document.querySelector('#row-users .fault').textContent")
    assert browser.run("document.querySelectorAll('#matrix td').length") > 0
    browser.set("#f-users", "96")
    browser.wait("document.querySelector('#problem').hidden")


def test_the_plan_is_shown_and_taken_away(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait("document.querySelector('#curve .point')")
    assert browser.run("document.querySelectorAll('#bytes rect.box').length") > 2
    assert "does not hold" in browser.run("document.querySelector('#guarantees').textContent")
    browser.run("document.querySelector('#matrix td[data-row=\"1\"][data-column=\"2\"]').dispatchEvent("
                "new MouseEvent('mouseover', { bubbles: true }))")  # fmt: skip
    words = browser.run("document.querySelector('#cell').textContent")
    assert re.search(r"Segment 1, .*subgroup 2 .* codes with subgroup .* levels in .* The server learns the sum", words)
    toml = browser.run("document.querySelector('#export').textContent")
    assert Plan.from_toml(toml).digest.hex() in toml
    assert browser.run("fetch(document.querySelector('#download').href).then((r) => r.text(), () => 'blocked')") in (
        toml,
        "blocked",
    )
    browser.click("[data-export=command]")
    assert browser.run("document.querySelector('#export').textContent").startswith("heterosag plan")
    browser.click("[data-export=python]")
    assert "Plan.build(" in browser.run("document.querySelector('#export').textContent")
    assert browser.run("document.querySelector('#download').download") == "plan.py"


def test_the_keyboard_reaches_everything(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait(SHOWN)
    visited = set()
    for _ in range(70):
        browser.press("Tab")
        here = "(document.activeElement.id || document.activeElement.tagName + document.activeElement.textContent)"
        visited.add(browser.run(here))
    assert {"APlan", "AAttack it", "f-mode", "f-deadline", "copy", "download", "export"} <= visited
    browser.run("document.querySelector('#matrix td[tabindex]').focus()")
    browser.press("ArrowRight")
    browser.press("ArrowDown")
    assert browser.run("document.querySelector('#cell').textContent").startswith("Segment 1,")
    unlabelled = (
        "[...document.querySelectorAll('input, select, textarea, button')].filter((box) => !box.labels?.length"
        " && !box.getAttribute('aria-label') && !box.textContent.trim()).length"
    )
    assert browser.run(unlabelled) == 0
    assert browser.complaints() == []


def test_subgroups_and_liars_are_picked(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#plan")
    browser.wait(SHOWN)
    browser.click("nav a[href='#attack']")
    browser.wait("document.querySelector('#decode td')")
    for subgroup in (0, 1):
        browser.click(f"[aria-label='A curious server: subgroup {subgroup}']")
    browser.wait("document.querySelector('#decode-words').textContent.includes('subgroups 0, 1 in 1 of')")
    assert browser.run("document.querySelectorAll('#decode tbody tr:not(.faint)').length") == 1
    browser.click("[aria-label='Malicious users: subgroup 0']")
    browser.wait("document.querySelector('#spoil-words').textContent.startsWith('One attacker')")
    assert browser.run("document.querySelectorAll('#spoil td.spoiled').length") > 0
    browser.set("#worst", "8")
    browser.click("#place")
    browser.wait("document.querySelector('#spoil-words').textContent.includes('take the median')")
    assert browser.complaints() == []


def test_a_run_is_watched_while_it_runs(studio: Studio, browser: Browser) -> None:
    writer = begin_run(studio.folder / "watched")
    write_round(writer, 1, 0.2)
    browser.open(f"{studio.base}/#runs")
    box = "document.querySelector('#listing input[value=watched]')"
    browser.wait(box)
    browser.run(f"{box}.checked || {box}.click()")
    others = "[...document.querySelectorAll('#listing input:checked')].filter((box) => box.value !== 'watched')"
    browser.run(f"{others}.forEach((box) => box.click())")
    dots = "document.querySelectorAll('#accuracy-rounds circle').length"
    browser.wait(f"{dots} === 1")

    def go_on() -> None:
        for number in range(2, 5):
            write_round(writer, number, 0.2 * number)
            time.sleep(0.2)
        writer.write("end", {"rounds": 4, "seconds": 1.0})

    trainer = threading.Thread(target=go_on)
    trainer.start()
    browser.wait(f"{dots} === 4")
    trainer.join()
    writer.close()
    browser.wait("document.querySelector('#compared').textContent.includes('4 (0)')")
    browser.run("document.querySelector('#listing input[value=steady]').click()")
    browser.wait(f"{dots} === 10")
    browser.wait("document.querySelectorAll('#compared thead th').length === 3")
    assert browser.complaints() == []


def test_a_round_is_stepped_through(studio: Studio, browser: Browser) -> None:
    browser.open(f"{studio.base}/#round")
    browser.wait("document.querySelectorAll('#steps button').length === 5")
    assert "Advertise keys" in browser.run("document.querySelector('#step').textContent")
    browser.click("#next")
    browser.click("#next")
    words = browser.run("document.querySelector('#step').textContent")
    assert "Gone: user 5" in words
    assert "The vector's way" in words
    browser.click("#next")
    browser.click("#next")
    assert "All that the server has seen in plaintext" in browser.run("document.querySelector('#step').textContent")
    browser.click("#identities")
    browser.click("#round-form button")
    browser.wait("document.querySelectorAll('#steps button').length === 6")
    assert browser.complaints() == []


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_wide_and_narrow(studio: Studio, browser: Browser, tmp_path: Path, width: int, dark: bool) -> None:
    """Set HETEROSAG_SCREENSHOTS to a folder to keep the pictures."""
    kept = Path(os.environ.get("HETEROSAG_SCREENSHOTS", tmp_path))
    browser.open(f"{studio.base}/#plan", width=width, height=1400, dark=dark)
    browser.wait("document.querySelector('#curve .point')")
    for tab, ready in (
        ("plan", "#curve .point"),
        ("attack", "#spoil td"),
        ("runs", "#listing"),
        ("round", "#traffic rect"),
    ):
        browser.run(f"location.hash = '{tab}'")
        browser.wait(f"document.querySelector('{ready}')")
        assert browser.run("document.documentElement.scrollWidth") <= width, tab
        browser.run("scrollTo(0, 0); new Promise((done) => setTimeout(done, 150))")
        picture = kept / f"studio-{tab}-{width}{'-dark' if dark else ''}.png"
        browser.screenshot(picture, whole=True)
        assert picture.stat().st_size > 10_000
    assert browser.complaints() == []
