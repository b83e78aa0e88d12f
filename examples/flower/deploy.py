"""A real deployment on loopback: a SuperLink, SuperNodes in processes of their own, one killed, one malicious.

`python deploy.py` starts everything, runs the app, kills a node in the middle of the last round, prints accuracy and
bytes, and leaves no process behind.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BIN = Path(sys.executable).parent
STAGES = 4  # messages to a node in a round: advertise, share, mask, unmask
SHARE = 3  # which of them asks for shares in the first round: hello and advertise come before

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "OMP_NUM_THREADS": "1",
}


def free_ports(count: int) -> list[int]:
    """So many different ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def environment(home: Path) -> dict[str, str]:
    """What Flower's commands see: a home of their own, no network beyond loopback, and each other."""
    path = f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}"
    own = {"PATH": path, "FLWR_HOME": str(home), "HETEROSAG_RELEASES": str(home / "releases")}
    return {**os.environ, **QUIET, **own}


class Deployment:
    """Processes that end together."""

    def __init__(self, home: Path, nodes: int) -> None:
        self.home = home
        self.nodes = nodes
        self.environment = environment(home)
        self.port, *self.node_ports = free_ports(nodes + 1)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.over = threading.Event()

    def start(self, name: str, *words: str) -> None:
        with (self.home / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / words[0]), *words[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment,
                start_new_session=True,
            )

    def start_all(self) -> None:
        local = f"127.0.0.1:{self.port}"
        (self.home / "config.toml").write_text(f'[superlink.loopback]\naddress = "{local}"\ninsecure = true\n')
        link = ("flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self.port))
        self.start("superlink", *link, "--disable-runtime-dependency-installation")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    break
            time.sleep(0.5)
        for place in range(self.nodes):
            config = f"partition-id={place} num-partitions={self.nodes}"
            if place == self.nodes - 1:
                config += " malicious=true"
            words = ("flower-supernode", "--insecure", "--superlink", local, "--host", "127.0.0.1")
            self.start(f"node-{place}", *words, "--port", str(self.node_ports[place]), "--node-config", config)

    def kill(self, name: str) -> None:
        """Kill a process and what it started, at once."""
        print(f"killing {name}", flush=True)
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def kill_at(self, name: str, message: int) -> None:
        """Kill a node as soon as it has received so many messages: the app that answers the last has yet to start."""
        log = self.home / f"{name}.log"
        while not self.over.wait(0.05):
            if log.read_text(encoding="utf-8", errors="replace").count("Received successfully") >= message:
                self.kill(name)
                return

    def kill_all(self) -> None:
        """End everything, the SuperLink last."""
        for name in reversed(list(self.processes)):
            self.kill(name)


def loopback_bytes() -> int:
    """All that has crossed this machine's loopback so far, where the system counts it."""
    counter = Path("/sys/class/net/lo/statistics/tx_bytes")
    return int(counter.read_text()) if counter.exists() else 0


def wait_for(result: Path, seconds: float) -> dict[str, object]:
    """What the app wrote when it ended: the stream of its log may end before, when the machine is busy."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(FileNotFoundError, json.JSONDecodeError):
            found: dict[str, object] = json.loads(result.read_text(encoding="utf-8"))
            return found
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"the app wrote no result within {seconds:.0f} seconds after its log ended; see {result.parent}"
            )
        time.sleep(0.5)


def run(nodes: int, rounds: int, home: Path, timeout: float = 180.0) -> dict[str, object]:
    result = home / "result.json"
    deployment = Deployment(home, nodes)
    victim = f"node-{2 * nodes // 3}"
    record = home / "record"
    settings = f'nodes={nodes} rounds={rounds} stage-timeout={timeout} result="{result}" record="{record}"'
    try:
        deployment.start_all()
        words = [str(BIN / "flwr"), "run", str(HERE), "loopback", "--run-config", settings, "--stream"]
        before = loopback_bytes()
        murder = threading.Thread(target=deployment.kill_at, args=(victim, SHARE + STAGES * (rounds - 1)), daemon=True)
        murder.start()
        client = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=deployment.environment
        )
        with client:
            assert client.stdout is not None
            try:
                for line in client.stdout:
                    print(line, end="", flush=True)
            finally:
                client.kill()
        found = wait_for(result, timeout)
    finally:
        deployment.over.set()
        deployment.kill_all()
    return found | {"loopback_bytes": loopback_bytes() - before}


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the app on a SuperLink and SuperNodes on this machine.")
    parser.add_argument("--nodes", type=int, default=11)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left behind then either
    with tempfile.TemporaryDirectory() as home:
        found = run(given.nodes, given.rounds, Path(home))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
