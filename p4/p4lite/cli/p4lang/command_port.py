"""The socket on which a running switch takes the commands of simple_switch_CLI, in the place of BMv2's Thrift port.

A client sends one JSON object per line and gets one per line: `{"run": LINE}` is answered by what the command prints,
`{"complete": [LINE, WORD]}` by what WORD may become. The socket is one that its owner alone can open.
"""

from __future__ import annotations

import contextlib
import json
import os
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from p4lite.errors import P4liteError
from p4lite.switch import listen
from p4lite.switch.fabric.switch import FabricSwitch
from p4lite.switch.runtime.instance import ProgramInstance
from p4lite.switch.server import FabricServer
from p4lite.tools.commands import CommandError, Commands

THRIFT_PORT = 9090
#: A command, or a list of words, is shorter.
MAX_LINE_BYTES = 1 << 20


@dataclass(frozen=True)
class Answer:
    """What a command printed (`lines`), why it failed, if it did, and the words that complete another."""

    lines: list[str] = field(default_factory=list)
    error: str | None = None
    words: list[str] = field(default_factory=list)


def socket_of(port: int) -> Path:
    """Return the socket that stands for a Thrift port, in the user's run folder. Raises ServerError."""
    path = listen.socket_path(listen.default_address(f"thrift-{port}"))
    assert path is not None
    return path


class _Executor:
    """Executes commands on a switch, whose program a controller may replace between two of them."""

    def __init__(self, server: FabricServer, switch: FabricSwitch) -> None:
        self._device = server.service.device(switch.device_id)
        self._switch = switch
        self._printed: list[str] = []
        self._known: tuple[ProgramInstance, Commands] | None = None

    def answer(self, request: object) -> Answer:
        """Return the answer to a request. Raises CommandError for what is none."""
        with self._device.lock:
            match request:
                case {"run": str(line)}:
                    return self._run(line)
                case {"complete": [str(line), str(word)]}:
                    return Answer(words=self._commands().complete(line, word))
        raise CommandError('not a request: {"run": LINE} and {"complete": [LINE, WORD]} are')

    def _run(self, line: str) -> Answer:
        self._printed.clear()
        error = None
        try:
            self._commands().run(line)
        except P4liteError as problem:
            error = str(problem)
        return Answer(list(self._printed), error)

    def _commands(self) -> Commands:
        instance = self._switch.instance
        if self._known is None or self._known[0] is not instance:
            self._known = instance, Commands(instance, self._switch, self._printed.append)
        return self._known[1]


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True

    def __init__(self, path: Path, executor: _Executor) -> None:
        mask = os.umask(0o177)
        try:
            super().__init__(str(path), _Handler)
        finally:
            os.umask(mask)
        self.executor = executor


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Answer requests until the client goes."""
        with contextlib.suppress(ConnectionError):
            while line := self.rfile.readline(MAX_LINE_BYTES):
                try:
                    answer = self.server.executor.answer(json.loads(line))
                except (ValueError, P4liteError) as error:
                    answer = Answer(error=str(error))
                self.wfile.write(json.dumps(asdict(answer)).encode() + b"\n")


@contextlib.contextmanager
def serving(server: FabricServer, switch: FabricSwitch, port: int) -> Iterator[Path]:
    """Take commands for a switch until the block ends; yield the socket.

    Raises:
        ServerError: another switch of this user has the port, or no socket can be made.
    """
    path = socket_of(port)
    listen.check(f"unix:{path}", None)
    path.unlink(missing_ok=True)
    try:
        commands = _Server(path, _Executor(server, switch))
    except OSError as error:
        raise listen.ServerError(f"{path}: cannot listen: {error.strerror}; choose another --thrift-port") from None
    thread = threading.Thread(target=commands.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield path
    finally:
        commands.shutdown()
        thread.join()
        commands.server_close()
        path.unlink(missing_ok=True)
