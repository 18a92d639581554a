"""Puts the live view's server on a port, in a thread of its own, and says where it is."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Final

import uvicorn

from mrclab.lab.records.rundir import RunError
from mrclab.web.guard import new_token
from mrclab.web.server import Server

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
