"""What `ExternalHosts` takes and refuses; that it changes no result is shown in tests/hosts/drivers/test_virtual.py."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from p4lite.switch.fabric import outside as module
from p4lite.switch.fabric.fabric import Fabric, FabricError, LinkSettings
from p4lite.switch.fabric.outside import MISSING_SHIFT
from support.switch.hand_program import HandProgram, Op, packet
from support.switch.words import words

DELAY_NS = 5_000
HEADER_REST = 35  # up to here the program writes, beside the header
GOOD = [0, 100, 10**6, 0]
RATE_BPS = 7 * 10**6


HEADERS = Path(sysconfig.get_path("include"), "Python.h").is_file()


@pytest.fixture(params=["ferry", "ctypes"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to the fabric; without Python's headers there is one."""
    if request.param == "ctypes":
        monkeypatch.setattr(module, "ferries", lambda: None)
    else:
        assert (module.ferries() is not None) == HEADERS
    return str(request.param)


def joined(count: int = 2) -> Fabric:
    """Return a switch with `count` ports from 1 on, whose hosts are 5 µs away."""
    fabric = Fabric("virtual", seed=3)
    switch = fabric.add_switch(1)
    switch.load(HandProgram())  # type: ignore[arg-type]
    for number in range(1, count + 1):
        switch.add_port(number).set_link(
            incoming=LinkSettings(rate_bps=RATE_BPS, delay_ns=DELAY_NS, overhead_bytes=20, host_queue_bytes=1000)
        )
    return fabric


def test_what_is_sent_arrives_and_the_links_are_as_told() -> None:
    fabric = joined()
    head, body = packet(Op.FORWARD, 2)[:5], packet(Op.FORWARD, 2, stamp=False)[5:]
    outside = fabric.outside([(fabric.switch(1).port(number), head) for number in (1, 2)])
    assert outside.transmitters() == [(RATE_BPS, 20, 1000, 0, 0)] * 2
    assert outside.lookahead_ns() == DELAY_NS
    took, rest = divmod(120 * 8 * 10**9, RATE_BPS)
    assert rest, "the rate leaves a fraction of a nanosecond"
    arrivals = outside.exchange(words(0, 100, 0, took), [head, body], 10**9)
    assert [(time, place) for time, place, *_ in arrivals] == [(took + DELAY_NS, 1)]
    assert arrivals[0][2][HEADER_REST:] == body[HEADER_REST:]
    assert outside.surprises == 0
    assert outside.transmitters()[0] == (RATE_BPS, 20, 1000, took, rest)
    outside.send(words(1, 100, outside.now_ns, 0), [head, body])
    assert outside.surprises == 1, "its link is not free at once"
    outside.exchange(words(), [], 10**9)
    assert outside.surprises == 1, "until the links are looked at again"


def test_links_are_looked_at_as_they_are_now() -> None:
    fabric = joined()
    outside = fabric.outside([(fabric.switch(1).port(1), b"")])
    fabric.run_until(10**6)
    outside.transmitters()
    assert (outside.now_ns, outside.known_ns) == (10**6, 10**6), "another caller has run the fabric"


def test_of_a_frame_shorter_than_the_header_nothing_arrives() -> None:
    fabric = joined()
    frame = packet(Op.TRUNCATE, 2, second=50, stamp=False)
    outside = fabric.outside([(fabric.switch(1).port(number), frame[:60]) for number in (1, 2)])
    outside.transmitters()
    arrivals = outside.exchange(words(0, 100, 0, 0), [frame], 10**9)
    assert [arrival[1:] for arrival in arrivals] == [(1, b"", 0)]


def test_what_is_certain_to_arrive_is_told_before_its_time() -> None:
    fabric = joined()
    port = fabric.switch(1).port(2)
    port.set_link(outgoing=LinkSettings(delay_ns=2 * DELAY_NS))
    fabric.switch(1).port(1).set_link(outgoing=LinkSettings(delay_ns=3 * DELAY_NS))
    head, body = packet(Op.FORWARD, 2)[:5], packet(Op.FORWARD, 2, stamp=False)[5:]
    outside = fabric.outside([(fabric.switch(1).port(number), head) for number in (1, 2)])
    outside.transmitters()
    took = 120 * 8 * 10**9 // RATE_BPS
    arrives = took + 3 * DELAY_NS
    arrivals = outside.exchange(words(0, 100, 0, took), [head, body], took + DELAY_NS, 10**9)
    assert [(time, place) for time, place, *_ in arrivals] == [(arrives, 1)]
    assert (outside.now_ns, outside.known_ns) == (took + DELAY_NS, arrives), "the shorter of both delays ahead"
    # Not beyond what was asked for: until then links may change.
    outside.send(words(0, 100, arrives, arrives + took), [head, body])
    assert outside.exchange(words(), [], arrives + took + DELAY_NS, arrives + took + 2 * DELAY_NS) == []
    assert outside.known_ns == arrives + took + 2 * DELAY_NS
    port.set_up(False)
    assert outside.exchange(words(), [], 10**9) == []


def test_what_cannot_be_sent_names_the_port_and_the_reason() -> None:
    fabric = joined(3)
    switch = fabric.switch(1)
    fabric.link(switch.port(3), fabric.add_switch(2).add_port(1))
    outside = fabric.outside([(switch.port(number), b"") for number in (1, 2, 3)])
    outside.transmitters()
    frame = packet()
    fabric.run_until(10**6)
    for numbers, reason in (
        ([1, 100, 10**6 - DELAY_NS - 1, 0], "port 2|p2.*994999 ns is past"),
        ([2, 100, 10**6, 0], "p3.*not external"),
        ([0, 70_000, 10**6, 0], "p1.*70000 bytes are more than 65536"),
        ([0, 70_000 | 1 << MISSING_SHIFT, 10**6, 0], "p1.*70000 bytes are more than 65536"),
    ):
        with pytest.raises(FabricError, match=reason):
            outside.send(words(*GOOD, *numbers), [frame] * 701)
        with pytest.raises(FabricError, match=reason):
            outside.exchange(words(*numbers), [frame] * 700, 10**7)
    assert switch.port(1).stats().rx_packets == 0
    fabric.run_until(10**8)
    assert switch.port(1).stats().rx_packets == 4, "those before the one that was refused"


def test_no_port_and_no_byte_is_read_that_is_not_there(way: str) -> None:
    fabric = joined()
    outside = fabric.outside([(fabric.switch(1).port(1), b"")])
    wrong: list[tuple[object, object, type[Exception]]] = [
        (words(1, 100, 0, 0), [bytes(100)], IndexError),
        (words(0, 100, 0), [bytes(100)], ValueError),
        (words(0, 100, 0, 0)[:-1], [bytes(100)], ValueError),
        (words(0, 101, 0, 0), [bytes(50), bytes(50)], ValueError),
        (words(*[0, (1 << 64) - 1, 0, 0] * 2), [bytes(100)], ValueError),
    ]
    for numbers, parts, error in wrong:
        with pytest.raises(error):
            outside.exchange(numbers, parts, 10**7)  # type: ignore[arg-type]
        with pytest.raises(error):
            outside.send(numbers, parts)  # type: ignore[arg-type]
    if way != "ferry" or not HEADERS:
        return
    good = words(0, 100, 0, 0)
    for numbers, parts in ((good, [bytearray(100)]), (good, (bytes(100),)), (bytes(good), [bytes(100)])):
        with pytest.raises(TypeError):
            outside.exchange(numbers, parts, 10**7)  # type: ignore[arg-type]


def test_what_is_closed_carries_nothing() -> None:
    fabric = joined()
    outside = fabric.outside([(fabric.switch(1).port(1), b"")])
    fabric.close()
    with pytest.raises(FabricError, match="closed"):
        outside.exchange(words(), [], 10**7)


def test_hosts_that_are_driven_together_need_headers_of_one_length() -> None:
    fabric = joined()
    with pytest.raises(FabricError, match="equally long"):
        fabric.outside([(fabric.switch(1).port(1), b"1"), (fabric.switch(1).port(2), b"22")])
