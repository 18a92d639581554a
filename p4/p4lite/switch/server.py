"""A process that carries a fabric and serves it: P4Runtime and the target API on one address.

    python -m p4lite.switch.server --fabric DESC.json

The description is a JSON object (`p4lite.switch.description`). Once everything runs, one line `ready ADDRESS` is
written to standard output. SIGINT and SIGTERM end the process cleanly.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import grpc

from p4lite.switch import documents, listen
from p4lite.switch.description import (
    FabricDescription,
    LinkDescription,
    PortDescription,
    SwitchDescription,
    TunnelDescription,
)
from p4lite.switch.errors import BuildError, DocumentError, GrantError, ProgramError
from p4lite.switch.fabric.fabric import Fabric, Switch
from p4lite.switch.fabric.values import TUNNEL_KEY_BYTES, FabricError, LinkSettings, TunnelSettings
from p4lite.switch.listen import ServerError, Tls
from p4lite.switch.p4rt import patience
from p4lite.switch.p4rt.errors import P4RtError
from p4lite.switch.p4rt.pipeline import Pipeline
from p4lite.switch.p4rt.service import P4RuntimeService
from p4lite.switch.runtime.loader import Program
from p4lite.switch.source import Loaded, load_source
from p4lite.switch.targetapi.grants import Grants
from p4lite.switch.targetapi.service import TargetService

MAX_MESSAGE_BYTES = 64 << 20
SIGNAL_POLL_S = 0.1
#: The time that open calls have to end.
STOP_S = 10.0


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
        """Create the server.

        Args:
            fabric: its switches are served, each under its device_id.
            address: unix:PATH, HOST:PORT (with `tls`), or a socket that no other user can open (PRIVATE).
            tls: certificate and key for HOST:PORT.
            grants: what clients of the target API may use of the machine.
            patient: all clients are of this process, so no slow one is ended.
        """
        self.fabric = fabric
        self.service = P4RuntimeService(fabric, patient=patient)
        self.address = address
        self.tls = tls
        self.grants = grants or Grants()
        self._folder = contextlib.ExitStack()
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None
        #: The result for each `Loaded`, by identity: switches with the same program share it.
        self._loaded: dict[int, tuple[Loaded, Pipeline | Program]] = {}
        for switch in fabric.switches.values():
            self.service.add_device(switch)

    @classmethod
    def from_description(
        cls,
        description: FabricDescription | object,
        base: Path = Path(),
        *,
        tls: Tls | None = None,
        patient: bool = False,
    ) -> FabricServer:
        """Build the fabric of a description, or of a JSON document of one; relative paths start at `base`.

        Raises ServerError.
        """
        if not isinstance(description, FabricDescription):
            try:
                description = documents.read(FabricDescription, description, "")
            except DocumentError as error:
                raise ServerError(str(error)) from None
        return _Builder(description, base, tls, patient).server()

    def add_switch(self, device_id: int, **options: Any) -> Switch:
        """Return a new switch (see `Fabric.add_switch`), served at once."""
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
        # A call that gRPC has abandoned may still use the fabric; losing its memory is then the lesser evil.
        if _end(pools, STOP_S):
            self.fabric.close()
        self._folder.close()

    def __enter__(self) -> FabricServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def _end(pools: Iterable[ThreadPoolExecutor], timeout_s: float) -> bool:
    """Refuse new calls; return whether the open ones have ended in time."""
    waiting = [threading.Thread(target=pool.shutdown, daemon=True) for pool in pools]
    deadline = time.monotonic() + timeout_s
    for each in waiting:
        each.start()
    for each in waiting:
        each.join(max(deadline - time.monotonic(), 0))
    return not any(each.is_alive() for each in waiting)


class _Builder:
    """Builds the fabric of a description; every error names the place in it."""

    def __init__(self, description: FabricDescription, base: Path, tls: Tls | None, patient: bool) -> None:
        self.patient = patient
        self.description = description
        self.base = base
        self.tls = tls
        self.programs: dict[tuple[object, ...], Loaded] = {}

    def server(self) -> FabricServer:
        place, given = "fabric", self.description
        try:
            fabric = Fabric(
                given.clock,
                given.seed,
                busy_poll_us=given.busy_poll_us,
                round_us=given.round_us,
                realtime=given.realtime,
            )
            files = None if given.files is None else self.base / given.files
            grants = Grants(files, given.files_limit, given.interfaces)
            address = given.grpc_server_addr or listen.PRIVATE
            server = FabricServer(fabric, address, tls=self.tls, grants=grants, patient=self.patient)
        except (FabricError, BuildError, GrantError) as error:
            raise ServerError(f"{place}: {error}" if isinstance(error, FabricError) else str(error)) from None
        try:
            for index, switch in enumerate(given.switches):
                place = f"switches[{index}]"
                self.switch(server, switch, place)
            for index, link in enumerate(given.links):
                place = f"links[{index}]"
                self.link(server, link)
            if given.trace is not None:
                fabric.trace(self.base / given.trace)
            if given.pcap_dir is not None:
                capture_all(fabric, self.base / given.pcap_dir)
        except DocumentError as error:
            server.stop()
            raise ServerError(str(error)) from None
        except (FabricError, ProgramError, BuildError, P4RtError) as error:
            server.stop()
            raise ServerError(f"{place}: {error}") from None
        return server

    def switch(self, server: FabricServer, item: SwitchDescription, place: str) -> None:
        options = {"priority_queues": item.priority_queues, "drop_port": item.drop_port, "loop_limit": item.loop_limit}
        given = {key: value for key, value in options.items() if value is not None}
        switch = server.add_switch(item.device_id, name=item.name, cpu_port=item.cpu_port, **given)
        for index, port in enumerate(item.ports):
            self.port(server, switch, port, f"{place}.ports[{index}]")
        for one, other in item.patches:
            switch.patch(one, other)
        if item.program is not None:
            server.load(switch, self.program(item, self.base / item.program))

    def program(self, item: SwitchDescription, path: Path) -> Loaded:
        key = (path, item.p4info, item.include_dirs, tuple(item.defines.items()))
        if key not in self.programs:
            self.programs[key] = load_source(
                path,
                p4info=None if item.p4info is None else self.base / item.p4info,
                include_dirs=[self.base / each for each in item.include_dirs],
                defines=item.defines,
            )
        return self.programs[key]

    def port(self, server: FabricServer, switch: Switch, item: PortDescription, place: str) -> None:
        if item.interface is not None:
            server.grants.interfaces.add(item.interface)
        port = switch.add_port(
            item.port,
            interface=item.interface,
            xdp=item.xdp,
            name=item.name,
            to_host=item.to_host or LinkSettings(),
            to_switch=item.to_switch or LinkSettings(),
            pcap=None if item.pcap is None else self.base / item.pcap,
            tunnel=None if item.tunnel is None else self.tunnel(item.tunnel, f"{place}.tunnel"),
        )
        if item.queue is not None:
            port.set_queue(item.queue)
        for priority, limits in item.queues.items():
            port.set_queue(limits, priority)
        for priority, pfc in item.pfc.items():
            port.set_pfc(priority, pfc, item.mac)
        for priority, credits in item.credits.items():
            port.set_credits(priority, credits, item.mac)
        if item.buffer is not None:
            port.set_buffer(item.buffer)

    def tunnel(self, item: TunnelDescription, place: str) -> TunnelSettings:
        key = read_key(self.base / item.key_file, f"{place}.key_file")
        return TunnelSettings(item.local, item.peer, key, item.end, item.peer_end, item.socket)

    def link(self, server: FabricServer, item: LinkDescription) -> None:
        a, b = (server.fabric.switch(device_id).port(number) for device_id, number in (item.a, item.b))
        server.fabric.link(a, b, item.settings or LinkSettings(), item.back)


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
    """Start, print `ready ADDRESS`, and serve until SIGINT or SIGTERM; return the exit code.

    Prints to standard error, in the name of `program`, which other users can command the server.
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
    """Return the secret of a lab's tunnels from a file of hexadecimal digits that only its owner can read.

    Raises:
        DocumentError: the file does not exist, or has another form.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            given = file.read(1024)
    except OSError as error:
        raise DocumentError(f"{place}: {path}: {error.strerror}") from None
    if mode & 0o077:
        raise DocumentError(f"{place}: {path}: others can open it; chmod 600 {path}")
    try:
        key = bytes.fromhex(given.decode("ascii"))
    except ValueError:
        key = b""
    if len(key) != TUNNEL_KEY_BYTES:
        wanted = f"{2 * TUNNEL_KEY_BYTES} hexadecimal digits"
        raise DocumentError(f"{place}: {path}: expected {wanted}, as `openssl rand -hex {TUNNEL_KEY_BYTES}` makes them")
    return key


def run(argv: list[str]) -> int:
    """Run `python -m p4lite.switch.server`; return 0, 1 for a failed run, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="p4lite.switch.server", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--fabric", required=True, metavar="FILE", help="fabric description (JSON), '-' for stdin")
    listen.add_options(parser, "the description's, else fabric.sock in the run folder")
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=arguments.log_level.upper(), format="%(name)s: %(message)s")
    path = Path(arguments.fabric)
    try:
        data = sys.stdin.read() if arguments.fabric == "-" else path.read_text(encoding="utf-8")
        document = json.loads(data)
        tls = listen.tls_of(arguments)
    except OSError as error:
        return _fail(2, f"{path}: cannot read: {error.strerror}")
    except json.JSONDecodeError as error:
        return _fail(2, f"{path}: no JSON: {error}")
    except ValueError as error:
        return _fail(2, str(error))
    try:
        description = documents.read(FabricDescription, document, "")
    except DocumentError as error:
        return _fail(1, f"{path}: {error}")
    if description.clock != "real":
        return _fail(2, f"{path}: clock: a process of its own runs on the real clock only")
    address = arguments.grpc_server_addr or description.grpc_server_addr or listen.default_address("fabric")
    try:
        base = Path() if arguments.fabric == "-" else path.parent
        description = dataclasses.replace(description, grpc_server_addr=address)
        return serve_until_signal(FabricServer.from_description(description, base, tls=tls), "p4lite.switch.server")
    except (ServerError, FabricError) as error:
        return _fail(1, f"{path}: {error}")


def _fail(code: int, message: str) -> int:
    print(f"p4lite.switch.server: error: {message}", file=sys.stderr)
    return code


def main() -> NoReturn:
    """Run the module as a program."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
