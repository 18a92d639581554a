"""The daemon's control socket: what only the parent of a lab's processes can do for the commands outside.

JSON lines as of a host's agent (`hostclient.HostClient` is the client): `{"verb": ..., arguments}`, one answer each.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

REQUEST_BYTES = 1 << 16
PATIENCE_S = 5.0

Verb = Callable[[Mapping[str, Any]], dict[str, Any]]


class CommandSocket:
    """Listens at a path, which only its owner may connect to; `serve` answers whoever comes meanwhile.

    What a verb raises of `refusals` is its refusal.
    """

    def __init__(
        self, path: pathlib.Path, verbs: Mapping[str, Verb], refusals: tuple[type[Exception], ...] = (OSError,)
    ) -> None:
        self.verbs = verbs
        self.refusals = refusals
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._peers: dict[socket.socket, bytes] = {}
        before = os.umask(0o177)
        try:
            self._listener.bind(str(path))
        finally:
            os.umask(before)
        self._listener.listen(8)

    def serve(self, seconds: float) -> None:
        """Answers for so long."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            for ready in select.select([self._listener, *self._peers], [], [], left)[0]:
                if ready is self._listener:
                    peer, _ = self._listener.accept()
                    peer.settimeout(PATIENCE_S)
                    self._peers[peer] = b""
                else:
                    self._read(ready)

    def _read(self, peer: socket.socket) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = peer.recv(REQUEST_BYTES)
        self._peers[peer] += data
        if not data or len(self._peers[peer]) > REQUEST_BYTES:
            del self._peers[peer]
            peer.close()
            return
        *lines, self._peers[peer] = self._peers[peer].split(b"\n")
        for line in lines:
            with contextlib.suppress(OSError):
                peer.sendall(json.dumps(self._answer(line)).encode() + b"\n")

    def _answer(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            verb = self.verbs[request.pop("verb")]
        except (ValueError, KeyError, TypeError, AttributeError):
            return {"ok": False, "error": f"no verb of this lab's daemon; it has: {', '.join(self.verbs) or 'none'}"}
        try:
            return {"ok": True, **verb(request)}
        except KeyError as error:
            return {"ok": False, "error": f"no {error} is given"}
        except self.refusals as error:
            return {"ok": False, "error": str(error)}

    def close(self) -> None:
        """Ends all connections."""
        for each in (self._listener, *self._peers):
            each.close()
