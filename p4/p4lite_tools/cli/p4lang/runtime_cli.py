"""`simple_switch_CLI`: BMv2's commands for a switch that runs, read from a terminal or from standard input."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from collections.abc import Callable

from p4lite.errors import P4liteError
from p4lite_tools.cli.common import complete_words, scripted, typed, whole
from p4lite_tools.cli.p4lang.simple_switch import THRIFT_PORT, Answer, socket_of

PROG = "simple_switch_CLI"
PROMPT = "RuntimeCmd: "
#: Addresses of this machine; a switch of another one is out of reach.
HERE = ("localhost", "127.0.0.1", "::1", "0.0.0.0")
ENDS = ("EOF", "exit", "quit")


class NoSwitchError(P4liteError):
    """A switch that does not answer; the text names its socket and the remedy."""

    code = "no_switch"


class _Switch:
    """The connection to a switch. Raises NoSwitchError."""

    def __init__(self, port: int) -> None:
        self._path = path = socket_of(port)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(str(path))
        except OSError as error:
            raise NoSwitchError(
                f"{path}: {error.strerror}: no switch with --thrift-port {port} runs as this user; one that root "
                f"started takes commands from 'sudo {PROG}' only"
            ) from None
        self._lines = self._socket.makefile("r", encoding="utf-8")

    def ask(self, request: dict[str, object]) -> Answer:
        """Return the answer to a request."""
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            line = self._lines.readline()
        except OSError:
            line = ""
        if not line:
            raise NoSwitchError(f"{self._path}: the switch has ended")
        return Answer(**json.loads(line))


def run(argv: list[str]) -> int:
    """Run the command; 0 as BMv2 also when commands failed, 1 when no switch answers, 2 for wrong usage."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    if arguments.thrift_ip not in HERE:
        print(f"{PROG}: error: --thrift-ip {arguments.thrift_ip}: run it where the switch runs", file=sys.stderr)
        return 2
    try:
        switch = _Switch(arguments.thrift_port)
        if sys.stdin.isatty():
            complete_words(lambda line, word: switch.ask({"complete": [line, word]}).words)
            _loop(switch, lambda: typed(PROMPT))
        else:
            _loop(switch, lambda: scripted(sys.stdin, PROMPT))
        return 0
    except P4liteError as error:
        print(f"{PROG}: error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROG, description="Command a switch that simple_switch_grpc runs.")
    add = parser.add_argument
    add(
        "--thrift-port",
        type=whole(1, 65535),
        default=THRIFT_PORT,
        metavar="N",
        help=f"that of the switch ({THRIFT_PORT})",
    )
    add("--thrift-ip", default="localhost", metavar="HOST", help="this machine")
    add("--json", metavar="FILE", help="accepted without effect: the switch knows its program")
    add("--pre", default="SimplePreLAG", metavar="NAME", help="accepted without effect")
    return parser


def _loop(switch: _Switch, read: Callable[[], str | None]) -> None:
    """Execute lines until they end, those after one that failed, too."""
    while (line := read()) is not None and line.strip() not in ENDS:
        answer = switch.ask({"run": line})
        for each in answer.lines:
            print(each)
        if answer.error is not None:
            print(f"Error: {answer.error}")
        sys.stdout.flush()
