"""States, attributes, limits and the order in which things go; what a program does wrong ends its queue pair only."""

from __future__ import annotations

import errno
import pathlib
import time
from collections.abc import Iterator

import pytest

from mrc_host import verbs
from mrc_host.verbs import Access, EventType, QpState, SendFlags, Sge, VerbsError, WcStatus
from support.verbs.bed import Bed, End, bed, ends, join, open_end


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    limits = {
        "programs": 4, "memory": 4 << 20, "queue_pairs": 3, "regions": 4, "completion_queues": 2, "completions": 1024,
        "work_requests": 256, "submissions": 256,
    }  # fmt: skip
    with bed(tmp_path_factory.mktemp("verbs"), verbs=limits) as made:
        yield made


@pytest.fixture
def end(hosts: Bed) -> Iterator[End]:
    made = open_end(hosts.path(0))
    yield made
    made.context.close()


def refused(number: int, words: str) -> pytest.RaisesExc[VerbsError]:
    return pytest.raises(VerbsError, match=words, check=lambda error: error.errno == number)


def test_queue_pair_takes_only_the_allowed_steps_to_rts_and_back(hosts: Bed, end: End) -> None:
    other = open_end(hosts.path(1))
    qp = end.qp
    with refused(errno.EINVAL, "is in RESET; writes need RTS"):
        qp.post_write(end.region.sge(0, 1), 0, 0)
    with refused(errno.EINVAL, "receives need INIT"):
        qp.post_recv()
    with refused(errno.EINVAL, "needs the peer's document"):
        qp.modify(QpState.RTR)
    with refused(errno.EINVAL, "RTS follows RTR"):
        qp.modify(QpState.RTS)
    qp.modify(QpState.INIT, mpr_dest=32, max_wimm_dest=17, dynamic_mpr=True)
    with refused(errno.EINVAL, "INIT follows RESET"):
        qp.modify(QpState.INIT)
    mine, theirs = qp.document(), other.qp.document()
    assert (mine["mpr_dest"], mine["max_wimm_dest"]) == (32, 17)
    qp.modify(QpState.RTR, document=theirs)
    with refused(errno.EINVAL, "mpr_dest|max_wimm_dest is set in RESET, INIT"):
        qp.modify(max_wimm_dest=3)
    with refused(errno.EINVAL, "timeout is 25; allowed: 0 to 24"):
        qp.modify(timeout=25)
    with refused(errno.EINVAL, "no attribute 'colour'"):
        qp.modify(colour=1)
    with refused(errno.EINVAL, r"attributes\['exp_cnt'\] is 'x'; expected: an integer"):
        qp.modify(exp_cnt="x")
    qp.modify(QpState.RTS, timeout=15, linear_cnt=1)
    asked = qp.query()
    assert asked.state is QpState.RTS is qp.state
    assert {name: asked.values[name] for name in ("timeout", "linear_cnt", "mpr_dest", "path_mtu", "dest_qp_num")} == {
        "timeout": 15, "linear_cnt": 1, "mpr_dest": 32, "path_mtu": 4096, "dest_qp_num": other.qp.qp_num,
    }  # fmt: skip
    evs = qp.query_evs()
    assert len(evs) == 32
    assert sum(each.active for each in evs) == 16
    qp.post_recv(5, 3)
    qp.modify(QpState.ERR)
    assert [(each.wr_id, each.status) for each in end.wait(3)] == [(5, WcStatus.WR_FLUSH_ERR)] * 3
    qp.modify(QpState.RESET)
    assert qp.document()["psn"] != mine["psn"]
    other.context.close()


def test_writes_posted_in_error_are_flushed_and_reset_forgets_requests(hosts: Bed, end: End) -> None:
    other = open_end(hosts.path(1))
    join(end, other)
    qp = end.qp
    qp.modify(QpState.ERR)
    qp.post_write(end.region.sge(0, 1), other.region.addr, other.region.rkey, wr_id=7)
    assert [(each.wr_id, each.status) for each in end.wait(1)] == [(7, WcStatus.WR_FLUSH_ERR)]
    qp.modify(QpState.RESET)
    qp.modify(QpState.INIT)
    qp.post_recv(5, 3)
    qp.modify(QpState.RESET)
    qp.modify(QpState.INIT)
    assert end.cq.poll() == []  # IBTA 1.4, 10.3.1: nothing completes on the way to RESET
    for _ in range(3):
        qp.post_recv(6, qp.cap.max_recv_wr)  # the room of what was forgotten is free
        qp.modify(QpState.RESET)
        qp.modify(QpState.INIT)
    end.region.destroy()
    other.context.close()


def test_a_batch_is_taken_before_the_request_that_follows_it(hosts: Bed, end: End) -> None:
    other = open_end(hosts.path(1))
    join(end, other)
    with end.context.batch():
        end.qp.post_write(end.region.sge(0, 1), other.region.addr, other.region.rkey)
        end.qp.destroy()
    assert end.context.query_device().phys_port_cnt == 2  # the program is still connected
    other.context.close()


def test_device_and_port_report_their_attributes(end: End) -> None:
    device = end.context.query_device()
    assert (device.max_qp, device.phys_port_cnt, device.gid, device.max_mpr) == (3, 2, "fd00::1", 255)
    assert device.cap & verbs.DeviceCap.DYNAMIC_MPR
    assert end.context.query_port(1) == verbs.PortAttributes(True, 4096, 1 << 31)
    with refused(errno.EINVAL, "port is 3; it is from 1 to 2"):
        end.context.query_port(3)
    assert verbs.query_version().current == (1, 0, 1)


def test_limits_name_their_key_and_are_given_back(end: End) -> None:
    with refused(errno.ENOMEM, r"this host allows 4194304 to a program \(`agents.verbs.memory`\)"):
        verbs.MemoryRegion(end.domain, 4 << 20)
    for _ in range(20):
        verbs.MemoryRegion(end.domain, 3 << 20).destroy()
    with refused(errno.ENOMEM, r"2 completion queues|3 completion queues; .*`agents.verbs.completion_queues`"):
        for _ in range(3):
            verbs.CompletionQueue(end.context)
    with refused(errno.ENOMEM, r"4 queue pairs; this host allows 3 \(`agents.verbs.queue_pairs`\)"):
        for _ in range(3):
            verbs.QueuePair(end.domain, end.cq)
    with refused(errno.EINVAL, "2048 entries of a completion queue; this host allows 1024"):
        verbs.CompletionQueue(end.context, 2048)
    with refused(errno.EINVAL, "257 work requests of a send queue"):
        verbs.QueuePair(end.domain, end.cq, cap=verbs.QpCap(max_send_wr=257))
    with refused(errno.ENOMEM, "5 memory regions"):
        for _ in range(5):
            verbs.MemoryRegion(end.domain, 1)


def test_program_beyond_the_limit_is_refused_until_another_leaves(hosts: Bed, end: End) -> None:
    others = [verbs.open_device(hosts.path(0)) for _ in range(3)]
    with refused(errno.EMFILE, r"4 programs are connected; .*`agents.verbs.programs`"):
        verbs.open_device(hosts.path(0))
    others.pop().close()
    deadline = time.monotonic() + 120
    while True:
        try:
            others.append(verbs.open_device(hosts.path(0)))
        except VerbsError:
            assert time.monotonic() < deadline
        else:
            break
    for each in others:
        each.close()


def test_object_in_use_cannot_be_destroyed(end: End) -> None:
    with refused(errno.EBUSY, "2 objects are in the protection domain"):
        end.domain.destroy()
    with refused(errno.EBUSY, "1 queue pairs use the completion queue"):
        end.cq.destroy()
    hint = verbs.QpHint(end.context, num_send_peers=3)
    end.qp.modify(hint=hint)
    hint.modify(num_qps_per_peer=2)
    assert hint.query() == {"num_qps_per_peer": 2, "num_send_peers": 3, "num_remote_recv_peers": 0}
    with refused(errno.EBUSY, "1 queue pairs name the hint"):
        hint.destroy()
    end.qp.destroy()
    hint.destroy()
    with refused(errno.EBUSY, "1 completion queues use the channel"):
        end.channel.destroy()
    end.cq.destroy()
    end.channel.destroy()
    end.region.destroy()
    end.domain.destroy()
    for again in (end.qp.destroy, end.cq.destroy, end.region.destroy, end.domain.destroy):
        with refused(errno.EINVAL, "of this program"):
            again()


def test_memory_that_is_being_read_stays(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        for ring in hosts.ends[0]:
            ring.cut = True
        try:
            a.qp.post_write(a.region.sge(0, 8), *a.peer[:2])
            with refused(errno.EBUSY, "1 work requests under way read from the memory region"):
                a.region.destroy()
            (done,) = a.wait()
            assert done.status is WcStatus.RETRY_EXC_ERR
            a.region.destroy()
        finally:
            for ring in hosts.ends[0]:
                ring.cut = False
        event = a.context.get_async_event(30)
        assert event is not None
        while event.type is not EventType.QP_FATAL:  # EVs that seem bad may come before
            event.ack()
            event = a.context.get_async_event(30)
            assert event is not None
        assert (event.element, event.text) == (a.qp.qp_num, "retry counter exceeded")
        with refused(errno.EBUSY, "events of queue pair .* not acknowledged"):
            a.qp.destroy()
        event.ack()
        with refused(errno.EINVAL, "acknowledged before"):
            event.ack()
        while (event := a.context.get_async_event(0)) is not None:
            event.ack()
        a.qp.destroy()
        assert b.context.query_port(2).active


@pytest.mark.parametrize(
    ("local", "status", "why"),
    [
        (lambda end: Sge(end.region.addr, 1, end.region.lkey ^ 1), WcStatus.LOC_PROT_ERR, "no memory region"),
        (lambda end: Sge(end.region.addr - 1, 1, end.region.lkey), WcStatus.LOC_PROT_ERR, "leave the memory region"),
        (lambda end: Sge(end.region.addr, 1 << 17, end.region.lkey), WcStatus.LOC_PROT_ERR, "leave the memory region"),
    ],
)
def test_a_wrong_piece_ends_the_queue_pair_in_order(hosts: Bed, local: object, status: WcStatus, why: str) -> None:
    with ends(hosts) as (a, _):
        a.qp.post_write(a.region.sge(0, 4), *a.peer[:2], wr_id=1)
        a.wait()
        a.qp.post_write(local(a), *a.peer[:2], wr_id=2, flags=SendFlags.NONE)  # type: ignore[operator]
        a.qp.post_write(a.region.sge(0, 4), *a.peer[:2], wr_id=3, flags=SendFlags.NONE)
        assert [(each.wr_id, each.status) for each in a.wait(2)] == [(2, status), (3, WcStatus.WR_FLUSH_ERR)]
        assert why in a.qp.query().why
        event = a.context.get_async_event(30)
        assert event is not None
        assert event.type is EventType.QP_FATAL
        assert why in event.text


def test_what_the_peer_does_not_allow_is_a_remote_error(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        read_only = verbs.MemoryRegion(b.domain, 64, Access.LOCAL_WRITE)
        a.qp.post_write(a.region.sge(0, 4), read_only.addr, read_only.rkey)
        assert a.wait()[0].status is WcStatus.REM_ACCESS_ERR
        assert read_only.read(4) == bytes(4)


def test_a_protection_domain_is_kept_from_the_other(hosts: Bed) -> None:
    """Also between programs: an R_Key of one is no use on a queue pair of another."""
    with ends(hosts) as (a, b):
        other = open_end(hosts.path(1))
        a.qp.post_write(a.region.sge(0, 4), other.region.addr, other.region.rkey)
        assert a.wait()[0].status is WcStatus.REM_ACCESS_ERR
        again = verbs.QueuePair(a.domain, a.cq), verbs.QueuePair(b.domain, b.cq)
        again[0].connect(again[1].document() | {})
        foreign = verbs.MemoryRegion(verbs.ProtectionDomain(a.context), 64)
        again[0].post_write(foreign.sge(), *a.peer[:2])
        assert a.wait()[0].status is WcStatus.LOC_PROT_ERR
        other.context.close()


def test_a_full_completion_queue_ends_its_queue_pairs(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        small = verbs.CompletionQueue(a.context, 4)
        qps = verbs.QueuePair(a.domain, small), verbs.QueuePair(b.domain, b.cq)
        mine = qps[0].document()
        qps[0].connect(qps[1].document())
        qps[1].connect(mine)
        for index in range(6):
            qps[0].post_write(a.region.sge(0, 4), *a.peer[:2], wr_id=index)
        kinds = set()
        while EventType.CQ_ERR not in kinds or EventType.QP_FATAL not in kinds:
            event = a.context.get_async_event(30)
            assert event is not None
            kinds.add(event.type)
            event.ack()
        assert qps[0].query().why.endswith("has overflowed")
        assert [each.wr_id for each in small.poll()] == [0, 1, 2, 3]
        a.qp.post_write(a.region.sge(0, 4), *a.peer[:2])
        assert a.wait()[0].status is WcStatus.SUCCESS, "the program's other queue pairs go on"


def test_port_change_is_reported_to_both_programs(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        hosts.nodes[0].command("port", {"port": 1, "up": False}, time.monotonic_ns())
        try:
            told = a.context.get_async_event(30), b.context.get_async_event(30)
            assert [(each.type, each.element) for each in told if each] == [
                (EventType.PORT_ERR, 2), (EventType.PEER_PORT_ERR, 2),
            ]  # fmt: skip
            assert not a.context.query_port(2).active
            a.qp.post_write(a.region.sge(0, 4), *a.peer[:2])
            assert a.wait()[0].status is WcStatus.SUCCESS
        finally:
            hosts.nodes[0].command("port", {"port": 1, "up": True}, time.monotonic_ns())
        event = a.context.get_async_event(30)
        assert event is not None
        assert event.type is EventType.PORT_ACTIVE


def test_queue_pair_takes_only_an_online_profile_by_name(hosts: Bed, end: End) -> None:
    host = hosts.nodes[0]
    now = time.monotonic_ns()
    host.command("profile_create", {"kind": "ev", "name": "few", "settings": {"count": 8, "active": 4}}, now)
    with refused(errno.EINVAL, "ev profile 'few' is INIT; a queue pair needs it ONLINE"):
        end.qp.modify(ev_profile="few")
    for state in ("OFFLINE", "ONLINE"):
        host.command("profile_state", {"kind": "ev", "name": "few", "state": state}, now)
    end.qp.modify(ev_profile="few")
    other = open_end(hosts.path(1))
    join(end, other)
    assert len(end.qp.query_evs()) == 8
    assert end.qp.query().ev_profile == "few"
    end.qp.post_write(end.region.sge(0, 9), *end.peer[:2])
    assert end.wait()[0].status is WcStatus.SUCCESS
    with refused(errno.EINVAL, "profiles change in RESET and INIT only"):
        end.qp.modify(ev_profile="default")
    other.context.close()


def test_open_device_fails_without_an_agent(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(errno.ENOENT, "no agent answers"):
        verbs.open_device(str(tmp_path / "h9.verbs"))
    monkeypatch.delenv("MRC_DEVICE", raising=False)
    with refused(errno.ENODEV, "which device"):
        verbs.open_device()
