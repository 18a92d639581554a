"""Random frames and random control operations: nothing crashes, nothing is lost without being counted."""

from __future__ import annotations

import random

import pytest

from p4lite.switch.fabric.fabric import CloneSession, Fabric, FabricError, LinkSettings
from p4lite.switch.fabric.values import BurstLoss, NotificationKind, QueueLimits, Replica
from support.switch.hand_program import HEADER, HandProgram, Op, packet


def random_frame(rng: random.Random) -> bytes:
    size = rng.choice([rng.randrange(0, 80), rng.randrange(0, 1600), rng.randrange(0, 9100)])
    head = bytes([rng.randrange(16), rng.randrange(8), rng.randrange(3), rng.randrange(2), rng.randrange(8)])
    return (head + rng.randbytes(HEADER) + bytes(size))[:size]


def random_settings(rng: random.Random) -> LinkSettings:
    def chance() -> float:
        return rng.choice([0.0, 0.0, 0.3])

    return LinkSettings(
        rate_bps=rng.choice([0, 10**7, 10**9]),
        delay_ns=rng.randrange(1, 5000),
        loss=0.3,  # more than is duplicated: what goes round must die out
        corrupt=chance(),
        duplicate=chance() / 3,
        reorder=chance(),
        reorder_extra_ns=rng.randrange(5000),
        burst_loss=rng.choice([None, BurstLoss(0.2, 0.3)]),
    )


def check_balance(fabric: Fabric, given: int, delivered: int) -> dict[str, int]:
    """Check that all packets are accounted for; return how many ended in each way.

    What came into the fabric, and what the fabric made of it, must be as much as what left, was lost for a named
    reason, ended in its copies, or still waits in a queue.
    """
    notes = fabric.notifications()
    assert fabric.notifications_lost() == 0
    switches = [switch.stats() for switch in fabric.switches.values()]
    ports = [port.stats() for switch in fabric.switches.values() for port in switch.ports.values()]
    came = {
        "given": given,
        "duplicates": sum(port.duplicated for port in ports),
        "clones": sum(each.ingress_clones + each.egress_clones for each in switches),
        "replicas": sum(each.replicas for each in switches),
        "copies missed": sum(each.copies_missed for each in switches),
    }
    went = {
        "delivered": delivered,
        "packet-in": sum(note.kind is NotificationKind.PACKET_IN for note in notes),
        "dropped by switches": sum(sum(each.drops.values()) for each in switches),
        "dropped at ports": sum(sum(port.drops.values()) for port in ports),
        "dropped at other ports": sum(sum(each.other_drops.values()) for each in switches),
        "absorbed": sum(each.absorbed for each in switches),
        "queued": sum(queue.depth_packets for port in ports for queue in port.queues)
        + sum(each.other_queued for each in switches),
    }
    assert sum(came.values()) == sum(went.values()), (came, went)
    return came | went


@pytest.mark.parametrize("case", range(8))
def test_random_operations(case: int, seed: int) -> None:  # noqa: C901 - a branch per operation
    rng = random.Random(seed * 100 + case)
    # With little memory some packets cannot be taken.
    memory = 32 << 20 if case < 6 else 345_000
    fabric = Fabric("virtual", seed=case, memory_limit_bytes=memory)
    program = HandProgram()
    for number in range(3):
        switch = fabric.add_switch(number, priority_queues=2, cpu_port=7, loop_limit=8)
        switch.load(program)  # type: ignore[arg-type]
        for index in range(6):
            switch.add_port(index)
    injected = given = delivered = 0
    for _ in range(1500):
        switch = fabric.switch(rng.randrange(3))
        port = switch.port(rng.randrange(6)) if len(switch.ports) == 6 else next(iter(switch.ports.values()))
        what = rng.randrange(24)
        try:
            if what == 0:
                other = rng.choice(list(fabric.switch(rng.randrange(3)).ports.values()))
                fabric.link(port, other, random_settings(rng))
            elif what == 1 and port.link:
                fabric.unlink(port.link)
            elif what == 2:
                port.set_link(outgoing=random_settings(rng), incoming=random_settings(rng))
            elif what == 3:
                port.set_up(rng.random() < 0.8, rng.choice(["both", "outgoing", "incoming"]))
            elif what == 4 and rng.random() < 0.5:
                switch.set_state(rng.choice(["running", "running", "running", "frozen", "stopped"]))
            elif what == 5 and rng.random() < 0.3:
                switch.restart()
            elif what == 6:
                switch.set_multicast_group(rng.randrange(1, 8), [Replica(rng.randrange(9), 1) for _ in range(4)])
            elif what == 7:
                session = CloneSession(rng.choice([None, 2, 7]), rng.choice([None, 3]), (Replica(1),), 30)
                switch.set_clone_session(rng.randrange(8), session)
            elif what == 8:
                port.set_queue(QueueLimits(rng.randrange(20), rng.randrange(3000)))
            elif what == 9 and rng.random() < 0.3:
                switch.load(program)  # type: ignore[arg-type]
            elif what == 10 and rng.random() < 0.3:
                number = port.number
                switch.remove_port(number)
                switch.add_port(number)
            elif what == 11:
                switch.packet_out(random_frame(rng))
                given += 1
            else:
                free = [p for p in switch.ports.values() if p.link is None]
                fabric.inject(rng.choice(free or [port]), random_frame(rng), fabric.now_ns)
                injected += 1
                given += 1
        except FabricError:
            continue
        delivered += len(fabric.run_until(fabric.now_ns + rng.randrange(3000)))
    # Long enough for every wire to be empty; queues of frozen switches are not.
    delivered += len(fabric.run_until(fabric.now_ns + 10**12))
    assert injected > 200
    parts = check_balance(fabric, given, delivered)
    assert parts["delivered"] and parts["dropped at ports"] and parts["clones"] + parts["replicas"]  # noqa: PT018
    assert sum(s.stats().received for s in fabric.switches.values()) > 100
    fabric.remove_switch(1)
    assert sorted(fabric.switches) == [0, 2]
    fabric.close()


def test_copies_that_memory_has_no_room_for_are_counted() -> None:
    fabric = Fabric("virtual", memory_limit_bytes=400_000)
    switch = fabric.add_switch(0, cpu_port=7)
    switch.load(HandProgram())  # type: ignore[arg-type]
    port = switch.add_port(1)
    port.set_queue(QueueLimits(0, 0))
    switch.set_multicast_group(1, [Replica(1, rid) for rid in range(100)])
    given = 40
    for _ in range(given):
        fabric.inject(port, packet(Op.MULTICAST, 1), fabric.now_ns)
    port.set_link(outgoing=LinkSettings(rate_bps=1000))
    fabric.run_until(0)
    stats = switch.stats()
    # Each packet that was taken asked for a hundred copies: they are made, or missed one by one.
    assert stats.replicas + stats.copies_missed == stats.ingress * 100
    assert stats.drops["memory"] == stats.copies_missed + stats.received - stats.ingress
    assert stats.copies_missed > 100
    check_balance(fabric, given, len(fabric.run_until(10**14)))
    fabric.close()
