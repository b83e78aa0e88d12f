"""The studio as a Starlette application: routes, and what is refused before any of them is reached.

The page is for the person at this machine. Other sites that the person's browser has open must not reach it: a request
with a foreign Host (DNS rebinding) or Origin, or that the browser says comes from another site, is refused; a body is
JSON of at most 64 kB; nothing that is sent changes anything on the disk.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit  # noqa: TID251 - takes an Origin header apart; asks nobody

from heterosag.errors import HeteroSagError, PlanError, UsageError
from heterosag.studio import attacks, plans, rounds, runs
from heterosag.studio.choosing import choose
from heterosag.studio.forms import Form, read_form

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["LARGEST_BODY", "make_app"]

T = TypeVar("T")

LARGEST_BODY = 64_000
_MOST_AT_ONCE = 2  # plans in the making
_HERE = ("127.0.0.1", "localhost", "::1")

_HEADERS = {
    b"content-security-policy": b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


def make_app(folder: Path) -> Starlette:
    """The application for the runs of a folder."""
    try:
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.routing import Mount, Route
        from starlette.staticfiles import StaticFiles
    except ImportError:
        raise UsageError("the studio needs starlette: pip install 'heterosag[studio]'") from None
    pages = _Pages(folder)
    static = Path(__file__).with_name("static")
    return Starlette(
        routes=[
            Route("/api/plan", pages.plan, methods=["POST"]),
            Route("/api/trade-off", pages.trade_off, methods=["POST"]),
            Route("/api/attack", pages.attack, methods=["POST"]),
            Route("/api/round", pages.round, methods=["POST"]),
            Route("/api/runs", pages.list_runs),
            Route("/api/compare", pages.compare),
            Route("/api/events", pages.events),
            Route("/api/runs/{name:path}", pages.show_run),
            Mount("/", StaticFiles(directory=static, html=True)),
        ],
        middleware=[Middleware(_Gate)],
        exception_handlers={HeteroSagError: _refuse, 404: _not_found, 405: _not_found},
    )


class _Pages:
    """What the routes answer. Work that takes long is done in a thread, a few at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._slots: Any = None

    async def plan(self, request: Request) -> Response:
        """What the Plan tab shows."""
        form = await _form(request)
        return await self._answer(lambda: plans.describe(choose(form)))

    async def trade_off(self, request: Request) -> Response:
        """The curves of the Plan tab, point by point: the page may have gone on to another plan meanwhile."""
        from starlette.responses import JSONResponse

        form = await _form(request)
        choice = await self._work(lambda: choose(form))
        names = plans.name_curves(choice)
        curves: list[list[tuple[float, float | None]]] = [[] for _ in names]
        for number, at in product(range(len(names)), plans.spread_points(choice)):
            if await request.is_disconnected():
                break
            curves[number].append(await self._work(partial(plans.trace, choice, number, at)))
        return JSONResponse(
            {"curve": curves[0], "curves": curves, "names": names, "chosen": plans.choose_point(choice)}
        )

    async def attack(self, request: Request) -> Response:
        """The Attack tab: the form has the plan's own form beside the picks."""
        form = await _form(request)
        return await self._answer(lambda: attacks.attack(choose(form.inner("plan")).plan, form))

    async def round(self, request: Request) -> Response:
        """The Round tab."""
        form = await _form(request)
        return await self._answer(lambda: rounds.step_through(form))

    async def list_runs(self, request: Request) -> Response:
        """The listing of the Runs tab."""
        del request
        return await self._answer(lambda: {"runs": runs.list_runs(self._folder)})

    async def show_run(self, request: Request) -> Response:
        """One run, by a name of the listing."""
        name = request.path_params["name"]
        return await self._answer(lambda: runs.describe_run(self._folder, name))

    async def compare(self, request: Request) -> Response:
        """Some runs in a table."""
        names = request.query_params.getlist("run")
        return await self._answer(lambda: runs.compare(self._folder, names))

    async def events(self, request: Request) -> Response:
        """Server-sent events of some runs."""
        from starlette.responses import StreamingResponse

        names = request.query_params.getlist("run")
        if len(names) > runs.MOST_COMPARED:
            raise UsageError(f"follow at most {runs.MOST_COMPARED} runs")
        return StreamingResponse(runs.follow(self._folder, names), media_type="text/event-stream")

    async def _answer(self, work: Callable[[], dict[str, Any]]) -> Response:
        from starlette.responses import JSONResponse

        return JSONResponse(await self._work(work))

    async def _work(self, work: Callable[[], T]) -> T:
        import anyio

        if self._slots is None:
            self._slots = anyio.CapacityLimiter(_MOST_AT_ONCE)
        return await anyio.to_thread.run_sync(work, limiter=self._slots)


async def _form(request: Request) -> Form:
    return read_form(await request.body())


# --- refusals -----------------------------------------------------------------------------------------------------


async def _refuse(request: Request, error: Exception) -> Response:
    """An error of ours in words, and the field it is about."""
    from starlette.responses import JSONResponse

    del request
    field = error.field if isinstance(error, PlanError) else None
    return JSONResponse({"error": str(error), "field": field}, status_code=422)


async def _not_found(request: Request, error: Exception) -> Response:
    from starlette.responses import JSONResponse

    del request
    status = getattr(error, "status_code", 404)
    words = "there is nothing here" if status == 404 else "this address does not take that method"
    return JSONResponse({"error": words, "field": None}, status_code=status)


class _Gate:
    """Refuses what does not come from this page, and gives every answer its headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [(name, value) for name, value in message["headers"] if name.lower() not in _HEADERS]
                message = {**message, "headers": [*kept, *_HEADERS.items()]}
            await send(message)

        problem = _foreign(scope)
        if problem is None and scope["method"] == "POST":
            problem, body = await _read_body(scope, receive)
            receive = _replay(body, receive)
        if problem is not None:
            from starlette.responses import JSONResponse

            status, words = problem
            answer = JSONResponse({"error": words, "field": None}, status_code=status, headers={"connection": "close"})
            await answer(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


_Problem = tuple[int, str]


def _foreign(scope: Scope) -> _Problem | None:
    """Why a request is not one of this page's own."""
    headers: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        headers.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    hosts, origins = headers.get("host", []), headers.get("origin", [])
    if len(hosts) != 1 or not _is_here(f"http://{hosts[0]}", scope):
        return 421, "this page is served to this machine only, under 127.0.0.1 or localhost"
    if any(origin != f"http://{hosts[0]}" for origin in origins):
        return 403, "a request from another site"
    visit = scope["method"] == "GET" and headers.get("sec-fetch-dest") == ["document"]
    if headers.get("sec-fetch-site", ["same-origin"])[0] not in ("same-origin", "none") and not visit:
        return 403, "a request from another site"
    return None


def _is_here(address: str, scope: Scope) -> bool:
    """Whether an address names this machine and the port that is served."""
    try:
        parts = urlsplit(address)
        port = parts.port or 80
    except ValueError:
        return False
    server = scope.get("server") or (None, None)
    plain = parts.path == parts.query == parts.fragment == "" and "@" not in address
    return plain and parts.hostname in _HERE and server[1] in (None, port)


async def _read_body(scope: Scope, receive: Receive) -> tuple[_Problem | None, bytes]:
    """The body, unless it is too large or no JSON; nothing is kept beyond the limit."""
    headers = {name.lower(): value for name, value in scope["headers"]}
    if headers.get(b"content-type", b"").split(b";")[0].strip().lower() != b"application/json":
        return (415, "send JSON: content-type application/json"), b""
    too_large = 413, f"a body has at most {LARGEST_BODY:,} bytes"
    length = headers.get(b"content-length", b"0")
    if not length.isdigit() or len(length) > 9 or int(length) > LARGEST_BODY:
        return too_large, b""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY:
            return too_large, b""
        if message["type"] == "http.disconnect" or not message.get("more_body"):
            return None, bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read already, handed on once."""
    waiting = [body]

    async def replay() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": False}
        return await receive()

    return replay
