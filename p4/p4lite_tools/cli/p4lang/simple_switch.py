"""`simple_switch_grpc` and `simple_switch`: BMv2's command lines, served by p4lite's switch.

The port of simple_switch_CLI and the shaping that Mininet's links ask for are here, too.

One rule differs: without TLS and certificates of clients the switch listens on loopback, also where the command says
0.0.0.0, because each process that reaches the port can command the switch.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import socketserver
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from p4lite.cli import switch as verb
from p4lite.errors import P4liteError
from p4lite.switch import listen
from p4lite.switch.fabric.switch import FabricSwitch
from p4lite.switch.fabric.values import LinkSettings
from p4lite.switch.runtime.loader import ProgramInstance
from p4lite.switch.server import FabricServer
from p4lite_tools.cli.common import whole
from p4lite_tools.commands import CommandError, Commands

SECONDS = 10
UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_RATE = re.compile(r"^class htb .*?\brate ([0-9.]+)([KMGT]?)bit\b", re.M)


def settings(interface: str) -> LinkSettings:
    """Return rate, delay and loss of an interface's htb class and netem queue; without these, none.

    An interface whose settings cannot be read counts as one without.
    """
    # Not every tc has classes as JSON.
    rates = [float(number) * UNITS[unit] for number, unit in _RATE.findall(_tc("class", "show", "dev", interface))]
    return LinkSettings(rate_bps=round(min(rates, default=0)), **_netem(_tc("-j", "qdisc", "show", "dev", interface)))


def _netem(shown: str) -> dict[str, Any]:
    """Return delay and loss of a netem queue from the JSON of `tc qdisc show`."""
    try:
        queues = json.loads(shown or "[]")
    except ValueError:
        return {}
    for item in queues:
        if item.get("kind") == "netem":
            options = item.get("options", {})
            delay_s = options.get("delay", {}).get("delay", 0.0)
            return {"delay_ns": round(delay_s * 1e9), "loss": options.get("loss-random", {}).get("loss", 0.0)}
    return {}


def _tc(*words: str) -> str:
    try:
        done = subprocess.run(["tc", *words], capture_output=True, text=True, check=True, timeout=SECONDS)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


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
        self._fabric = server.fabric
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
            switch, fabric = self._switch, self._fabric
            commands = Commands(instance, switch, self._printed.append, device=switch, clock=lambda: fabric.now_ns)
            self._known = instance, commands
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


PROG = "simple_switch_grpc"
PLAIN = "simple_switch"
LOOPBACK = "127.0.0.1"
DEFAULT_PORT = 9559
EVERY_ADDRESS = {"0.0.0.0", "[::]", "::", "", "*"}

#: BMv2's options that have no effect here, each with the number of words that follow it.
WITHOUT_EFFECT = {
    "--nanolog": 1, "--notifications-addr": 1, "--debugger-addr": 1, "--dump-packet-data": 1,
    "--max-port-count": 1, "--debugger": 0, "--log-flush": 0, "--enable-swap": 0,
}  # fmt: skip

REFUSED = {
    "--restore-state": "p4lite's switch does not save its state",
    "--use-files": "p4lite's switch takes packets from interfaces; 'p4lite stf' runs packets from a file",
    "--packet-in": "p4lite's switch takes packets from interfaces only",
    "--dp-grpc-server-addr": "p4lite's switch takes packets from interfaces only",
    "--load-modules": "p4lite's switch has v1model's externs only",
}


class _Usage(Exception):
    """A command line that cannot be served."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Usage(message)


@dataclass(frozen=True)
class Translated:
    """The arguments for `p4lite switch` (None: help or version was printed), the folder for captures that are named
    after interfaces, and the port for simple_switch_CLI."""

    words: list[str] | None
    captures: Path | None = None
    thrift_port: int | None = None


def run(argv: list[str]) -> int:
    """Run `simple_switch_grpc` until SIGINT or SIGTERM; 1 for an error, as BMv2 has it."""
    return _run(PROG, argv)


def run_plain(argv: list[str]) -> int:
    """Run `simple_switch`, which controllers reach by simple_switch_CLI only."""
    return _run(PLAIN, argv)


def _run(prog: str, argv: list[str]) -> int:
    with contextlib.suppress(OSError):
        # `pkill simple_switch` finds the process by this name, of which Linux keeps 15 characters.
        Path("/proc/self/comm").write_text(prog[:15], encoding="ascii")
    try:
        given = translate(argv, prog)
    except _Usage as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return 1
    if given.words is None:
        return 0
    manner = verb.Manner(prog, given.captures, settings)
    if given.thrift_port is not None:
        port = given.thrift_port
        manner = dataclasses.replace(manner, beside=lambda server, switch: serving(server, switch, port))
    return min(1, verb.run(given.words, manner))


def translate(argv: list[str], prog: str = PROG) -> Translated:
    """Return what a command line means. Raises _Usage."""
    given = _known(argv)
    parser = _Parser(
        prog=prog,
        allow_abbrev=False,
        description="p4lite's switch under the name of BMv2's. Options of BMv2 that are not listed are accepted "
        "without effect, or refused by name.",
    )
    add = parser.add_argument
    add("program", nargs="?", metavar="PROG.json", help="the program")
    add("--no-p4", action="store_true", help="start without program; a controller sets the pipeline")
    add("-i", "--interface", action="append", default=[], metavar="PORT@IFACE", help="attach an interface")
    add("--device-id", default="0", metavar="N", help="P4Runtime device_id (default 0)")
    add("--pcap", nargs="?", const=".", metavar="DIR", help="capture to DIR/IFACE.pcap, both directions in one file")
    add("--log-console", action="store_true", help="log every packet's events to standard error")
    add("--log-file", metavar="FILE", help="log every packet's events to FILE.txt")
    add("-L", "--log-level", metavar="LEVEL", help="of the control plane")
    add(
        "--thrift-port", type=whole(1, 65535), metavar="N", default=THRIFT_PORT if prog == PLAIN else None,
        help="take commands of simple_switch_CLI --thrift-port N",
    )  # fmt: skip
    add("--grpc-server-addr", metavar="HOST:PORT", help=f"default {LOOPBACK}:{DEFAULT_PORT}; 0.0.0.0 means {LOOPBACK}")
    for option in ("cacert", "cert", "key"):
        add(f"--grpc-server-{option}", metavar="FILE", help="as p4lite switch has it")
    add("--grpc-server-ssl", action="store_true", help="TLS")
    add("--grpc-server-with-client-auth", action="store_true", help="with it and TLS, 0.0.0.0 is every address")
    for option, text in (
        ("cpu-port", "port number of packet-in and packet-out"),
        ("drop-port", "default 511"),
        ("priority-queues", "queues per port"),
    ):
        add(f"--{option}", metavar="N", help=text)
    add("-v", "--version", action="store_true", help="print the version")
    try:
        args = parser.parse_args(given)
    except SystemExit:
        return Translated(None)
    if args.version:
        from p4lite_tools.cli.p4lang.p4c import _version

        print(f"{prog}: p4lite {_version()}, in the place of BMv2")
        return Translated(None)
    if prog == PLAIN:
        # Nothing but p4lite's own tools looks for P4Runtime there.
        words = ["--grpc-server-addr", listen.default_address(f"simple-switch-{args.thrift_port}")]
    else:
        words = ["--grpc-server-addr", _address(args)]
    for name, value in vars(args).items():
        option = f"--{name.replace('_', '-')}"
        if name in ("program", "version", "grpc_server_addr", "pcap", "interface", "log_file", "thrift_port"):
            continue
        if value is True:
            words.append(option)
        elif value not in (None, False):
            words += [option, value]
    for item in args.interface:
        words += ["-i", item]
    if args.log_file is not None:
        words += ["--log-file", f"{args.log_file}.txt"]
    if args.program is not None:
        words.append(args.program)
    return Translated(words, None if args.pcap is None else Path(args.pcap), args.thrift_port)


def _known(argv: list[str]) -> list[str]:
    """Return the words without options that have no effect and without the '--' before the target's options."""
    out: list[str] = []
    words = iter(argv)
    for word in words:
        name, _, value = word.partition("=")
        if name in REFUSED:
            raise _Usage(f"{name} is not supported: {REFUSED[name]}")
        if name in WITHOUT_EFFECT:
            for _ in range(0 if value else WITHOUT_EFFECT[name]):
                next(words, None)
        elif word != "--":
            out.append(word)
    return out


def _address(args: argparse.Namespace) -> str:
    """Return the address to listen on, which is every address only for clients with certificates."""
    given = args.grpc_server_addr or f"0.0.0.0:{DEFAULT_PORT}"
    if listen.socket_path(given) is not None:
        return str(given)
    host, _, port = given.rpartition(":")
    if host not in EVERY_ADDRESS or (args.grpc_server_ssl and args.grpc_server_with_client_auth):
        return str(given)
    address = f"{LOOPBACK}:{port}"
    print(
        f"{PROG}: note: listening on {address}, not on {given}, where any host could command the switch; "
        "--grpc-server-ssl with --grpc-server-with-client-auth lets it listen on every address",
        file=sys.stderr,
    )
    return address
