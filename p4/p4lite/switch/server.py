"""A process that carries a fabric and serves it: P4Runtime and the target API on one address.

    python -m p4lite.switch.server --fabric DESC.json

The description is a JSON object (`p4lite.switch.description`). With `--wait` it is read once a line has come on
standard input, so that the process can be started before what it describes is there. Once everything runs, one line
`ready ADDRESS` is written to standard output. SIGINT and SIGTERM end the process cleanly.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import gc
import json
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import grpc
from google.protobuf import text_format

from p4lite.messages import p4info_pb2, p4runtime_pb2
from p4lite.switch import documents, listen
from p4lite.switch.assembly import assemble
from p4lite.switch.description import FabricDescription, SwitchDescription
from p4lite.switch.errors import BuildError, DocumentError, GrantError, ProgramError
from p4lite.switch.fabric.fabric import Fabric, FabricSwitch
from p4lite.switch.fabric.values import FabricError
from p4lite.switch.listen import ServerError, Tls
from p4lite.switch.p4rt import service
from p4lite.switch.p4rt.errors import P4RtError
from p4lite.switch.p4rt.pipeline import Pipeline
from p4lite.switch.p4rt.service import P4RuntimeService
from p4lite.switch.runtime.loader import LoadedProgram
from p4lite.switch.source import Loaded, load_source
from p4lite.switch.targetapi.grants import Grants
from p4lite.switch.targetapi.service import TargetService

MAX_MESSAGE_BYTES = 64 << 20
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
        self._loaded: dict[int, tuple[Loaded, Pipeline | LoadedProgram]] = {}
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
        fabric = assemble(description, base)
        files = None if description.files is None else base / description.files
        named = [port.interface for each in description.switches for port in each.ports if port.interface is not None]
        address = description.grpc_server_addr or listen.PRIVATE
        try:
            grants = Grants(files, description.files_limit, (*description.interfaces, *named))
            server = cls(fabric, address, tls=tls, grants=grants, patient=patient)
        except (GrantError, BuildError) as error:
            fabric.close()
            raise ServerError(str(error)) from None
        try:
            server._load_programs(description.switches, base)
        except ServerError:
            server.stop()
            raise
        return server

    def _load_programs(self, switches: Iterable[SwitchDescription], base: Path) -> None:
        """Run the programs that a description names. Raises ServerError."""
        programs: dict[tuple[object, ...], Loaded] = {}
        for index, item in enumerate(switches):
            if item.program is None:
                continue
            key = (item.program, item.p4info, item.include_dirs, tuple(item.defines.items()))
            try:
                if key not in programs:
                    programs[key] = load_source(
                        base / item.program,
                        p4info=None if item.p4info is None else base / item.p4info,
                        include_dirs=[base / each for each in item.include_dirs],
                        defines=item.defines,
                    )
                self.load(self.fabric.switch(item.device_id), programs[key])
            except (FabricError, ProgramError, BuildError, P4RtError) as error:
                raise ServerError(f"switches[{index}]: {error}") from None

    def add_switch(self, device_id: int, **options: Any) -> FabricSwitch:
        """Return a new switch (see `Fabric.add_switch`), served at once."""
        switch = self.fabric.add_switch(device_id, **options)
        self.service.add_device(switch)
        return switch

    def load(self, switch: FabricSwitch, program: Loaded) -> None:
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

    def adopt(self, p4info: str, bmv2: bytes) -> None:
        """Have P4Runtime take over the program that all switches run already, with the entries in their tables.

        Args:
            p4info: in text form.
            bmv2: the program as BMv2 JSON.
        """
        config = p4runtime_pb2.ForwardingPipelineConfig(
            p4info=text_format.Parse(p4info, p4info_pb2.P4Info()), p4_device_config=bmv2
        )
        pipeline = self.service.cache.verify(config)
        for device in self.service.devices():
            device.adopt(pipeline)

    def start(self) -> str:
        """Serve, and start the real clock (a virtual one is the owner's to advance).

        Returns the address with the port in use. Raises ServerError.
        """
        if self.address == listen.PRIVATE:
            self.address = self._folder.enter_context(listen.private_address())
        target = TargetService(self.service, self.grants)
        self.service.chores.append(target.measure_files)
        calls = max(service.MIN_CALLS_PER_CONNECTION, service.CALLS_PER_DEVICE * len(self.service.devices()))
        self._pool = ThreadPoolExecutor(service.THREADS, thread_name_prefix="p4rt")
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


def _tune_gc() -> None:
    """Collect garbage seldom: P4Runtime's messages are trees of many small objects that die by themselves, and a
    pass over them at CPython's usual rate takes several times as long as parsing them does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


def serve_until_signal(server: FabricServer, program: str) -> int:
    """Start, print `ready ADDRESS`, and serve until SIGINT or SIGTERM; return the exit code.

    Prints to standard error, in the name of `program`, which other users can command the server.
    """
    # A signal that another thread gets does not wake this one. What it writes into a socket does.
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    written = signal.set_wakeup_fd(waking.fileno())
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
        while not signals:
            woken.recv(64)
    finally:
        server.stop()
        signal.set_wakeup_fd(written)
        for number, handler in previous.items():
            signal.signal(number, handler)
        woken.close()
        waking.close()
    return 0


def run(argv: list[str]) -> int:
    """Run `python -m p4lite.switch.server`; return 0, 1 for a failed run, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="p4lite.switch.server", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--fabric", required=True, metavar="FILE", help="fabric description (JSON), '-' for stdin")
    parser.add_argument("--wait", action="store_true", help="begin after a line on standard input, end at its end")
    listen.add_options(parser, "the description's, else fabric.sock in the run folder")
    parser.add_argument("--log-level", default="warning", choices=["debug", "info", "warning", "error"])
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=arguments.log_level.upper(), format="%(name)s: %(message)s")
    path = Path(arguments.fabric)
    if arguments.wait and not sys.stdin.readline():
        return 1
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
