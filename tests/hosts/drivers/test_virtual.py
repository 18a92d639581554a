"""The virtual clock hands over many packets at once; nobody can tell: it is held against one that hands over each."""

from __future__ import annotations

import dataclasses
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.drivers.surface import FOREVER, RING_PACKETS, NodeInterface
from mrc_host.drivers.virtual import VirtualDriver
from p4lite.switch.fabric.fabric import Fabric, LinkSettings, Port
from p4lite.switch.fabric.values import QueueLimits
from support.amount import examples
from support.drivers.one_at_a_time import OneAtATime
from support.switch.hand_program import HEADER, HandProgram, Op, packet

US = 1_000
#: Everything happens on this grid, so that much happens at the same instant.
GRID_NS = 10 * US
MTU = 400
UPLINK, DOWNLINK = 8, 9
HEAD = 5  # what a packet's Ethernet header is to the driver, is its operation and argument here


class Scripted(NodeInterface):
    """A node that sends at times of its own and answers what arrives, as its random numbers say."""

    def __init__(self, name: str, ports: int, rng: random.Random, log: list[Any]) -> None:
        self.name = name
        self.ports = ports
        self.rng = rng
        self.log = log
        self.waiting: list[list[bytes]] = [[] for _ in range(ports)]
        self.timers = sorted(rng.randrange(300) * GRID_NS for _ in range(rng.randrange(40)))
        self.unsettled: list[int] = []
        self.budget = 400

    def _packet(self) -> bytes:
        size = self.rng.choice((HEADER, 100, 100, 100, 380))
        return packet(Op.FORWARD, size=size, fill=self.rng.randrange(256))[HEAD:]

    def receive(self, port: int, packet: bytes, now: int, missing: int = 0) -> None:
        self.log.append((now, self.name, port, packet))
        if self.rng.random() < 0.6:
            self.waiting[self.rng.randrange(self.ports)].append(self._packet())
        if self.rng.random() < 0.2:
            self.timers = sorted([*self.timers, now + self.rng.randrange(30) * GRID_NS])
        if self.rng.random() < 0.3:
            self.unsettled.append(port)

    def to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]:
        queue = self.waiting[port]
        count = min(len(queue), self.rng.choice((1, 1, 3)), self.budget)
        sent, self.waiting[port] = queue[:count], queue[count:]
        self.budget -= count
        self.log.append((now, self.name, "asked", port, count))
        return sent

    def next_timer(self) -> int:
        return self.timers[0] if self.timers else FOREVER

    def handle_timer(self, now: int) -> None:
        self.log.append((now, self.name, "timer"))
        while self.timers and self.timers[0] <= now:
            self.timers.pop(0)
            for _ in range(self.rng.randrange(4)):
                self.waiting[self.rng.randrange(self.ports)].append(self._packet())

    def settle(self, now: int) -> None:
        for port in self.unsettled:
            self.waiting[port].append(self._packet())
        self.unsettled.clear()

    def set_carrier(self, port: int, up: bool, now: int) -> None:
        raise NotImplementedError


links = st.builds(
    LinkSettings,
    rate_bps=st.sampled_from((0, 8 * 10**6, 8 * 10**6, 20 * 10**6, 7 * 10**6)),
    delay_ns=st.sampled_from((0, GRID_NS, GRID_NS, 3 * GRID_NS, 7 * GRID_NS + 1)),
    loss=st.sampled_from((0.0, 0.0, 0.0, 0.3)),
    reorder=st.sampled_from((0.0, 0.0, 0.0, 0.3)),
    reorder_extra_ns=st.just(2 * GRID_NS),
    duplicate=st.sampled_from((0.0, 0.0, 0.3)),
    overhead_bytes=st.sampled_from((0, 24)),
    host_queue_bytes=st.sampled_from((0, 0, 300)),  # three packets of 100 fill it
)
#: (kind, which host or cable, settings); done between two calls.
acts = st.one_of(
    st.tuples(st.sampled_from(("hold", "release", "kill", "replace", "touch")), st.integers(0, 4), st.none()),
    st.tuples(st.sampled_from(("host", "down", "up")), st.integers(0, 9), links),
    st.tuples(st.just("core"), st.just(0), links),
)


@dataclasses.dataclass(frozen=True)
class World:
    """Hosts at two joined switches, and what is done to them after how much time."""

    seed: int
    hosts: int
    ports: int
    towards: list[LinkSettings]
    away: list[LinkSettings]
    middle: LinkSettings
    queue_packets: int
    acts: list[tuple[int, tuple[str, int, LinkSettings | None]]]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    hosts, ports = draw(st.integers(2, 5)), draw(st.integers(1, 2))
    same = draw(st.booleans())
    cables = 1 if same else hosts * ports
    return World(
        draw(st.integers(0, 1 << 30)),
        hosts,
        ports,
        draw(st.lists(links, min_size=cables, max_size=cables)) * (hosts * ports if same else 1),
        draw(st.lists(links, min_size=cables, max_size=cables)) * (hosts * ports if same else 1),
        draw(links.filter(lambda each: each.delay_ns > 0 or each.rate_bps > 0)),
        draw(st.sampled_from((2, 16))),
        draw(st.lists(st.tuples(st.integers(0, 120), acts), max_size=8)),
    )


def header(target: int) -> bytes:
    """Of packets to a port; `target` beyond 10 is behind the other switch."""
    return packet(Op.FORWARD, target)[:HEAD]


ONE_BY_ONE, BATCHED = "one by one", "by the batch"


def play(world: World, way: str, folder: Path) -> dict[str, Any]:
    """All that can be seen of a world's history."""
    fabric = Fabric("virtual", seed=world.seed)
    switches = [fabric.add_switch(ident, loop_limit=4) for ident in (1, 2)]
    for switch in switches:
        switch.load(HandProgram())  # type: ignore[arg-type]
    cables: list[tuple[Port, bytes]] = []
    rng = random.Random(world.seed)
    places: dict[str, list[int]] = {}
    for host in range(world.hosts):
        own = places[f"h{host}"] = []
        for _ in range(world.ports):
            place = len(cables)
            # One host is behind the second switch; all others reach it by the uplink, and it them by nobody.
            switch, number = (switches[1], UPLINK) if place == 0 else (switches[0], 10 + place)
            port = switch.add_port(number)
            port.set_link(incoming=world.towards[place], outgoing=world.away[place])
            port.set_queue(QueueLimits(packets=world.queue_packets))
            own.append(place)
            target = rng.choice([UPLINK, *(10 + other for other in range(1, world.hosts * world.ports))])
            cables.append((port, header(target)))
    fabric.link(switches[0].add_port(UPLINK), switches[1].add_port(DOWNLINK), world.middle)
    for number, (port, _) in enumerate(cables):
        port.capture(folder / f"{number}.pcapng")
    log: list[Any] = []
    nodes = {name: Scripted(name, world.ports, random.Random(f"{world.seed} {name}"), log) for name in places}
    driver: VirtualDriver | OneAtATime
    if way == BATCHED:
        driver = VirtualDriver(fabric.outside(cables), nodes, places, MTU)
    else:
        driver = OneAtATime(fabric, cables, nodes, places, MTU)
    stopped: set[str] = set()
    with fabric:
        for wait, (kind, which, link) in world.acts:
            driver.run_until(driver.now + wait * GRID_NS)
            act(driver, world, kind, which, link, log, cables, stopped)
        driver.run_until(driver.now + 400 * GRID_NS)
        counted: Mapping[str, Any] = {
            f"{switch.name} {number}": dataclasses.asdict(port.stats())
            for switch in switches
            for number, port in switch.ports.items()
        }
        # What two nodes do may be logged in any order: they concern each other by packets only.
        lines = {name: [line for line in log if line[1] == name] for name in places}
        seen = {
            "lines": lines,
            "counted": counted,
            "events": fabric.events(),
            "now": (driver.now, fabric.now_ns),
        }
    if isinstance(driver, VirtualDriver):
        assert driver.fabric.surprises == 0
    return seen | {"captures": [path.read_bytes() for path in sorted(folder.iterdir())]}


def act(
    driver: VirtualDriver | OneAtATime,
    world: World,
    kind: str,
    which: int,
    link: LinkSettings | None,
    log: list[Any],
    cables: list[tuple[Port, bytes]],
    stopped: set[str],
) -> None:
    """One intervention from outside."""
    name = f"h{which % world.hosts}"
    port = cables[which % len(cables)][0]
    if kind in ("hold", "kill"):
        driver.hold(name, dead=kind == "kill")
        stopped.add(name)
    elif kind == "replace" or (kind == "release" and name in stopped):
        fresh = Scripted(name, world.ports, random.Random(f"again {name}"), log) if kind == "replace" else None
        driver.release(name, fresh)
        stopped.discard(name)
    elif kind == "touch" and name not in stopped:
        driver.touch(name)
    elif kind == "host" and link is not None:
        port.set_link(incoming=link)
    elif kind in ("down", "up"):
        port.set_up(kind == "up")
    elif kind == "core" and link is not None and (link.delay_ns or link.rate_bps):
        port.set_link(outgoing=link)


@settings(max_examples=examples(200))
@given(world=worlds())
def test_packets_by_the_batch_make_the_same_history_as_one_by_one(world: World) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for way in (ONE_BY_ONE, BATCHED):
            own = Path(folder, way)
            own.mkdir()
            found[way] = play(world, way, own)
    for key, expected in found[ONE_BY_ONE].items():
        assert found[BATCHED][key] == expected, key


class Delivering:
    """A fabric of one port, to which it delivers `count` packets."""

    surprises = 0

    def __init__(self) -> None:
        self.headers = [b""]
        self.now_ns = self.known_ns = 0
        self.count = 0  # of packets to deliver
        self.sent = 0

    def lookahead_ns(self) -> int:
        return US

    def transmitters(self) -> list[tuple[int, int, int, int, int]]:
        return [(0, 0, 0, 0, 0)]

    def transmitter(self, place: int) -> tuple[int, int, int, int, int]:
        return 0, 0, 0, 0, 0

    def send(self, words: bytearray, parts: list[bytes]) -> None:
        self.sent += len(parts)

    def exchange(
        self, words: bytearray, parts: list[bytes], limit_ns: int, foresee_ns: int
    ) -> list[tuple[int, int, bytes, int]]:
        self.now_ns = self.known_ns = limit_ns
        arrivals, self.count = [(limit_ns, 0, b"packet", 0)] * self.count, 0
        return arrivals


HOLD, KILL, RELEASE, REPLACE = "hold", "kill", "release", "replace"


@pytest.mark.parametrize(
    ("history", "read", "unread"),
    [
        ([HOLD, 3, RELEASE, 1], 4, 0),
        ([HOLD, 3, HOLD, 1, RELEASE], 4, 0),
        ([HOLD, RING_PACKETS + 2, RELEASE, 1], RING_PACKETS + 1, 2),
        ([HOLD, 3, REPLACE, 1], 1, 3),
        ([KILL, 3, RELEASE], 0, 3),
        ([KILL, 3, HOLD, 1, RELEASE], 0, 4),
        ([HOLD, 3, KILL, 1, REPLACE, 1], 1, 4),
    ],
)
def test_what_arrives_at_a_node_that_does_not_run_waits_for_it_or_is_lost(
    history: list[str | int], read: int, unread: int
) -> None:
    log: list[Any] = []
    rng = random.Random(1)
    rng.random = lambda: 1.0  # type: ignore[method-assign]  # it answers nothing
    fabric = Delivering()
    driver = VirtualDriver(fabric, {"h0": Scripted("h0", 1, rng, log)}, {"h0": [0]}, MTU)
    for what in history:
        if isinstance(what, int):
            fabric.count = what
            driver.run_until(driver.now + GRID_NS)
        elif what in (HOLD, KILL):
            driver.hold("h0", dead=what == KILL)
        else:
            driver.release("h0", Scripted("h0", 1, rng, log) if what == REPLACE else None)
    assert sum(line[-1] == b"packet" for line in log) == read
    assert driver.unread("h0") == [unread]


def test_what_a_command_makes_a_node_send_is_on_its_link_before_the_next_command() -> None:
    fabric = Delivering()
    node = Scripted("h0", 1, random.Random(1), [])
    driver = VirtualDriver(fabric, {"h0": node}, {"h0": [0]}, MTU)
    for number, command in enumerate((driver.touch, driver.release), 1):
        node.waiting[0] = [bytes(60)]
        command("h0")
        assert fabric.sent == 2 * number, "a header and a packet each"
