"""The controller's side of a host agent's control socket."""

from __future__ import annotations

import json
import pathlib
import socket
import time
from collections.abc import Callable
from typing import Any, Protocol

from mrc_common.errors import MrclabError

TIMEOUT_S = 30.0
RECV_BYTES = 1 << 16


class HostError(MrclabError):
    """A host refused a command or is gone; the text names the host."""


class HostGone(HostError):
    """A host that does not answer any more."""


class HostControl(Protocol):
    """A host that takes commands, on either clock."""

    name: str

    def request(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """Carries out a verb (see `mrc_host.node.host`).

        Raises:
            HostError: refused, or the host is gone.
        """


class HostClient:
    """A host agent behind its unix socket."""

    def __init__(self, name: str, path: pathlib.Path) -> None:
        self.name = name
        self.path = path
        self._socket: socket.socket | None = None
        self._buffer = b""

    def connect(self, wait_s: float = 0.0, check: Callable[[], object] = bool) -> None:
        """Connects, waiting for the agent to appear; `check` is called while waiting, to raise if that is in vain.

        Raises:
            HostError: it does not.
        """
        deadline = time.monotonic() + wait_s
        while True:
            made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            made.settimeout(TIMEOUT_S)
            try:
                made.connect(str(self.path))
            except OSError as error:
                made.close()
                if time.monotonic() >= deadline:
                    reason = error.strerror or error
                    raise HostGone(f"host {self.name}: its agent does not answer ({reason})") from error
                check()
                time.sleep(0.02)
            else:
                self._socket = made
                return

    def request(self, verb: str, **arguments: Any) -> dict[str, Any]:
        """See `HostControl`."""
        if self._socket is None:
            self.connect()
        assert self._socket is not None
        try:
            self._socket.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            while b"\n" not in self._buffer:
                data = self._socket.recv(RECV_BYTES)
                if not data:
                    raise ConnectionResetError("connection closed")
                self._buffer += data
        except TimeoutError as error:
            self.close()
            raise HostGone(f"host {self.name}: its agent does not answer within {TIMEOUT_S:.0f} s") from error
        except OSError as error:
            self.close()
            raise HostGone(f"host {self.name}: its agent is gone ({error})") from error
        except BaseException:
            # The answer that is still to come is nobody else's.
            self.close()
            raise
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if not answer.pop("ok"):
            raise HostError(answer["error"])
        return answer

    def close(self) -> None:
        """Closes the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._buffer = b""
