"""A process that simulates some hosts of a lab.

`partition.py` starts it (`main`) and sends it orders over a socket; it ends with the socket. Times are ns of
simulated time.
"""

from __future__ import annotations

import gc
import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

from mrc_common.errors import ErrorCode
from mrc_host.drivers.virtual import VirtualDriver
from mrc_host.node.host import CommandError, HostNode
from mrc_lab import describe
from mrc_lab.hosts.hostclient import Plain
from mrc_lab.session.shared_bytes import SharedBytes
from mrc_topo.topology import Topology
from p4lite.switch.fabric.outside import Arrival, ArrivalFormat, Transmitter

#: As in `virtual.py`: packets form no cycles of objects.
LOOK_FOR_CYCLES_AFTER = 50_000


@dataclass(frozen=True)
class Setup:
    """What a process needs at first: the lab, its hosts with the places of their ports, and the shared memory.

    `arrived`: the descriptor of the memory that this process reads; `sent`: those that it writes in turn, so that one
    can be read while the other is written.
    """

    topology: Topology
    transport: str
    places: Mapping[str, range]
    headers: list[bytes]
    format: ArrivalFormat
    mtu_bytes: int
    arrived: int
    sent: tuple[int, int]


@dataclass(frozen=True)
class Begin:
    """Let all nodes act at `now`; `links` are the hosts' ends of all links, `ahead_ns` the least delay of these."""

    now: int
    links: list[Transmitter]
    ahead_ns: int


@dataclass(frozen=True)
class React:
    """Handle arrivals, whose records and packets are in the shared memory one after the other, and what is due."""

    records: int
    octets: int
    known_ns: int
    end_ns: int


@dataclass(frozen=True)
class Links:
    """Take the hosts' ends of all links as they are now: another caller has changed one."""

    links: list[Transmitter]
    ahead_ns: int


@dataclass(frozen=True)
class Command:
    """Carry out a verb of a host."""

    host: str
    now: int
    links: dict[int, Transmitter]
    verb: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Carriers:
    """Set the carriers of a host's ports."""

    host: str
    now: int
    links: dict[int, Transmitter]
    up: Sequence[tuple[int, bool]]


@dataclass(frozen=True)
class Hold:
    """Stop a host as `VirtualDriver.hold` does."""

    host: str
    dead: bool


@dataclass(frozen=True)
class Release:
    """Continue a host; with a seed it is a new one, which starts without state with these carriers."""

    host: str
    now: int
    all_links: Links
    seed: str | None = None
    up: Sequence[tuple[int, bool]] = ()


Order: TypeAlias = Begin | React | Links | Command | Carriers | Hold | Release


@dataclass(frozen=True)
class Refused:
    """A command that cannot be carried out: the arguments of the `HostError` that is raised for it."""

    text: str
    number: int
    code: ErrorCode


@dataclass(frozen=True)
class Reply:
    """What a process did: the bytes of words and packets in the memory `sent[turn]`, when its next node is to be woken,
    and what a command returned.
    """

    turn: int
    words: int
    octets: int
    wake_ns: int
    answer: Plain | Refused | None = None


class ToldFabric:
    """The fabric for a process without one (see `VirtualFabric`): the state of links by the last order, and what was
    sent.
    """

    def __init__(self, headers: list[bytes]) -> None:
        self.headers = headers
        self.now_ns = self.known_ns = 0
        self.surprises = 0
        self.links: list[Transmitter] = []
        self.ahead_ns = 0
        self.words: list[int] = []
        self.parts: list[bytes] = []

    def lookahead_ns(self) -> int:
        return self.ahead_ns

    def transmitters(self) -> list[Transmitter]:
        return self.links

    def transmitter(self, place: int) -> Transmitter:
        return self.links[place]

    def send(self, words: list[int], parts: list[bytes]) -> None:
        self.words += words
        self.parts += parts

    def exchange(self, words: list[int], parts: list[bytes], limit_ns: int, foresee_ns: int) -> list[Arrival]:
        raise NotImplementedError


class Worker:
    """The hosts of this process, and what it is ordered to do with them."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.arrived = SharedBytes(setup.arrived)
        self.sent = [SharedBytes(fd) for fd in setup.sent]
        self.turn = 0
        self.fabric = ToldFabric(setup.headers)
        self.fabric.links = [(0, 0, 0, 0, 0)] * len(setup.headers)
        self.nodes = {
            host.name: self._node(host.name, None) for host in setup.topology.hosts if host.name in setup.places
        }
        paths = {name: node.datapath for name, node in self.nodes.items()}
        length_only = setup.topology.lab.payload == "length"
        self.driver = VirtualDriver(self.fabric, paths, setup.places, setup.mtu_bytes, length_only=length_only)

    def _node(self, name: str, seed: str | None) -> HostNode:
        topology = self.setup.topology
        config = describe.host_config(topology, topology.host(name), "virtual", self.setup.transport)
        return HostNode(config, random.Random(config.seed if seed is None else seed))

    def obey(self, order: Order) -> Reply:
        """Carry out an order."""
        driver = self.driver
        answer: Plain | Refused | None = None
        match order:
            case React():
                driver.react(self._arrivals(order), order.known_ns, order.end_ns)
            case Begin():
                self._link(order.links, order.ahead_ns)
                driver.begin(order.now)
            case Links():
                self._link(order.links, order.ahead_ns)
                driver.refresh_links()
            case Command():
                answer = self._command(order)
            case Carriers():
                self._at(order.now, order.links)
                self._set_carriers(order.host, order.up, order.now)
                driver.touch(order.host)
            case Hold():
                driver.hold(order.host, dead=order.dead)
            case Release():
                self._release(order)
        return self._reply(answer)

    def _link(self, links: list[Transmitter], ahead_ns: int) -> None:
        self.fabric.links = links
        self.fabric.ahead_ns = ahead_ns

    def _at(self, now: int, links: dict[int, Transmitter]) -> None:
        """Take the present time, and the ends of some links."""
        self.driver.now = now
        for place, link in links.items():
            self.fabric.links[place] = link

    def _arrivals(self, order: React) -> list[Arrival]:
        if not order.records:
            return []
        with self.arrived.view(order.records + order.octets) as view:
            return self.setup.format.unpack(bytes(view[: order.records]), view[order.records :])

    def _command(self, order: Command) -> Plain | Refused:
        self._at(order.now, order.links)
        try:
            answer: Plain = self.nodes[order.host].command(order.verb, dict(order.arguments), order.now)
        except CommandError as error:
            return Refused(str(error), error.number, error.code)
        self.driver.touch(order.host)
        return answer

    def _set_carriers(self, host: str, up: Sequence[tuple[int, bool]], now: int) -> None:
        for port, carrier in up:
            self.nodes[host].datapath.set_carrier(port, carrier, now)

    def _release(self, order: Release) -> None:
        self.driver.now = order.now
        self._link(order.all_links.links, order.all_links.ahead_ns)
        if order.seed is None:
            self.driver.release(order.host)
            return
        node = self.nodes[order.host] = self._node(order.host, order.seed)
        self._set_carriers(order.host, order.up, order.now)
        self.driver.touch(order.host)
        self.driver.release(order.host, node.datapath)

    def _reply(self, answer: Plain | Refused | None) -> Reply:
        """Return an order's outcome, and put what the nodes have sent into the shared memory."""
        words, parts = self.driver.take_sent()
        words, parts = self.fabric.words + words, self.fabric.parts + parts
        self.fabric.words, self.fabric.parts = [], []
        wake = self.driver.next_wake()
        if not words:
            return Reply(self.turn, 0, 0, wake, answer)
        self.turn = 1 - self.turn
        numbers, octets = array("Q", words).tobytes(), b"".join(parts)
        with self.sent[self.turn].view(len(numbers) + len(octets)) as view:
            view[: len(numbers)] = numbers
            view[len(numbers) :] = octets
        return Reply(self.turn, len(numbers), len(octets), wake, answer)


def main(fd: int) -> None:
    """Carry out orders of the socket `fd` until it ends."""
    connection = Connection(fd)
    try:
        worker = Worker(connection.recv())
        connection.send(Reply(0, 0, 0, 0))
        gc.freeze()
        gc.set_threshold(LOOK_FOR_CYCLES_AFTER, *gc.get_threshold()[1:])
        while True:
            connection.send(worker.obey(connection.recv()))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return
