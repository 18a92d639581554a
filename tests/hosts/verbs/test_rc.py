"""Reliable connections of RoCE for programs, alone and beside MRC on one host, over the real rings and sockets."""

from __future__ import annotations

import contextlib
import errno
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from mrc_host import verbs
from mrc_host.node.both import BothTransports
from mrc_host.verbs import (
    Access,
    EventType,
    QpState,
    RemoteQp,
    RingOpcode,
    SendFlags,
    SendRequest,
    Sge,
    SharedReceiveQueue,
    VerbsError,
    WcFlags,
    WcOpcode,
    WcStatus,
    Wire,
    layout,
)
from mrc_topo.base import rpc
from support.verbs.bed import Bed, End, bed, ends, join, open_end

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC


@pytest.fixture(scope="module", params=["mrc", "roce"])
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("rc"), transport=request.param) as made:
        yield made


@contextlib.contextmanager
def pair(hosts: Bed, **options: Any) -> Iterator[tuple[End, End]]:
    """Two ends with queue pairs of RoCE, and regions with all rights."""
    with ends(hosts, wire=Wire.ROCE, **options) as made:
        for end in made:
            end.region = verbs.MemoryRegion(end.domain, 1 << 16, ALL)
        made[0].peer, made[1].peer = made[1].region.remote, made[0].region.remote
        yield made


def test_a_message_is_scattered_into_a_receive(hosts: Bed) -> None:
    with pair(hosts) as (a, b):
        data = random.Random(1).randbytes(20_000)
        a.region.write(data)
        b.qp.post_recv(5, local=[b.region.sge(10, 7), b.region.sge(1000, 30_000)])
        b.qp.post_recv(6, local=b.region.sge(0, 5))
        a.qp.post_message([a.region.sge(0, 11_000), a.region.sge(11_000, 9_000)], wr_id=1)
        a.qp.post_message(b"short", imm_data=77, wr_id=2, flags=SendFlags.INLINE | SendFlags.SIGNALED)
        assert [tuple(each) for each in b.wait(2)] == [
            (5, WcStatus.SUCCESS, WcOpcode.RECV, b.qp.qp_num, 20_000, 0, WcFlags.NONE),
            (6, WcStatus.SUCCESS, WcOpcode.RECV, b.qp.qp_num, 5, 77, WcFlags.WITH_IMM),
        ]
        assert b.region.read(7, 10) + b.region.read(19_993, 1000) == data
        assert b.region.read(5) == b"short"
        assert [(each.wr_id, each.opcode) for each in a.wait(2)] == [(1, WcOpcode.SEND), (2, WcOpcode.SEND)]


def test_reads_and_atomics_bring_what_the_peer_has(hosts: Bed) -> None:
    with pair(hosts) as (a, b):
        data = random.Random(2).randbytes(30_000)
        b.region.write(data)
        addr, rkey, _ = a.peer
        a.qp.post_read([a.region.sge(0, 100), a.region.sge(200, 29_900)], addr, rkey, wr_id=1)
        b.region.write(struct.pack("=Q", 40), 40_000)
        number = addr + 40_000
        a.qp.post_atomic(RingOpcode.FETCH_ADD, a.region.sge(50_000, 8), number, rkey, 2, wr_id=2)
        a.qp.post_atomic(RingOpcode.COMPARE_SWAP, a.region.sge(50_008, 8), number, rkey, 42, 7, wr_id=3)
        a.qp.post_send(
            [SendRequest(a.region.sge(50_016, 8), number, rkey, 4, opcode=RingOpcode.COMPARE_SWAP, compare_add=1)]
        )
        found = a.wait(4)
        assert [(each.wr_id, each.status, each.opcode, each.byte_len) for each in found] == [
            (1, WcStatus.SUCCESS, WcOpcode.RDMA_READ, 30_000),
            (2, WcStatus.SUCCESS, WcOpcode.FETCH_ADD, 8),
            (3, WcStatus.SUCCESS, WcOpcode.COMP_SWAP, 8),
            (4, WcStatus.SUCCESS, WcOpcode.COMP_SWAP, 8),
        ]
        assert a.region.read(100) + a.region.read(29_900, 200) == data
        assert struct.unpack("=3Q", a.region.read(24, 50_000)) == (40, 42, 7)
        assert struct.unpack("=Q", b.region.read(8, 40_000)) == (7,)


def test_memory_of_the_program_itself_takes_messages_and_answers(hosts: Bed) -> None:
    with pair(hosts) as (a, b):
        own, theirs = bytearray(9000), bytearray(random.Random(3).randbytes(9000))
        mine = verbs.MemoryRegion.over(a.domain, own, ALL)
        peer = verbs.MemoryRegion.over(b.domain, theirs, ALL)
        a.qp.post_read(mine.sge(0, 4500), peer.addr, peer.rkey)
        a.wait()
        b.qp.post_recv(0, local=peer.sge(4500, 4500))
        own[4500:] = bytes(range(250)) * 18
        a.qp.post_message(mine.sge(4500, 4500))
        b.wait()
        assert own[:4500] == theirs[:4500]
        assert theirs[4500:] == own[4500:]


def test_both_transports_work_side_by_side_and_share_queues_regions_and_numbers(hosts: Bed) -> None:
    with pair(hosts) as (a, b):
        qps: list[tuple[verbs.QueuePair, verbs.QueuePair]] = [(a.qp, b.qp)]
        for wire in (Wire.MRC, Wire.ROCE, Wire.MRC):
            made = tuple(verbs.QueuePair(end.domain, end.cq, wire=wire) for end in (a, b))
            documents = [qp.document() for qp in made]
            made[0].connect(documents[1])
            made[1].connect(documents[0])
            qps.append((made[0], made[1]))
        for index, (mine, theirs) in enumerate(qps):
            theirs.post_recv(index)
            a.region.write(bytes([index + 1]) * 9000, index * 9000)
            mine.post_write_imm(a.region.sge(index * 9000, 9000), a.peer.addr + index * 9000, a.peer.rkey, index)
        assert {(each.wr_id, each.qp_num, each.imm_data) for each in b.wait(4)} == {
            (index, theirs.qp_num, index) for index, (_, theirs) in enumerate(qps)
        }
        assert all(each.status is WcStatus.SUCCESS for each in a.wait(4))
        assert b.region.read(36_000) == b"".join(bytes([index + 1]) * 9000 for index in range(4))
        numbers = [qp.qp_num for qp, _ in qps]
        assert len(set(numbers)) == 4
        node = hosts.nodes[0]
        assert isinstance(node.endpoint, BothTransports)
        statistics = node.endpoint.statistics()
        assert {row.qpn for row in statistics.qps} >= set(numbers)
        assert _command(hosts, "summary")["queue_pairs"] >= 4
        alone = verbs.QueuePair(a.domain, a.cq, wire=Wire.ROCE)
        alone.modify(QpState.INIT)
        with pytest.raises(VerbsError, match="speaks mrc, not RoCE"):
            alone.modify(
                QpState.RTR,
                document={"transport": "mrc", "address": "00" * 16, "qpn": 1, "initial_psn": 1, "mtu": 1},
            )


def _command(hosts: Bed, verb: str, **arguments: Any) -> Any:
    """Give the first host an order over its control socket, as the lab does."""
    client = rpc.Client(hosts.folder / "h0.sock")
    try:
        return client.call(verb, arguments)
    finally:
        client.close()


def test_ports_that_go_down_are_told_to_both_transports_with_one_event(hosts: Bed) -> None:
    with pair(hosts) as (a, _):

        def port() -> int:
            rows = _roce(hosts.nodes[0]).statistics().qps
            return next(int(row.port) for row in rows if row.qpn == a.qp.qp_num)

        home = port()
        _command(hosts, "port", port=home, up=False)
        assert port() != home
        _command(hosts, "port", port=home, up=True)
        assert port() == home
        events = [a.context.get_async_event(30) for _ in range(2)]
        assert [each.type for each in events if each is not None] == [EventType.PORT_ERR, EventType.PORT_ACTIVE]
        a.qp.post_write(a.region.sge(0, 9000), *a.peer[:2])
        assert a.wait()[0].status is WcStatus.SUCCESS
        while (event := a.context.get_async_event(0.1)) is not None:
            assert event.type in (EventType.PEER_PORT_ERR, EventType.PEER_PORT_ACTIVE)


def _roce(node: Any) -> Any:
    return node.endpoint.roce if isinstance(node.endpoint, BothTransports) else node.endpoint


def test_peers_are_named_as_ibv_modify_qp_does(hosts: Bed) -> None:
    with pair(hosts) as made:
        a, b = made
        first, second = (verbs.QueuePair(end.domain, end.cq, wire=Wire.ROCE) for end in made)
        for qp, other, end, psns in ((first, second, b, (111, 222)), (second, first, a, (222, 111))):
            qp.modify(QpState.INIT, qp_access_flags=int(ALL))
            qp.modify(
                QpState.RTR,
                remote=RemoteQp(end.context.address, other.qp_num, psns[1], 1024),
                max_dest_rd_atomic=2,
                min_rnr_timer=3,
            )
        first.modify(QpState.RTS, sq_psn=111, timeout=14, retry_cnt=3, rnr_retry=6, max_rd_atomic=1)
        second.modify(QpState.RTS, sq_psn=222, timeout=14, retry_cnt=3, rnr_retry=6, max_rd_atomic=1)
        values = first.query().values
        assert {name: values[name] for name in ("path_mtu", "sq_psn", "rnr_retry", "dest_qp_num")} == {
            "path_mtu": 1024, "sq_psn": 111, "rnr_retry": 6, "dest_qp_num": second.qp_num,
        }  # fmt: skip
        assert values["remote_address"] == b.context.address
        second.post_recv(1, local=b.region.sge(0, 5000))
        a.region.write(b"named" * 1000)
        first.post_message(a.region.sge(0, 5000))
        b.wait()
        assert b.region.read(5000) == b"named" * 1000
        with pytest.raises(VerbsError, match="max_rd_atomic is set in RESET, INIT, RTR"):
            first.modify(max_rd_atomic=3)
        with pytest.raises(VerbsError, match="no attribute 'mpr'"):
            first.modify(mpr=3)


def test_a_queue_pair_that_was_reset_works_again(hosts: Bed) -> None:
    with pair(hosts) as (a, b):
        b.qp.post_recv(1, 3)
        for end in (a, b):
            end.qp.modify(QpState.ERR)
        assert [each.status for each in b.wait(3)] == [WcStatus.WR_FLUSH_ERR] * 3
        for end in (a, b):
            end.qp.modify(QpState.RESET)
        peers = a.peer, b.peer
        join(a, b)
        a.peer, b.peer = peers
        b.qp.post_recv(9, local=b.region.sge(0, 8))
        a.qp.post_message(b"8 bytes.", flags=SendFlags.INLINE | SendFlags.SIGNALED)
        assert b.wait()[0].wr_id == 9
        assert a.wait()[0].status is WcStatus.SUCCESS


def test_shared_receives_go_to_whoever_is_sent_to(hosts: Bed) -> None:
    with pair(hosts) as (a, b):
        srq = SharedReceiveQueue(b.domain, 8, 2, limit=2)
        links = []
        for _ in range(2):
            mine = verbs.QueuePair(a.domain, a.cq, wire=Wire.ROCE)
            theirs = verbs.QueuePair(b.domain, b.cq, wire=Wire.ROCE, srq=srq)
            documents = mine.document(), theirs.document()
            mine.connect(documents[1])
            theirs.connect(documents[0])
            links.append((mine, theirs))
        for round_ in range(3):  # more than it holds at once: completions give places back
            for number in range(8):
                srq.post_recv([b.region.sge(number * 10, 10)], wr_id=number)
            with pytest.raises(VerbsError, match="no more than 8 receives"):
                srq.post_recv([])
            for number in range(8):
                links[number % 2][0].post_message(bytes([number, round_]), flags=SendFlags.INLINE)
            found = b.wait(8)
            assert [each.wr_id for each in found] == list(range(8))
            assert {each.qp_num for each in found} == {theirs.qp_num for _, theirs in links}
            assert sorted(b.region.read(1, number * 10)[0] for number in range(8)) == list(range(8))
        event = b.context.get_async_event(30)
        assert event is not None
        assert (event.type, event.element) == (EventType.SRQ_LIMIT_REACHED, srq.number)
        assert srq.query().limit == 0
        srq.modify(1)
        assert (srq.query().limit, srq.query().posted, srq.query().max_wr) == (1, 0, 8)
        with pytest.raises(VerbsError, match="2 queue pairs use the shared receive queue"):
            srq.destroy()
        with pytest.raises(VerbsError, match="takes receives of its shared receive queue"):
            links[0][1].post_recv()
        links[0][1].modify(QpState.ERR)
        event = b.context.get_async_event(30)
        assert event is not None
        assert (event.type, event.element) == (EventType.QP_LAST_WQE_REACHED, links[0][1].qp_num)
        event.ack()
        for _, theirs in links:
            theirs.destroy()
        srq.destroy()


def test_mrc_refuses_what_it_cannot_do_and_leaves_the_memory_of_receives_alone(hosts: Bed) -> None:
    with ends(hosts, wire=Wire.MRC) as (a, b):
        b.qp.post_recv(3, local=b.region.sge(0, 100))
        a.qp.post_write_imm([], 0, 0, 5)
        got = b.wait()[0]
        assert (got.wr_id, got.opcode, got.imm_data) == (3, WcOpcode.RECV_RDMA_WITH_IMM, 5)
        a.wait()
        srq = SharedReceiveQueue(a.domain)
        with pytest.raises(VerbsError, match="takes no receives of a shared receive queue") as caught:
            verbs.QueuePair(a.domain, a.cq, wire=Wire.MRC, srq=srq)
        assert caught.value.errno == errno.EOPNOTSUPP
        a.qp.post_message(a.region.sge(0, 1), wr_id=8)
        done = a.wait()[0]
        assert (done.wr_id, done.status, done.opcode) == (8, WcStatus.LOC_QP_OP_ERR, WcOpcode.SEND)
        assert "no operation SEND of a queue pair of mrc" in a.qp.query().why
        for post in (
            lambda: a.qp.post_read(a.region.sge(0, 1), *a.peer[:2]),
            lambda: a.qp.post_atomic(RingOpcode.FETCH_ADD, a.region.sge(0, 8), *a.peer[:2], 1),
        ):
            post()
            assert a.wait()[0].status is WcStatus.LOC_QP_OP_ERR


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ("bounds", WcStatus.LOC_PROT_ERR),
        ("key", WcStatus.LOC_PROT_ERR),
        ("right", WcStatus.LOC_PROT_ERR),
        ("length", WcStatus.LOC_LEN_ERR),
        ("elements", WcStatus.LOC_LEN_ERR),
        ("opcode", WcStatus.LOC_QP_OP_ERR),
        ("none", WcStatus.LOC_QP_OP_ERR),
    ],
)
def test_a_wrong_entry_ends_its_queue_pair_only(hosts: Bed, wrong: str, status: WcStatus) -> None:
    with pair(hosts, cap=verbs.QpCap(max_send_sge=2)) as (a, b):
        place, opcode, count = a.region.sge(0, 8), RingOpcode.FETCH_ADD, 1
        if wrong == "bounds":
            place = Sge(a.region.addr + a.region.length - 7, 8, a.region.lkey)
        elif wrong == "key":
            place = Sge(a.region.addr, 8, b.region.lkey)
        elif wrong == "right":
            place = verbs.MemoryRegion(a.domain, 8, Access.REMOTE_READ).sge()
        elif wrong == "length":
            place = a.region.sge(0, 9)
        elif wrong == "elements":
            count = 3
        elif wrong == "none":
            a.qp = _without_reads(a, b)
        code = 200 if wrong == "opcode" else int(opcode)
        context = a.context
        with context.lock:
            at = context.place()
            entries = context.entries
            layout.REQUEST.pack_into(entries, at, code, 2, count, a.qp.qp_num, 6, a.peer.addr, a.peer.rkey, 0, 0)
            layout.ATOMIC.pack_into(entries, at + layout.ATOMIC_AT, 1, 2)
            for index in range(count):
                where = at + layout.ELEMENTS_AT + index * layout.ELEMENT.size
                layout.ELEMENT.pack_into(entries, where, *place)
            context.submit()
        done = a.wait()[0]
        assert (done.wr_id, done.status) == (6, status)
        assert a.qp.query().state is QpState.ERR
        assert b.region.read(8) == bytes(8)
        other = verbs.QueuePair(a.domain, a.cq, wire=Wire.ROCE)
        other.modify(QpState.INIT)
        assert not any(node.faults for node in hosts.nodes)


def _without_reads(a: End, b: End) -> verbs.QueuePair:
    made = verbs.QueuePair(a.domain, a.cq, wire=Wire.ROCE)
    made.document()
    made.modify(QpState.RTR, document=b.qp.document() | {"initial_psn": 1})
    made.modify(QpState.RTS, max_rd_atomic=0)
    return made


@pytest.mark.parametrize("what", ["unknown", "elements", "full"])
def test_a_wrong_entry_for_a_shared_receive_queue_ends_the_connection(hosts: Bed, what: str) -> None:
    end = open_end(hosts.path(0))
    srq = SharedReceiveQueue(end.domain, 2, 1)
    number = 999_999 if what == "unknown" else srq.number
    count = 2 if what == "elements" else 1
    with end.context.batch():
        for _ in range(3 if what == "full" else 1):
            at = end.context.place()
            layout.REQUEST.pack_into(end.context.entries, at, RingOpcode.SRQ_RECV, 0, count, number, 0, 0, 0, 0, 0)
            end.context.submit()
    with pytest.raises(VerbsError, match=r"shared receive queue|agent is gone"):
        end.context.query_device()
    end.context.close()


def test_a_program_that_dies_is_noticed_by_its_peer_and_frees_everything(hosts: Bed) -> None:
    with pair(hosts) as (a, b):
        srq = SharedReceiveQueue(a.domain, 4)
        verbs.QueuePair(a.domain, a.cq, wire=Wire.ROCE, srq=srq)
        b.qp.post_recv(4)
        a.context.close()
        assert b.wait()[0].status is WcStatus.WR_FLUSH_ERR
        event = b.context.get_async_event(30)
        assert event is not None
        assert event.type is EventType.QP_FATAL
