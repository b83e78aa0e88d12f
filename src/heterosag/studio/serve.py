"""Serving the studio on this machine, and to this machine only."""

from __future__ import annotations

import socket  # noqa: TID251 - listens on this machine's loopback; connects to nobody
import webbrowser  # noqa: TID251 - shows this machine's own page
from pathlib import Path

from heterosag.errors import UsageError
from heterosag.studio.app import make_app

__all__ = ["ADDRESS", "serve"]

ADDRESS = "127.0.0.1"


def serve(folder: Path, *, port: int, open_page: bool = False) -> None:
    """Serve the page until it is interrupted, and say where it is.

    Args:
        folder: The folder whose runs are shown.
        port: The port, 0 for any that is free.
        open_page: Open the page in the system's browser, too.
    """
    try:
        import uvicorn
    except ImportError:
        raise UsageError("the studio needs uvicorn: pip install 'heterosag[studio]'") from None
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder: give the one that holds the runs")
    if not 0 <= port < 2**16:
        raise UsageError(f"a port is a number from 0 to {2**16 - 1}, not {port}")
    config = uvicorn.Config(
        make_app(folder),
        host=ADDRESS,
        port=port,
        log_level="warning",
        server_header=False,
        limit_concurrency=100,
        proxy_headers=False,  # a header must not say where a request comes from
        timeout_graceful_shutdown=1,  # streams of events have no end of their own
    )
    sock = _bind(port)
    address = f"http://{ADDRESS}:{sock.getsockname()[1]}/"
    print(f"studio: {address} (end with Ctrl-C)", flush=True)
    if open_page and not webbrowser.open(address):  # the socket listens already: the page waits for the server
        print("studio: no browser could be opened; open the address yourself", flush=True)
    uvicorn.Server(config).run(sockets=[sock])


def _bind(port: int) -> socket.socket:
    """The socket, before anything is said: a port that is taken is an error of ours, and port 0 becomes a number."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((ADDRESS, port))
        sock.listen()
    except OSError as error:
        sock.close()
        raise UsageError(f"cannot serve on port {port}: {error.strerror}; choose another with --port") from None
    return sock
