"""A real deployment on loopback: a SuperLink, SuperNodes in processes of their own, one killed, one malicious.

`python deploy.py` signs the app, starts everything, runs the app, kills a node in the middle of the last round, prints
accuracy, bytes, trips and seconds, and leaves no process behind. Whoever may submit an app to a node reads its data, so
these nodes run the signed app and no other (`hub.py`). `--compare` first runs it with every round set up by itself.
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
HUB = str(HERE / "hub.py")
APP = "@heterosag/heterosag-digits"  # publisher and name in pyproject.toml
FIRST = 5  # messages to a node in the first round: hello, advertise, share, mask, unmask
STEADY = 2  # in a round that was set up ahead: mask, unmask

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
    """A SuperLink, SuperNodes, and the folder of signed apps that they run: processes that end together."""

    def __init__(self, home: Path, nodes: int) -> None:
        self.home = home
        self.nodes = nodes
        self.apps = home / "signed"
        self.apps.mkdir()
        self.environment = environment(home)
        self.hub_port, self.link_port, *self.node_ports = free_ports(nodes + 2)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.over = threading.Event()

    def start(self, name: str, *words: str, home: Path | None = None) -> None:
        with (self.home / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [str(BIN / words[0]), *words[1:]],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(home) if home else self.environment,
                start_new_session=True,
            )

    def call(self, *words: str) -> str:
        """What a command prints that ends by itself, in the folder of signed apps."""
        command = [str(BIN / words[0]), *words[1:]]
        done = subprocess.run(
            command, cwd=self.apps, env=self.environment, capture_output=True, text=True, timeout=120, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)} failed: {done.stdout}{done.stderr}")
        return done.stdout

    def make_key(self, key: Path) -> str:
        """Make a key that signs apps; the result is its line of a file of trusted entities."""
        return self.call("python", HUB, "key", str(key))

    def sign(self, app: Path, key: Path) -> Path:
        """Build an app and sign it, for nodes that trust this key; the result is the bundle."""
        before = set(self.apps.glob("*.fab"))
        self.call("flwr", "build", "--app", str(app))
        (bundle,) = set(self.apps.glob("*.fab")) - before
        self.call("python", HUB, "sign", str(key), str(bundle))
        return bundle

    def start_link(self) -> None:
        """Start a SuperLink that gets signed apps from our folder instead of Flower's Hub."""
        local = f"127.0.0.1:{self.link_port}"
        (self.home / "config.toml").write_text(f'[superlink.loopback]\naddress = "{local}"\ninsecure = true\n')
        self.environment["FLWR_SUPERGRID_API_URL"] = f"http://127.0.0.1:{self.hub_port}"
        self.start("hub", "python", HUB, "serve", str(self.apps), "--port", str(self.hub_port))
        link = ("flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(self.link_port))
        self.start("superlink", *link, "--disable-runtime-dependency-installation")
        for port in (self.hub_port, self.link_port):
            wait_for_port(port, 60)

    def start_node(self, place: int, config: str, trusted: Path | None) -> None:
        """Start a SuperNode that runs only what a trusted entity signed; with no file of them it runs every app."""
        words = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{self.link_port}"]
        words += ["--host", "127.0.0.1", "--port", str(self.node_ports[place]), "--node-config", config]
        if trusted:
            words += ["--trusted-entities", str(trusted)]
        self.start(f"node-{place}", *words, home=self.home / f"node-{place}")

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


def wait_for_port(port: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(f"nobody listens on port {port} after {seconds:.0f} seconds")


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


def start(deployment: Deployment) -> None:
    """Sign the app, and start the SuperLink and nodes that run nothing else; the last node is malicious."""
    home, nodes = deployment.home, deployment.nodes
    key, trusted = home / "owner.key", home / "trusted.yaml"  # elsewhere the key is never on the server
    trusted.write_text(deployment.make_key(key))
    deployment.sign(HERE, key)
    deployment.start_link()
    for place in range(nodes):
        config = f"partition-id={place} num-partitions={nodes}"
        deployment.start_node(place, config + " malicious=true" * (place == nodes - 1), trusted)


def run_app(
    deployment: Deployment, rounds: int, name: str, timeout: float, *, prepare: bool, more: str = ""
) -> dict[str, object]:
    """Run the app once, and print what it logs. `more` is added to its run configuration."""
    result = deployment.home / f"{name}.json"
    settings = (
        f'nodes={deployment.nodes} rounds={rounds} stage-timeout={timeout} result="{result}" '
        f'record="{deployment.home / name}" prepare={str(prepare).lower()} {more}'
    )
    words = [str(BIN / "flwr"), "run", APP, "loopback", "--run-config", settings, "--stream"]
    before = loopback_bytes()
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
    return wait_for(result, timeout) | {"loopback_bytes": loopback_bytes() - before}


def run(
    nodes: int, rounds: int, home: Path, timeout: float = 180.0, *, compare: bool = False, more: str = ""
) -> dict[str, object]:
    """The app on a deployment of its own, a node killed when it is asked to mask in the last round."""
    deployment = Deployment(home, nodes)
    victim = f"node-{2 * nodes // 3}"
    alone: dict[str, object] = {}
    try:
        start(deployment)
        if compare:
            alone = {"each_round_by_itself": run_app(deployment, rounds, "alone", timeout, prepare=False, more=more)}
        received = (deployment.home / f"{victim}.log").read_text(errors="replace").count("Received successfully")
        message = received + FIRST + STEADY * (rounds - 2) + 1 if rounds > 1 else received + FIRST - 1
        threading.Thread(target=deployment.kill_at, args=(victim, message), daemon=True).start()
        found = run_app(deployment, rounds, "prepared", timeout, prepare=True, more=more)
    finally:
        deployment.over.set()
        deployment.kill_all()
    return found | alone


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the app on a SuperLink and SuperNodes on this machine.")
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--compare", action="store_true", help="first with every round set up by itself")
    parser.add_argument("--summary", type=Path, help="where to write what came out, as JSON")
    given = parser.parse_args()
    began = time.monotonic()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left behind then either
    with tempfile.TemporaryDirectory() as home:
        found = run(given.nodes, given.rounds, Path(home), compare=given.compare)
    print(json.dumps(found, indent=2))
    if given.summary:
        words = ["python examples/flower/deploy.py", f"--nodes {given.nodes} --rounds {given.rounds}"]
        command = " ".join([*words, "--compare"][: 2 + given.compare])
        about = {"command": command, "seed": None, "duration_seconds": round(time.monotonic() - began, 1)}
        given.summary.write_text(json.dumps(about | found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
