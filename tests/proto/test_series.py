"""Series that progress ends, and what they must not: marks, refusals, allowances, reasons, read-ahead, stamps."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.config import EvConfig, ReliabilityConfig
from mrc_host.proto.events import QpState
from mrc_host.proto.memory import READ_AHEAD_BYTES, ProcessMemory, ProcessPiece
from mrc_host.proto.ports import PortTable
from mrc_host.proto.wire.fields import NackReason, Opcode, SackMark
from support.amount import examples
from support.proto.net import Host, Net
from support.proto.story import WIDE, Story

MS = 1_000_000


class Program(ProcessMemory):
    """The memory of a program, and how often it was read."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads = 0

    def read(self, address: int, size: int) -> bytes:
        self.reads += 1
        return self.data[address : address + size]


@given(st.lists(st.tuples(st.integers(0, 1 << 18), st.integers(0, 5000)), max_size=20), st.booleans())
@settings(max_examples=examples(60))
def test_pieces_of_a_programs_memory_are_its_bytes_in_any_order(pieces: list[tuple[int, int]], mapped: bool) -> None:
    """What is sent again lies before what was read ahead."""
    data = random.Random(1).randbytes(1 << 18)
    view = memoryview(data)[1000:9000] if mapped else memoryview(b"")
    piece = ProcessPiece(Program(data), 0, len(data), view, 1000)
    for first, size in [(0, 4096), (READ_AHEAD_BYTES, 4096), (4096, 4096), *pieces]:
        assert bytes(piece[first : first + size]) == data[first : first + size]


def test_a_programs_memory_is_read_ahead_once() -> None:
    program = Program(bytes(READ_AHEAD_BYTES))
    piece = ProcessPiece(program, 0, READ_AHEAD_BYTES, memoryview(b""), 0)
    for first in range(0, READ_AHEAD_BYTES, 4096):
        _ = piece[first : first + 4096]
    assert program.reads == 1


def test_only_marks_in_a_row_make_an_ev_to_be_skipped_always() -> None:
    one_ev = EvConfig(count=1, active=1, ev_min_active=1)
    story = Story(cc=WIDE, ev=one_ev, reliability=ReliabilityConfig(always_skip_after=3))
    held: list[bytes] = []

    def hold(net: Net, host: Host, port: int, index: int, packet: bytes) -> str | None:
        if host.index:
            return None
        held.append(packet)
        return "drop"

    story.net.rules.append(hold)
    story.bench.post(story.connection, 8 * 4096)
    story.until(lambda: len(held) == 8)
    for packet, marked in zip(held, [1, 1, 0, 1, 1, 1, 1, 0], strict=True):
        arrived = bytes((packet[0], packet[1] | 0x30 * marked)) + packet[2:]
        story.responder_host.core.receive_datagram(0, arrived, story.net.now)
    story.net.touch(story.responder_host)
    story.until(lambda: len(story.sacks()) == 8)
    once, always = SackMark.SKIP_ONCE, SackMark.ALWAYS_SKIP
    marks = [sack.packet.seth.m for sack in story.sacks() if sack.packet.seth is not None]
    assert marks == [once, once, 0, once, once, always, once, 0]


def test_time_without_probes_allows_no_more_of_them_at_once() -> None:
    ports = PortTable(1, 65536, 0, 100_000_000_000)
    now = 10**12
    assert sum(ports.may_probe(0, 80, now) for _ in range(1000)) == 65
    # Eight times the time of a packet on the wire allows the next.
    assert [ports.may_probe(0, 80, now + later) for later in (50, 52)] == [False, True]


def test_the_pause_after_a_refusal_begins_anew_after_progress() -> None:
    story = Story(cc=WIDE)
    core = story.responder_host.core
    core.set_receive_pressure(0, refuse=NackReason.NO_RESOURCE)
    story.bench.post(story.connection, 4096)
    recovery = story.qp.requestor.recovery
    story.until(lambda: recovery.refusals == 3)
    core.set_receive_pressure(0)
    story.bench.run()
    assert recovery.refusals == 0


def test_the_first_reason_to_refuse_a_request_holds_when_the_user_goes() -> None:
    story = Story(cc=WIDE)
    c = story.connection
    closed: list[bool] = []
    story.lose(lambda sent: sent.opcode == Opcode.ACK and sent.host == 1 and not closed)
    write = story.bench.post(c, 1)
    c.target.core.deregister_memory(write.region)
    story.until(lambda: bool(story.packets(Opcode.ACK, host=1)))
    closed.append(True)
    c.target.core.close_qp(c.peer, story.net.now)
    story.net.touch(c.target)
    story.bench.run()
    assert write.status is CompletionStatus.REM_ACCESS_ERR


def test_a_stamp_that_a_held_sack_advances_wraps() -> None:
    story = Story(cc=WIDE, reliability=ReliabilityConfig(service_time=True, sack_every=16, sack_delay_ns=100_000))
    wraps = (0xFFFF << 7) - 20_000
    story.lose(lambda sent: sent.psn == 3 and sent.is_data and story.net.now < wraps + 110_000)

    def write() -> None:
        story.bench.post(story.connection, 3 * 4096)

    story.net.at(wraps, write)
    story.until(lambda: bool(story.sacks()))
    story.net.run(max_time_ns=MS)
    assert story.bench.statuses() == {"SUCCESS": 1}
    assert story.qp.state is QpState.RTS
    stamps = [sack.packet.cc_state.tx_timestamp for sack in story.sacks() if sack.packet.cc_state is not None]
    assert stamps[0] == pytest.approx(65379 + (100_000 >> 7) & 0xFFFF, abs=10)
