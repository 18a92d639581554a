"""Long packets of hosts, which the fabric does not copy, do as copied ones do, and are given back."""

from __future__ import annotations

import random
import struct
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from p4lite.switch.fabric import outside as module
from p4lite.switch.fabric.fabric import Fabric, LinkSettings
from p4lite.switch.fabric.outside import ExternalHosts
from p4lite.switch.fabric.values import CloneSession, CreditSettings, FabricError, PfcSettings, QueueLimits, Replica
from p4lite.switch.runtime.loader import LoadedProgram, load_program
from p4lite.switch.source import load_source
from support.switch.hand_program import HandProgram, Op, packet
from support.switch.words import words

PORTS = 4
CPU = 64
RATE_BPS = 10**9
END_NS = 10**9
LITTLE_MEMORY = 150_000  # not enough for a long packet that is stored whole
OPS = (Op.FORWARD, Op.FORWARD, Op.FORWARD, Op.MULTICAST, Op.CLONE, Op.EGRESS_CLONE, Op.RESUBMIT, Op.RECIRCULATE,
       Op.TRUNCATE, Op.SHRINK, Op.GROW, Op.CLONE_AND_DROP)  # fmt: skip
CLEAN = LinkSettings(rate_bps=RATE_BPS, delay_ns=1000)
IMPAIRED = LinkSettings(
    rate_bps=RATE_BPS, delay_ns=1000, overhead_bytes=20, host_queue_bytes=20_000, loss=0.05, corrupt=0.2,
    duplicate=0.1, reorder=0.1, reorder_extra_ns=30_000,
)  # fmt: skip


@contextmanager
def hosts(
    settings: LinkSettings, program: Any = None, memory_bytes: int = 1 << 30
) -> Iterator[tuple[Fabric, ExternalHosts]]:
    """Yield a switch between hosts, which knows its CPU as port CPU."""
    with Fabric("virtual", seed=5, memory_limit_bytes=memory_bytes) as fabric:
        switch = fabric.add_switch(1, priority_queues=2, cpu_port=CPU)
        switch.load(program or HandProgram())  # type: ignore[arg-type]
        for number in range(1, PORTS + 1):
            port = switch.add_port(number)
            port.set_link(incoming=settings, outgoing=settings)
            port.set_queue(QueueLimits(packets=40, bytes=60_000))
        switch.set_multicast_group(1, [Replica(2, 1), Replica(3, 2)])
        switch.set_clone_session(1, CloneSession(port=4, truncate_bytes=1200))
        outside = fabric.outside([(switch.port(number), b"") for number in range(1, PORTS + 1)])
        outside.transmitters()
        yield fabric, outside


def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let packets go through ctypes, which copies them."""
    monkeypatch.setattr(module, "ferries", lambda: None)


def frames_of(seed: int) -> list[tuple[int, int, bytes]]:
    """Return place, time (ns) and bytes of frames around the length from which they are borrowed, and longer."""
    rng = random.Random(seed)
    at = [0] * PORTS
    made = []
    for _ in range(400):
        place = rng.randrange(PORTS)
        at[place] += rng.randrange(40_000)
        op = rng.choice(OPS)
        second = rng.choice((2, 10, 60, 200, 255)) if op is Op.TRUNCATE else rng.randrange(4)
        head = packet(op, 1 + rng.randrange(PORTS), second=second, priority=rng.randrange(2), stamp=rng.random() < 0.5)
        size = rng.choice((230, 1020, 1023, 1024, 1025, 1202, 1500, 4200, 9000))
        made.append((place, at[place], head + rng.randbytes(size - len(head))))
    return sorted(made, key=lambda each: each[1])


@dataclass
class Seen:
    """Record of a run: arrivals, counters, the trace with its checks of contents, and the captures."""

    arrivals: list[tuple[int, int, bytes, int]]
    counters: list[Any]
    trace: str
    captures: list[bytes]


def run(seed: int, settings: LinkSettings, folder: Path, *, control: str = "", watched: bool = True) -> Seen:
    """Send frames, each in a list of its own pieces, and keep nothing of them."""
    folder.mkdir()
    with hosts(settings) as (fabric, outside):
        ports = [fabric.switch(1).port(number) for number in range(1, PORTS + 1)]
        for port in ports:
            if control == "pfc":
                port.set_pfc(0, PfcSettings(3_000, 1_500, 90_000))
            elif control == "credits":
                port.set_credits(0, CreditSettings(40_960, (0,)))
            if watched:
                port.capture(folder / f"{port.number}.pcapng", snaplen=1400)
        if watched:
            fabric.trace(folder / "trace")
        outside.transmitters()
        found = []
        for place, at_ns, frame in frames_of(seed):
            limit = max(at_ns, outside.now_ns)
            found += outside.exchange(words(place, len(frame), limit, 0), [frame[:30], frame[30:]], limit)
        while outside.now_ns < END_NS:
            found += outside.exchange(words(), [], END_NS)
        for port in ports if watched else ():
            port.capture(None)
        fabric.trace(None)
        files = [path.read_bytes() for path in sorted(folder.glob("*.pcapng"))]
        captures = [capture[capture.index(b"\x06\0\0\0") :] for capture in files]
        trace = (folder / "trace").read_text() if watched else ""
        return Seen(found, [fabric.switch(1).stats(), [port.stats() for port in ports]], trace, captures)


@pytest.mark.parametrize("watched", [True, False])
@pytest.mark.parametrize("control", ["", "pfc", "credits"])
@pytest.mark.parametrize("settings", [CLEAN, IMPAIRED], ids=["clean", "impaired"])
def test_borrowed_packets_do_as_copied_ones(
    settings: LinkSettings, control: str, watched: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    borrowed = run(11, settings, tmp_path / "borrowed", control=control, watched=watched)
    copied(monkeypatch)
    other = run(11, settings, tmp_path / "copied", control=control, watched=watched)
    assert borrowed == other
    assert len(borrowed.arrivals) > 200
    assert any(len(data) > 4000 for _, _, data, _ in borrowed.arrivals)


def test_a_sender_that_keeps_its_packet_keeps_its_bytes() -> None:
    """The program stamps what it forwards; a receiver may get the sender's object only where nobody else has it."""
    kept = packet(Op.FORWARD, 2, size=60) + random.Random(1).randbytes(2000)
    before = bytes(bytearray(kept))
    with hosts(CLEAN) as (_, outside):
        found = outside.exchange(words(0, len(kept), 0, 0), [kept], END_NS)
        (arrived,) = [data for *_, data, _ in found]
        assert kept == before
        assert arrived != kept
        assert arrived[60:] == kept[60:]


def test_a_receiver_gets_the_object_that_nobody_else_has() -> None:
    with hosts(CLEAN) as (_, outside):
        parts = [packet(Op.FORWARD, 2, size=60) + bytes(2000)]
        hash(parts[0])
        address = id(parts[0])
        assert outside.exchange(words(0, len(parts[0]), 0, 0), parts, 0) == []
        parts.clear()
        ((_, _, arrived, _),) = outside.exchange(words(), [], END_NS)
        assert id(arrived) == address
        assert hash(arrived) == hash(bytes(bytearray(arrived)))
        assert arrived != packet(Op.FORWARD, 2, size=60) + bytes(2000)


def test_two_receivers_have_an_object_each() -> None:
    with hosts(CLEAN) as (_, outside):
        parts = [packet(Op.MULTICAST, 1, size=60) + bytes(2000)]
        outside.exchange(words(0, len(parts[0]), 0, 0), parts, 0)
        parts.clear()
        found = []
        while outside.now_ns < END_NS:
            found += outside.exchange(words(), [], END_NS)
        assert [place for _, place, _, _ in found] == [1, 2]
        assert found[0][2] != found[1][2]
        assert found[0][2][60:] == found[1][2][60:] == bytes(2000)


def test_pieces_are_cut_anywhere() -> None:
    """Two packets in one object, and one in two: only a packet with an end of an object for itself is borrowed."""
    rng = random.Random(7)
    first, second = (packet(Op.FORWARD, 2, size=60, stamp=False) + rng.randbytes(2000) for _ in range(2))
    for parts in ([first + second], [first[:600], first[600:] + second], [first, second[:1000], second[1000:]]):
        with hosts(CLEAN) as (_, outside):
            found = outside.exchange(words(0, 2060, 0, 0, 0, 2060, 5, 0), parts, 0)
            parts.clear()  # so that nobody else has the objects
            while outside.now_ns < END_NS:
                found += outside.exchange(words(), [], END_NS)
            assert [data for *_, data, _ in found] == [first, second]


def test_what_is_borrowed_is_given_back() -> None:
    """References of the sender's object: delivered, dropped, lost with a link, and under way when the fabric closes."""
    frame = packet(Op.FORWARD, 2, size=60) + bytes(2000)
    dropped = packet(Op.DROP, 2, size=60) + bytes(2000)
    alone = sys.getrefcount(frame)
    with hosts(LinkSettings(delay_ns=1000)) as (fabric, outside):
        parts = [frame] * 10 + [dropped] * 600
        outside.exchange(words(*[word for at in range(610) for word in (0, 2060, at, 0)]), parts, 0)
        parts.clear()
        assert (sys.getrefcount(frame), sys.getrefcount(dropped)) == (alone + 10, alone + 600)
        assert outside.exchange(words(), [], 1_500) == []
        while len(outside.exchange(words(), [], END_NS)) < 10:
            pass
        assert (sys.getrefcount(frame), sys.getrefcount(dropped)) == (alone + 10, alone)
        outside.exchange(words(), [], END_NS)
        assert sys.getrefcount(frame) == alone
        for lost in (True, False):
            outside.exchange(words(*(0, 2060, END_NS, 0) * 300), [frame] * 300, END_NS)
            assert sys.getrefcount(frame) == alone + 300
            if lost:
                fabric.switch(1).port(1).set_up(False)
                outside.exchange(words(), [], END_NS)
                assert sys.getrefcount(frame) == alone
                fabric.switch(1).port(1).set_up(True)
    assert sys.getrefcount(frame) == alone


def test_what_a_refused_frame_follows_is_given_back_once() -> None:
    frame = packet(Op.FORWARD, 2, size=60) + bytes(2000)
    alone = sys.getrefcount(frame)
    with hosts(CLEAN) as (_, outside):
        with pytest.raises(FabricError, match="1 ns"):
            outside.exchange(words(0, 2060, 2, 0, 0, 2060, 1, 0), [frame, frame], END_NS)
        assert sys.getrefcount(frame) == alone + 1
        assert len(outside.exchange(words(), [], END_NS)) == 1
    assert sys.getrefcount(frame) == alone


def test_a_list_that_another_thread_empties_is_not_read_again() -> None:
    """The exchange has begun, and waits for the fabric."""
    frame = packet(Op.FORWARD, 2, size=60) + bytes(2000)
    alone = sys.getrefcount(frame)
    with hosts(CLEAN) as (fabric, outside), ThreadPoolExecutor(1) as pool:
        parts = [frame]
        with fabric._core.lock():
            found = pool.submit(outside.exchange, words(0, 2060, 0, 0), parts, END_NS)
            for _ in range(1000):
                if sys.getrefcount(frame) > alone + 1:
                    break
                time.sleep(0.001)
            parts.clear()
        assert len(found.result()) == 1
        del found
        outside.exchange(words(), [], END_NS)
        assert sys.getrefcount(frame) == alone


def test_little_memory_is_enough_for_any_number_of_packets() -> None:
    with hosts(LinkSettings(delay_ns=1000), memory_bytes=LITTLE_MEMORY) as (_, outside):
        for at_ns in range(0, 5000 * 1000, 1000):
            parts = [packet(Op.DROP, 2, size=60) + bytes(9000)]
            outside.exchange(words(0, 9060, at_ns, 0), parts, at_ns)


def test_the_cpu_gets_the_payload() -> None:
    payload = random.Random(4).randbytes(9000)
    with hosts(CLEAN) as (fabric, outside):
        outside.exchange(words(0, 9060, 0, 0), [packet(Op.FORWARD, CPU, size=60) + payload], END_NS)
        (told,) = fabric.notifications(timeout_s=1)
        assert told.data[60:] == payload


PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header h_t { bit<8> port; bit<8> blocks; bit<16> sum; }
header block_t { bit<1024> data; }
struct headers_t { h_t h; block_t[3] block; }
struct meta_t {}
parser P(packet_in p, out headers_t h, inout meta_t m, inout standard_metadata_t s) {
    state start { p.extract(h.h); transition select(h.h.blocks) { 0: accept; 9: accept; default: more; } }
    state more { p.extract(h.block.next); transition select(h.block.lastIndex) { 2: accept; default: more; } }
}
control V(inout headers_t h, inout meta_t m) { apply {} }
control I(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply {
        if (s.parser_error != error.NoError) { mark_to_drop(s); } else { s.egress_spec = (bit<9>)h.h.port; }
        if (h.block[2].isValid()) { h.block[2].data = h.block[2].data ^ 1; }
    }
}
control E(inout headers_t h, inout meta_t m, inout standard_metadata_t s) {
    apply { if (h.h.blocks == 9) { h.h.blocks = 3; recirculate_preserving_field_list(0); } }
}
control C(inout headers_t h, inout meta_t m) { apply { SUM } }
control D(packet_out p, in headers_t h) { apply { p.emit(h); } }
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""
SUM = "update_checksum_with_payload(h.h.isValid(), { h.h.port, h.h.blocks }, h.h.sum, HashAlgorithm.csum16);"
#: Of a header that is not there.
OTHER_SUM = "update_checksum(h.block[0].isValid(), { h.h.port, h.h.blocks }, h.h.sum, HashAlgorithm.csum16);"


def program(folder: Path, checksum: str) -> LoadedProgram:
    """Compile the program."""
    path = folder / "borrowed.p4"
    path.write_text(PROGRAM.replace("SUM", checksum))
    return load_program(load_source(path).bmv2, name="borrowed")


def internet_checksum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def test_headers_longer_than_what_is_stored_are_parsed(tmp_path: Path) -> None:
    frame = struct.pack(">BBH", 2, 3, 7) + random.Random(2).randbytes(1600)
    with hosts(CLEAN, program(tmp_path, "")) as (_, outside):
        ((_, _, data, _),) = outside.exchange(words(0, len(frame), 0, 0), [frame], END_NS)
        assert data == frame[:387] + bytes([frame[387] ^ 1]) + frame[388:]


def test_they_are_parsed_in_another_round(tmp_path: Path) -> None:
    """The first round leaves the packet borrowed, and makes its headers longer."""
    frame = struct.pack(">BBH", 2, 9, 7) + random.Random(2).randbytes(1600)
    with hosts(CLEAN, program(tmp_path, "")) as (_, outside):
        ((_, _, data, _),) = outside.exchange(words(0, len(frame), 0, 0), [frame], END_NS)
        assert data == frame[:1] + b"\3" + frame[2:387] + bytes([frame[387] ^ 1]) + frame[388:]


@pytest.mark.parametrize("checksums", [SUM, SUM + OTHER_SUM], ids=["one", "two"])
def test_checksums_cover_the_payload_that_is_borrowed(checksums: str, tmp_path: Path) -> None:
    payload = random.Random(3).randbytes(1600)
    with hosts(CLEAN, program(tmp_path, checksums)) as (_, outside):
        frame = struct.pack(">BBH", 2, 0, 0) + payload
        ((_, _, data, _),) = outside.exchange(words(0, len(frame), 0, 0), [frame], END_NS)
        assert data == struct.pack(">BBH", 2, 0, internet_checksum(frame[:2] + payload)) + payload


@pytest.mark.parametrize(
    ("head", "settings", "checksums"),
    [
        (packet(Op.FORWARD, 2), replace(CLEAN, corrupt=1.0), None),
        (packet(Op.FORWARD, CPU), CLEAN, None),
        (packet(Op.CLONE_AND_DROP, second=1), CLEAN, None),
        (packet(Op.RECIRCULATE, 2), CLEAN, None),
        (struct.pack(">BBH", 2, 3, 7), CLEAN, ""),
        (struct.pack(">BBH", 2, 0, 0), CLEAN, SUM),
    ],
    ids=["corrupt", "cpu", "truncated", "recirculated", "headers", "checksum"],
)
def test_what_cannot_be_made_whole_for_want_of_memory_is_dropped(
    head: bytes, settings: LinkSettings, checksums: str | None, tmp_path: Path
) -> None:
    loaded = None if checksums is None else program(tmp_path, checksums)
    with hosts(settings, loaded, LITTLE_MEMORY) as (fabric, outside):
        fabric.trace(tmp_path / "trace")
        found = outside.exchange(words(0, 9060, 0, 0), [head + bytes(9060 - len(head))], END_NS)
        assert (found, fabric.notifications()) == ([], [])
        fabric.trace(None)
        assert (tmp_path / "trace").read_text().count(" drop:memory ") == 1
