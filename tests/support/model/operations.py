"""What users and operators do to the hosts of a world."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from mrc_host.proto.events import QpState
from support.model import make
from support.model.network import sealed
from support.model.scenario import MRC, Op

if TYPE_CHECKING:
    from support.model.world import World


def perform(world: World, op: Op) -> None:  # noqa: C901 - a branch per kind of operation
    """One operation; what is not possible now is left out."""
    kind = op.kind
    if kind in ("post", "post_imm"):
        end = world.end_of(op)
        if end is not None and world.hosts[end.host].stalled_until <= world.now:
            world.post(end, op.size, op.value, kind == "post_imm")
            world.act(world.hosts[end.host])
    elif kind == "renew":
        _renew(world, op)
    elif kind in ("error", "reset", "destroy", "close"):
        end = world.end_of(op)
        if end is not None:
            world.leave(end, kind)
    elif kind in ("deny", "mpr", "deregister", "replace"):
        _adjust(world, op)
    elif kind in ("port_down", "port_up"):
        port(world, op.where, op.value, kind == "port_up", admin=bool(op.side))
    elif kind == "restart":
        restart(world, op.where)
    elif kind in ("stall", "late_timer"):
        stall(world, op.where, op.size, late=kind == "late_timer")
    elif kind == "starve":
        world.hosts[op.where].starved = True
    elif kind == "pressure" and world.setup.transport == MRC:
        world.pressure(world.hosts[op.where], op.value, op.size)
    elif kind == "probe" and world.setup.transport == MRC:
        _probe(world, op)
    elif kind == "pause" and world.setup.transport != MRC:
        host = world.hosts[op.where]
        host.endpoint.mac_control(op.value, make.pause(op.size), world.clock(host))
        world.act(host)
    elif kind == "replay":
        _replay(world, op)
    elif kind == "garbage":
        _garbage(world, op)


def _renew(world: World, op: Op) -> None:
    """Give a pair new queue pairs if one of the old ones is unusable."""
    ends = world.pairs[op.where]
    if ends is not None:
        if all(end.in_rts for end in ends):
            return
        for end in ends:
            world.leave(end, "destroy" if op.side else "close")
    world.connect(op.where, op.value)


def _adjust(world: World, op: Op) -> None:
    end = world.end_of(op)
    if end is None or not end.in_rts:
        return
    endpoint = world.hosts[end.host].endpoint
    if op.kind == "deregister":
        if not end.spoiled:
            endpoint.deregister_memory(end.region)
            end.spoiled = True
    elif world.setup.transport == MRC:
        if op.kind == "deny":
            world.deny(end, op.value, not op.size)
        elif op.kind == "replace":
            rows = endpoint.query_evs(end.qp)
            old, values = rows[op.value % len(rows)].ev, {row.ev for row in rows}
            if op.size not in values:
                endpoint.replace_ev(end.qp, old, op.size, world.clock(world.hosts[end.host]))
                world.act(world.hosts[end.host])
        elif end.qp.attributes.dynamic_mpr:
            endpoint.set_mpr(end.qp, op.value)


def _probe(world: World, op: Op) -> None:
    """Request EV probes to all hosts as a controller; each must have one result."""
    host = world.hosts[op.where]
    for number in range(world.setup.hosts):
        for plane in range(world.setup.planes):
            token = host.endpoint.probe_ev(make.address(number), op.value & 0xFFFF, plane, world.clock(host))
            host.probes.add(token)
    world.act(host)


def port(world: World, number: int, plane: int, up: bool, *, admin: bool) -> None:
    """Take a link down or up, physically or as its administrator."""
    host = world.hosts[number]
    now = world.clock(host)
    if admin:
        host.endpoint.set_port_enabled(plane, up, now)
    else:
        down = world.network.links_down
        if up:
            down.discard((number, plane))
        else:
            down.add((number, plane))
        host.endpoint.set_port_state(plane, up, now)
    world.act(host)


def restart(world: World, number: int) -> None:
    """Restart a host's endpoint: it loses its state, and its pending work is not done."""
    host = world.hosts[number]
    for end in host.ends.values():
        end.abandon()
        end.alive = False
        if end.lost_at is None:
            end.lost_at = world.now
    host.stalled_until = -1
    world._start(host)


def stall(world: World, number: int, duration: int, *, late: bool) -> None:
    """Stop a host for a time; afterwards its clock has jumped, and packets are read before its timers, or after
    them.
    """
    host = world.hosts[number]
    host.stalled_until = max(host.stalled_until, world.now + duration)
    host.late = late
    life = host.life
    end = host.stalled_until

    def go_on() -> None:
        if host.life == life and world.now >= host.stalled_until:
            world._wake(host)

    world.plan(end, go_on)


def _replay(world: World, op: Op) -> None:
    """Packets of the past come once more: of this connection, an earlier one, an earlier life."""
    rng = random.Random(op.value)
    network = world.network
    for _ in range(op.size):
        if network.captured:
            dst, plane, packet = rng.choice(network.captured)
            network.inject(dst, plane, packet, world.now + rng.randrange(world.setup.base_rtt_ns))


def _garbage(world: World, op: Op) -> None:
    """Packets of addresses without a connection, and bytes that are no packets."""
    rng = random.Random(op.value)
    network = world.network
    for _ in range(op.size):
        at = world.now + rng.randrange(world.setup.base_rtt_ns)
        plane = rng.randrange(world.setup.planes)
        if network.captured and rng.random() < 0.8:
            dst, plane, packet = rng.choice(network.captured)
            changed = bytearray(packet)
            if rng.random() < 0.5:
                changed[23] ^= 0x40  # another source address
                changed[:] = sealed(bytes(changed)) if len(changed) > 64 else changed
            else:
                del changed[rng.randrange(len(changed)) :]
            network.inject(dst, plane, bytes(changed), at)
        else:
            network.inject(op.where, plane, rng.randbytes(rng.randrange(1, 200)), at)


def heal(world: World) -> None:
    """Heal the network: from here on hosts run, and operators take back what they did."""
    network = world.network
    if world.setup.transport != MRC:
        for host in world.hosts:
            for plane in range(world.setup.planes):
                host.endpoint.mac_control(plane, make.pause(0), world.clock(host))
    network.well = True
    for host in world.hosts:
        host.starved = False
        host.stalled_until = -1
        if world.setup.transport == MRC:
            world.pressure(host, 0, 0)
            # A denial outlives the queue pair that it was given to.
            host.endpoint.deny_evs(host.denied, False, world.clock(host))
        for plane in range(world.setup.planes):
            network.links_down.discard((host.number, plane))
            now = world.clock(host)
            host.endpoint.set_port_state(plane, True, now)
            host.endpoint.set_port_enabled(plane, True, now)
    for ends in world.pairs:
        for end in ends or ():
            if not end.alive:
                continue
            peer = end.peer
            # Receives are posted from INIT on: a side that connects only after this has no other occasion.
            if peer is not None and end.qp.state in (QpState.INIT, QpState.RTR, QpState.RTS):
                owed = sum(1 for posted in peer.posted if posted.immediate is not None)
                for _ in range(owed - end.delivered - len(end.receives)):
                    world.receive(end)
    for host in world.hosts:
        world._wake(host)
