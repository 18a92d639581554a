"""`p4lite switch`: run one switch, with the options of simple_switch_grpc."""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from p4lite import terminal
from p4lite.cli.options import add_compiler
from p4lite.errors import P4liteError
from p4lite.switch import listen
from p4lite.switch.assembly import capture_all, capture_interfaces
from p4lite.switch.description import DEFAULT_LIMIT_BYTES
from p4lite.switch.fabric.fabric import Fabric, FabricSwitch
from p4lite.switch.fabric.values import LinkSettings
from p4lite.switch.p4rt.errors import P4RtError
from p4lite.switch.program.facts import DROP_PORT
from p4lite.switch.server import FabricServer, serve_until_signal
from p4lite.switch.source import load_source
from p4lite.switch.targetapi.grants import Grants

_IGNORED = ("thrift-port", "nanolog", "notifications-addr", "max-mc-groups", "max-l1-entries", "max-l2-entries")
#: BMv2's names of log levels.
_LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "off": logging.CRITICAL + 1,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="p4lite switch",
        description="Run a P4 switch that P4Runtime controllers can program. Options may follow a '--', as "
        "those of simple_switch_grpc's target do.",
    )
    add = parser.add_argument
    add("program", nargs="?", metavar="PROG", help="BMv2 JSON, or P4 source (.p4) that is compiled first")
    add("--no-p4", action="store_true", help="start without program; a controller sets the pipeline")
    add("--p4info", metavar="FILE", help="P4Info of a JSON program, which makes it the device's pipeline")
    add("-i", "--interface", action="append", default=[], metavar="PORT@IFACE", help="attach an interface")
    add("--device-id", type=int, default=0, metavar="N", help="P4Runtime device_id (default 0)")
    listen.add_options(parser, "the socket switch-N.sock in your run folder, N the device_id")
    add("--files", metavar="DIR", help="folder for captures and traces that clients of the target API ask for")
    add("--files-limit", type=int, default=DEFAULT_LIMIT_BYTES, metavar="BYTES", help="of all of them (default 1 GiB)")
    add("--allow-interface", action="append", default=[], metavar="IFACE", help="clients may add ports on it")
    add("--cpu-port", type=int, metavar="N", help="port number of packet-in and packet-out (default: none)")
    add("--drop-port", type=int, default=DROP_PORT, metavar="N", help=f"default {DROP_PORT}")
    add("--priority-queues", type=int, default=1, metavar="N", help="queues per port (default 1)")
    add("--seed", type=int, default=0, metavar="N", help="of random() and selectors (default 0)")
    add("--realtime", action="store_true", help="run the event loop with SCHED_RR (root)")
    add("--pcap", nargs="?", const=".", metavar="DIR", help="capture every port to DIR (default: here)")
    add("--log-console", action="store_true", help="log every packet's events to standard error")
    add("--log-file", metavar="FILE", help="log every packet's events to FILE")
    add("-L", "--log-level", default="warn", choices=_LEVELS, help="of the control plane (default warn)")
    add_compiler(parser)
    for name in _IGNORED:
        add(f"--{name}", help=argparse.SUPPRESS)
    return parser


@dataclass(frozen=True)
class Manner:
    """How a command that is served by this one differs: messages start with `prog`, every port with an interface is
    captured into `captures`/IFACE.pcap, packets to an interface are treated as `to_host` says, and `beside` serves the
    switch in other ways, too."""

    prog: str = "p4lite switch"
    captures: Path | None = None
    to_host: Callable[[str], LinkSettings] = lambda _interface: LinkSettings()
    beside: Callable[[FabricServer, FabricSwitch], AbstractContextManager[object]] = lambda _server, _switch: (
        nullcontext()
    )


def run(argv: list[str], manner: Manner = Manner()) -> int:
    """Run the switch until SIGINT or SIGTERM: 0, 1 for a failed run, 2 for usage."""
    prog = manner.prog
    try:
        arguments = _parser().parse_args([item for item in argv if item != "--"])
    except SystemExit as end:
        return int(end.code or 0)
    logging.basicConfig(level=_LEVELS[arguments.log_level], format="%(name)s: %(message)s")
    for name in _IGNORED:
        if getattr(arguments, name.replace("-", "_")) is not None:
            print(f"{prog}: note: --{name} has no effect here", file=sys.stderr)
    try:
        ports = _ports(arguments.interface)
        if (arguments.program is None) != arguments.no_p4:
            raise ValueError("give a program or --no-p4 (and not both)")
        if arguments.p4info is not None and (arguments.no_p4 or arguments.program.endswith(".p4")):
            raise ValueError("--p4info belongs to a JSON program")
        if arguments.files_limit < 0:
            raise ValueError("--files-limit must not be negative")
        tls = listen.tls_of(arguments)
    except ValueError as error:
        return _fail(2, str(error), prog)
    try:
        with terminal.shown(prog):
            server = _start(arguments, ports, tls, manner)
        with manner.beside(server, server.fabric.switch(arguments.device_id)):
            return serve_until_signal(server, prog)
    except P4RtError as error:
        return _fail(1, f"{arguments.program}: {error.message}", prog)
    except P4liteError as error:
        return _fail(error.exit_code, str(error), prog)


def _start(
    arguments: argparse.Namespace, ports: dict[int, str], tls: listen.Tls | None, manner: Manner
) -> FabricServer:
    address = arguments.grpc_server_addr or listen.default_address(f"switch-{arguments.device_id}")
    listen.check(address, tls)
    files = None if arguments.files is None else Path(arguments.files)
    grants = Grants(files, arguments.files_limit, [*ports.values(), *arguments.allow_interface])
    loaded = None
    if arguments.program is not None:
        loaded = load_source(
            Path(arguments.program),
            p4info=None if arguments.p4info is None else Path(arguments.p4info),
            include_dirs=arguments.include_dirs,
            defines=arguments.defines,
        )
        loaded.check_compiled()
    fabric = Fabric("real", arguments.seed, realtime=arguments.realtime)
    server = FabricServer(fabric, address, tls=tls, grants=grants)
    try:
        switch = server.add_switch(
            arguments.device_id,
            priority_queues=arguments.priority_queues,
            drop_port=arguments.drop_port,
            cpu_port=arguments.cpu_port,
        )
        for number, interface in ports.items():
            switch.add_port(number, interface=interface, to_host=manner.to_host(interface))
        if loaded is not None:
            server.load(switch, loaded)
        if arguments.pcap is not None:
            capture_all(fabric, Path(arguments.pcap))
        if manner.captures is not None:
            capture_interfaces(fabric, manner.captures)
        if arguments.log_file is not None or arguments.log_console:
            fabric.trace(arguments.log_file or _appended_stderr())
    except BaseException:
        fabric.close()
        raise
    return server


def _appended_stderr() -> str:
    """Return the name of standard error, after which each writer of it adds to its end.

    Where it is a file, a writer that opens it has a position of its own and would write over what others wrote.
    """
    flags = fcntl.fcntl(2, fcntl.F_GETFL)
    fcntl.fcntl(2, fcntl.F_SETFL, flags | os.O_APPEND)
    return "/dev/stderr"


def _ports(given: list[str]) -> dict[int, str]:
    """Return interfaces by port number; ValueError for a wrong form, or a port or interface used twice."""
    ports: dict[int, str] = {}
    for item in given:
        number, _, interface = item.partition("@")
        if not number.isdigit() or not interface:
            raise ValueError(f"-i {item}: expected PORT@INTERFACE, such as 1@veth0")
        if int(number) in ports:
            raise ValueError(f"-i {item}: port {number} is used twice")
        if interface in ports.values():
            raise ValueError(f"-i {item}: interface {interface} is used twice")
        ports[int(number)] = interface
    return ports


def _fail(code: int, message: str, prog: str) -> int:
    print(f"{prog}: error: {message}", file=sys.stderr)
    return code
