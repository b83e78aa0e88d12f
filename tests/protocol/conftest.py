"""In every test of the protocol, an error blames who sent the message that it is about."""

from typing import Any

import pytest

from heterosag.errors import FaultyUserError, WireError
from heterosag.protocol import Client, Server


@pytest.fixture(autouse=True)
def bad_bytes_are_the_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test here is about: bytes that do not decode came from the server."""
    step = Client._step

    def checked(self: Client, *words: Any) -> bytes:
        try:
            return step(self, *words)
        except WireError as error:
            if error.sender != "server":
                pytest.fail(f"{error.sender!r} is blamed for what the server sent: {error}")
            raise

    monkeypatch.setattr(Client, "_step", checked)


@pytest.fixture(autouse=True)
def every_refusal_names_the_sender(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test here is about: an error of `receive` blames the user whose message it was."""
    receive = Server.receive

    def checked(self: Server, user: Any, data: bytes) -> bool:
        try:
            return receive(self, user, data)
        except (FaultyUserError, WireError) as error:
            blamed = error.user if isinstance(error, FaultyUserError) else error.sender
            if blamed != user:
                pytest.fail(f"{user!r} sent it, {blamed!r} is blamed: {error}")
            raise

    monkeypatch.setattr(Server, "receive", checked)
