"""Both ends of a queue pair on one host: packets turn round inside the device, and no link carries them."""

from __future__ import annotations

import contextlib
import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from mrc_host import verbs
from mrc_host.node.host import HostNode
from mrc_host.verbs import Access, RingOpcode, WcStatus, Wire
from mrc_topo.labfile import load_lab
from mrclab.lab.session.virtual import VirtualSession
from support.verbs.bed import Bed, End, bed, join, open_end

ALL = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ | Access.REMOTE_ATOMIC
DATA = random.Random(4).randbytes(50_000)


@pytest.fixture(scope="module", params=["mrc", "roce"])
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("loop"), transport=request.param) as made:
        yield made


def looped(node: HostNode) -> int:
    found: int = node.command("statistics", {}, 0)["endpoint"].get("looped_packets", 0)
    return found


def end(context: verbs.Context, wire: Wire) -> End:
    domain, channel = verbs.ProtectionDomain(context), verbs.CompletionChannel(context)
    cq = verbs.CompletionQueue(context, 1024, channel)
    region = verbs.MemoryRegion(domain, 1 << 16, ALL if wire is Wire.ROCE else Access.LOCAL_WRITE | Access.REMOTE_WRITE)
    return End(context, domain, channel, cq, region, verbs.QueuePair(domain, cq, wire=wire))


@contextlib.contextmanager
def pair(hosts: Bed, wire: Wire, *, programs: int = 1) -> Iterator[tuple[End, End]]:
    """Yield two connected ends on the first host, of one program or of two."""
    contexts = [verbs.open_device(hosts.path(0)) for _ in range(programs)]
    try:
        a, b = end(contexts[0], wire), end(contexts[-1], wire)
        join(a, b)
        yield a, b
    finally:
        for context in contexts:
            context.close()


@pytest.mark.parametrize("wire", [Wire.MRC, Wire.ROCE])
@pytest.mark.parametrize("programs", [1, 2])
def test_a_host_writes_to_itself(hosts: Bed, wire: Wire, programs: int) -> None:
    # The agent runs in another thread: its commands are not for this one.
    before = hosts.nodes[0].datapath.loopback.packets.total()
    with pair(hosts, wire, programs=programs) as (a, b):
        b.qp.post_recv(7, 2)
        a.region.write(DATA)
        a.qp.post_write_imm(a.region.sge(0, len(DATA)), a.peer.addr, a.peer.rkey, 9)
        (got,) = b.wait()
        assert (got.status, got.byte_len, got.imm_data) == (WcStatus.SUCCESS, len(DATA), 9)
        assert b.region.read(len(DATA)) == DATA
        assert [each.status for each in a.wait()] == [WcStatus.SUCCESS]
    assert hosts.nodes[0].datapath.loopback.packets.total() - before > len(DATA) // 4096
    assert not any(ring.dropped for rings in hosts.ends for ring in rings)  # nothing went to a link


def test_a_host_reads_from_itself_and_sends_to_itself(hosts: Bed) -> None:
    with pair(hosts, Wire.ROCE) as (a, b):
        b.region.write(DATA)
        a.qp.post_read(a.region.sge(0, len(DATA)), a.peer.addr, a.peer.rkey)
        a.wait()
        assert a.region.read(len(DATA)) == DATA
        b.region.write(struct.pack("=Q", 40))
        a.qp.post_atomic(RingOpcode.FETCH_ADD, a.region.sge(0, 8), a.peer.addr, a.peer.rkey, 2)
        a.wait()
        assert a.region.read(8) == struct.pack("=Q", 40)
        assert b.region.read(8) == struct.pack("=Q", 42)
        b.qp.post_recv(1, local=b.region.sge(100, 5))
        a.qp.post_message(b"hello", flags=verbs.SendFlags.INLINE)
        assert b.wait()[0].byte_len == 5
        assert b.region.read(5, 100) == b"hello"


def test_a_queue_pair_may_be_its_own_peer(hosts: Bed) -> None:
    """As the queue pairs are with which collective libraries flush the memory of GPUs."""
    with contextlib.closing(verbs.open_device(hosts.path(0))) as context:
        own = end(context, Wire.ROCE)
        own.qp.connect(own.qp.document())
        own.region.write(b"12345678")
        own.qp.post_read(own.region.sge(8, 8), own.region.addr, own.region.rkey)
        assert own.wait()[0].status is WcStatus.SUCCESS
        assert own.region.read(16) == b"12345678" * 2


def test_other_packets_of_the_same_round_go_to_their_link(hosts: Bed) -> None:
    with pair(hosts, Wire.MRC) as (a, b):
        abroad = open_end(hosts.path(1), wire=Wire.MRC)
        with contextlib.closing(abroad.context):
            away = end(a.context, Wire.MRC)
            join(away, abroad)
            for each in (a, away):
                each.region.write(DATA)
                each.qp.post_write(each.region.sge(0, len(DATA)), each.peer.addr, each.peer.rkey)
            for each in (a, away):
                each.wait()
            assert b.region.read(len(DATA)) == abroad.region.read(len(DATA)) == DATA


def write(endpoint: Any, now: int) -> tuple[bytearray, Any]:
    """Begin a write from an endpoint to itself; return where it goes, and the completion queue."""
    cq = endpoint.create_cq()
    qps = [endpoint.create_qp(cq) for _ in range(2)]
    documents = [endpoint.local_attributes(qp) for qp in qps]
    for qp, other in zip(qps, reversed(documents), strict=True):
        endpoint.connect(qp, other, now)
    target = bytearray(len(DATA))
    region = endpoint.register_memory(target)
    endpoint.post_write(qps[0], memoryview(DATA), region.va, region.rkey, 1)
    return target, cq


@pytest.mark.parametrize(("lab", "transport"), [("tiny", "mrc"), ("tiny", "roce"), ("srv6-srh", "mrc")])
def test_a_simulated_host_writes_to_itself(lab: str, transport: str) -> None:
    carried = []
    for writes in (True, False):
        with contextlib.closing(VirtualSession(load_lab(lab), transport)) as session:
            endpoint: Any = session.nodes["h0"].endpoint
            target, cq = write(endpoint, session.now_ns()) if writes else (None, None)
            session.driver.touch("h0")
            session.advance(0.1)
            if writes:
                assert [each.status.name for each in endpoint.poll(cq)] == ["SUCCESS"]
                assert target == DATA
                assert looped(session.nodes["h0"]) > 10
            else:
                assert looped(session.nodes["h0"]) == 0
            ports = (port for device in session.stats().values() for port in device.ports.values())
            carried.append(sum(port.rx_packets for port in ports))
    assert carried[0] == carried[1]  # the Clustermapper's probes
