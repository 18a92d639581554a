"""Link-level credits in virtual time: conservation, losslessness, throughput, deadlock, and what disturbs them."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p4lite.switch.fabric.fabric import Fabric, FabricError, LinkSettings, Port
from p4lite.switch.fabric.values import CreditSettings, CreditStats, PfcSettings, SwitchState
from support.switch.hand_program import routed
from support.switch.players import BYTE_NS, FOREVER, MAC_CONTROL, MBPS_8, drops, play, switch_of

BLOCK = 64
DSCPS = (0, 46)  # of priorities 0 and 1
SIZE = 500


def frame(*ports: int, priority: int = 0, size: int = SIZE) -> bytes:
    """Return a routed packet that looks like IPv6 with the DSCP of its priority."""
    made = bytearray(routed(*ports, priority=priority, size=size))
    dscp = DSCPS[priority]
    made[12:16] = bytes([0x86, 0xDD, 0x60 | dscp >> 2, (dscp & 3) << 6])
    return bytes(made)


def blocks(size: int) -> int:
    return -(-size // BLOCK)


class Host:
    """A host that sends its packets one after another at its link's rate, as far as its credits of each priority go."""

    def __init__(self, port: Port, frames: Iterable[bytes]) -> None:
        self.port = port
        self.frames = list(frames)[::-1]
        self.free_ns = 0
        self.sent = [0, 0]
        self.limits: list[list[tuple[int, int]]] = [[], []]  # told when, and which; later ones are greater
        self.got: list[int] = []
        self.most = [0, 0]

    def next_ns(self) -> int:
        if not self.frames:
            return FOREVER
        made = self.frames[-1]
        wanted = self.sent[made[2]] + blocks(len(made))
        told = next((time for time, limit in self.limits[made[2]] if limit >= wanted), FOREVER)
        return max(told, self.free_ns)

    def send(self, fabric: Fabric, at_ns: int) -> None:
        made = self.frames.pop()
        self.sent[made[2]] += blocks(len(made))
        self.free_ns = fabric.inject(self.port, made, at_ns) or 0
        assert self.free_ns

    def take(self, made: bytes, time_ns: int) -> None:
        if made[12:14] != MAC_CONTROL:
            self.got.append(time_ns)
            return
        # The frame is one that its checksum covers, of the type that is never forwarded.
        assert int.from_bytes(made[82:86], "big") == zlib.crc32(made[14:82])
        assert made[14:16] == b"\x01\xc0"
        for lane in (0, 1):
            if made[17] >> lane & 1:
                limit = int.from_bytes(made[18 + 4 * lane : 22 + 4 * lane], "big")
                self.most[lane] = max(self.most[lane], limit - self.sent[lane])
                old = self.limits[lane]
                if not old or limit > old[-1][1]:
                    self.limits[lane] = [each for each in old if each[1] > self.sent[lane]] + [(time_ns, limit)]


def credited(ports: Iterable[Port], buffer: int, lanes: Iterable[int] = (0, 1)) -> None:
    for port in ports:
        for lane in lanes:
            port.set_credits(lane, CreditSettings(buffer, (DSCPS[lane],)))


def all_stats(fabric: Fabric) -> list[CreditStats]:
    return [
        each for switch in fabric.switches.values() for port in switch.ports.values() for each in port.credit_stats()
    ]


def check_bounds(fabric: Fabric) -> None:
    """At no time more than the buffer, at no time less than nothing."""
    for stats in all_stats(fabric):
        assert 0 <= stats.least_credit_bytes <= stats.buffer_bytes
        assert 0 <= stats.credit_bytes <= stats.buffer_bytes
        assert stats.held_bytes <= stats.max_held_bytes <= stats.buffer_bytes


def check_conserved(fabric: Fabric) -> None:
    """Nothing is under way: every sender has all of the peer's buffer again."""
    check_bounds(fabric)
    assert all(stats.credit_bytes == stats.buffer_bytes and stats.held_bytes == 0 for stats in all_stats(fabric))


def two_switches(
    senders: int, link: LinkSettings, buffer: int, count: int, size: int = SIZE, *, slow: int = 3, mixed: bool = True
) -> tuple[Fabric, list[Host]]:
    """`senders` hosts of switch 1 send to one host of switch 2, whose own link is slower, over one link between them;
    `mixed`: every third packet with priority 1."""
    fabric = Fabric("virtual", seed=1)
    last = LinkSettings(rate_bps=link.rate_bps // slow, delay_ns=link.delay_ns)
    first = switch_of(fabric, 1, dict.fromkeys(range(1, senders + 2), link))
    second = switch_of(fabric, 2, {1: link, 2: last})
    fabric.link(first.port(senders + 1), second.port(1), link)
    credited([*first.ports.values(), *second.ports.values()], buffer)
    packets = [frame(senders + 1, 2, priority=int(mixed and n % 3 == 0), size=size) for n in range(count)]
    hosts = [Host(first.port(n), packets) for n in range(1, senders + 1)]
    return fabric, [*hosts, Host(second.port(2), [])]


# -- by hand --------------------------------------------------------------------------------------------------


def test_updates_to_the_byte_and_the_nanosecond() -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8})
    for port in switch.ports.values():
        port.set_credits(0, CreditSettings(1000, (0,)), 0x02_00_00_00_00_07)
    begun = fabric.run_until(10**5)
    # Eight bytes on the link, whatever the frame's size, and the link's delay; 15 whole blocks.
    assert [(t, port) for t, _, port, _ in begun] == [(8 * BYTE_NS + 5000, 1), (8 * BYTE_NS + 5000, 2)]
    made = begun[0][3]
    assert made[:18] == bytes.fromhex("0180c2000001 020000000007 8808 01c0 0001")
    assert made[18:22] == (15).to_bytes(4, "big")
    fabric.inject(switch.port(1), frame(2), 10**5)
    arrived = 10**5 + SIZE * BYTE_NS + 5000
    updates = [(t, each) for t, _, port, each in fabric.run_until(2 * 10**6) if port == 1]
    # The packet leaves its queue at once, and its room is told of at once.
    assert updates[0][0] == arrived + 8 * BYTE_NS + 5000
    assert updates[0][1][18:22] == (15 + blocks(SIZE)).to_bytes(4, "big")
    assert updates[0][1][50:54] == blocks(SIZE).to_bytes(4, "big")
    stats = switch.port(2).credit_stats()[0]
    assert (stats.buffer_bytes, stats.credit_bytes, stats.least_credit_bytes) == (960, 960, 960 - 512)


def test_settings_that_cannot_be() -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8})
    with pytest.raises(FabricError, match="no queue of priority 2"):
        switch.port(1).set_credits(2, CreditSettings(1000))
    with pytest.raises(FabricError, match="buffer_bytes=63: not between 64"):
        switch.port(1).set_credits(0, CreditSettings(63))
    with pytest.raises(FabricError, match="64 is not a DSCP"):
        switch.port(1).set_credits(0, CreditSettings(1000, (64,)))
    switch.port(1).set_credits(0, CreditSettings(1000))
    with pytest.raises(FabricError, match="promised a buffer of another size"):
        switch.port(1).set_credits(0, CreditSettings(2000))
    with pytest.raises(FabricError, match="the port has credits"):
        switch.port(1).set_pfc(0, PfcSettings(1000, 500, 0))
    switch.port(2).set_pfc(0, PfcSettings(1000, 500, 0))
    with pytest.raises(FabricError, match="the port has priority flow control"):
        switch.port(2).set_credits(0, CreditSettings(1000))
    assert switch.port(2).credit_stats() == ()


def test_a_packet_longer_than_the_buffer_is_lost_and_counted() -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8})
    switch.port(2).set_credits(0, CreditSettings(SIZE - 64))
    fabric.inject(switch.port(1), frame(2), 0)
    fabric.inject(switch.port(1), frame(2, size=300), 0)
    got = [each for each in fabric.run_until(10**7) if each[2] == 2 and each[3][12:14] != MAC_CONTROL]
    assert (len(got), drops(fabric, "over_buffer"), drops(fabric)) == (1, 1, 1)
    switch.port(2).set_credits(0, None)
    fabric.inject(switch.port(1), frame(2), 10**7)
    assert len([each for each in fabric.run_until(2 * 10**7) if each[2] == 2]) == 1


def test_a_port_without_a_partner_in_credits_sends_nothing() -> None:
    fabric = Fabric("virtual")
    first, second = (switch_of(fabric, n, {1: MBPS_8, 2: MBPS_8}) for n in (1, 2))
    fabric.link(first.port(2), second.port(1), MBPS_8)
    first.port(2).set_credits(0, CreditSettings(1000))
    fabric.inject(first.port(1), frame(2, 2), 0)
    assert fabric.run_until(10**8) == []
    assert first.port(2).credit_stats()[0].stall_ns > 9 * 10**7
    second.port(1).set_credits(0, CreditSettings(1000))
    assert len(fabric.run_until(2 * 10**8)) == 1
    assert not first.port(2).credit_stats()[0].stalled


# -- lossless, conserved, as fast as the buffer allows --------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    senders=st.integers(1, 5),
    rate=st.sampled_from((8 * 10**6, 10**9, 100 * 10**9)),
    delay_ns=st.integers(1, 100_000),
    size=st.integers(64, 4096),
    buffer=st.integers(1, 40),
)
def test_nothing_is_lost_at_any_load(senders: int, rate: int, delay_ns: int, size: int, buffer: int) -> None:
    link = LinkSettings(rate_bps=rate, delay_ns=delay_ns)
    fabric, hosts = two_switches(senders, link, blocks(size) * BLOCK * buffer, 30, size)
    # Packet by packet at worst, each with the way there and back of its credit, on the slowest link.
    end = senders * 30 * (3 * size * 8 * 10**9 // rate + 4 * delay_ns + 10**5) + 10**7
    play(fabric, hosts, end)
    assert len(hosts[-1].got) == senders * 30
    assert drops(fabric) == 0
    check_conserved(fabric)
    for host in hosts[:-1]:
        assert max(host.most) <= blocks(size) * buffer


@pytest.mark.parametrize("share", [0.25, 0.5, 1.0, 2.0])
def test_throughput_is_the_buffer_over_the_round_trip_up_to_the_rate(share: float) -> None:
    link = LinkSettings(rate_bps=10**9, delay_ns=100_000)
    size = 1024
    # From a packet's first bit until its sender knows of its room again.
    trip = 2 * link.delay_ns + (size + 8) * 8
    fits = math.ceil(share * trip / (size * 8))
    fabric, hosts = two_switches(1, link, fits * size, 600, size, slow=1, mixed=False)
    play(fabric, hosts, 10**9)
    got = hosts[-1].got
    assert len(got) == 600
    rate = (len(got) - 201) * size * 8 / (got[-1] - got[200])  # Gb/s, of the link's 1
    assert rate == pytest.approx(min(fits * size * 8 / trip, 1.0), rel=0.02)
    stall = fabric.switch(1).port(2).credit_stats()
    if share >= 2:
        assert sum(each.stall_ns for each in stall) == 0


@pytest.mark.parametrize("without", [0, 1])
def test_a_priority_without_credit_does_not_stop_another(without: int) -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8})
    credited(switch.ports.values(), 8 * 512)
    stuck = LinkSettings(rate_bps=8 * 10**6, delay_ns=5000, pause_storm_mac=7)
    switch.port(2).set_link(incoming=stuck)
    many = [frame(2, priority=without) for _ in range(40)]
    hosts = [Host(switch.port(1), many), sink := Host(switch.port(2), [])]
    play(fabric, hosts, 10**8)
    assert len(sink.got) == 8  # the buffer of a host that takes nothing
    assert switch.port(2).credit_stats()[without].stalled
    assert switch.port(1).stats().queues[without].depth_packets == 0
    assert switch.port(2).stats().queues[without].depth_packets == 8  # of the switch: then the sender waits
    hosts[0].frames += [frame(2, priority=1 - without)] * 3  # the last goes first
    hosts[0].free_ns = fabric.now_ns
    play(fabric, hosts, 2 * 10**8)
    assert len(sink.got) == 8 + 3
    # When the host has recovered, it has room for all again.
    switch.port(2).set_link(incoming=MBPS_8)
    play(fabric, hosts, 3 * 10**8)
    assert len(sink.got) == 40 + 3
    check_conserved(fabric)
    assert drops(fabric) == 0


# -- links and switches that fail -----------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    senders=st.integers(1, 3),
    buffer=st.integers(1, 12),
    failures=st.lists(
        st.tuples(
            st.sampled_from(("link", "outgoing", "incoming", "host", "freeze", "stop", "restart", "loss")),
            st.integers(1, 40_000_000),
            st.integers(1, 10_000_000),
        ),
        max_size=4,
    ),
)
def test_credits_are_conserved_whatever_fails(senders: int, buffer: int, failures: list[tuple[str, int, int]]) -> None:
    fabric, hosts = two_switches(senders, MBPS_8, buffer * 512, 30)
    middle, host, second = fabric.switch(1).port(senders + 1), fabric.switch(1).port(1), fabric.switch(2)
    bad = LinkSettings(rate_bps=8 * 10**6, delay_ns=5000, loss=0.4, corrupt=0.2, duplicate=0.2, reorder=0.2)
    at = 0
    for what, later, long in failures:
        at += later
        play(fabric, hosts, at)
        check_bounds(fabric)
        at += long
        for on in (True, False):
            if what == "link":
                middle.set_up(not on)
            elif what in ("outgoing", "incoming"):
                middle.set_up(not on, what)  # type: ignore[arg-type]
            elif what == "host":
                host.set_up(not on, "outgoing")
            elif what == "loss":
                middle.set_link(outgoing=bad if on else MBPS_8, incoming=bad if on else MBPS_8)
            elif what == "restart" and on:
                second.restart()
            elif what in ("freeze", "stop"):
                broken = SwitchState.FROZEN if what == "freeze" else SwitchState.STOPPED
                second.set_state(broken if on else SwitchState.RUNNING)
            if on:
                play(fabric, hosts, at)
                check_bounds(fabric)
    play(fabric, hosts, at + 3 * 10**9)
    assert not any(each.frames for each in hosts)
    check_conserved(fabric)


def test_a_new_link_begins_with_the_whole_buffer_though_packets_of_the_old_one_still_wait() -> None:
    fabric, hosts = two_switches(2, MBPS_8, 20 * 512, 30)
    play(fabric, hosts, 5 * 10**6)
    assert any(queue.depth_packets for queue in fabric.switch(2).port(2).stats().queues)
    fabric.unlink(fabric.links[0])
    fabric.link(fabric.switch(1).port(3), fabric.switch(2).port(1), MBPS_8)
    play(fabric, hosts, 3 * 10**9)
    assert not any(each.frames for each in hosts)
    check_conserved(fabric)


def test_an_update_that_is_lost_is_told_again() -> None:
    fabric, hosts = two_switches(1, MBPS_8, 512, 50)
    lossy = LinkSettings(rate_bps=8 * 10**6, delay_ns=5000, loss=0.7)
    fabric.switch(2).port(1).set_link(outgoing=lossy)
    play(fabric, hosts, 10 * 10**9)
    assert len(hosts[-1].got) == 50
    assert fabric.switch(2).port(1).stats().drops["loss"] > 50
    check_bounds(fabric)


def update(limit: int, *, right: bool = True) -> bytes:
    """Return an update of a host, for priority 0."""
    body = bytes.fromhex("01c0 0001") + limit.to_bytes(4, "big") + bytes(60)
    crc = zlib.crc32(body) ^ (not right)
    return bytes.fromhex("0180c2000001 020000000001 8808") + body + crc.to_bytes(4, "big")


def test_an_update_that_is_damaged_or_late_says_nothing() -> None:
    fabric = Fabric("virtual")
    port = switch_of(fabric, 1, {1: MBPS_8}).port(1)
    port.set_credits(0, CreditSettings(10 * BLOCK))
    fabric.run_until(10**6)

    def credit_after(frame: bytes) -> int:
        fabric.inject(port, frame, fabric.now_ns)
        fabric.run_until(fabric.now_ns + 10**6)
        return port.credit_stats()[0].credit_bytes // BLOCK

    assert credit_after(update(12, right=False)) == 10
    assert credit_after(update(9)) == 10  # one that the update of the start has overtaken
    assert credit_after(update(12)[:-1]) == 10
    assert credit_after(update(12)) == 12
    assert credit_after(update(11)) == 12
    # Limits are modulo 2^32: one beyond the wrap is a later one.
    assert [credit_after(update(limit)) for limit in (2**31 - 1, 2**32 - 16, 5, 2**32 - 16)] == [2**31 - 1, 0, 5, 5]


# -- deadlock -------------------------------------------------------------------------------------------------


def ring(buffer: int) -> tuple[Fabric, list[Host]]:
    """Three switches in a ring; each host sends to the host two switches further on, all the same way round."""
    fabric = Fabric("virtual", seed=1)
    switches = [switch_of(fabric, n, {1: MBPS_8, 2: MBPS_8, 3: MBPS_8}) for n in (1, 2, 3)]
    for n, switch in enumerate(switches):
        fabric.link(switch.port(1), switches[(n + 1) % 3].port(2), MBPS_8)
    for switch in switches:
        credited(switch.ports.values(), buffer)
    hosts = [Host(switch.port(3), [frame(1, 1, 3)] * 400) for switch in switches]
    for number, host in enumerate(hosts):
        host.free_ns = 10**5 + number * 1000
    return fabric, hosts


def test_a_ring_of_switches_deadlocks() -> None:
    fabric, hosts = ring(8 * 512)
    play(fabric, hosts, 10**9)
    got = [len(host.got) for host in hosts]
    assert all(count < 400 for count in got)
    play(fabric, hosts, 10**10)
    # Ten times as long, and not one packet more: everybody waits for the next in the ring.
    assert [len(host.got) for host in hosts] == got
    assert drops(fabric) == 0
    for switch in fabric.switches.values():
        stats = switch.port(1).credit_stats()[0]
        assert stats.stalled
        assert stats.stall_ns > 9 * 10**9
        assert stats.credit_bytes < 512


def test_a_chain_does_not() -> None:
    fabric, hosts = ring(8 * 512)
    fabric.switch(3).port(1).set_up(False)  # what would close the ring goes nowhere
    play(fabric, hosts, 10**10)
    assert not any(host.frames for host in hosts)
    fabric.switch(3).port(1).set_up(True)
    play(fabric, hosts, 2 * 10**10)
    check_conserved(fabric)
