"""A fabric from its description: switches, ports, links, captures; without programs, and without a server.

Nothing here imports gRPC: a simulation has no server until it is asked for one.
"""

from __future__ import annotations

import os
from pathlib import Path

from p4lite.switch.description import (
    FabricDescription,
    LinkDescription,
    PortDescription,
    SwitchDescription,
    TunnelDescription,
)
from p4lite.switch.errors import BuildError, DocumentError
from p4lite.switch.fabric.fabric import Fabric, FabricSwitch
from p4lite.switch.fabric.values import TUNNEL_KEY_BYTES, FabricError, LinkSettings, TunnelSettings
from p4lite.switch.listen import ServerError


def assemble(given: FabricDescription, base: Path = Path()) -> Fabric:
    """Return the fabric of a description, whose relative paths start at `base`.

    Raises:
        ServerError: it cannot be built; the text names the place in the description.
    """
    place = "fabric"
    try:
        fabric = Fabric(
            given.clock,
            given.seed,
            busy_poll_us=given.busy_poll_us,
            round_us=given.round_us,
            realtime=given.realtime,
        )
    except BuildError as error:
        raise ServerError(str(error)) from None
    except FabricError as error:
        raise ServerError(f"{place}: {error}") from None
    try:
        if given.clock == "real":
            fabric.open_interfaces(
                port.interface for switch in given.switches for port in switch.ports if port.interface is not None
            )
        for index, switch in enumerate(given.switches):
            place = f"switches[{index}]"
            _add_switch(fabric, switch, base, place)
        for index, link in enumerate(given.links):
            place = f"links[{index}]"
            _add_link(fabric, link)
        if given.trace is not None:
            fabric.trace(base / given.trace)
        if given.pcap_dir is not None:
            capture_all(fabric, base / given.pcap_dir)
    except DocumentError as error:
        fabric.close()
        raise ServerError(str(error)) from None
    except (FabricError, BuildError) as error:
        fabric.close()
        raise ServerError(f"{place}: {error}") from None
    return fabric


def _add_switch(fabric: Fabric, item: SwitchDescription, base: Path, place: str) -> None:
    options = {"priority_queues": item.priority_queues, "drop_port": item.drop_port, "loop_limit": item.loop_limit}
    given = {key: value for key, value in options.items() if value is not None}
    switch = fabric.add_switch(item.device_id, name=item.name, cpu_port=item.cpu_port, **given)
    for index, port in enumerate(item.ports):
        _add_port(switch, port, base, f"{place}.ports[{index}]")
    for one, other in item.patches:
        switch.patch(one, other)


def _add_port(switch: FabricSwitch, item: PortDescription, base: Path, place: str) -> None:
    port = switch.add_port(
        item.port,
        interface=item.interface,
        name=item.name,
        to_host=item.to_host or LinkSettings(),
        to_switch=item.to_switch or LinkSettings(),
        pcap=None if item.pcap is None else base / item.pcap,
        tunnel=None if item.tunnel is None else _tunnel(item.tunnel, base, f"{place}.tunnel"),
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


def _tunnel(item: TunnelDescription, base: Path, place: str) -> TunnelSettings:
    key = read_key(base / item.key_file, f"{place}.key_file")
    return TunnelSettings(item.local, item.peer, key, item.end, item.peer_end, item.socket)


def _add_link(fabric: Fabric, item: LinkDescription) -> None:
    a, b = (fabric.switch(device_id).port(number) for device_id, number in (item.a, item.b))
    fabric.link(a, b, item.settings or LinkSettings(), item.back)


def capture_all(fabric: Fabric, directory: Path) -> None:
    """Capture every port of the fabric into `directory`/SWITCH-PORT.pcapng. Raises FabricError."""
    _make(directory)
    for switch in fabric.switches.values():
        for port in switch.ports.values():
            port.capture(directory / f"{switch.name}-{port.number}.pcapng")


def capture_interfaces(fabric: Fabric, directory: Path) -> None:
    """Capture every port with an interface into `directory`/INTERFACE.pcap, as pcapng. Raises FabricError."""
    _make(directory)
    for switch in fabric.switches.values():
        for port in switch.ports.values():
            if port.interface is not None:
                port.capture(directory / f"{port.interface}.pcap")


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FabricError(f"{directory}: cannot make the directory: {error.strerror}") from None


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
