"""The live view's server: the page, its stream of states (server-sent events), and commands by POST.

| path | what |
|---|---|
| `/`, `/static/...` | the page's own files, without a token: no data is in them |
| `GET /api/stream?source=h0&destination=h4` | events of `EVENTS` |
| `POST /api/NAME` | a command of `actions.MODELS`; the answer is JSON, with `text` for people |
| `GET /api/captures/PORT` | what was captured of a port |
| `GET /metrics` | the newest state for Prometheus |
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from mrc_topo.base import look
from mrc_topo.base.plain import encode
from mrclab.web import assets
from mrclab.web.actions import MODELS
from mrclab.web.guard import Guard
from mrclab.web.hub import CommandError, Hub, encoded
from mrclab.web.state import Completions, Layout, ViewState

STATIC: Final = pathlib.Path(__file__).parent / "static"
#: The style sheet that reports and the live view share.
STYLE: Final = look.FOLDER / "style.css"
TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
#: The limit of simultaneous streams, and the number of log lines that a new one starts with.
STREAMS: Final = 16
OLD_LINES: Final = 300
#: A stream without news sends a comment at this interval, to find out whether a page still reads it.
QUIET_S: Final = 5.0
COMMAND_S: Final = 60.0

MetricsText = Callable[[Layout, ViewState], str]


def event(name: str, data: bytes) -> bytes:
    """Return one server-sent event; JSON without line breaks needs one line."""
    return b"event: " + name.encode() + b"\ndata: " + data + b"\n\n"


class Server:
    """The routes; `app` is the application behind its guard.

    Args:
        hub: the source of states and the target of commands.
        capture: returns the file of a captured port, or None.
        metrics: returns the text of `/metrics` for a layout and a state.
    """

    def __init__(
        self,
        hub: Hub,
        capture: Callable[[str], pathlib.Path | None] = lambda port: None,
        metrics: MetricsText | None = None,
    ) -> None:
        self.hub = hub
        self.capture = capture
        self.metrics = metrics
        self.streams = 0
        self.files = {f"/static/{name}": path for name, path in static_files().items()}
        routes = [
            Route("/", self._page),
            *(Route(path, self._static) for path in self.files),
            Route("/api/stream", self._stream),
            Route("/api/captures/{port}", self._captured),
            Route("/api/{name}", self._command, methods=["POST"]),
            Route("/metrics", self._metrics),
        ]
        self.inner = Starlette(routes=routes)

    def app(self, token: str, hosts: frozenset[str]) -> ASGIApp:
        """Return the ASGI application that uvicorn serves."""
        return Guard(self.inner, token, hosts, frozenset({"/", *self.files}))

    async def _page(self, request: Request) -> Response:
        return FileResponse(STATIC / "index.html", media_type="text/html")

    async def _static(self, request: Request) -> Response:
        path = self.files[request.url.path]
        return FileResponse(path, media_type=TYPES.get(path.suffix, "text/plain"))

    async def _captured(self, request: Request) -> Response:
        path = self.capture(request.path_params["port"])
        if path is None or not path.exists():
            return PlainTextResponse("nothing was captured of this port\n", 404)
        return FileResponse(path, media_type="application/octet-stream", filename=path.name)

    async def _metrics(self, request: Request) -> Response:
        hub = self.hub
        if self.metrics is None or hub.layout is None or hub.state is None:
            return PlainTextResponse("nothing to measure yet\n", 503)
        return PlainTextResponse(self.metrics(hub.layout, hub.state), media_type="text/plain; version=0.0.4")

    async def _command(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in MODELS:
            return JSONResponse({"error": f"no command of that name; known: {', '.join(MODELS)}"}, 404)
        try:
            arguments = json.loads(await request.body() or b"{}")
            answer = await asyncio.wait_for(asyncio.wrap_future(self.hub.submit(name, arguments)), COMMAND_S)
        except (ValueError, RecursionError) as error:
            return JSONResponse({"error": f"this is not JSON: {error}"[:300]}, 400)
        except CommandError as error:
            return JSONResponse({"error": str(error)}, 409)
        except TimeoutError:
            return JSONResponse({"error": f"not done within {COMMAND_S:.0f} s; the lab may be frozen"}, 504)
        return JSONResponse(encode(answer))

    async def _stream(self, request: Request) -> Response:
        if self.streams >= STREAMS:
            return PlainTextResponse(f"{STREAMS} pages are open already; close one\n", 503)
        pair = (request.query_params.get("source", "")[:64], request.query_params.get("destination", "")[:64])
        return StreamingResponse(self._events(pair), media_type="text/event-stream")

    async def _events(self, pair: tuple[str, str]) -> AsyncIterator[bytes]:
        """Return the events for a page, in the order in which it needs them; after a wait, only the newest of each
        kind."""
        hub = self.hub
        self.streams += 1
        news = hub.listen()
        if all(pair):
            hub.want(pair, 1)
        layout = number = -1
        line = max(hub.log.end - OLD_LINES, 0)
        told = b""
        times: Completions | None = None
        try:
            while True:
                news.clear()
                now, state, text = hub.layout, hub.state, hub.state_bytes
                if now is not None and now["number"] != layout:
                    layout = now["number"]
                    yield event("layout", encoded(now))
                    rows = list(hub.history) if hub.whole is None else hub.whole
                    yield event("history", encoded(rows))
                if layout >= 0 and hub.completions is not times:
                    times = hub.completions
                    yield event("completions", encoded(times))
                lines = hub.log.since(line)
                if lines:
                    line = lines[-1]["number"] + 1
                    yield event("log", encoded(lines))
                if state is not None and state["number"] != number and state["layout"] == layout:
                    number = state["number"]
                    yield event("state", text)
                if all(pair) and (found := hub.pairs.get(pair, b"")) and found != told:
                    told = found
                    yield event("pair", found)
                if hub.ended:
                    yield event("end", b"{}")
                    return
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), QUIET_S)
                if not news.is_set():
                    yield b": nothing new\n\n"
        finally:
            self.streams -= 1
            hub.ignore(news)
            if all(pair):
                hub.want(pair, -1)


def static_files() -> dict[str, pathlib.Path]:
    """Return the page's files by their name below /static: ours, and the two libraries."""
    ours = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES and path.name != "index.html"}
    return {**ours, "style.css": STYLE, **assets.installed()}
