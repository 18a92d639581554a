"""Forged packets with right ICRC, addresses, queue pairs and plausible numbers: a transfer ends, well or with a reason.

Once forged port status left a sender without planes, forged SACKs had it probe for ever, and forged transport ACKs
completed writes that never arrived. Forged data always ended in an error: it is refused, or its message is.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from mrc_host.proto.config import EvConfig, ReliabilityConfig, WireConfig
from mrc_host.proto.events import QpState
from support.proto.net import Impairment, NetConfig
from support.proto.workload import Bench

MS = 1_000_000
WRITES = 8


def forged(kind: str, rng: random.Random, bench: Bench) -> tuple[Any, bytes]:
    """Return a packet of a kind in the name of the other end, and the host it goes to."""
    c = bench.connections[0]
    one, two = c.source, c.target
    codec, board = one.core.context.codec, c.qp.requestor.board
    una, nxt = board.una, max(board.nxt, board.una + 1)
    ev = rng.choice(c.qp.evs.universe.values)
    ends, n = two.address + one.address, c.qp.number
    if kind == "status":
        ports = rng.getrandbits(2)
        return one, codec.encode_endpoint_request(ends, 5, 184, rng.getrandbits(16), 0, ports, 5)
    if kind == "sack":
        bitmap = rng.getrandbits(64) & (1 << max(nxt - una - 8, 1)) - 1
        cack = una - 1 + rng.randrange(nxt - una) & 0xFFFFFF
        return one, codec.encode_sack(
            ends,
            5,
            184,
            n,
            0,
            rng.randrange(3),
            0,
            0,
            ev,
            0,
            0,
            cack,
            0,
            0,
            0,
            1,
            bitmap,
            0,
            0,
            0,
            0,
            rng.getrandbits(24),
        )
    if kind == "ack":
        return one, codec.encode_ack(ends, 5, 184, n, rng.randrange(una - 1, nxt) & 0xFFFFFF, 31, rng.getrandbits(16))
    if kind == "nack":
        reason = rng.choice((1, 2, 6, 7, 10, 11))
        return one, codec.encode_nack(ends, 5, 184, n, rng.randrange(una, nxt) & 0xFFFFFF, reason, ev, 0, 0, 0)
    region = rng.choice(bench.writes).region
    psn = c.peer.responder.cack + 1 + rng.randrange(8) & 0xFFFFFF
    return two, codec.encode_data(
        one.address + two.address, 5, 18, rng.randrange(0xC6, 0xCC), c.peer.number, psn, 0, 0, rng.randrange(1, 9), 5,
        region.va, region.rkey, rng.choice((1024, 2048, 5000)), bytes(1024), 0,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["status", "sack", "ack", "nack", "data"])
@pytest.mark.parametrize("seed", range(5))
def test_a_transfer_under_forged_packets_ends(kind: str, seed: int) -> None:
    rng = random.Random(f"forged-{kind}-{seed}")
    bench = Bench(
        NetConfig(planes=2, impairment=Impairment(loss=0.02)),
        seed,
        verify=False,
        wire=WireConfig(mtu=1024),
        reliability=ReliabilityConfig(timeout=8),
        ev=EvConfig(count=16, active=8, ev_min_active=1),
    )
    connection = bench.connect(bench.add_host(), bench.add_host())
    left = 6

    def fire(now: int, what: str, host: Any, port: int, path: int, packet: bytes) -> None:
        nonlocal left
        if what == "received" and left and rng.random() < 0.03:
            left -= 1
            target, made = forged(kind, rng, bench)
            target.core.receive_datagram(port, made, now)

    bench.net.watchers.append(fire)
    for number in range(WRITES):
        bench.post(connection, rng.choice((300, 5_000, 60_000)), immediate=number)
    bench.run(max_time_ns=20_000 * MS, max_events=200_000)
    bench.net.run(max_time_ns=100 * MS)
    if bench.statuses() == {"SUCCESS": WRITES}:
        assert len(connection.immediates) == WRITES  # what was completed has arrived
    else:
        assert connection.qp.state is QpState.ERROR
        assert connection.qp.error is not None
    assert all(host.core.context.counters.faults == 0 for host in bench.net.hosts)
