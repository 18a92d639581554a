"""Serial numbers, bitmaps at the wrap, the scoreboard's loss rules, timers, plane balance, memory, trace."""

from __future__ import annotations

import itertools
import json
import random
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_host.proto.completion import Completion, CompletionKind, CompletionQueue, CompletionStatus
from mrc_host.proto.congestion.qpcc import PlaneBalance
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.memory import MemoryTable
from mrc_host.proto.ports import PortTable
from mrc_host.proto.reliability.scoreboard import IN_FLIGHT, LOST, Outstanding, Scoreboard, SendOrder, Transmission
from mrc_host.proto.timers import Timed, TimerKind, TimerQueue
from mrc_host.proto.trace import EVENTS, Tracer
from mrc_host.proto.wire import packet as wire
from mrc_host.proto.wire.fields import Opcode
from mrc_host.proto.wire.psn import PSN_HALF, PSN_MASK, extend, trailing_ones
from mrc_host.proto.work import WriteRequest
from support.proto.net import NetConfig
from support.proto.story import WIDE, Story

REQUEST = WriteRequest(1, memoryview(b""), 0, 0, None)


# --- serial numbers ---


@given(st.integers(0, 1 << 40), st.integers(-PSN_HALF, PSN_HALF - 1))
def test_extend_finds_the_nearest(near: int, distance: int) -> None:
    assert extend((near + distance) & PSN_MASK, near) == near + distance


def test_extend_finds_psns_across_the_wrap() -> None:
    assert extend(0, 0xFFFFFF) == 0x1000000
    assert extend(0xFFFFFF, 0x1000000) == 0xFFFFFF
    assert extend(0xFFFFFF, 0) == -1


@given(st.integers(0, 1 << 200))
def test_trailing_ones_counts_the_lowest_set_bits(bits: int) -> None:
    text = bin(bits)[2:]
    assert trailing_ones(bits) == len(text) - len(text.rstrip("1"))


# --- the responder's bitmap ---


@given(
    first=st.sampled_from((1, 0xFFFFFF - 150, 0xFFFFFF)),
    order=st.permutations(list(range(40))),
    twice=st.sets(st.integers(0, 39), max_size=10),
)
def test_responder_state_is_right_for_any_order_around_the_wrap(first: int, order: list[int], twice: set[int]) -> None:
    """Whatever the order: cack_psn, bitmap and counters are those of the set of PSNs that arrived."""
    s = Story(NetConfig(trim_bytes=None, ecn=None), initial_psn=first, cc=WIDE)
    core, responder = s.connection.target.core, s.connection.peer.responder
    region = core.register_memory(bytearray(40))
    codec = core.context.codec
    ends = s.requestor_host.address + s.responder_host.address
    arrived: set[int] = set()
    arrivals = [i for i in order for _ in range(1 + (i in twice))]
    for i in arrivals:
        core.receive_datagram(
            0,
            codec.encode_data(
                ends, i, 18, Opcode.WRITE_ONLY, s.connection.peer.number, (first + i) & PSN_MASK, 0, 0, i + 1, 0,
                region.va + i, region.rkey, 1, bytes([i + 1]),
            ),
            1_000,
        )  # fmt: skip
        arrived.add(i)
        count = next(n for n in range(41) if n not in arrived)
        assert responder.cack == first - 1 + count
        assert responder.bits == sum(1 << (j - count) for j in arrived if j >= count)
        assert responder.ooo == len([j for j in arrived if j >= count])
        sacks = [p for raw in core.datagrams_to_send(0, 1_000, 10**6) if (p := wire.decode(raw)).seth is not None]
        seth = sacks[-1].seth
        assert seth is not None
        assert seth.cack_psn == (first - 1 + count) & PSN_MASK
        assert (seth.cack_psn + seth.ack_psn_offset) & PSN_MASK == (first + i) & PSN_MASK
        assert seth.sack_bitmap << (seth.sack_offset - 1) == responder.bits
    assert responder.counters.duplicates == len(arrivals) - 40
    assert bytes(region.view) == bytes(range(1, 41))


@given(st.lists(st.integers(0, 300), max_size=60, unique=True), st.randoms(use_true_random=False))
def test_scoreboard_and_responder_agree(lost: list[int], rng: random.Random) -> None:
    """SACKs in any order, some lost: the requestor never believes more than arrived, and in the end all of it."""
    board = Scoreboard(100, 10**6, 3, 1, 7)
    for i in range(301):
        board.add(Transmission(100 + i, i, i % 7, 0, 1000, REQUEST, 0, 1, 0, None))
        board.nxt = 101 + i
    arrived: set[int] = set()
    said = []
    for i in rng.sample(range(301), 301):
        if i in lost:
            continue
        arrived.add(i)
        count = next(n for n in range(302) if n not in arrived)
        bits = sum(1 << (j - count) for j in arrived if j >= count)
        offset = rng.randrange(0, 250)
        said.append((99 + count, 100 + i, 100 + count + offset, bits >> offset & (1 << 64) - 1))
    got: set[int] = set()
    for cack, trigger, base, bitmap in rng.sample(said, len(said)):
        for sent in board.acknowledge(cack, trigger, base, bitmap):
            assert sent.psn - 100 not in got
            got.add(sent.psn - 100)
        assert got <= arrived
        assert board.una - 100 not in arrived or board.una - 100 >= min(set(range(302)) - got)
    assert got == arrived  # every packet triggered a SACK of its own
    assert {sent.psn - 100 for sent in board.outstanding.values()} == set(lost)


# --- loss rules ---


def flight(*rows: tuple[int, int, int]) -> tuple[Scoreboard, dict[int, Transmission]]:
    """Return a scoreboard with transmissions (psn, sent_ns, ev)."""
    board = Scoreboard(rows[0][0], 1_000_000, 2, 1, 10)
    made = {}
    for psn, sent_ns, ev in rows:
        sent = Transmission(psn, sent_ns, ev, 0, 1000, REQUEST, 0, 1, 0, board.last_on_ev[ev])
        board.add(sent)
        board.nxt = psn + 1
        made[psn] = sent
    return board, made


@given(st.lists(st.sampled_from(("append", "append", "drop", "clear")), max_size=60))
def test_order_of_sending_is_a_queue(steps: list[str]) -> None:
    order, model = SendOrder(), deque[Transmission]()
    for psn, step in enumerate(steps):
        if step == "append":
            sent = Transmission(psn, psn, 0, 0, 1000, REQUEST, 0, 1, 0, None)
            order.append(sent)
            model.append(sent)
        elif step == "drop":
            order.drop()
            if model:
                assert model.popleft().later is None
        else:
            order.clear()
            model.clear()
        assert order.all() == list(model)
        assert (order.first, order.last) == ((model[0], model[-1]) if model else (None, None))


def test_a_long_order_is_freed() -> None:
    order = SendOrder()
    for psn in range(300_000):
        order.append(Transmission(psn, psn, 0, 0, 1000, REQUEST, 0, 1, 0, None))
    order.clear()
    assert order.first is None
    for psn in range(300_000):
        order.append(Transmission(psn, psn, 0, 0, 1000, REQUEST, 0, 1, 0, None))
    del order  # without clearing: the runtime bounds its depth


def test_rule_b_takes_what_was_sent_before_on_the_same_ev() -> None:
    board, made = flight((1, 0, 5), (2, 1, 6), (3, 2, 5), (4, 3, 5), (5, 4, 5))
    assert [t.psn for t in board.overtaken(made[4])] == [3, 1]
    assert board.overtaken(made[4]) == []  # the chain is cut
    assert [t.psn for t in board.overtaken(made[5])] == [4]
    assert [each is None for each in board.last_on_ev] == [ev != 6 for ev in range(10)]
    board.clear()
    assert board.last_on_ev == [None] * 10


def before(board: Scoreboard, threshold_ns: int) -> list[int]:
    late: list[Transmission] = []
    board.sent_before(0, threshold_ns, late)
    return [sent.psn for sent in late]


def test_rule_c_goes_by_send_time() -> None:
    board, made = flight((1, 0, 1), (2, 100, 2), (3, 200, 3))
    made[2].state = LOST
    assert before(board, 150) == [1]
    assert before(board, 200) == []
    assert before(board, 201) == [3]


def test_rule_d_timeout_is_linear_then_exponential() -> None:
    board = Scoreboard(1, 1_000_000, 2, 1, 2)
    for count, expected in ((1, 1), (2, 1), (3, 1), (4, 2), (5, 4), (6, 8)):
        sent = Transmission(1, 0, 1, 0, 1000, REQUEST, 0, count, count - 1, None)
        assert board.timeout_of(sent) == expected * 1_000_000
        board.add(sent)
        assert board.timed_out(expected * 1_000_000 - 1) == ([], expected * 1_000_000)
        assert board.timed_out(expected * 1_000_000) == ([sent], None)
    assert IN_FLIGHT == 0  # the data path tests states for truth


# --- timers ---


@given(
    st.lists(st.tuples(st.sampled_from(("arm", "by", "cancel", "all", "pop")), st.integers(0, 3), st.integers(0, 50)))
)
def test_timer_queue_agrees_with_a_model(steps: list[tuple[str, int, int]]) -> None:
    queue = TimerQueue()
    owners = [Timed() for _ in range(4)]
    model: dict[tuple[TimerKind, Timed], int] = {}
    for what, number, time in steps:
        kind, owner = (TimerKind.RETRANSMIT, TimerKind.RESUME)[number % 2], owners[number]  # the first and the last
        if what == "arm":
            queue.arm(kind, owner, time)
            model[kind, owner] = time
        elif what == "by":
            queue.arm_by(kind, owner, time)
            model[kind, owner] = min(time, model.get((kind, owner), time))
        elif what == "cancel":
            queue.cancel(kind, owner)
            model.pop((kind, owner), None)
        elif what == "all":
            queue.cancel_owner(owner)
            model.pop((kind, owner), None)
        else:
            due = queue.pop_due(time)
            if due is None:
                assert not model or min(model.values()) > time
            else:
                assert model.pop(due) <= time
        assert queue.next_deadline() == min(model.values(), default=None)
        assert all(queue.is_armed(kind, owner) == ((kind, owner) in model) for kind in TimerKind for owner in owners)


def test_timers_are_due_in_order_after_dead_entries_were_swept() -> None:
    queue, rng = TimerQueue(), random.Random(1)
    owners = [Timed() for _ in range(200)]
    for _ in range(10):  # they are swept when four of five are dead, and timers are armed after that
        for owner in owners:
            queue.arm(TimerKind.RETRANSMIT, owner, rng.randrange(10**6))
    due = []
    while (deadline := queue.next_deadline()) is not None:
        due.append(deadline)
        assert queue.pop_due(deadline) is not None
    assert due == sorted(due)
    assert len(due) == len(owners)


# --- planes ---


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(100, 4_000)), max_size=300))
def test_no_plane_runs_ahead_by_more_than_the_slack(wishes: list[tuple[int, int]]) -> None:
    balance = PlaneBalance(4, 8_000, 10**9)
    for plane, size in wishes:
        if balance.sent[plane] <= balance.limit or balance.retry(plane, 0):
            balance.sent[plane] += size
        assert max(balance.sent) - min(balance.sent) <= 8_000 + 4_000


def test_a_plane_that_does_not_move_is_not_waited_for() -> None:
    balance = PlaneBalance(2, 1_000, 500)
    balance.sent[0] = 5_000
    assert not balance.retry(0, 100)
    assert balance.deadline() == 600
    assert not balance.retry(0, 599)
    assert balance.retry(0, 600)


def test_a_plane_that_joins_starts_level() -> None:
    balance = PlaneBalance(3, 1_000, 500)
    balance.set_mask(0b011)
    balance.sent[:] = [9_000, 9_500, 0]
    balance.set_mask(0b111)
    assert balance.sent == [9_000, 9_500, 9_000]
    assert balance.limit == 10_000


def test_port_table_tracks_carriers_and_bounds_its_queues() -> None:
    table = PortTable(3, limit=2, status=7, rate_bps=3 * 10**9)
    assert table.mask == 0b111
    assert table.set_state(1, carrier=False)
    assert not table.set_state(1, carrier=False)
    assert (table.mask, table.status) == (0b101, 8)
    for _ in range(3):
        table.enqueue(0, b"x")
    assert (len(table.ports[0].control), table.overflow) == (2, 1)
    table.set_state(0, carrier=False)
    assert not table.ports[0].control


# --- memory and completions ---


@given(st.integers(0, 64), st.integers(-80, 80), st.integers(0, 80))
def test_offset_of_refuses_ranges_outside_the_region(length: int, start: int, size: int) -> None:
    region = MemoryTable(random.Random(1)).register(bytearray(length), 10_000, True)
    offset = region.offset_of(10_000 + start, size)
    assert offset == (start if start >= 0 and start + size <= length else -1)


def test_registered_regions_are_disjoint_and_invalid_ones_refused() -> None:
    table = MemoryTable(random.Random(1))
    regions = [table.register(bytearray(5_000), None, True) for _ in range(20)]
    spans = sorted((r.va, r.va + r.length) for r in regions)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(spans))
    assert len({r.rkey for r in regions}) == 20
    with pytest.raises(ValueError, match="read-only"):
        table.register(memoryview(b"abc"), None, True)
    with pytest.raises(ValueError, match="64-bit"):
        table.register(bytearray(10), (1 << 64) - 9, True)
    table.deregister(regions[0].rkey)
    with pytest.raises(KeyError):
        table.deregister(regions[0].rkey)


def test_completion_queue_keeps_order_and_flags_overflow() -> None:
    cq = CompletionQueue(1, 2)
    one = Completion(1, 1, CompletionKind.WRITE, CompletionStatus.SUCCESS, 1, None)
    assert cq.push(one)
    assert not cq.push(one._replace(wr_id=2))
    assert not cq.overflowed
    assert not cq.push(one._replace(wr_id=3))
    assert cq.overflowed
    assert [c.wr_id for c in cq.poll(1)] == [1]
    assert [c.wr_id for c in cq.poll(9)] == [2]


# --- trace ---


def test_trace_is_json_lines_and_complete() -> None:
    lines: list[str] = []
    s = Story(NetConfig(trim_bytes=None, ecn=None), factory=lambda c, r: Endpoint(c, r, Tracer(lines.append)))
    for path in s.net.paths(group=0):
        path.impair(loss=0.1)
    s.bench.post(s.connection, 400_000, immediate=1)
    s.until(lambda: s.bench.outstanding == 0)
    rows = [json.loads(line) for line in lines]
    assert {row["name"] for row in rows} >= {
        "qp:state", "packet:sent", "packet:lost", "sack:received", "cc:cwnd", "ev:state", "wr:completed",
        "probe:sent",
    }  # fmt: skip
    assert all(row["name"] in EVENTS for row in rows)
    assert [row["t"] for row in rows] == sorted(row["t"] for row in rows)
    lost = [row for row in rows if row["name"] == "packet:lost"]
    assert len(lost) == s.counters.retransmissions
    assert {row["reason"] for row in lost} <= {"nack", "same_ev", "rack", "timeout", "port_down"}
    sent = [row for row in rows if row["name"] == "packet:sent"]
    assert len(sent) == s.counters.packets_sent


def test_trace_can_be_restricted_and_knows_its_events() -> None:
    lines: list[str] = []
    trace = Tracer(lines.append, frozenset(("ev", "packet:lost")))
    trace(1, "ev:state", qpn=1)
    trace(2, "packet:sent", qpn=1)
    trace(3, "packet:lost", qpn=1)
    assert [json.loads(line)["t"] for line in lines] == [1, 3]
    with pytest.raises(KeyError):
        trace(4, "packet:invented")


def test_probes_of_bad_evs_take_an_eighth_of_a_port_at_most() -> None:
    table = PortTable(2, limit=2, status=7, rate_bps=2 * 10**9)  # 1 ns per bit and port
    sent = sum(table.may_probe(0, 125, now) for now in range(0, 8_000_000, 1000))
    assert sent == 1000 + 64  # one in 8 us, and those that may be sent at once
    assert table.may_probe(1, 125, 0), "each port has its own share"


@given(st.integers(0, 1 << 40), st.lists(st.tuples(st.sampled_from(("put", "take", "get")), st.integers(0, 200))))
def test_outstanding_packets_are_kept_by_psn(first: int, steps: list[tuple[str, int]]) -> None:
    request = WriteRequest(1, memoryview(b""), 0, 0, None)
    held, model = Outstanding(), dict[int, Transmission]()
    for step, above in steps:
        psn = first + above
        if step == "put":
            sent = Transmission(psn, 0, 0, 0, 0, request, 0, 1, 0, None)
            held.put(sent)
            model[psn] = sent
        elif step == "take":
            assert held.take(psn) is model.pop(psn, None)
        else:
            assert held.get(psn) is model.get(psn)
        assert len(held) == held.count == len(model)
        assert held.values() == [model[each] for each in sorted(model)]
    held.clear()
    assert not held.values()
    assert not len(held)
    assert all(held.get(first + above) is None for _, above in steps)
