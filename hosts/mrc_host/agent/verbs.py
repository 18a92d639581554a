"""The agent's side of a host's verbs: a socket for programs, memory that is shared with them, bells.

The socket (SOCK_SEQPACKET, mode 0600) carries requests and their answers, one JSON object a message, with file
descriptors beside them; only a program of the agent's own user is heard. A program that hangs up, dies, or spoils its
rings loses all that it had.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import os
import pathlib
import socket
import struct
import sys
from collections.abc import Mapping
from typing import Any, Final

from mrc_common import rpc
from mrc_common.plain import encode
from mrc_host.node.host import HostNode
from mrc_host.node.programs.program import Answer, Program
from mrc_host.node.quota import RefusedError
from mrc_host.verbs import layout
from mrc_host.verbs.connection import map_shared
from mrc_host.verbs.requests import Hello

MAX_REQUEST_BYTES: Final = 1 << 16
_UCRED: Final = struct.Struct("3i")
_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class SharedMemory:
    """A memory file of fixed size, mapped here; see `programs.shared.Memory`.

    The agent makes and seals it: a program that could shrink it would end the agent by SIGBUS.
    """

    def __init__(self, nbytes: int) -> None:
        self.fd = os.memfd_create("mrc-verbs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, nbytes)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
            self.buffer = map_shared(self.fd, nbytes)
        except OSError:
            os.close(self.fd)
            raise

    def close(self) -> None:
        """Let go of it; the bytes go with the last that refers to them."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self.buffer = memoryview(b"")


class EventBell:
    """An eventfd that counts down by one for each read; see `programs.shared.WakeupCounter`."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC | os.EFD_SEMAPHORE)

    def ring(self, count: int) -> None:
        """Add to the counter."""
        if self.fd >= 0:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_write(self.fd, count)

    def close(self) -> None:
        """Let go of it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Resources:
    """See `programs.shared.Resources`."""

    def memory(self, nbytes: int) -> SharedMemory:
        """Return zeroed memory."""
        return SharedMemory(nbytes)

    def bell(self) -> EventBell:
        """Return a bell."""
        return EventBell()


def silence(fd: int) -> None:
    """Empty a bell; never blocks, whatever the other end has done to the flags that both share."""
    with contextlib.suppress(OSError):
        while os.preadv(fd, [bytearray(8)], -1, os.RWF_NOWAIT):
            pass


class VerbsServer:
    """Serves programs of one host."""

    def __init__(self, path: pathlib.Path, loop: rpc.Loop, node: HostNode) -> None:
        self.path = path
        self.loop = loop
        self.node = node
        self._peers: dict[int, tuple[socket.socket, Program[Any] | None]] = {}
        self._listener = rpc.listen(path, socket.SOCK_SEQPACKET)
        loop.watch(self._listener.fileno(), self._accept)

    def _accept(self, now: int) -> None:
        with contextlib.suppress(OSError):  # the program has ended, or has no file descriptor left for it
            peer, _ = self._listener.accept()
            peer.setblocking(False)
            _, uid, _ = _UCRED.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
            if uid != os.geteuid():
                peer.close()
                return
            self._peers[peer.fileno()] = (peer, None)
            self.loop.watch(peer.fileno(), functools.partial(self._read, peer.fileno()))

    def _read(self, fd: int, now: int) -> None:
        if fd not in self._peers:
            return
        peer, program = self._peers[fd]
        try:
            data = peer.recv(MAX_REQUEST_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(fd, now)
            return
        try:
            request = json.loads(data)
            if not isinstance(request, dict):
                raise ValueError
        except (ValueError, RecursionError):
            self._send(fd, _refusal(errno.EINVAL, "a request is one JSON object"), [], now)
            return
        op = request.pop("op", None)
        try:
            if program is None:
                answer, files = self._greet(fd, peer, op, request)
            else:
                answer, files = self.node.program_request(program, op, request, now)
        except rpc.RefusedError as error:
            self._send(fd, _refusal(error.number, f"host {self.node.name}: {error}"), [], now)
        else:
            self._send(fd, json.dumps({"ok": True, **encode(answer)}), files, now)

    def _greet(self, fd: int, peer: socket.socket, op: object, arguments: Mapping[str, object]) -> Answer:
        """Handle the first request of a program."""
        version = arguments.get("version")
        if op != Hello.verb or version != layout.VERSION:
            raise RefusedError(
                errno.EPROTO,
                f"the program speaks version {version!r} of the verbs, the agent {layout.VERSION}; "
                "both must be of one mrclab",
            )
        program = self.node.connect_program(Resources(), functools.partial(self._disconnect, fd))
        self._peers[fd] = (peer, program)
        self.loop.watch(program.doorbell.fd, lambda now: silence(program.doorbell.fd))
        return program.greeting(self.node.name)

    def _send(self, fd: int, answer: str, files: list[int], now: int) -> None:
        if fd not in self._peers:
            return
        peer = self._peers[fd][0]
        try:
            socket.send_fds(peer, [answer.encode()], files, socket.MSG_DONTWAIT)
        except OSError:
            self._drop(fd, now)  # it does not read its answers, or is gone

    def _disconnect(self, fd: int, why: str, now: int) -> None:
        """Disconnect a program that broke the rules of its rings."""
        print(f"host {self.node.name}: a program is disconnected: {why}", file=sys.stderr, flush=True)
        if fd in self._peers:
            with contextlib.suppress(OSError):
                said = _refusal(errno.EIO, f"disconnected: {why}")
                self._peers[fd][0].send(said.encode(), socket.MSG_DONTWAIT)
        self._drop(fd, now)

    def _drop(self, fd: int, now: int) -> None:
        peer, program = self._peers.pop(fd, (None, None))
        if peer is None:
            return
        self.loop.unwatch(fd)
        peer.close()
        if program is not None:
            self.loop.unwatch(program.doorbell.fd)
            self.node.disconnect_program(program, now)

    def close(self) -> None:
        """Hang up on all programs and remove the socket."""
        for fd, (peer, program) in list(self._peers.items()):
            self.loop.unwatch(fd)
            if program is not None:
                self.loop.unwatch(program.doorbell.fd)
            peer.close()
        self._peers.clear()
        self.loop.unwatch(self._listener.fileno())
        self._listener.close()
        self.path.unlink(missing_ok=True)


def _refusal(number: int, text: str) -> str:
    return json.dumps({"ok": False, "errno": number, "error": text})
