"""The live view's server: the page, its stream of states (server-sent events), commands by POST, and who may use it.

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
import errno
import hmac
import ipaddress
import json
import logging
import os
import pathlib
import re
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mrc_topo.base import look
from mrc_topo.base.errors import UsageError
from mrc_topo.base.plain import encode
from mrclab.lab.records.rundir import RunError
from mrclab.pages import chart
from mrclab.runs.experiment import Experiment
from mrclab.web import assets, metrics
from mrclab.web.actions import MODELS
from mrclab.web.hub import CommandError, Hub, encoded
from mrclab.web.lab import LabView, SimulationView
from mrclab.web.replay import Recorded, Replay
from mrclab.web.state import Completions, Layout, ViewState
from mrclab.web.view import View

#: The variable in which a proxy in front of the view, which knows the user, gives the token that it will send.
TOKEN: Final = "MRCLAB_WEB_TOKEN"
#: The limit for a command's JSON.
BODY_BYTES: Final = 64 << 10
HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def new_token(environment: Mapping[str, str] = os.environ) -> str:
    """Return a random token of 256 bits, or the one that a proxy has put into the environment (`TOKEN`).

    Raises:
        UsageError: the variable holds something that is guessed more easily, or is not a token.
    """
    given = environment.get(TOKEN)
    if given is None:
        return secrets.token_urlsafe(32)
    if re.fullmatch(r"[A-Za-z0-9_-]{43,200}", given) is None:
        raise UsageError(
            f"{TOKEN}: is not a token of at least 43 letters, digits, - and _; Python's `secrets.token_urlsafe(32)` "
            "makes one"
        )
    return given


class Guard:
    """Passes a request on to `app`, or refuses it.

    Args:
        token: the token that `Authorization: Bearer` must have where `open_to_all` does not hold.
        hosts: the server's names, as `HOST:PORT`.
        open_to_all: paths that return no data.
    """

    def __init__(self, app: ASGIApp, token: str, hosts: frozenset[str], open_to_all: frozenset[str]) -> None:
        self.app = app
        self.token = token.encode()
        self.hosts = hosts
        self.open_to_all = open_to_all

    def problem(self, scope: Scope) -> tuple[int, str] | None:
        """Return why a request is refused: status and text."""
        headers = Headers(scope=scope)
        if len(headers.getlist("host")) != 1 or headers["host"].lower() not in self.hosts:
            return 421, "this server is known by another name; open the address that mrclab printed"
        origins = headers.getlist("origin")
        if any(origin.lower() not in {f"http://{host}" for host in self.hosts} for origin in origins):
            return 403, "requests of other pages are refused"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin") and (
            scope["method"] != "GET" or scope["path"] not in self.open_to_all
        ):
            return 403, "requests of other sites are refused"
        if scope["method"] in ("GET", "HEAD") and scope["path"] in self.open_to_all:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.token):
            return 401, "no or wrong token; open the address that mrclab printed, with all that is behind the #"
        if scope["method"] == "POST":
            if headers.get("content-type", "").partition(";")[0].strip() != "application/json":
                return 415, "commands are JSON"
            length = headers.get("content-length", "")
            if not (length.isascii() and length.isdigit()) or int(length) > BODY_BYTES:
                return 413, f"a command has at most {BODY_BYTES} bytes"
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a refused request with its HTTP status; pass any other on to the wrapped ASGI application."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                extra = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *extra]}
            await send(message)

        problem = self.problem(scope)
        if problem is not None:
            await PlainTextResponse(problem[1] + "\n", problem[0])(scope, receive, guarded)
            return
        await self.app(scope, receive, guarded)


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
    charts = {name: chart.HERE / name for name in ("chart.js", "chart.css")}
    return {**ours, "style.css": STYLE, **charts, **assets.installed()}


LOOPBACK: Final = "127.0.0.1"
PORT: Final = 8080
#: The number of ports that are tried where none was given.
TRIES: Final = 20
CONNECTIONS: Final = 64
STOP_S: Final = 5.0


def bind(host: str, port: int | None) -> socket.socket:
    """Return a listening socket; without a port, on the first free one from 8080 on.

    Raises:
        RunError: the port is in use, or the address does not belong to this machine.
    """
    ports = range(PORT, PORT + TRIES) if port is None else (port,)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for each in ports:
        try:
            return socket.create_server((host, each), family=family, backlog=CONNECTIONS)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise RunError(f"{host} port {each}: {error.strerror or error}") from error
    taken = f"port {port} is" if port is not None else f"ports {PORT} to {PORT + TRIES - 1} are"
    raise RunError(f"{host}: {taken} taken; choose another with --port")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def shown(host: str) -> str:
    """Return an address in the form that URLs have."""
    return f"[{host}]" if ":" in host else host


def names(host: str, port: int) -> frozenset[str]:
    """Return the names by which browsers may address the server: its address, or every name if it listens on all
    addresses."""
    found = {host}
    if is_loopback(host):
        found |= {"localhost", LOOPBACK if ":" not in host else host}
    elif ipaddress.ip_address(host).is_unspecified:
        found |= {"localhost", LOOPBACK, socket.gethostname().lower(), *_own_addresses()}
    return frozenset(f"{shown(each)}:{port}" for each in found)


def _own_addresses() -> set[str]:
    with contextlib.suppress(OSError):
        return {str(each[4][0]) for each in socket.getaddrinfo(socket.gethostname(), None)}
    return set()


class _UvicornServer(uvicorn.Server):
    """A server that leaves signals to the command."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals: the command handles its own."""
        yield


class Serving:
    """A running server; `url` opens the page."""

    def __init__(self, server: Server, sock: socket.socket, host: str) -> None:
        self.token = new_token()
        self.port = int(sock.getsockname()[1])
        self.address = f"http://{shown(host)}:{self.port}/"
        self.url = f"{self.address}#{self.token}"
        config = uvicorn.Config(
            server.app(self.token, names(host, self.port)),
            log_config=None,
            access_log=False,
            lifespan="off",
            server_header=False,
            date_header=False,
            limit_concurrency=CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=1,
            ws="none",
            http="h11",
            loop="asyncio",
        )
        self._hub = server.hub
        self._server = _UvicornServer(config)
        self._socket = sock
        self._thread = threading.Thread(target=self._run, name="mrclab web", daemon=True)

    def _run(self) -> None:
        async def main() -> None:
            self._hub.attach(asyncio.get_running_loop())
            await self._server.serve(sockets=[self._socket])

        asyncio.run(main())

    def start(self) -> None:
        """Start the server."""
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, with a last message to every page."""
        # A stream that this ends is not an error of the server.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self._server.should_exit = True
        self._thread.join(STOP_S)
        self._socket.close()


@contextlib.contextmanager
def serving(server: Server, host: str, port: int | None) -> Iterator[Serving]:
    """Yield a running server for as long as the context lasts.

    Raises:
        RunError: see `bind`.
    """
    made = Serving(server, bind(host, port), host)
    made.start()
    try:
        yield made
    finally:
        made.stop()


Interrupted = Callable[[], object]


class Page:
    """Subjects that one command serves: a lab, a simulation, a recorded run, or the experiments of a demonstration.

    Args:
        experiments: names that pages may ask for.
        find: an experiment by its name.
    """

    def __init__(self, experiments: list[str], find: Callable[[str], Experiment]) -> None:
        self.hub = Hub()
        self.experiments = experiments
        self.find = find
        self.loopback = True
        self._serving: Serving | None = None
        self._view: View | None = None

    @classmethod
    @contextlib.contextmanager
    def served(
        cls, host: str, port: int | None, experiments: list[str], find: Callable[[str], Experiment]
    ) -> Iterator[Page]:
        """Serve a page at this address, and yield it, for as long as the context lasts.

        Raises:
            RunError: the address cannot be used.
        """
        made = cls(experiments, find)
        made.loopback = is_loopback(host)
        server = Server(made.hub, made._captured, metrics.render)
        with serving(server, host, port) as made._serving:
            try:
                yield made
            finally:
                if made._view is not None:
                    made._view.close()
                made.hub.end()

    def _captured(self, port: str) -> pathlib.Path | None:
        return None if self._view is None else self._view.captures.file(port)

    @property
    def url(self) -> str:
        """The address that opens the page, with its token."""
        assert self._serving is not None
        return self._serving.url

    def watch(self, lab: str, interrupted: Interrupted) -> None:
        """Show a lab that is up."""
        shown = LabView(self.hub, lab, self.find, self.experiments)
        self._view = shown.view
        shown.go(interrupted)

    def simulate(
        self, lab: str, experiment: Experiment | None, speed: float, paused: bool, interrupted: Interrupted
    ) -> None:
        """Show a simulation of a lab, or of an experiment."""
        shown = SimulationView(
            self.hub, lab, "mrc", self.find, self.experiments, speed=speed, paused=paused, first=experiment
        )
        self._view = shown.view
        shown.go(interrupted)

    def replay(self, recorded: Recorded, speed: float, interrupted: Interrupted) -> None:
        """Show a recorded run."""
        Replay(self.hub, recorded, speed).go(interrupted)

    def beside(self) -> View:
        """Return a view of experiments that the caller runs, one after another."""
        self._view = View(self.hub, speed=0.0)
        return self._view
