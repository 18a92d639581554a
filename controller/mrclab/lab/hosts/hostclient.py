"""The controller's side of a host agent's control socket."""

from __future__ import annotations

import errno
import pathlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from mrc_topo.base.errors import ErrorCode, MrclabError
from mrc_topo.base.rpc import Client, RefusedError, Request, UnreachableError

A = TypeVar("A")
#: An answer as plain JSON values.
Plain = dict[str, Any]


class HostError(MrclabError):
    """A host refused a command or is gone; the text names the host, `number` is the errno."""

    def __init__(self, text: str, number: int = errno.EINVAL, code: ErrorCode = ErrorCode.FAILED) -> None:
        super().__init__(text)
        self.number = number
        self.code = code


class HostGone(HostError):
    """A host that has stopped answering."""

    def __init__(self, text: str, code: ErrorCode = ErrorCode.GONE) -> None:
        super().__init__(text, errno.ENODEV, code)


class HostControl(Protocol):
    """A host that takes commands, on either clock."""

    name: str

    def ask(self, request: Request[A]) -> A:
        """Carry out a request (see `mrc_host.requests`) and return its answer.

        Raises:
            HostError: the host refuses the request, or is gone.
        """

    def request(self, verb: str, **arguments: Any) -> Plain:
        """Carry out a verb and return its answer as plain JSON values; see `ask`."""


class HostClient:
    """A host agent behind its unix socket."""

    def __init__(self, name: str, path: pathlib.Path) -> None:
        self.name = name
        self._client = Client(path)

    def connect(self, wait_s: float = 0.0, check: Callable[[], object] = bool) -> None:
        """Connect, and wait for the agent to appear; call `check` meanwhile, which raises if waiting is in vain.

        Raises:
            HostError: the agent does not appear.
        """
        try:
            self._client.connect(wait_s, check)
        except UnreachableError as error:
            raise HostGone(f"host {self.name}: its agent does not answer ({error})") from error

    def ask(self, request: Request[A]) -> A:
        """See `HostControl`."""
        return self._told(lambda: self._client.ask(request))

    def request(self, verb: str, **arguments: Any) -> Plain:
        """See `HostControl`."""
        answer: Plain = self._told(lambda: self._client.call(verb, arguments))
        return answer

    def begin(self, request: Request[A]) -> None:
        """Send a request whose answer `end` returns; see `ask_all`."""
        self._told(lambda: self._client.begin(request))

    def end(self, request: Request[A]) -> A:
        """Return the answer to the request of `begin`; errors as of `ask`."""
        return self._told(lambda: self._client.end(request), connected=True)

    def _told(self, exchange: Callable[[], A], *, connected: bool = False) -> A:
        """Carry out an exchange; its errors become those of this host."""
        if not connected and not self._client.connected:
            self.connect()
        try:
            return exchange()
        except RefusedError as error:
            raise HostError(str(error), error.number, error.code) from error
        except UnreachableError as error:
            if error.code is ErrorCode.SILENT:
                text = f"does not answer within {self._client.timeout_s:.0f} s"
            else:
                text = f"is gone ({error})"
            raise HostGone(f"host {self.name}: its agent {text}", error.code) from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


def ask_all(hosts: Mapping[str, HostControl], requests: Mapping[str, Request[A]]) -> dict[str, A | HostError]:
    """Carry out a request at each of some hosts, and return each answer, or the error that the host gave instead.

    Agents behind sockets receive their requests before any answer is awaited: an agent that is busy with packets
    answers between two of them, and one after the other would take the sum of these times.
    """
    found: dict[str, A | HostError] = {}
    begun: list[tuple[str, HostClient]] = []
    for name, request in requests.items():
        host = hosts[name]
        try:
            if isinstance(host, HostClient):
                host.begin(request)
                begun.append((name, host))
            else:
                found[name] = host.ask(request)
        except HostError as error:
            found[name] = error
    for name, client in begun:
        try:
            found[name] = client.end(requests[name])
        except HostError as error:
            found[name] = error
    return found
