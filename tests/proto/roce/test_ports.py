"""RoCE queue pairs whose ports go down and come back: they fail in bounded time or send on the port that works."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from mrc_host.proto.completion import CompletionQueue, CompletionStatus
from mrc_host.proto.config import PortsConfig
from mrc_host.proto.roce.endpoint import FlowControl, RoceConfig, RoceEndpoint
from mrc_host.proto.roce.qp import RoceQueuePair
from mrc_host.proto.timers import TimerQueue

MS = 1_000_000


def pair(ports: int, retry_cnt: int = 7) -> tuple[RoceEndpoint, RoceEndpoint, RoceQueuePair, CompletionQueue]:
    made = [
        RoceEndpoint(
            RoceConfig(bytes(15) + bytes([n]), ports=PortsConfig(count=ports), timeout=8, retry_cnt=retry_cnt),
            random.Random(n),
        )
        for n in (1, 2)
    ]
    queues = [each.create_cq() for each in made]
    qps = [each.create_qp(queue) for each, queue in zip(made, queues, strict=True)]
    documents = [each.local_attributes(qp) for each, qp in zip(made, qps, strict=True)]
    made[0].connect(qps[0], documents[1], 0)
    made[1].connect(qps[1], documents[0], 0)
    return made[0], made[1], qps[0], queues[0]


def test_a_write_without_any_port_ends_when_its_retries_are_over() -> None:
    endpoint, _, qp, cq = pair(1, retry_cnt=1)
    endpoint.set_port_state(0, False, 1000)
    endpoint.post_write(qp, b"x", 0x1000, 1, wr_id=7)
    while (timer := endpoint.next_timer()) is not None and timer < 10 * MS:
        endpoint.handle_timer(timer)
        assert endpoint.datagrams_to_send(0, timer, 9000) == []
    assert [each.status for each in endpoint.poll(cq)] == [CompletionStatus.RETRY_EXC_ERR]
    assert timer is None


def test_a_queue_pair_sends_at_once_when_a_port_returns() -> None:
    endpoint, other, qp, _ = pair(2)
    region = other.register_memory(bytearray(64))
    endpoint.set_port_state(0, False, 1000)
    endpoint.set_port_state(1, False, 1000)
    endpoint.post_write(qp, b"x", region.va, region.rkey, wr_id=7)
    endpoint.set_port_state(0, True, 2000)
    assert len(endpoint.datagrams_to_send(0, 2000, 9000)) == 1
    endpoint.set_port_state(1, True, 3000)
    assert endpoint.datagrams_to_send(1, 3000, 9000) == []


def test_any_port_that_returns_is_used_and_home_is_returned_to() -> None:
    endpoint, other, qp, _ = pair(3)
    region = other.register_memory(bytearray(64))
    home = qp.home_port
    for port in range(3):
        endpoint.set_port_state(port, False, 1000)
    endpoint.post_write(qp, b"x", region.va, region.rkey, wr_id=7)
    third = (home + 2) % 3
    endpoint.set_port_state(third, True, 2000)
    assert len(endpoint.datagrams_to_send(third, 2000, 9000)) == 1
    endpoint.set_port_state(home, True, 3000)
    assert qp.port == home


@pytest.mark.parametrize("left", [0, 1])
def test_an_answer_never_waits_on_a_port_that_is_down(left: int) -> None:
    """A disabled port still receives. `left` ports work: the answer takes one of them, or is dropped without any."""
    endpoint, other, qp, _ = pair(2)
    region = other.register_memory(bytearray(64))
    endpoint.post_write(qp, b"x", region.va, region.rkey, wr_id=7)
    (packet,) = endpoint.datagrams_to_send(qp.port, 1000, 9000)
    other.set_port_enabled(0, False, 2000)
    if not left:
        other.set_port_enabled(1, False, 2000)
    other.receive_datagram(0, packet, 3000)
    assert len(other.datagrams_to_send(1, 3000, 9000)) == left
    for port in (0, 1):
        other.set_port_enabled(port, True, 10_000 * MS)
        assert other.datagrams_to_send(port, 10_000 * MS, 9000) == []


# --- credits ---


def credits(limit: int, used: int) -> bytes:
    """Return the frame by which a switch grants credits of priority 0 (`flow.c` has its form)."""
    body = struct.pack(">HBB", 0x01C0, 0, 1) + struct.pack(">16I", limit, *[0] * 7, used, *[0] * 7)
    return body + zlib.crc32(body).to_bytes(4, "big")


@pytest.mark.parametrize("used", [0, (1 << 32) - 50])
def test_an_update_of_credits_that_was_overtaken_takes_none_back(used: int) -> None:
    flow = FlowControl(TimerQueue(), 0, 10**10, credits=True)
    for limit in (used + 100, used + 90):
        flow.on_frame(credits(limit % (1 << 32), used), 0)
    sent = 0
    while flow.allows(50, 0):
        flow.sent(50)  # one credit
        sent += 1
    assert sent == 100
    flow.on_frame(credits((used + 101) % (1 << 32), used), 0)
    assert flow.allows(50, 0)
    assert not flow.allows(51, 0)
