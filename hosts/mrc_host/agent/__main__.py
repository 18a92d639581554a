"""The host agent: one or several hosts in a process, each on the rings of its own network namespace.

    python -m mrc_host.agent [--wait] CONFIG.json SOCKET [CONFIG.json SOCKET]...

It reads each host's configuration, opens a ring on every port, serves a control socket for each host and beside it one
for programs (SOCKET with the suffix .verbs), and runs until SIGTERM or SIGINT. With `--wait` it begins at a line on
standard input: most of its start is imports, for which the lab's switches need not be ready. Exit code 2: unusable
configuration; 1: a port could not be opened, a policy made a mistake, or standard input ended.
"""

from __future__ import annotations

import gc
import itertools
import json
import pathlib
import random
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

from mrc_host import running
from mrc_host.agent.verbs import VerbsServer
from mrc_host.answers import HostFidelity, Software
from mrc_host.drivers import netns
from mrc_host.drivers.packet_ring import PacketRing, PacketSender
from mrc_host.drivers.raw import RawDriver, RingNode
from mrc_host.drivers.surface import RING_PACKETS
from mrc_host.node.config import load
from mrc_host.node.host import HostNode
from mrc_host.policy import PolicyError
from mrc_host.proto.limits import ConfigError
from mrc_host.requests import Provided
from mrc_host.verbs.connection import verbs_socket
from mrc_topo.base import rpc

#: What the hosts' kernels send, which have this MTU at least.
LEAST_PACKET = 1280
RINGS_TOGETHER = 64
#: Number of objects that were made and not freed, from which on Python searches them for cycles. Thousands belong to
#: packets on their way, which have no cycles. One search among 20 000 objects takes 1 ms.
LOOK_FOR_CYCLES_AFTER = 20_000


def mac(text: str) -> bytes:
    """Return the 6 bytes of a MAC address written with colons."""
    return bytes.fromhex(text.replace(":", ""))


def _ring(node: HostNode, port: int) -> PacketRing:
    """Return the ring of a port. Raises OSError with the interface's name."""
    config, interface = node.config, node.config.interfaces[port]
    room, waiting = max(node.packet_bytes, LEAST_PACKET), max(RING_PACKETS // config.ports, 1)
    with netns.inside(config.netns):
        try:
            return PacketRing(interface, packet_bytes=room, rx_frames=waiting)
        except OSError as error:
            raise OSError(error.errno, f"interface {interface}: {error.strerror}") from error


def open_rings(nodes: Sequence[HostNode]) -> list[list[PacketRing]]:
    """Return the rings of each host, in its network namespace.

    The kernel takes some milliseconds to open each, in which it waits for other processors. So all are opened at once.

    Raises:
        OSError: a namespace or an interface cannot be opened; with the host's name.
    """
    rings: list[list[PacketRing]] = []
    failed: list[OSError] = []
    with ThreadPoolExecutor(RINGS_TOGETHER) as pool:
        opening = [[pool.submit(_ring, node, port) for port in range(node.config.ports)] for node in nodes]
        for node, ports in zip(nodes, opening, strict=True):
            rings.append([])
            for each in ports:
                try:
                    rings[-1].append(each.result())
                except OSError as error:
                    failed.append(OSError(error.errno, f"{node.name}: {error.strerror or error}"))
    if failed:
        for ring in itertools.chain(*rings):
            ring.close()
        raise failed[0]
    return rings


def open_station(node: HostNode, rings: Sequence[PacketRing]) -> RingNode:
    """Return a host on its rings, in its network namespace.

    Raises:
        OSError: the namespace cannot be opened, or its kernel has no IPv6; with the host's name.
    """
    config = node.config
    try:
        with netns.inside(config.netns):
            if config.interfaces:
                node.datapath.kernel_sent = netns.KernelPackets(config.interfaces, config.netns).sent
            macs = [(mac(own), mac(gateway)) for own, gateway in zip(config.macs, config.gateways, strict=True)]
            sender = PacketSender(config.interfaces, macs)
            rates, packet = config.rate_bps, node.packet_bytes
            return RingNode(node.datapath, rings, sender, rates, packet, config.moderation_ns)
    except OSError as error:
        raise OSError(error.errno, f"{node.name}: {error.strerror}") from error


def read(path: str) -> HostNode:
    """Return the host of a configuration file.

    Raises:
        OSError, ValueError, ConfigError: it cannot be read or used.
    """
    config = load(json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
    # One that starts again must be another to its peers: instance, queue pair and packet numbers of its own.
    return HostNode(config, random.Random(f"{config.seed} {time.time_ns()}"))


def _fidelity(driver: RawDriver, station: RingNode, names: list[str]) -> HostFidelity:
    """Return how well the process kept up, as one of its hosts sees it."""
    return replace(driver.fidelity(station), process=names, software=Software(**running.document()))


def _reset_fidelity(driver: RawDriver, station: RingNode) -> rpc.Done:
    driver.reset_fidelity(station)
    return rpc.Done()


def serve(nodes: Sequence[HostNode], stations: Sequence[RingNode], sockets: Sequence[str]) -> None:
    """Drive the hosts until a signal ends it."""
    driver = RawDriver(stations, min(node.config.moderation_ns for node in nodes))
    names = [node.name for node in nodes]
    servers: list[rpc.Server | VerbsServer] = []
    for node, station, path in zip(nodes, stations, sockets, strict=True):
        node.providers[Provided.FIDELITY] = partial(_fidelity, driver, station, names)
        node.providers[Provided.RESET_FIDELITY] = partial(_reset_fidelity, driver, station)
        servers.append(rpc.Server(pathlib.Path(path), driver, node.command))
        servers.append(VerbsServer(verbs_socket(pathlib.Path(path)), driver, node))
        station.posted = node.programs.posted
    # A loop that sleeps goes on sleeping after a signal. What the signal writes into a socket wakes it.
    woken, waking = socket.socketpair()
    waking.setblocking(False)
    signal.set_wakeup_fd(waking.fileno())
    driver.watch(woken.fileno(), lambda _: driver.stop())
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: driver.stop())
    # The long-lived objects exist now; collecting them again and again would only delay packets.
    gc.collect()
    gc.freeze()
    gc.set_threshold(LOOK_FOR_CYCLES_AFTER)
    try:
        driver.run()
    finally:
        for server in reversed(servers):
            server.close()
        driver.close()


def main(argv: list[str]) -> int:
    """Run as the entry point; return the exit code."""
    # Memory and bells of programs are files.
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    if argv[:1] == ["--wait"]:
        argv = argv[1:]
        if not sys.stdin.readline():
            return 1
    if not argv or len(argv) % 2:
        print("usage: python -m mrc_host.agent [--wait] CONFIG.json SOCKET [CONFIG.json SOCKET]...", file=sys.stderr)
        return 2
    nodes: list[HostNode] = []
    for path in argv[::2]:
        try:
            nodes.append(read(path))
        except (OSError, ValueError, ConfigError) as error:
            print(f"mrc_host.agent: {path}: {error}", file=sys.stderr)
            return 2
    try:
        rings = open_rings(nodes)
        stations = [open_station(node, each) for node, each in zip(nodes, rings, strict=True)]
    except OSError as error:
        print(f"mrc_host.agent: {error.strerror or error}", file=sys.stderr)
        return 1
    try:
        serve(nodes, stations, argv[1::2])
    except PolicyError as error:
        print(f"mrc_host.agent: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
