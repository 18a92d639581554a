"""What programs send arrives: writes, immediates, lists, inline data, batches; over the real rings and sockets."""

from __future__ import annotations

import pathlib
import random
import select
from collections.abc import Iterator

import pytest

from mrc_host import verbs
from mrc_host.verbs import SendFlags, SendRequest, VerbsError, WcFlags, WcOpcode, WcStatus
from support.verbs.bed import Bed, bed, ends


@pytest.fixture(scope="module", params=["mrc", "roce"])
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("verbs"), transport=request.param) as made:
        yield made


@pytest.fixture
def mrc(hosts: Bed) -> Bed:
    if hosts.nodes[0].config.transport != "mrc":
        pytest.skip("of MRC only")
    return hosts


def test_a_write_arrives_and_reports(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        data = random.Random(1).randbytes(20_001)
        a.region.write(data)
        a.qp.post_write(a.region.sge(0, len(data)), b.region.addr + 7, b.region.rkey, wr_id=1 << 63)
        (done,) = a.wait()
        assert done == (1 << 63, WcStatus.SUCCESS, WcOpcode.RDMA_WRITE, a.qp.qp_num, len(data), 0, WcFlags.NONE)
        assert b.region.read(len(data), 7) == data


def test_an_immediate_takes_a_receive(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        b.qp.post_recv(42, 2)
        a.region.write(b"hello")
        a.qp.post_write_imm(a.region.sge(0, 5), a.peer.addr, a.peer.rkey, 0xFFFFFFFE)
        (got,) = b.wait()
        assert got == (42, WcStatus.SUCCESS, WcOpcode.RECV_RDMA_WITH_IMM, b.qp.qp_num, 5, 0xFFFFFFFE, WcFlags.WITH_IMM)
        assert b.region.read(5) == b"hello"
        a.qp.post_write_imm([], 0, 0, 7)
        (got,) = b.wait()
        assert (got.imm_data, got.byte_len) == (7, 0)
        a.wait(2)


def test_a_list_is_gathered_across_packets(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        b.qp.post_recv(1)
        data = random.Random(2).randbytes(40_000)
        a.region.write(data)
        pieces = [(30_000, 5_000), (0, 1), (17, 0), (100, 9_999), (12, 4_096)]
        local = [a.region.sge(*piece) for piece in pieces]
        expected = b"".join(data[offset : offset + size] for offset, size in pieces)
        a.qp.post_write_imm(local, a.peer.addr + 3, a.peer.rkey, 5)
        (got,) = b.wait()
        assert got.byte_len == len(expected)
        assert b.region.read(len(expected), 3) == expected


def test_inline_bytes_may_change_at_once(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        data = bytearray(b"inline")
        a.qp.post_write(data, a.peer.addr, a.peer.rkey, flags=SendFlags.INLINE | SendFlags.SIGNALED)
        data[:] = b"______"
        a.wait()
        assert b.region.read(6) == b"inline"
        with pytest.raises(VerbsError, match="257 bytes inline; at most 256"):
            a.qp.post_write(bytes(257), a.peer.addr, a.peer.rkey, flags=SendFlags.INLINE)


def test_unsignaled_writes_report_nothing_and_free_their_places(hosts: Bed) -> None:
    with ends(hosts, cap=verbs.QpCap(max_send_wr=4)) as (a, _):
        for round_ in range(5):
            for index in range(3):
                a.qp.post_write(a.region.sge(0, 8), *a.peer[:2], wr_id=index, flags=SendFlags.NONE)
            a.qp.post_write(a.region.sge(0, 8), *a.peer[:2], wr_id=100 + round_)
            with pytest.raises(VerbsError, match="4 sends under way") if round_ == 0 else no_error():
                if round_ == 0:
                    a.qp.post_write(a.region.sge(0, 8), *a.peer[:2])
            assert [each.wr_id for each in a.wait()] == [100 + round_]


class no_error:  # noqa: N801 - stands where pytest.raises stands
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_sq_sig_all_reports_every_write(hosts: Bed) -> None:
    with ends(hosts, sq_sig_all=True) as (a, _):
        a.qp.post_write(a.region.sge(0, 8), *a.peer[:2], wr_id=9, flags=SendFlags.NONE)
        assert [each.wr_id for each in a.wait()] == [9]


def test_a_batch_comes_in_order_with_one_wake_up(hosts: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    rung = []
    with ends(hosts) as (a, b):
        b.qp.post_recv(0, 100)
        real = verbs.Context._ring
        monkeypatch.setattr(verbs.Context, "_ring", lambda self: (rung.append(1), real(self)))
        a.qp.post_send(
            SendRequest(a.region.sge(index, 1), a.peer.addr, a.peer.rkey, index, index) for index in range(100)
        )
        assert rung == [1]
        assert [each.imm_data for each in b.wait(100)] == list(range(100))
        assert [each.wr_id for each in a.wait(100)] == list(range(100))


def test_channel_notifies_once_per_request_until_acknowledged(hosts: Bed) -> None:
    with ends(hosts) as (a, b):
        b.qp.post_recv(0, 10)
        b.cq.req_notify()
        assert b.channel.get_cq_event(0.05) is None
        for number in range(2):
            a.qp.post_write_imm([], 0, 0, number)
        assert b.channel.get_cq_event(30) is b.cq
        a.wait(2)
        assert b.channel.get_cq_event(0.05) is None, "one request, one notification"
        assert not select.select([b.channel], [], [], 0)[0]
        with pytest.raises(VerbsError, match="1 notifications are not acknowledged"):
            b.cq.destroy()
        b.cq.ack_events()
        with pytest.raises(VerbsError, match="more than were taken"):
            b.cq.ack_events()
        assert [each.imm_data for each in b.wait(2)] == [0, 1]


def test_solicited_only_notification_ignores_other_completions(mrc: Bed) -> None:
    with ends(mrc) as (a, b):
        b.qp.post_recv(0, 10)
        b.cq.req_notify(solicited_only=True)
        for number, flags in enumerate([SendFlags.SIGNALED, SendFlags.SIGNALED | SendFlags.SOLICITED]):
            assert b.channel.get_cq_event(0) is None
            a.qp.post_write_imm(a.region.sge(0, 9000), *a.peer[:2], number, flags=flags)
            a.wait()
        assert b.channel.get_cq_event(30) is b.cq
        b.cq.ack_events()
        assert [each.wc_flags for each in b.cq.poll()] == [WcFlags.WITH_IMM, WcFlags.WITH_IMM | WcFlags.SOLICITED]
        b.cq.req_notify(solicited_only=True)
        b.qp.modify(verbs.QpState.ERR)
        assert b.channel.get_cq_event(30) is b.cq, "a failure is told, too"
        b.cq.ack_events()


def test_memory_is_the_same_bytes_for_numpy(hosts: Bed) -> None:
    numpy = pytest.importorskip("numpy")
    with ends(hosts) as (a, b):
        mine, theirs = (numpy.frombuffer(end.region.buffer, numpy.float64) for end in (a, b))
        mine[:] = numpy.arange(len(mine))
        a.qp.post_write(a.region.sge(), *a.peer[:2])
        a.wait()
        assert (theirs == mine).all()


def test_large_writes_in_both_directions_arrive_whole(hosts: Bed) -> None:
    with ends(hosts, size=1 << 20) as (a, b):
        half = 1 << 19
        for end in (a, b):
            end.region.write(random.Random(id(end)).randbytes(half))
        for _ in range(8):
            for end in (a, b):
                end.qp.post_write(end.region.sge(0, half), end.peer.addr + half, end.peer.rkey)
        for end in (a, b):
            assert all(each.status is WcStatus.SUCCESS for each in end.wait(8))
        assert b.region.read(half, half) == a.region.read(half)
        assert a.region.read(half, half) == b.region.read(half)


def test_the_package_loads_nothing_of_the_protocol(tmp_path: pathlib.Path) -> None:
    import subprocess
    import sys

    said = subprocess.run(
        [sys.executable, "-c", "import sys, mrc_host.verbs; print([m for m in sys.modules if 'proto' in m])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout == "[]\n"
