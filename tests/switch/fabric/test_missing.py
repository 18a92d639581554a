"""Packets whose payload is only a length do as whole ones do: times, places, counters, drops and failed checks."""

from __future__ import annotations

import random
import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from p4lite.switch.fabric import outside as module
from p4lite.switch.fabric.fabric import Fabric, FabricError, LinkSettings
from p4lite.switch.fabric.outside import MISSING_SHIFT
from p4lite.switch.fabric.values import CreditSettings, PfcSettings, QueueLimits, Replica
from support.switch.hand_program import HEADER, HandProgram, Op, packet
from support.switch.words import words

STORED = 64
TAIL = 4
PORTS = 4
RATE_BPS = 3 * 10**8
END_NS = 10**9


@pytest.fixture(params=["ferry", "ctypes"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to the fabric."""
    if request.param == "ctypes":
        monkeypatch.setattr(module, "ferries", lambda: None)


@dataclass
class Frame:
    """What a host sends at a time: headers, the length of the zeros behind them, and a check of all."""

    place: int
    at_ns: int
    head: bytes
    missing: int

    @property
    def length(self) -> int:
        """Its whole length."""
        return len(self.head) + self.missing + TAIL

    def whole(self) -> bytes:
        """Return all of it."""
        return checked(self.head + bytes(self.missing))

    def stored(self) -> bytes:
        """Return what is left of it without its zeros."""
        return checked(self.head)


def checked(content: bytes) -> bytes:
    """Append a check of what the program does not write."""
    return content + zlib.crc32(content[HEADER:]).to_bytes(TAIL, "big")


def holds(frame: bytes) -> bool:
    """Return whether the check of a frame is right."""
    return len(frame) >= HEADER + TAIL and checked(frame[:-TAIL]) == frame


@dataclass
class Seen:
    """All that a run shows: (time, place, length, whether the check holds), counters, and a trace without contents."""

    arrivals: list[tuple[int, int, int, bool]]
    counters: list[Any]
    trace: list[str]
    contents: list[tuple[bytes, int]] = field(default_factory=list, compare=False)


def frames_of(rng: random.Random, count: int, ops: tuple[Op, ...]) -> list[Frame]:
    made = []
    at = [0] * PORTS
    for _ in range(count):
        place = rng.randrange(PORTS)
        at[place] += rng.randrange(12_000)
        op = rng.choice(ops)
        second = rng.choice((50, 60, 61, 64, 65, 100, 120, 200, 255)) if op is Op.TRUNCATE else rng.randrange(4)
        head = packet(op, 1 + rng.randrange(PORTS), second=second, priority=rng.randrange(2), stamp=False, size=60)
        head = head[:HEADER] + rng.randbytes(STORED - TAIL - HEADER)
        made.append(Frame(place, at[place], head, rng.choice((4, 36, 60, 200, 1336))))
    return made


def run(frames: list[Frame], settings: LinkSettings, trace: Path, *, whole: bool, control: str = "") -> Seen:
    """Send frames through one switch, whole or without their zeros."""
    fabric = Fabric("virtual", seed=5)
    switch = fabric.add_switch(1, priority_queues=2)
    switch.load(HandProgram())  # type: ignore[arg-type]
    for number in range(1, PORTS + 1):
        port = switch.add_port(number)
        port.set_link(incoming=settings, outgoing=settings)
        port.set_queue(QueueLimits(packets=40, bytes=9_000))
        if control == "pfc":
            port.set_pfc(0, PfcSettings(3_000, 1_500, 4_000))
        elif control == "credits":
            port.set_credits(0, CreditSettings(4_096, (0,)))
    switch.set_multicast_group(1, [Replica(2, 1), Replica(3, 2)])
    fabric.trace(trace)
    outside = fabric.outside([(switch.port(number), b"") for number in range(1, PORTS + 1)])
    outside.transmitters()
    numbers: list[int] = []
    parts: list[bytes] = []
    for each in sorted(frames, key=lambda frame: frame.at_ns):
        numbers += [each.place, each.length | (0 if whole else each.missing << MISSING_SHIFT), each.at_ns, 0]
        parts.append(each.whole() if whole else each.stored())
    outside.send(words(*numbers), parts)
    found = []
    while outside.now_ns < END_NS:
        found += outside.exchange(words(), [], END_NS)
    fabric.trace(None)
    seen = Seen(
        [(time, place, len(data) + missing, holds(data)) for time, place, data, missing in found],
        [switch.stats(), [switch.port(number).stats() for number in range(1, PORTS + 1)]],
        [line.rsplit(maxsplit=1)[0] for line in trace.read_text().splitlines()],
        [(data, missing) for *_, data, missing in found],
    )
    fabric.close()
    return seen


FORWARDING = (Op.FORWARD, Op.FORWARD, Op.FORWARD, Op.TRUNCATE, Op.SHRINK, Op.GROW, Op.MULTICAST, Op.RECIRCULATE)
IMPAIRED = LinkSettings(
    rate_bps=RATE_BPS, delay_ns=1000, overhead_bytes=20, host_queue_bytes=20_000, loss=0.05, corrupt=0.3,
    duplicate=0.05, reorder=0.1, reorder_extra_ns=30_000,
)  # fmt: skip


@pytest.mark.parametrize("control", ["", "pfc", "credits"])
@pytest.mark.parametrize("seed", range(4))
def test_a_length_does_what_zeros_do(seed: int, control: str, tmp_path: Path) -> None:
    frames = frames_of(random.Random(seed), 400, FORWARDING)
    whole = run(frames, IMPAIRED, tmp_path / "whole", whole=True, control=control)
    length = run(frames, IMPAIRED, tmp_path / "length", whole=False, control=control)
    assert length == whole
    right = [holds for *_, holds in whole.arrivals]
    assert any(right)
    assert not all(right)
    assert any(missing for _, missing in length.contents)
    assert not any(missing for _, missing in whole.contents)


def test_what_is_not_corrupt_arrives_as_it_was_sent(tmp_path: Path) -> None:
    clean = LinkSettings(rate_bps=RATE_BPS, delay_ns=1000)
    (frame,) = [Frame(0, 0, packet(Op.FORWARD, 2, stamp=False, size=60, fill=9), 1000)]
    seen = run([frame], clean, tmp_path / "trace", whole=False)
    assert seen.contents == [(frame.stored(), 1000)]
    assert seen.arrivals[0][2] == 1064


def test_a_truncated_packet_has_zeros_and_no_check(tmp_path: Path) -> None:
    head = packet(Op.TRUNCATE, 2, second=100, stamp=False, size=60, fill=9)
    seen = run([Frame(0, 0, head, 1000)], LinkSettings(rate_bps=RATE_BPS), tmp_path / "trace", whole=False)
    assert seen.contents == [(head + bytes(40), 0)]


def test_every_bit_that_is_not_stored_fails_the_check(tmp_path: Path) -> None:
    corrupt = LinkSettings(rate_bps=RATE_BPS, delay_ns=1000, corrupt=1)
    head = packet(Op.FORWARD, 2, stamp=False, size=60)
    frames = [Frame(0, 100_000 * number, head, 1336) for number in range(500)]
    whole = run(frames, corrupt, tmp_path / "whole", whole=True)
    seen = run(frames, corrupt, tmp_path / "length", whole=False)
    assert seen == whole
    damaged = [holds for *_, holds in seen.arrivals]
    assert len(damaged) > 450
    # Two bits are flipped on the way; where both are in the part that the program owns, the check holds.
    assert sum(damaged) < 20


def test_captures_show_the_length_and_the_headers(tmp_path: Path) -> None:
    fabric = Fabric("virtual", seed=5)
    switch = fabric.add_switch(1)
    switch.load(HandProgram())  # type: ignore[arg-type]
    for number in (1, 2):
        switch.add_port(number, pcap=tmp_path / f"{number}.pcapng")
    outside = fabric.outside([(switch.port(number), b"") for number in (1, 2)])
    outside.transmitters()
    frame = Frame(0, 0, packet(Op.FORWARD, 2, stamp=False, size=60, fill=9), 1000)
    outside.exchange(words(0, 1064 | 1000 << MISSING_SHIFT, 0, 0), [frame.stored()], 10**6)
    switch.port(2).capture(None)
    content = (tmp_path / "2.pcapng").read_bytes()
    at = content.index(struct.pack("<II", 60, 1064))
    assert content[at + 8 : at + 68] == frame.head


def test_frames_that_lack_too_much_are_refused() -> None:
    fabric = Fabric("virtual", seed=5)
    switch = fabric.add_switch(1)
    switch.load(HandProgram())  # type: ignore[arg-type]
    outside = fabric.outside([(switch.add_port(1), b"")])
    for length, missing in ((100, 37), (100, 100), (100, 1 << 31), (0, 1)):
        with pytest.raises((FabricError, ValueError)):
            outside.send(words(0, length | missing << MISSING_SHIFT, 0, 0), [bytes(max(length - missing, 0))])
    outside.send(words(0, 100 | 36 << MISSING_SHIFT, 0, 0), [bytes(64)])
