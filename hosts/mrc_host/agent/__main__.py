"""The host agent: one process per host, in the host's network namespace.

    python -m mrc_host.agent CONFIG.json SOCKET

It reads its configuration, opens a ring on every port, serves its control socket, and runs until SIGTERM or
SIGINT. Exit code 2: unusable configuration; 1: a port could not be opened.
"""

from __future__ import annotations

import gc
import json
import pathlib
import random
import signal
import sys
import time

from mrc_host.agent.control import ControlServer
from mrc_host.drivers.packet_ring import PacketRing
from mrc_host.drivers.raw import RawDriver, Station
from mrc_host.node.config import NodeConfig, load
from mrc_host.node.host import HostNode
from mrc_host.proto.limits import ConfigError

JUMBO_RING_FRAME = 16384
RING_FRAME = 8192


def mac(text: str) -> bytes:
    """The 6 bytes of a MAC address written with colons."""
    return bytes.fromhex(text.replace(":", ""))


def open_rings(config: NodeConfig, packet_bytes: int) -> list[PacketRing]:
    """A ring on every interface.

    Raises:
        OSError: with the interface's name, when one cannot be opened.
    """
    frame = RING_FRAME if packet_bytes + 64 <= RING_FRAME else JUMBO_RING_FRAME
    rings: list[PacketRing] = []
    for interface, own, gateway in zip(config.interfaces, config.macs, config.gateways, strict=True):
        try:
            rings.append(PacketRing(interface, mac(own), mac(gateway), frame_bytes=frame))
        except OSError as error:
            raise OSError(f"interface {interface}: {error.strerror}") from error
    return rings


def main(argv: list[str]) -> int:
    """Entry point; returns the exit code."""
    if len(argv) != 2:
        print("usage: python -m mrc_host.agent CONFIG.json SOCKET", file=sys.stderr)
        return 2
    try:
        config = load(json.loads(pathlib.Path(argv[0]).read_text()))
        # One that starts again must be another to its peers: instance, queue pair and packet numbers of its own.
        node = HostNode(config, random.Random(f"{config.seed} {time.time_ns()}"))
    except (OSError, ValueError, ConfigError) as error:
        print(f"mrc_host.agent: {argv[0]}: {error}", file=sys.stderr)
        return 2
    mtu = node.packet_bytes
    try:
        station = Station(node, open_rings(config, mtu), config.rate_bps, mtu)
    except OSError as error:
        print(f"mrc_host.agent: {config.name}: {error}", file=sys.stderr)
        return 1
    driver = RawDriver([station], config.moderation_ns)
    node.providers["fidelity"] = lambda: driver.fidelity(station)
    node.providers["reset_fidelity"] = lambda: driver.reset_fidelity(station)
    control = ControlServer(pathlib.Path(argv[1]), driver, node.command)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: driver.stop())
    # The long-lived objects exist now; collecting them again and again would only delay packets.
    gc.collect()
    gc.freeze()
    try:
        driver.run()
    finally:
        control.close()
        driver.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
