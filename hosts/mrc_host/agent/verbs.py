"""The agent's side of a host's verbs: a socket for programs, memory that is shared with them, bells.

The socket (SOCK_SEQPACKET, mode 0600) carries requests and their answers, one JSON object a message, with file
descriptors beside them; only a program of the agent's own user is heard. A program that hangs up, dies, or spoils its
rings loses all that it had.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import functools
import json
import os
import pathlib
import socket
import stat
import struct
import sys
from collections.abc import Mapping
from typing import Any, Final

from mrc_host.node.host import HostNode
from mrc_host.node.programs.program import Answer, Program
from mrc_host.node.stacks import RefusedError
from mrc_host.proto.memory import MemoryFault, ProcessMemory
from mrc_host.verbs import layout
from mrc_host.verbs.connection import map_shared
from mrc_host.verbs.requests import ProgramHello
from mrc_topo.base import rpc
from mrc_topo.base.plain import encode

MAX_REQUEST_BYTES: Final = 1 << 16
_PROC_SUPER_MAGIC: Final = 0x9FA0
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
    """An eventfd; see `programs.shared.WakeupCounter`. Each read takes one from it, or all (`flags` 0)."""

    def __init__(self, flags: int = os.EFD_SEMAPHORE) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC | flags)

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


class MemoryFile(ProcessMemory):
    """The memory of a program, by the file descriptor of its /proc/self/mem, which it opened and sent itself.

    The descriptor stays with that memory: once the program has ended or executed another one, reads return nothing, and
    a program that gets its process number later is out of reach. The agent needs no right to trace the program.
    """

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        """Take over the file descriptor. Raises RefusedError for one of anything else."""
        self._fd = fd
        described = os.fstat(fd)
        # Of another file, a read could wait for the process that serves the file, and with it all hosts of this agent.
        if not stat.S_ISREG(described.st_mode) or described.st_size or _file_system(fd) != _PROC_SUPER_MAGIC:
            raise RefusedError(errno.EBADF, "the file descriptor beside `hello` is not that of /proc/self/mem")
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDWR:
            raise RefusedError(errno.EBADF, "/proc/self/mem beside `hello` is not open for reading and writing")

    def read(self, address: int, size: int) -> bytes:
        """See `ProcessMemory`."""
        found = b""
        while len(found) < size:  # a read ends early where a mapping does, and perhaps at a signal
            at = address + len(found)
            try:
                part = os.pread(self._fd, size - len(found), at)
            except (OSError, OverflowError) as error:
                raise MemoryFault(f"{size} bytes at {address:#x}: {error}") from error
            if not part:
                raise MemoryFault(f"{size} bytes at {address:#x}: the program has ended")
            found = found + part if found else part
        return found

    def write(self, address: int, payload: bytes | memoryview) -> bool:
        """See `ProcessMemory`."""
        try:
            done = os.pwrite(self._fd, payload, address)
            while 0 < done < len(payload):
                more = os.pwrite(self._fd, payload[done:], address + done)
                if not more:
                    return False
                done += more
        except (OSError, OverflowError):
            return False
        return done == len(payload)

    def close(self) -> None:
        """See `ProcessMemory`."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _file_system(fd: int) -> int:
    """Return the type of the file system that a file is of (`statfs(2)`)."""
    described = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None, use_errno=True).fstatfs(fd, described):
        return 0
    return int.from_bytes(described.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)


class AgentResources:
    """See `programs.shared.Resources`."""

    def __init__(self, process: ProcessMemory | None = None) -> None:
        self.process = process

    def memory(self, nbytes: int) -> SharedMemory:
        """Return zeroed memory."""
        return SharedMemory(nbytes)

    def bell(self) -> EventBell:
        """Return a bell."""
        return EventBell()

    def doorbell(self) -> EventBell:
        """Return a doorbell."""
        return EventBell(0)


def silence(fd: int) -> None:
    """Empty a bell of which a read takes all.

    Never blocks, whatever the other end has done to the flags that both share.
    """
    with contextlib.suppress(OSError):
        os.preadv(fd, [bytearray(8)], -1, os.RWF_NOWAIT)


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
            flags = socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC
            data, sent, _, _ = socket.recv_fds(peer, MAX_REQUEST_BYTES, 1, flags)
        except BlockingIOError:
            return
        except OSError:
            data, sent = b"", []
        try:
            self._take(fd, peer, program, data, sent, now)
        finally:
            for each in sent:
                os.close(each)

    def _take(
        self, fd: int, peer: socket.socket, program: Program[Any] | None, data: bytes, sent: list[int], now: int
    ) -> None:
        """Serve one request. `sent`: file descriptors beside it; those that are kept are taken out."""
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
                answer, files = self._greet(fd, peer, op, request, sent)
            else:
                answer, files = self.node.program_request(program, op, request, now)
        except rpc.RefusedError as error:
            self._send(fd, _refusal(error.number, f"host {self.node.name}: {error}"), [], now)
        else:
            self._send(fd, json.dumps({"ok": True, **encode(answer)}), files, now)

    def _greet(
        self, fd: int, peer: socket.socket, op: object, arguments: Mapping[str, object], sent: list[int]
    ) -> Answer:
        """Handle the first request of a program."""
        version = arguments.get("version")
        if op != ProgramHello.verb or version != layout.VERSION:
            raise RefusedError(
                errno.EPROTO,
                f"the program speaks version {version!r} of the verbs, the agent {layout.VERSION}; "
                "both must be of one mrclab",
            )
        process = MemoryFile(sent[0]) if sent else None
        program = self.node.connect_program(AgentResources(process), functools.partial(self._disconnect, fd))
        sent.clear()  # the program has it now
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
