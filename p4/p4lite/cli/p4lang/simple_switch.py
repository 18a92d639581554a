"""`simple_switch_grpc` and `simple_switch`: BMv2's command lines, served by p4lite's switch.

One rule differs: without TLS and certificates of clients the switch listens on loopback, also where the command says
0.0.0.0, because each process that reaches the port can command the switch.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from p4lite.cli import switch as verb
from p4lite.cli.numbers import whole
from p4lite.cli.p4lang import shaping
from p4lite.cli.p4lang.command_port import THRIFT_PORT, serving
from p4lite.switch import listen

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
    manner = verb.Manner(prog, given.captures, shaping.settings)
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
        from p4lite.cli.p4lang.p4c import _version

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
