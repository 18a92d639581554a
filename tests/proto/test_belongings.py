"""Completion queues and protection domain of a queue pair, and what it knows of its peer."""

from __future__ import annotations

from typing import Any

import pytest

from mrc_host.proto.completion import CompletionStatus
from mrc_host.proto.config import ReliabilityConfig, WireConfig
from mrc_host.proto.events import QpError, QpState
from support.proto.story import Story


@pytest.mark.parametrize("close", [False, True])
def test_a_queue_pair_that_goes_leaves_both_of_its_completion_queues(close: bool) -> None:
    s = Story()
    core = s.connection.source.core
    queues = [core.create_cq() for _ in range(2)]
    qp, other = core.create_qp(*queues), s.connection.target.core.create_qp(s.connection.peer_cq)
    document = s.connection.target.core.local_attributes(other)
    if close:
        s.connection.target.core.connect(other, core.local_attributes(qp), 0)
        core.connect(qp, document, 0)
    assert [queue.users for queue in queues] == [[qp], [qp]]
    (core.close_qp if close else core.destroy_qp)(qp, 0)
    assert [queue.users for queue in queues] == [[], []]


def test_a_destroyed_queue_pair_that_its_user_still_has_sends_no_more() -> None:
    s = Story()
    s.bench.post(s.connection, 1 << 20)
    s.until(lambda: len(s.sent) > 20)
    s.connection.source.core.destroy_qp(s.qp, s.net.now)
    assert s.qp.state is QpState.RESET
    with pytest.raises(QpError, match="does not belong"):
        s.connection.source.core.destroy_qp(s.qp, s.net.now)
    data = sum(packet.is_data for packet in s.sent)
    s.net.run(max_time_ns=s.net.now + 1_000_000)
    assert sum(packet.is_data for packet in s.sent) == data


@pytest.mark.parametrize("domain", [0, 7])
def test_a_peer_reaches_the_memory_of_its_queue_pairs_domain_alone(domain: int) -> None:
    s = Story()
    core, peer = s.connection.source.core, s.connection.target.core
    qp, other = core.create_qp(core.create_cq()), peer.create_qp(peer.create_cq(), domain=7)
    documents = core.local_attributes(qp), peer.local_attributes(other)
    core.connect(qp, documents[1], 0)
    peer.connect(other, documents[0], 0)
    region = peer.register_memory(bytearray(100), domain=domain)
    done: list[Any] = []
    s.requestor_host.on_event = lambda _: done.extend(core.poll(qp.requestor.cq))
    core.post_write(qp, b"x" * 100, region.va, region.rkey, 1)
    s.net.touch(s.requestor_host)
    s.net.run(max_time_ns=1_000_000)
    expected = CompletionStatus.SUCCESS if domain == 7 else CompletionStatus.REM_ACCESS_ERR
    assert [each.status for each in done] == [expected]
    assert bytes(region.view) == (b"x" if domain == 7 else bytes(1)) * 100


@pytest.mark.parametrize(("theirs", "mtu"), [(256, 256), (4096, 1024)])
def test_a_named_peer_has_the_smaller_mtu_and_answers_trims_as_told(theirs: int, mtu: int) -> None:
    s = Story(wire=WireConfig(mtu=1024))
    core = s.connection.source.core
    qp = core.create_qp(core.create_cq())
    core.local_attributes(qp)
    assert qp.told_status is not None
    core.accept_named(qp, 99, s.connection.target.address, 7, theirs, False, 0)
    assert qp.attributes.mtu == mtu
    assert not qp.attributes.peer_trim_nack
    assert qp.told_status is None


@pytest.mark.parametrize("ours", [False, True])
@pytest.mark.parametrize("theirs", [False, True])
def test_the_service_time_that_the_peer_states_is_the_peers(ours: bool, theirs: bool) -> None:
    s = Story()
    ends = s.connection.source.core, s.connection.target.core
    pairs = [
        end.create_qp(end.create_cq(), reliability=ReliabilityConfig(service_time=states))
        for end, states in zip(ends, (ours, theirs), strict=True)
    ]
    documents = [end.local_attributes(pair) for end, pair in zip(ends, pairs, strict=True)]
    for end, pair, document in zip(ends, pairs, documents[::-1], strict=True):
        end.connect(pair, document, 0)
    assert [pair.attributes.peer_service_time for pair in pairs] == [theirs, ours]
    assert [pair.attributes.service_time for pair in pairs] == [ours, theirs]
