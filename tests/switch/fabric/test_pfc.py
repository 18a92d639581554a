"""Priority flow control in virtual time: arithmetic, frames, losslessness, deadlock, storms and the watchdog."""

from __future__ import annotations

import pathlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scapy.contrib.mac_control import MACControlClassBasedFlowControl
from scapy.layers.l2 import Ether

from p4lite.switch.fabric.fabric import Fabric, FabricError, LinkSettings, Port
from p4lite.switch.fabric.values import PFC_FRAME_BYTES, PfcSettings, QueueLimits, pfc_headroom_bytes
from support.pcapng import packets
from support.switch.hand_program import HandProgram, routed
from support.switch.players import BYTE_NS, FOREVER, MAC_CONTROL, MBPS_8, drops, play, switch_of

MAC = 0x02_00_00_00_00_07
SIZE = 500


def pause_frame(quanta: dict[int, int], source: int = MAC) -> bytes:
    """Return a pause frame as the standard draws it: address, type 8808, opcode 0101, classes, eight times."""
    head = bytes.fromhex("0180c2000001") + source.to_bytes(6, "big") + bytes.fromhex("88080101")
    times = b"".join(quanta.get(i, 0).to_bytes(2, "big") for i in range(8))
    return (head + sum(1 << i for i in quanta).to_bytes(2, "big") + times).ljust(PFC_FRAME_BYTES, b"\0")


def pause_ns(quanta: int, rate_bps: int) -> int:
    """How long a pause of so many quanta of 512 bit times is on a link."""
    return quanta * 512 * 10**9 // rate_bps


class Host:
    """A host that sends its packets at its link's rate, one after another, and obeys pauses of priority 0."""

    def __init__(self, port: Port, rate_bps: int, frames: list[bytes], obeys: bool = True) -> None:
        self.port, self.rate_bps, self.frames, self.obeys = port, rate_bps, frames[::-1], obeys
        self.free_ns = self.paused_until = 0
        self.got: list[int] = []
        self.pauses: list[tuple[int, bytes]] = []

    def next_ns(self) -> int:
        return max(self.free_ns, self.paused_until) if self.frames else FOREVER

    def send(self, fabric: Fabric, at_ns: int) -> None:
        self.free_ns = fabric.inject(self.port, self.frames.pop(), at_ns) or 0
        assert self.free_ns

    def take(self, frame: bytes, time_ns: int) -> None:
        if frame[12:14] != MAC_CONTROL:
            self.got.append(time_ns)
            return
        self.pauses.append((time_ns, frame))
        if self.obeys and frame[17] & 1:
            self.paused_until = time_ns + pause_ns(int.from_bytes(frame[18:20], "big"), self.rate_bps)


# -- arithmetic and frames ------------------------------------------------------------------------------------


@pytest.mark.parametrize("paused", [0, 1])
def test_a_pause_lasts_so_many_times_512_bit_times(paused: int) -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8})
    switch.port(2).set_pfc(paused, PfcSettings(10_000, 5000, 5000))
    fabric.inject(switch.port(2), pause_frame({paused: 10}), 0)
    paused_at = PFC_FRAME_BYTES * BYTE_NS + 5000
    for _ in range(2):
        fabric.inject(switch.port(1), routed(2, priority=paused), 0)
    fabric.inject(switch.port(1), routed(2, priority=1 - paused), 0)
    times = [t for t, _, port, _ in fabric.run_until(10**8) if port == 2]
    # The other priority is not paused; this one waits for 10 * 512 bits, which are 640 bytes.
    third_arrived = 300 * BYTE_NS + 5000
    resumed = paused_at + 640 * BYTE_NS
    assert times == [third_arrived + 105_000, resumed + 105_000, resumed + 205_000]
    (stats,) = switch.port(2).pfc_stats()
    assert (stats.pauses_received, stats.resumes_received, stats.paused_ns) == (1, 0, 640 * BYTE_NS)


def test_a_time_of_zero_ends_a_pause() -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8})
    switch.port(2).set_pfc(0, PfcSettings(10_000, 5000, 5000))
    fabric.inject(switch.port(2), pause_frame({0: 0xFFFF}), 0)
    fabric.inject(switch.port(1), routed(2), 0)
    fabric.inject(switch.port(2), pause_frame({0: 0}), 10**6)
    resumed = 10**6 + PFC_FRAME_BYTES * BYTE_NS + 5000
    assert [t for t, *_ in fabric.run_until(10**8)] == [resumed + 100 * BYTE_NS + 5000]
    assert switch.port(2).pfc_stats()[0].paused_ns == 10**6


def test_pause_frames_to_the_byte_and_the_nanosecond() -> None:
    fabric = Fabric("virtual")
    slow = LinkSettings(rate_bps=8 * 10**5, delay_ns=5000)
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: slow})
    switch.port(1).set_pfc(0, PfcSettings(1000, 500, 5000, quanta=100), MAC)
    for _ in range(6):
        fabric.inject(switch.port(1), routed(2, size=SIZE), 0)
    seen = [(t, frame) for t, _, port, frame in fabric.run_until(10**8) if port == 1]
    # The first packet goes out at once; the fourth makes 1500 bytes that wait, more than 1000.
    crossed = 4 * SIZE * BYTE_NS + 5000
    own_time = PFC_FRAME_BYTES * BYTE_NS + 5000
    assert seen[0] == (crossed + own_time, pause_frame({0: 100}))
    # All six begin to leave every 5 ms; 500 bytes wait when the fifth does. Refreshed at half of the time until then.
    resumed = SIZE * BYTE_NS + 5000 + 4 * SIZE * 10 * BYTE_NS
    half = pause_ns(100, 8 * 10**6) // 2
    refreshed = [
        (crossed + own_time + k * half, pause_frame({0: 100})) for k in range(1, 1 + (resumed - crossed) // half)
    ]
    assert len(refreshed) >= 5
    assert seen[1:] == [*refreshed, (resumed + own_time, pause_frame({0: 0}))]
    (stats,) = switch.port(1).pfc_stats()
    assert (stats.pauses_sent, stats.resumes_sent, stats.pausing_ns) == (1 + len(refreshed), 1, resumed - crossed)
    assert (stats.held_bytes, stats.max_held_bytes) == (0, 2500)


@pytest.mark.parametrize(
    ("count", "settings", "most", "pauses", "resumes", "dropped"),
    [
        # One is sent at once; the others wait until their port has sent that one.
        (3, PfcSettings(1000, 500, 5000), 1000, 0, 0, 0),  # just as much as is allowed
        (4, PfcSettings(1000, 0, 5000), 1500, 1, 1, 0),
        (6, PfcSettings(1000, 500, 700), 1500, 1, 1, 2),  # 2000 bytes would not fit
    ],
)
def test_bounds_of_a_class_hold_to_the_byte(
    count: int, settings: PfcSettings, most: int, pauses: int, resumes: int, dropped: int
) -> None:
    fabric = Fabric("virtual")
    slow = LinkSettings(rate_bps=8 * 10**5, delay_ns=5000)
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: slow})
    # Times of a pause so long that it is not told twice.
    switch.port(1).set_pfc(0, replace(settings, quanta=0xFFFF))
    for _ in range(count):
        fabric.inject(switch.port(1), routed(2, size=SIZE), 0)
    fabric.run_until(10**9)
    (stats,) = switch.port(1).pfc_stats()
    assert (stats.max_held_bytes, stats.pauses_sent, stats.resumes_sent) == (most, pauses, resumes)
    assert (stats.held_bytes, stats.headroom_drops) == (0, dropped)


def test_a_pause_lasts_at_the_rate_of_who_sends_and_from_the_latest_frame() -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8})
    switch.port(2).set_link(incoming=replace(MBPS_8, rate_bps=10 * MBPS_8.rate_bps))
    switch.port(2).set_pfc(0, PfcSettings(10_000, 5000, 5000))
    for at in (0, 100_000):
        fabric.inject(switch.port(2), pause_frame({0: 10}), at)
    fabric.inject(switch.port(1), routed(2), 0)
    paused, lasts = PFC_FRAME_BYTES * BYTE_NS // 10 + 5000, pause_ns(10, MBPS_8.rate_bps)
    fabric.run_until(paused + 50_000)
    assert switch.port(2).pfc_stats()[0].paused_ns == 50_000
    resumed = 100_000 + paused + lasts
    assert [t for t, _, port, _ in fabric.run_until(10**8) if port == 2] == [resumed + 100 * BYTE_NS + 5000]
    assert switch.port(2).pfc_stats()[0].paused_ns == resumed - paused


def test_scapy_reads_and_writes_the_frames_as_we_do() -> None:
    """The layout of IEEE 802.1Qbb as another implementation has it, there and back, for the classes 3 and 6."""
    fabric = Fabric("virtual")
    slow = LinkSettings(rate_bps=8 * 10**5, delay_ns=5000)
    switch = fabric.add_switch(1, priority_queues=8)
    switch.load(HandProgram())  # type: ignore[arg-type]
    for number, link in ((1, MBPS_8), (2, slow)):
        switch.add_port(number, to_host=link, to_switch=link).set_queue(QueueLimits(packets=0))
    for priority in (3, 6):
        switch.port(1).set_pfc(priority, PfcSettings(1000, 500, 5000, quanta=100 + priority), MAC)
        for _ in range(4):
            fabric.inject(switch.port(1), routed(2, size=SIZE, priority=priority), 0)
    told = set()
    for _, _, port, frame in fabric.run_until(10**8):
        if port == 1:
            read = Ether(frame)
            assert (read.dst, read.src) == ("01:80:c2:00:00:01", "02:00:00:00:00:07")
            control = read[MACControlClassBasedFlowControl]
            assert bytes(read) == frame
            for each in range(8):
                time, enabled = getattr(control, f"c{each}_pause_time"), getattr(control, f"c{each}_enabled")
                assert enabled or not time
                told |= {(each, time)} if enabled else set()
    assert told == {(3, 103), (3, 0), (6, 106), (6, 0)}
    # Class 0 has a time, but is not one of those that are meant.
    asked = MACControlClassBasedFlowControl(
        c3_enabled=1, c6_enabled=1, c3_pause_time=10, c6_pause_time=20, c0_pause_time=30
    )
    switch.port(2).set_pfc(0, PfcSettings(1000, 500, 5000))
    for priority in (3, 6):
        switch.port(2).set_pfc(priority, PfcSettings(1000, 500, 5000))
    before = fabric.now_ns
    fabric.inject(switch.port(2), bytes(Ether(src="02:00:00:00:00:09") / asked).ljust(PFC_FRAME_BYTES, b"\0"), before)
    fabric.run_until(before + 10**8)
    paused = {each.priority: each.paused_ns for each in switch.port(2).pfc_stats()}
    assert paused == {0: 0, 3: pause_ns(10, 8 * 10**5), 6: pause_ns(20, 8 * 10**5)}


def test_settings_that_cannot_be() -> None:
    fabric = Fabric("virtual")
    port = switch_of(fabric, 1, {1: MBPS_8}).port(1)
    with pytest.raises(FabricError, match="xon_bytes=2000 is above xoff_bytes=1000"):
        port.set_pfc(0, PfcSettings(1000, 2000, 0))
    with pytest.raises(FabricError, match="no queue of priority 2"):
        port.set_pfc(2, PfcSettings(1000, 500, 0))
    with pytest.raises(FabricError, match="quanta=65536"):
        port.set_pfc(0, PfcSettings(1000, 500, 0, quanta=65536))


def test_a_pause_frame_is_never_forwarded_and_without_flow_control_nothing_special() -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8})
    fabric.inject(switch.port(1), pause_frame({0: 1}), 0)
    fabric.run_until(10**6)
    assert (switch.stats().received, switch.port(1).stats().rx_packets) == (1, 1)
    switch.port(1).set_pfc(0, PfcSettings(10_000, 5000, 5000))
    fabric.inject(switch.port(1), pause_frame({0: 1}), 10**6)
    fabric.run_until(10**7)
    assert (switch.stats().received, switch.port(1).stats().rx_packets) == (1, 1)


def test_what_waits_counts_when_flow_control_is_switched_on_and_off() -> None:
    fabric = Fabric("virtual")
    slow = LinkSettings(rate_bps=8 * 10**5, delay_ns=5000)
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: slow})
    for _ in range(6):
        fabric.inject(switch.port(1), routed(2, size=SIZE), 0)
    fabric.run_until(4 * 10**6)
    switch.port(1).set_pfc(0, PfcSettings(1000, 500, 5000))
    (stats,) = switch.port(1).pfc_stats()
    assert (stats.held_bytes, stats.pausing) == (2500, True)
    switch.port(1).set_pfc(0, None)
    assert switch.port(1).pfc_stats() == ()
    frames = [frame for _, _, port, frame in fabric.run_until(10**8) if port == 1]
    assert frames[-1] == pause_frame({0: 0}, source=0)
    switch.port(1).set_pfc(0, PfcSettings(1000, 500, 5000))
    assert switch.port(1).pfc_stats()[0].held_bytes == 0


# -- lossless -------------------------------------------------------------------------------------------------


def incast(
    seed: int, senders: int, rate: int, delay_ns: int, size: int, headroom: int, xoff: int, count: int
) -> Fabric:
    """`senders` hosts of switch 1 send to one host of switch 2, over one link between the switches."""
    fabric = Fabric("virtual", seed=seed)
    link = LinkSettings(rate_bps=rate, delay_ns=delay_ns)
    first = switch_of(fabric, 1, dict.fromkeys(range(1, senders + 2), link))
    second = switch_of(fabric, 2, {1: link, 2: LinkSettings(rate_bps=rate // 3, delay_ns=delay_ns)})
    fabric.link(first.port(senders + 1), second.port(1), link)
    for switch in (first, second):
        for port in switch.ports.values():
            port.set_pfc(0, PfcSettings(xoff, xoff // 2, headroom))
    hosts = [Host(first.port(n), rate, [routed(senders + 1, 2, size=size)] * count) for n in range(1, senders + 1)]
    for number, host in enumerate(hosts):
        host.free_ns = (seed * 7919 + number * 104729) % 100_000
    sink = Host(second.port(2), rate // 3, [])
    play(fabric, [*hosts, sink], 10**12)
    assert len(sink.got) + drops(fabric) == senders * count
    return fabric


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 1000),
    senders=st.integers(1, 6),
    rate=st.sampled_from((20 * 10**6, 10**9, 100 * 10**9)),
    delay_ns=st.integers(1, 100_000),
    size=st.integers(64, 4096),
    xoff=st.integers(1, 20_000),
)
def test_nothing_is_lost_with_enough_headroom(
    seed: int, senders: int, rate: int, delay_ns: int, size: int, xoff: int
) -> None:
    headroom = pfc_headroom_bytes(rate, delay_ns, size)
    fabric = incast(seed, senders, rate, delay_ns, size, headroom, xoff, 40)
    assert drops(fabric) == 0
    for switch in fabric.switches.values():
        for port in switch.ports.values():
            assert port.pfc_stats()[0].max_held_bytes <= xoff + headroom
            assert port.pfc_stats()[0].held_bytes == 0


def test_with_too_little_headroom_packets_are_lost_and_counted() -> None:
    needed = pfc_headroom_bytes(10**9, 50_000, 1000)
    fabric = incast(1, 3, 10**9, 50_000, 1000, needed // 2, 5000, 100)
    lost = drops(fabric)
    assert lost > 0
    assert drops(fabric, "headroom_full") == lost
    assert lost == sum(p.pfc_stats()[0].headroom_drops for s in fabric.switches.values() for p in s.ports.values())


# -- deadlock, storms, the watchdog ---------------------------------------------------------------------------


def ring(watchdog_ns: int) -> tuple[Fabric, list[Host]]:
    """Three switches in a ring; each host sends to the host two switches further on, all the same way round."""
    fabric = Fabric("virtual", seed=1)
    settings = PfcSettings(
        5000, 2500, pfc_headroom_bytes(8 * 10**6, 5000, SIZE), detection_ns=watchdog_ns, restoration_ns=watchdog_ns
    )
    switches = [switch_of(fabric, n, {1: MBPS_8, 2: MBPS_8, 3: MBPS_8}) for n in (1, 2, 3)]
    for n, switch in enumerate(switches):
        fabric.link(switch.port(1), switches[(n + 1) % 3].port(2), MBPS_8)
    for switch in switches:
        for port in switch.ports.values():
            port.set_pfc(0, settings)
    hosts = [Host(switch.port(3), 8 * 10**6, [routed(1, 1, 3, size=SIZE)] * 400) for switch in switches]
    for number, host in enumerate(hosts):
        host.free_ns = number * 1000
    return fabric, hosts


def test_a_ring_of_switches_deadlocks() -> None:
    fabric, hosts = ring(0)
    play(fabric, hosts, 10**9)
    got = [len(host.got) for host in hosts]
    assert all(count < 400 for count in got)
    play(fabric, hosts, 10**10)
    # Ten times as long, and not one packet more: everybody waits for the next in the ring.
    assert [len(host.got) for host in hosts] == got
    assert drops(fabric) == 0
    for switch in fabric.switches.values():
        stats = switch.port(1).pfc_stats()[0]
        assert stats.paused
        assert stats.paused_ns > 9 * 10**9


def test_the_watchdog_ends_the_deadlock() -> None:
    fabric, hosts = ring(10_000_000)
    play(fabric, hosts, 10**10)
    lost = drops(fabric)
    assert lost > 0
    assert drops(fabric, "pfc_watchdog") == lost
    assert sum(len(host.got) for host in hosts) == 1200 - lost
    assert all(len(host.got) > 100 for host in hosts)  # without it 16
    ports = [port.pfc_stats()[0] for switch in fabric.switches.values() for port in switch.ports.values()]
    assert sum(stats.storms for stats in ports) > 0
    assert not any(stats.storm or stats.paused or stats.held_bytes for stats in ports)


def storm(watchdog_ns: int) -> tuple[Fabric, Host, Host]:
    """Let a host behind switch 2 ask for pauses without end; another one there is sent to by a host of switch 1,
    too.
    """
    fabric = Fabric("virtual", seed=1)
    first = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8, 3: MBPS_8})
    second = switch_of(fabric, 2, {1: MBPS_8, 2: MBPS_8, 3: MBPS_8})
    fabric.link(first.port(3), second.port(1), MBPS_8)
    settings = PfcSettings(
        5000, 2500, pfc_headroom_bytes(8 * 10**6, 5000, SIZE), detection_ns=watchdog_ns, restoration_ns=watchdog_ns
    )
    for switch in (first, second):
        for port in switch.ports.values():
            port.set_pfc(0, settings)
    mad = Host(second.port(2), 8 * 10**6, [pause_frame({0: 0xFFFF})] * 10_000)
    victim = Host(second.port(3), 8 * 10**6, [])
    to_mad = Host(first.port(1), 8 * 10**6, [routed(3, 2, size=SIZE)] * 1000)
    to_victim = Host(first.port(2), 8 * 10**6, [routed(3, 3, size=SIZE)] * 1000)
    play(fabric, [mad, victim, to_mad, to_victim], 5 * 10**8)
    return fabric, victim, to_victim


def test_a_storm_spreads_to_who_has_nothing_to_do_with_it() -> None:
    fabric, victim, to_victim = storm(0)
    assert len(victim.got) < 50
    assert max(victim.got) < 50_000_000
    assert to_victim.paused_until > 5 * 10**8
    assert fabric.switch(1).port(3).pfc_stats()[0].paused_ns > 4 * 10**8
    assert drops(fabric) == 0


def test_the_watchdog_confines_a_storm() -> None:
    fabric, victim, _ = storm(50_000_000)
    mad = fabric.switch(2).port(2).pfc_stats()[0]
    assert (mad.storm, mad.storms) == (True, 1)
    assert mad.watchdog_drops > 100
    assert fabric.switch(1).port(3).pfc_stats()[0].storms == 0
    assert len(victim.got) > 350  # of at most 500 in this time, half a link's from then on


@pytest.mark.parametrize("rate", [8 * 10**6, 100 * 10**9])
def test_a_stuck_host_asks_for_pauses_without_end(rate: int) -> None:
    fabric = Fabric("virtual")
    link = LinkSettings(rate_bps=rate, delay_ns=5000)
    switch = switch_of(fabric, 1, {1: link, 2: link})
    port = switch.port(2)
    port.set_pfc(0, PfcSettings(10_000, 5000, 5000))
    longest = pause_ns(0xFFFF, rate)
    port.set_link(incoming=replace(link, pause_storm_mac=MAC))
    fabric.inject(switch.port(1), routed(2), 0)
    fabric.run_until(5 * longest)
    sent = port.stats().storm_frames
    assert sent in (10, 11)  # at 0, and after each half of the longest pause
    stats = port.pfc_stats()[0]
    assert stats.paused
    assert 4 * longest < stats.paused_ns < 5 * longest
    assert stats.pauses_received in (sent - 1, sent)
    assert port.stats().queues[0].depth_packets == 1
    # A link that goes down ends it for as long; what is mended has the same host at its end.
    port.set_up(False)
    fabric.run_until(6 * longest)
    assert (port.stats().storm_frames, port.pfc_stats()[0].paused) == (sent, False)
    port.set_up(True)
    fabric.run_until(7 * longest)
    assert port.pfc_stats()[0].paused
    port.set_link(incoming=link)
    sent, at = port.stats().storm_frames, fabric.now_ns
    fabric.inject(switch.port(1), routed(2), at)
    # Its last frame ends the pause.
    (delivered,) = (time for time, _, number, _ in fabric.run_until(at + longest // 2) if number == 2)
    assert delivered < at + longest // 4
    fabric.run_until(at + 5 * longest)
    stats = port.pfc_stats()[0]
    assert (port.stats().storm_frames, stats.paused, stats.resumes_received) == (sent, False, 1)


def test_the_frames_of_a_stuck_host_to_the_byte(tmp_path: pathlib.Path) -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8})
    switch.port(1).capture(tmp_path / "p1.pcapng")
    switch.port(1).set_pfc(0, PfcSettings(10_000, 5000, 5000))
    switch.port(1).set_link(incoming=replace(MBPS_8, pause_storm_mac=MAC))
    fabric.run_until(10**6)
    switch.port(1).capture(None)
    assert packets((tmp_path / "p1.pcapng").read_bytes()) == [pause_frame(dict.fromkeys(range(8), 0xFFFF))]


def test_a_stuck_host_does_not_disturb_who_has_no_flow_control() -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8})
    switch.port(2).set_link(incoming=replace(MBPS_8, pause_storm_mac=MAC))
    for _ in range(20):
        fabric.inject(switch.port(1), routed(2), 0)
    assert len([each for each in fabric.run_until(10**8) if each[2] == 2]) == 20
    switch.remove_port(2)
    assert fabric.run_until(10**10) == []


def test_a_pause_ends_with_the_link() -> None:
    fabric = Fabric("virtual")
    switch = switch_of(fabric, 1, {1: MBPS_8, 2: MBPS_8})
    switch.port(2).set_pfc(0, PfcSettings(10_000, 5000, 5000))
    fabric.inject(switch.port(2), pause_frame({0: 0xFFFF}), 0)
    fabric.inject(switch.port(1), routed(2), 0)
    fabric.run_until(10**6)
    assert switch.port(2).pfc_stats()[0].paused
    switch.port(2).set_up(False)
    switch.port(2).set_up(True)
    assert not switch.port(2).pfc_stats()[0].paused
    fabric.inject(switch.port(1), routed(2), 10**6)
    # What waited went into the link that was down.
    assert len(fabric.run_until(10**7)) == 1
