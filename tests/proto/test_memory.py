"""Memory of programs, and what lies in several places, against plain bytes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.access import Access
from mrc_host.proto import memory
from mrc_host.proto.completion import Completion, CompletionStatus
from mrc_host.proto.events import QpState
from mrc_host.proto.memory import Gather, MemoryFault, MemoryRegion, MemoryTable, Piece, ProcessMemory
from support.proto.story import Story

BASE = 0x7000


class Program(ProcessMemory):
    """A program whose memory begins at `BASE`; it notes what is read of it."""

    def __init__(self, content: bytes) -> None:
        self.content = bytearray(content)
        self.reads: list[tuple[int, int]] = []
        self.gone = False

    def read(self, address: int, size: int) -> bytes:
        if self.gone:
            raise MemoryFault("the program has ended")
        self.reads.append((address - BASE, size))
        return bytes(self.content[address - BASE : address - BASE + size])

    def write(self, address: int, payload: bytes | memoryview) -> bool:
        if not self.gone:
            self.content[address - BASE : address - BASE + len(payload)] = payload
        return not self.gone

    def close(self) -> None:
        self.gone = True


def region_of(program: Program, begin: int, length: int, mapped: tuple[int, int] | None) -> MemoryRegion:
    """Return a region of a program's bytes from `begin` on, of which those of the range `mapped` are mapped here."""
    table = MemoryTable(random.Random(1))
    region = table.register_process(program, BASE + begin, length, 0, Access.LOCAL_WRITE | Access.REMOTE_WRITE, 3)
    assert table.regions == {region.rkey: region}
    assert (region.domain, region.writable) == (3, True)
    if mapped is not None:
        first, end = mapped
        region.view, region.view_at = memoryview(program.content)[begin + first : begin + end], first
    return region


@st.composite
def places(draw: st.DrawFn) -> tuple[int, int, tuple[int, int] | None, int, int]:
    """Return where a region begins, its length, what is mapped of it, and an offset and size inside of it."""
    length = draw(st.integers(1, 40))
    begin = draw(st.integers(0, 60 - length))
    first = draw(st.integers(0, length))
    mapped = draw(st.none() | st.tuples(st.just(first), st.integers(first, length)))
    offset = draw(st.integers(0, length))
    return begin, length, mapped, offset, draw(st.integers(0, length - offset))


@given(places(), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6))
def test_a_programs_bytes_are_read_and_written_wherever_they_are_mapped(
    place: tuple[int, int, tuple[int, int] | None, int, int], slices: list[tuple[int, int]]
) -> None:
    begin, length, mapped, offset, size = place
    program = Program(bytes(range(60)))
    region = region_of(program, begin, length, mapped)
    own = bytes(range(begin, begin + length))
    assert bytes(region.read(offset, size)) == own[offset : offset + size]
    piece = region.piece(offset, size)
    assert len(piece) == size
    for first, end in slices:
        assert bytes(piece[first:end]) == own[offset : offset + size][first:end]
    inside = mapped is not None and mapped[0] <= offset and offset + size <= mapped[1]
    if inside:
        assert program.reads == [] or not size
    elif size:
        assert region.write(offset, bytes(size))
        assert program.content[begin + offset : begin + offset + size] == bytes(size)
        program.gone = True
        assert not region.write(offset, b"x" * size)
        with pytest.raises(MemoryFault):
            region.read(offset, size)


def test_reads_of_a_program_go_ahead_and_stay_inside() -> None:
    program = Program(bytes(200_000))
    piece = region_of(program, 100, 150_000, None).piece(50, 149_000)
    most = memory.READ_AHEAD_BYTES
    for first in range(0, 149_000, 1_000):
        assert len(piece[first : first + 1_000]) == 1_000
    begins = range(0, 149_000, most // 1_000 * 1_000)
    assert program.reads == [(150 + at, min(most, 149_000 - at)) for at in begins]
    program.reads.clear()
    assert len(piece[500:1_500]) == 1_000  # back: it is read anew
    assert program.reads == [(650, most)]


@given(st.lists(st.binary(max_size=6), max_size=6), st.integers(0, 40), st.integers(0, 40))
def test_a_slice_of_several_places_is_that_of_their_bytes(parts: list[bytes], first: int, end: int) -> None:
    program = Program(b"".join(parts))
    whole: list[Piece] = []
    at = 0
    for number, part in enumerate(parts):
        region = region_of(program, at, len(part), None)
        whole.append(region.piece(0, len(part)) if number % 2 else memoryview(part))
        at += len(part)
    gathered = Gather(whole)
    assert len(gathered) == len(b"".join(parts))
    assert bytes(gathered[first:end]) == b"".join(parts)[first:end]


def test_a_slice_in_one_mapped_place_is_not_copied() -> None:
    views = [memoryview(bytearray(b"abc")), memoryview(bytearray(b"def"))]
    for first, end in ((0, 3), (3, 6), (1, 2)):
        found = Gather(views)[first:end]
        assert isinstance(found, memoryview)
        assert found.obj is views[first // 3].obj
    assert isinstance(Gather(views)[2:4], bytes)


def test_ranges_of_programs_stay_within_64_bits_and_a_key_is_kept() -> None:
    table, program = MemoryTable(random.Random(1)), Program(b"")
    top = 1 << 64
    for address, va in ((top - 16, 0), (0, top - 16)):
        region = table.register_process(program, address, 16, va, 0, 0)
        assert 0 <= region.rkey < 1 << 32
        with pytest.raises(ValueError, match="64-bit"):
            table.register_process(program, address, 17, va, 0, 0)
        assert table.find(region.rkey) is region
        again = table.register_process(program, 0, 8, 0, 0, 0, rkey=region.rkey)
        assert table.regions[region.rkey] is again
        assert table.find(region.rkey) is again
        assert table.find(region.rkey ^ 1 << 31) is None
        assert table.find(region.rkey) is again
        table.deregister(region.rkey)
        assert table.find(region.rkey) is None
        assert again.length == 8
    own = table.register(bytearray(16), top - 16, True)
    assert own.va == top - 16
    assert table.register(bytearray(16), 0, True).va == 0


def test_memory_that_is_gone_while_a_packet_is_sent_ends_its_queue_pair_alone() -> None:
    s = Story()
    core = s.connection.source.core
    program = Program(bytes(5000))
    region = MemoryTable(random.Random(1)).register_process(program, BASE, 5000, 0, Access.LOCAL_WRITE, 0)
    remote = s.connection.target.core.register_memory(bytearray(5000))
    program.gone = True
    other = s.bench.connect(s.connection.source, s.connection.target)
    done: list[Completion] = []
    s.requestor_host.on_event = lambda _: done.extend(s.qp.requestor.cq.poll(9))
    core.post_write(s.qp, region.piece(0, 5000), remote.va, remote.rkey, 1)
    s.net.run(max_time_ns=1_000_000)
    assert s.qp.state is QpState.ERROR
    assert other.qp.state is QpState.RTS
    assert [each.status for each in done] == [CompletionStatus.LOC_PROT_ERR]
