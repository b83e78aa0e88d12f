"""Signed apps for a federation of its own: what a SuperLink otherwise asks of Flower's Hub.

A SuperNode with `--trusted-entities` runs an app only if somebody whom its owner trusts has signed the app's bundle.
Signatures reach it with apps from the Hub only, which a SuperLink looks for at FLWR_SUPERGRID_API_URL. So:

    python hub.py key owner.key >> trusted.yaml   # a node's owner, once: a key, and the line by which nodes trust it
    flwr build --app .                            # the app as a bundle
    python hub.py sign owner.key NAME.fab         # the owner, having read the app: NAME.fab.ID.json
    python hub.py serve FOLDER --port 8090        # beside the SuperLink: the bundles and signatures of a folder

Nodes trust the key, neither who serves the folder nor the SuperLink: a signature covers every byte of its bundle. The
key stays with the owner. A key that has signed one app lets its nodes run that one and nothing else.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import sys
import time
import tomllib
import uuid
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

MOST = 1 << 16  # bytes of a request


def make_key(path: Path) -> str:
    """Make a signing key, readable by its owner only, and give its line of a file of trusted entities."""
    key = Ed25519PrivateKey.generate()
    form = serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(key.private_bytes(*form))
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{key_id(key)}: {public.decode()}"


def load_key(path: Path) -> Ed25519PrivateKey:
    key = serialization.load_ssh_private_key(path.read_bytes(), password=None)
    if not isinstance(key, Ed25519PrivateKey):
        sys.exit(f"{path} is not an Ed25519 key")
    return key


def key_id(key: Ed25519PrivateKey) -> str:
    """The name under which nodes look for a key's signatures, in the form that Flower asks for."""
    return f"fpk_{uuid.UUID(bytes=hashlib.sha256(key.public_key().public_bytes_raw()).digest()[:16])}"


def sign(key: Ed25519PrivateKey, bundle: bytes) -> dict[str, object]:
    """One signature as the Hub gives it: over the time and the bundle's hash."""
    now = int(time.time())
    signature = key.sign(now.to_bytes(8, "big") + hashlib.sha256(bundle).digest())
    text = base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
    return {"public_key_id": key_id(key), "signed_at": now, "signature": text}


def find(folder: Path, app: str, version: str | None) -> Path | None:
    """The bundle of an app: its newest version unless one is asked for, and of one version the newest file."""
    found = {}
    for path in folder.glob("*.fab"):
        with zipfile.ZipFile(path) as bundle:
            config = tomllib.loads(bundle.read("pyproject.toml").decode())
        project, publisher = config["project"], config["tool"]["flwr"]["app"]["publisher"]
        if f"@{publisher}/{project['name']}" == app and version in (None, project["version"]):
            found[tuple(map(int, project["version"].split("."))), path.stat().st_mtime_ns] = path
    return found[max(found)] if found else None


class Hub(BaseHTTPRequestHandler):
    """Answers the two requests of a SuperLink: where an app is and who signed it, and the app."""

    folder: Path

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(min(int(self.headers["Content-Length"]), MOST)))
        path = find(self.folder, asked["app_id"], asked["app_version"]) if self.path == "/hub/fetch-fab" else None
        if path is None:
            self.answer(404, b'{"detail": "no such app"}')
            return
        signatures = [json.loads(one.read_bytes()) for one in sorted(self.folder.glob(f"{path.name}.*.json"))]
        found = {"fab_url": f"http://{self.headers['Host']}/{path.name}", "verifications": signatures}
        self.answer(200, json.dumps(found).encode())

    def do_GET(self) -> None:
        names = {path.name: path for path in self.folder.glob("*.fab")}
        path = names.get(self.path.removeprefix("/"))
        self.answer(200 if path else 404, path.read_bytes() if path else b"")

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    parser = argparse.ArgumentParser(description="Sign apps and serve them to a SuperLink.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("key", help="make a signing key")
    command.add_argument("key", type=Path)
    command = commands.add_parser("sign", help="sign a bundle")
    command.add_argument("key", type=Path)
    command.add_argument("bundle", type=Path)
    command = commands.add_parser("serve", help="serve a folder of bundles and their signatures")
    command.add_argument("folder", type=Path)
    command.add_argument("--host", default="127.0.0.1")
    command.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    if given.command == "key":
        print(make_key(given.key))
    elif given.command == "sign":
        key = load_key(given.key)
        path = given.bundle.with_name(f"{given.bundle.name}.{key_id(key)}.json")
        path.write_text(json.dumps(sign(key, given.bundle.read_bytes())), encoding="utf-8")
        print(path)
    else:
        Hub.folder = given.folder
        ThreadingHTTPServer((given.host, given.port), Hub).serve_forever()


if __name__ == "__main__":
    main()
