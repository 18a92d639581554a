"""A process that carries a fabric and serves it: P4Runtime and the target API on one address.

    python -m p4lite.switch.server --fabric DESC.json

The description is a JSON object (`DESCRIPTION` lists the keys). Once everything runs, one line `ready ADDRESS` is
written to standard output. SIGINT and SIGTERM end the process cleanly.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import grpc

from p4lite.switch import listen
from p4lite.switch.errors import BuildError, GrantError, ProgramError
from p4lite.switch.fabric.fabric import Fabric, Port, Switch
from p4lite.switch.fabric.values import TUNNEL_KEY_BYTES, FabricError, TunnelSettings
from p4lite.switch.listen import ServerError, Tls
from p4lite.switch.p4rt import patience
from p4lite.switch.p4rt.errors import P4RtError
from p4lite.switch.p4rt.pipeline import Pipeline
from p4lite.switch.p4rt.service import P4RuntimeService
from p4lite.switch.runtime.loader import Program
from p4lite.switch.source import Loaded, load_source
from p4lite.switch.targetapi import codec
from p4lite.switch.targetapi.codec import CodecError, boolean, integer, text
from p4lite.switch.targetapi.grants import DEFAULT_LIMIT_BYTES, Grants
from p4lite.switch.targetapi.service import TargetService

MAX_MESSAGE_BYTES = 64 << 20
SIGNAL_POLL_S = 0.1
#: How long calls that go on may take to end.
STOP_S = 10.0

#: Keys of a fabric description, by object.
DESCRIPTION = {
    "fabric": (
        "clock",
        "grpc_server_addr",
        "seed",
        "busy_poll_us",
        "round_us",
        "realtime",
        "pcap_dir",
        "trace",
        "files",
        "files_limit",
        "interfaces",
        "switches",
        "links",
    ),
    "switch": (
        "device_id",
        "name",
        "program",
        "p4info",
        "include_dirs",
        "defines",
        "priority_queues",
        "drop_port",
        "cpu_port",
        "loop_limit",
        "ports",
        "patches",
    ),
    "port": (
        "port",
        "interface",
        "tunnel",
        "name",
        "to_host",
        "to_switch",
        "pcap",
        "queue",
        "queues",
        "buffer",
        "pfc",
        "credits",
        "mac",
    ),
    "tunnel": ("local", "peer", "key_file", "end", "peer_end", "socket"),
    "link": ("a", "b", "settings", "back"),
}


class FabricServer:
    """A fabric and its gRPC server. Usable as a context manager; `start` serves, `stop` ends everything."""

    def __init__(
        self,
        fabric: Fabric,
        address: str = listen.PRIVATE,
        *,
        tls: Tls | None = None,
        grants: Grants | None = None,
        patient: bool = False,
    ) -> None:
        """`address`: unix:PATH, HOST:PORT (with `tls`), or a socket of its own that nobody else can open (PRIVATE);
        `grants`: what clients of the target API may touch of the machine; `patient`: all clients are of this process,
        and none is ended for being slow."""
        self.fabric = fabric
        self.service = P4RuntimeService(fabric, patient=patient)
        self.address = address
        self.tls = tls
        self.grants = grants or Grants()
        self._folder = contextlib.ExitStack()
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None
        #: What was made of each `Loaded`, by identity: switches that run the same share it.
        self._loaded: dict[int, tuple[Loaded, Pipeline | Program]] = {}
        for switch in fabric.switches.values():
            self.service.add_device(switch)

    @classmethod
    def from_description(
        cls, description: Mapping[str, Any], base: Path = Path(), *, tls: Tls | None = None, patient: bool = False
    ) -> FabricServer:
        """Build what a description asks for; relative paths start at `base`. Raises ServerError."""
        return _Builder(description, base, tls, patient).server()

    def add_switch(self, device_id: int, **options: Any) -> Switch:
        """A new switch (see `Fabric.add_switch`), served at once."""
        switch = self.fabric.add_switch(device_id, **options)
        self.service.add_device(switch)
        return switch

    def load(self, switch: Switch, program: Loaded) -> None:
        """Run a program; with its P4Info it becomes the device's pipeline, else controllers must set one."""
        known = self._loaded.get(id(program))
        if known is None:
            config = program.config()
            what = program.program() if config is None else self.service.cache.verify(config)
            known = self._loaded[id(program)] = (program, what)
        what = known[1]
        if isinstance(what, Pipeline):
            self.service.device(switch.device_id).commit(what)
        else:
            with self.service.programs:
                switch.load(what)

    def start(self) -> str:
        """Serve, and start the real clock (a virtual one is the owner's to advance).

        Returns the address with the port in use. Raises ServerError.
        """
        if self.address == listen.PRIVATE:
            self.address = self._folder.enter_context(listen.private_address())
        target = TargetService(self.service, self.grants)
        self.service.chores.append(target.measure_files)
        calls = max(patience.MIN_CALLS_PER_CONNECTION, patience.CALLS_PER_DEVICE * len(self.service.devices()))
        self._pool = ThreadPoolExecutor(patience.THREADS, thread_name_prefix="p4rt")
        server = grpc.server(
            self._pool,
            handlers=[self.service.handler(), target.handler()],
            options=[
                ("grpc.so_reuseport", 0),
                ("grpc.max_concurrent_streams", calls),
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
                ("grpc.http2.min_ping_interval_without_data_ms", 1000),
                ("grpc.keepalive_permit_without_calls", 1),
            ],
        )
        self.address = listen.bind(server, self.address, self.tls)
        if self.fabric.clock == "real":
            self.fabric.start()
        self.service.start()
        server.start()
        self._server = server
        return self.address

    def stop(self) -> None:
        """End streams and server, stop the clock, free the fabric."""
        self.service.stop()
        if self._server is not None:
            self._server.stop(grace=0.5).wait()
            self._server = None
        pools = [self.service.readers] if self._pool is None else [self._pool, self.service.readers]
        self._pool = None
        # A call that gRPC has given up may still be in the fabric; then memory is the lesser loss.
        if _end(pools, STOP_S):
            self.fabric.close()
        self._folder.close()

    def __enter__(self) -> FabricServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _end(pools: Iterable[ThreadPoolExecutor], timeout_s: float) -> bool:
    """Takes no more work; whether what goes on has ended in time."""
    waiting = [threading.Thread(target=pool.shutdown, daemon=True) for pool in pools]
    deadline = time.monotonic() + timeout_s
    for each in waiting:
        each.start()
    for each in waiting:
        each.join(max(deadline - time.monotonic(), 0))
    return not any(each.is_alive() for each in waiting)


class _Builder:
    """Reads a description; every error names the place in it."""

    def __init__(self, description: Mapping[str, Any], base: Path, tls: Tls | None, patient: bool) -> None:
        self.patient = patient
        self.description = description
        self.base = base
        self.tls = tls
        self.programs: dict[str, Loaded] = {}

    def server(self) -> FabricServer:
        place = "fabric"
        try:
            given = codec.check_keys(self.description, "fabric", DESCRIPTION["fabric"])
            clock = given.get("clock", "real")
            if clock not in ("real", "virtual"):
                raise CodecError(f"clock: expected real or virtual, got {clock!r}")
            fabric = Fabric(
                clock,
                integer(given.get("seed", 0), "seed"),
                busy_poll_us=integer(given.get("busy_poll_us", 0), "busy_poll_us"),
                round_us=integer(given.get("round_us", 0), "round_us", 0, 100_000),
                realtime=boolean(given.get("realtime", False), "realtime"),
            )
            address = text(given.get("grpc_server_addr", listen.PRIVATE), "grpc_server_addr")
            server = FabricServer(fabric, address, tls=self.tls, grants=self.grants(given), patient=self.patient)
        except (CodecError, FabricError, BuildError, GrantError) as error:
            raise ServerError(f"{place}: {error}" if isinstance(error, FabricError) else str(error)) from None
        try:
            for index, item in enumerate(_list(given.get("switches", []), "switches")):
                place = f"switches[{index}]"
                self.switch(server, codec.check_keys(item, place, DESCRIPTION["switch"]), place)
            for index, item in enumerate(_list(given.get("links", []), "links")):
                place = f"links[{index}]"
                self.link(server, codec.check_keys(item, place, DESCRIPTION["link"]), place)
            if given.get("trace") is not None:
                fabric.trace(self.base / text(given["trace"], "trace"))
            if given.get("pcap_dir") is not None:
                capture_all(fabric, self.base / text(given["pcap_dir"], "pcap_dir"))
        except CodecError as error:
            server.stop()
            raise ServerError(str(error)) from None
        except (FabricError, ProgramError, BuildError, P4RtError) as error:
            server.stop()
            raise ServerError(f"{place}: {error}") from None
        return server

    def grants(self, given: dict[str, Any]) -> Grants:
        files = given.get("files")
        interfaces = _list(given.get("interfaces", []), "interfaces")
        return Grants(
            None if files is None else self.base / text(files, "files"),
            integer(given.get("files_limit", DEFAULT_LIMIT_BYTES), "files_limit"),
            [text(name, "interfaces") for name in interfaces],
        )

    def switch(self, server: FabricServer, item: dict[str, Any], place: str) -> None:
        options: dict[str, Any] = {
            key: integer(item[key], f"{place}.{key}", 0, 65535)
            for key in ("priority_queues", "drop_port", "cpu_port", "loop_limit")
            if item.get(key) is not None
        }
        if item.get("name") is not None:
            options["name"] = text(item["name"], f"{place}.name")
        switch = server.add_switch(integer(item.get("device_id"), f"{place}.device_id"), **options)
        for index, port in enumerate(_list(item.get("ports", []), f"{place}.ports")):
            where = f"{place}.ports[{index}]"
            self.port(server, switch, codec.check_keys(port, where, DESCRIPTION["port"]), where)
        for index, pair in enumerate(_list(item.get("patches", []), f"{place}.patches")):
            where = f"{place}.patches[{index}]"
            if not isinstance(pair, list) or len(pair) != 2:
                raise CodecError(f"{where}: expected [port, port], got {pair!r}")
            switch.patch(*(integer(number, where, 0, 65535) for number in pair))
        if item.get("program") is not None:
            server.load(switch, self.program(item, place))

    def program(self, item: dict[str, Any], place: str) -> Loaded:
        key = json.dumps([item.get(name) for name in ("program", "p4info", "include_dirs", "defines")])
        if key not in self.programs:
            p4info = item.get("p4info")
            defines = item.get("defines") or {}
            self.programs[key] = load_source(
                self.base / text(item["program"], f"{place}.program"),
                p4info=None if p4info is None else self.base / text(p4info, f"{place}.p4info"),
                include_dirs=[
                    self.base / text(path, f"{place}.include_dirs")
                    for path in _list(item.get("include_dirs") or [], f"{place}.include_dirs")
                ],
                defines={
                    name: text(value, f"{place}.defines.{name}")
                    for name, value in codec.check_keys(defines, f"{place}.defines", defines).items()
                },
            )
        return self.programs[key]

    def port(self, server: FabricServer, switch: Switch, item: dict[str, Any], place: str) -> None:
        options: dict[str, Any] = {
            key: text(item[key], f"{place}.{key}") for key in ("interface", "name") if item.get(key) is not None
        }
        if "interface" in options:
            server.grants.interfaces.add(options["interface"])
        if item.get("tunnel") is not None:
            options["tunnel"] = self.tunnel(item["tunnel"], f"{place}.tunnel")
        if item.get("pcap") is not None:
            options["pcap"] = self.base / text(item["pcap"], f"{place}.pcap")
        for key in ("to_host", "to_switch"):
            if item.get(key) is not None:
                options[key] = codec.link_settings(item[key], f"{place}.{key}")
        port = switch.add_port(integer(item.get("port"), f"{place}.port", 0, 65535), **options)
        if item.get("queue") is not None:
            port.set_queue(codec.queue_limits(item["queue"], f"{place}.queue"))
        for priority, limits in self.priorities(item, "queues", place):
            port.set_queue(codec.queue_limits(limits, f"{place}.queues.{priority}"), priority)
        mac = integer(item.get("mac", 0), f"{place}.mac", 0, (1 << 48) - 1)
        for priority, settings in self.priorities(item, "pfc", place):
            port.set_pfc(priority, codec.pfc_settings(settings, f"{place}.pfc.{priority}"), mac)
        for priority, settings in self.priorities(item, "credits", place):
            port.set_credits(priority, codec.credit_settings(settings, f"{place}.credits.{priority}"), mac)
        if item.get("buffer") is not None:
            port.set_buffer(codec.queue_limits(item["buffer"], f"{place}.buffer"))

    def tunnel(self, item: Any, place: str) -> TunnelSettings:
        given = codec.check_keys(item, place, DESCRIPTION["tunnel"])
        return TunnelSettings(
            local=text(given.get("local"), f"{place}.local"),
            peer=text(given.get("peer"), f"{place}.peer"),
            key=read_key(self.base / text(given.get("key_file"), f"{place}.key_file"), f"{place}.key_file"),
            end=integer(given.get("end"), f"{place}.end", 0, (1 << 32) - 1),
            peer_end=integer(given.get("peer_end"), f"{place}.peer_end", 0, (1 << 32) - 1),
            descriptor=None if given.get("socket") is None else integer(given["socket"], f"{place}.socket", 3),
        )

    @staticmethod
    def priorities(item: dict[str, Any], key: str, place: str) -> Iterator[tuple[int, Any]]:
        """What a port's description says of each priority."""
        values = item.get(key) or {}
        for priority, value in codec.check_keys(values, f"{place}.{key}", values).items():
            if not priority.isdigit():
                raise CodecError(f"{place}.{key}: '{priority}' is no priority")
            yield int(priority), value

    def link(self, server: FabricServer, item: dict[str, Any], place: str) -> None:
        a, b = (self.end(server, item.get(key), f"{place}.{key}") for key in ("a", "b"))
        settings = codec.link_settings(item.get("settings") or {}, f"{place}.settings")
        back = item.get("back")
        server.fabric.link(a, b, settings, None if back is None else codec.link_settings(back, f"{place}.back"))

    def end(self, server: FabricServer, value: Any, place: str) -> Port:
        if not isinstance(value, list) or len(value) != 2:
            raise CodecError(f"{place}: expected [device_id, port], got {value!r}")
        return server.fabric.switch(integer(value[0], place)).port(integer(value[1], place))


def _tune_gc() -> None:
    """Collect garbage seldom: P4Runtime's messages are trees of many small objects that die by themselves, and a
    pass over them at CPython's usual rate takes several times as long as parsing them does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


def capture_all(fabric: Fabric, directory: Path) -> None:
    """Capture every port of the fabric into `directory`/SWITCH-PORT.pcapng. Raises FabricError."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FabricError(f"{directory}: cannot make the directory: {error.strerror}") from None
    for switch in fabric.switches.values():
        for port in switch.ports.values():
            port.capture(directory / f"{switch.name}-{port.number}.pcapng")


def serve_until_signal(server: FabricServer, program: str) -> int:
    """Start, say `ready ADDRESS`, and serve until SIGINT or SIGTERM; returns the exit code.

    Says on standard error, in the name of `program`, who else can command the server.
    """
    # No `Event`: this thread may hold its lock when the signal comes.
    signals: list[int] = []
    previous = {
        number: signal.signal(number, lambda got, _: signals.append(got)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        address = server.start()
        warning = listen.warning(address, server.tls)
        if warning is not None:
            print(f"{program}: warning: {warning}", file=sys.stderr, flush=True)
        _tune_gc()
        print(f"ready {address}", flush=True)
        # A signal does not wake this thread: look again now and then.
        while not signals:
            time.sleep(SIGNAL_POLL_S)
    finally:
        server.stop()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def read_key(path: Path, place: str) -> bytes:
    """The secret of a lab's tunnels: a file of hexadecimal digits that only its owner can read.

    Raises:
        CodecError: it is not there, or not that.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            given = file.read(1024)
    except OSError as error:
        raise CodecError(f"{place}: {path}: {error.strerror}") from None
    if mode & 0o077:
        raise CodecError(f"{place}: {path}: others can open it; chmod 600 {path}")
    try:
        key = bytes.fromhex(given.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != TUNNEL_KEY_BYTES:
        wanted = f"{2 * TUNNEL_KEY_BYTES} hexadecimal digits"
        raise CodecError(f"{place}: {path}: expected {wanted}, as `openssl rand -hex {TUNNEL_KEY_BYTES}` makes them")
    return key


def _list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise CodecError(f"{where}: expected a list, got {value!r}")
    return value


def run(argv: list[str]) -> int:
    """`python -m p4lite.switch.server`: 0, 1 for a failed run, 2 for usage."""
    parser = argparse.ArgumentParser(prog="p4lite.switch.server", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--fabric", required=True, metavar="FILE", help="fabric description (JSON), '-' for stdin")
    listen.add_options(parser, "the description's, else fabric.sock in the run folder")
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=arguments.log_level.upper(), format="%(name)s: %(message)s")
    path = Path(arguments.fabric)
    try:
        data = sys.stdin.read() if arguments.fabric == "-" else path.read_text(encoding="utf-8")
        description = json.loads(data)
    except OSError as error:
        return _fail(2, f"{path}: cannot read: {error.strerror}")
    except ValueError as error:
        return _fail(2, f"{path}: no JSON: {error}")
    try:
        tls = listen.tls_of(arguments)
    except ValueError as error:
        return _fail(2, str(error))
    if isinstance(description, dict) and description.get("clock", "real") != "real":
        return _fail(2, f"{path}: clock: a process of its own runs on the real clock only")
    try:
        if isinstance(description, dict):
            if arguments.grpc_server_addr is not None:
                description["grpc_server_addr"] = arguments.grpc_server_addr
            elif "grpc_server_addr" not in description:
                description["grpc_server_addr"] = listen.default_address("fabric")
        base = Path() if arguments.fabric == "-" else path.parent
        return serve_until_signal(FabricServer.from_description(description, base, tls=tls), "p4lite.switch.server")
    except (ServerError, FabricError) as error:
        return _fail(1, f"{path}: {error}")


def _fail(code: int, message: str) -> int:
    print(f"p4lite.switch.server: error: {message}", file=sys.stderr)
    return code


def main() -> NoReturn:
    """Entry point of the module."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
