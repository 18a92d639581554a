"""Books of a run: what its hosts counted and what its fabric counted, and the identities that both must meet.

`LabCounts` is both books at one moment. `IDENTITIES` is the table of all identities: each yields entries, a number from
one book beside the bounds that follow from the other book or from other counters. The bounds are equal where no packet
was lost or on its way; they differ by the packets whose kind no counter tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from mrc_host.answers import MrcHostStatistics
from mrc_host.node.samples import LOSSES
from mrc_topo.topology import Link
from mrclab.lab.session.base import LabCounts
from mrclab.results.account import Account, Entry
from mrclab.results.balance import Balance, Books
from mrclab.results.rank_identities import durations, goodput, iterations, losses, payload, puts, samples, times
from p4lite.switch.fabric.values import PortStats
from p4lite.switch.targetapi.values import DeviceStats

#: Reasons of drops of packets that a switch has not sent yet; all others are of packets on a link, or at its far end.
_BEFORE_LINK: Final = ("queue_full", "buffer_full", "headroom_full", "pfc_watchdog", "over_buffer")
_FAR_END: Final = "not_running"
#: Differences that are written down for each identity, at most.
_SHOWN: Final = 5


def _dropped(ports: tuple[PortStats, PortStats], reasons: Callable[[str], bool]) -> int:
    before, after = ports
    return sum(count - before.drops.get(why, 0) for why, count in after.drops.items() if reasons(why))


def _on_link(why: str) -> bool:
    return why not in _BEFORE_LINK and why != _FAR_END


def _control(ports: tuple[PortStats, PortStats]) -> int:
    """Return frames of flow control and credits at a port: links carry them, and no counter of packets has them."""
    before, after = ports
    sides = [
        sum(each.pauses_sent + each.resumes_sent + each.pauses_received + each.resumes_received for each in side.pfc)
        + sum(each.updates_sent + each.updates_received for each in side.credits)
        + side.storm_frames
        for side in (before, after)
    ]
    return sides[1] - sides[0]


def _links(account: Account) -> Iterator[Entry]:
    """Yield packets that were put on a link = packets that were taken from it + lost on it + on it now; by link."""
    for link in account.topology.links.values():
        high = account.ports(link.high.node, link.high.port)
        if high is None or any(side.tunnel for side in high):
            continue
        if (host := _host(account, link)) is not None:
            yield from _host_link(account, link, host, high)
        elif (low := account.ports(link.low.node, link.low.port)) is not None:
            ways = _one_way("upwards", low, high, account.moving), _one_way("downwards", high, low, account.moving)
            if account.veth_links:
                left, least, most = (sum(getattr(way, side) for way in ways) for side in ("left", "low", "high"))
                yield Entry(link.name, left, least, most)
            else:
                yield from (replace(way, where=f"{link.name}, {way.where}") for way in ways)


def _host(account: Account, link: Link) -> str | None:
    return link.low.node if link.low.node in account.after.hosts else None


def _one_way(name: str, near: tuple[PortStats, PortStats], far: tuple[PortStats, PortStats], moving: int) -> Entry:
    (near_before, near_after), (far_before, far_after) = near, far
    sent = near_after.tx_packets - near_before.tx_packets + near_after.duplicated - near_before.duplicated
    gone = far_after.rx_packets - far_before.rx_packets + _dropped(far, _FAR_END.__eq__) + _dropped(near, _on_link)
    gone += near_after.on_wire - near_before.on_wire
    slack = _control(near) + _control(far) + moving
    return Entry(name, sent, gone - slack, gone + slack)


def _host_link(account: Account, link: Link, host: str, ports: tuple[PortStats, PortStats]) -> Iterator[Entry]:
    if host not in account.hosts:
        return
    port, (before, after) = link.low.port, ports
    sent = account.grown(host, lambda each: each.links[port].sent_packets)
    sent += after.tx_packets - before.tx_packets + after.duplicated - before.duplicated
    gone = account.grown(host, lambda each: each.links[port].received_packets) + account.unread(host, port)
    gone += after.rx_packets - before.rx_packets + after.on_wire - before.on_wire
    gone += _dropped(ports, lambda why: why not in _BEFORE_LINK)
    slack = account.moving + account.lost_at_hosts
    yield Entry(link.name, sent, gone - slack - _control(ports), gone + slack + _control(ports))


def _waiting(device: DeviceStats) -> int:
    return device.switch.other_queued + sum(q.depth_packets for port in device.ports.values() for q in port.queues)


def _inside(before: DeviceStats, after: DeviceStats) -> int:
    """Return how many packets have ended in a switch, or wait in it now, but for those that it sent."""
    switch, earlier = after.switch, before.switch
    ended = sum(switch.drops.values()) - sum(earlier.drops.values()) + switch.absorbed - earlier.absorbed
    ended += sum(switch.other_drops.values()) - sum(earlier.other_drops.values())
    for number, port in after.ports.items():
        ended += _dropped((before.ports[number], port), _BEFORE_LINK.__contains__)
    return ended + _waiting(after) - _waiting(before)


def _copies(before: DeviceStats, after: DeviceStats) -> int:
    names = ("ingress_clones", "egress_clones", "replicas", "copies_missed")
    return sum(getattr(after.switch, name) - getattr(before.switch, name) for name in names)


def _devices(account: Account) -> Iterator[tuple[str, DeviceStats, DeviceStats]]:
    for name, after in account.after.fabric.items():
        before = account.before.fabric.get(name)
        if before is not None and before.ports.keys() == after.ports.keys():
            yield name, before, after


def _switches(account: Account) -> Iterator[Entry]:
    """Yield packets that a switch received and copies that it made = those that it sent + dropped + that wait in it."""
    if account.topology.lab.switch != "p4lite":
        return
    for name, before, after in _devices(account):
        came = after.switch.received - before.switch.received + _copies(before, after)
        went = after.switch.transmitted - before.switch.transmitted + _inside(before, after)
        yield Entry(name, came, went - account.moving, went + account.moving)


def _planes(account: Account) -> Iterator[Entry]:
    """Yield packets that hosts sent = those that hosts received + dropped by reason + in flight; by plane, in all."""
    topology = account.topology
    devices = list(_devices(account))
    if not account.whole or len(devices) != len(topology.switches) or topology.lab.switch != "p4lite":
        return
    plane_of = {switch.name: switch.plane for switch in topology.switches}
    rows = []
    for plane in range(topology.lab.planes):
        sent = account.grown_sum(lambda each, at=plane: each.links[at].sent_packets)  # type: ignore[misc]
        gone = account.grown_sum(lambda each, at=plane: each.links[at].received_packets)  # type: ignore[misc]
        gone += sum(account.unread(host, plane) for host in account.hosts)
        slack = account.moving + account.lost_at_hosts
        for name, before, after in devices:
            if plane_of[name] != plane:
                continue
            sent += _copies(before, after)
            gone += _inside(before, after)
            for number, port in after.ports.items():
                pair = before.ports[number], port
                sent += port.duplicated - pair[0].duplicated
                gone += _dropped(pair, lambda why: why not in _BEFORE_LINK) + port.on_wire - pair[0].on_wire
                slack += _control(pair)
        rows.append(Entry(f"plane {plane}", sent, gone - slack, gone + slack))
        yield rows[-1]
    sums = [sum(values) for values in zip(*((row.left, row.low, row.high) for row in rows), strict=True)]
    yield Entry("all planes", *sums)


def _missing(account: Account) -> tuple[int, int]:
    """Return how many packets, of whatever kind, the fabric or a host may have lost or holds, and duplicated; before
    the run's beginning those in flight come on top of both."""
    lost = copied = 0
    for _, before, after in _devices(account):
        lost += sum(after.switch.drops.values()) - sum(before.switch.drops.values())
        lost += _waiting(after) + _waiting(before)
        for number, port in after.ports.items():
            lost += (
                _dropped((before.ports[number], port), lambda why: True) + port.on_wire + before.ports[number].on_wire
            )
            copied += port.duplicated - before.ports[number].duplicated
    for host in account.hosts:
        lost += account.grown(host, lambda each: sum(each.drops.values()) + each.endpoint.get("control_overflow", 0))
        lost += sum(account.unread(host, port) for port in range(account.topology.lab.planes))
    return lost + account.lost_at_hosts + account.moving, copied + account.moving


def _all_mrc(account: Account) -> bool:
    """Return whether the queue pairs' counters of all hosts are known, and none broke the protocol: what a responder
    refuses as a violation it counts nowhere else."""
    mrc = account.mrc()
    if len(mrc) != len(account.topology.hosts):
        return False
    return not any(account.responses(host).get("naks_sent", 0) for host in mrc)


def _data(account: Account) -> Iterator[Entry]:
    """Yield data packets that requestors sent = those that responders placed, had, refused or got trimmed + lost."""
    if not _all_mrc(account):
        return
    sent = account.requested("packets_sent")
    arrived = account.responded("packets_placed", "duplicates", "trimmed", "out_of_window", "refused")
    lost, copied = _missing(account)
    yield Entry("all hosts", sent, arrived - copied, arrived + lost)


def _once(account: Account) -> Iterator[Entry]:
    """Yield packets that requestors sent for the first time = those that responders placed + those outstanding."""
    if not _all_mrc(account) or account.requested("requests_flushed"):
        return
    first = account.requested("packets_sent") - account.requested("retransmissions")
    placed = account.responded("packets_placed")
    yield Entry("all hosts", first, placed - _outstanding(account.before), placed + _outstanding(account.after))


def _outstanding(reading: LabCounts) -> int:
    found = [each for each in reading.hosts.values() if isinstance(each, MrcHostStatistics)]
    return sum(qp.outstanding_packets for each in found for qp in each.qps)


def _lost(statistics: MrcHostStatistics) -> int:
    return sum(qp.lost_packets for qp in statistics.qps)


def _retransmissions(account: Account) -> Iterator[Entry]:
    """Yield retransmissions = losses by reason + repeated packets, but for losses that were acknowledged, given up, or
    not sent again yet; by host."""
    for host in account.mrc():
        sent = account.requests(host)
        waiting = account.grown(host, lambda each: _lost(each) if isinstance(each, MrcHostStatistics) else 0)
        due = sum(sent.get(reason, 0) for reason in LOSSES) + sent.get("repeats", 0)
        due -= sent.get("spurious_losses", 0) + sent.get("losses_flushed", 0) + waiting
        yield Entry(host, sent.get("retransmissions", 0), due, due)


def _duplicates(account: Account) -> Iterator[Entry]:
    """Yield duplicates at responders = retransmissions of packets that had arrived = all retransmissions - packets
    that were trimmed or lost."""
    if not _all_mrc(account) or account.requested("requests_flushed"):
        return
    again = account.requested("retransmissions")
    refused = account.responded("trimmed", "out_of_window", "refused")
    lost, copied = _missing(account)
    spare = _outstanding(account.after) + _outstanding(account.before)
    duplicates = account.responded("duplicates")
    yield Entry("all hosts", duplicates, again - refused - lost - spare, again - refused + copied + spare)


#: Answers: what responders count that they sent, and requestors that they got.
_ANSWERS: Final = (
    ("acks_sent", ("acks_received", "bogus_acks")),
    ("sacks_sent", ("sacks_received",)),
    ("nacks_sent", ("nacks_received",)),
)


def _answers(account: Account) -> Iterator[Entry]:
    """Yield answers that responders sent = those that requestors received or could not use + those lost; by kind."""
    if not _all_mrc(account):
        return
    lost, copied = _missing(account)
    useless = account.requested("bogus_sacks")
    for name, names in _ANSWERS:
        got = account.requested(*names)
        yield Entry(name, account.responded(name), got - copied, got + lost + useless)


def _program(account: Account, counter: str) -> int | None:
    if account.emptied or counter not in account.after.program:
        return None
    return account.after.program[counter] - account.before.program.get(counter, 0)


def _trims(account: Account) -> Iterator[Entry]:
    """Yield packets that the P4 program trimmed = trimmed headers that arrived + those lost on the way."""
    trimmed = _program(account, "trimmed")
    if trimmed is None or not _all_mrc(account):
        return
    got = account.responded("trimmed", "trimmed_duplicates")
    lost, copied = _missing(account)
    yield Entry("all switches", trimmed, got - copied, got + lost)


def _marks(account: Account) -> Iterator[Entry]:
    """Yield packets that the P4 program marked = marked packets that arrived + those lost on the way."""
    marked = _program(account, "marked")
    if marked is None or not account.whole:
        return
    if len(account.mrc()) == len(account.hosts):
        if not _all_mrc(account):
            return
        got = account.responded("ecn_marked", "ecn_refused")
        probes = account.requested("probes_sent")
    else:
        got = account.grown_sum(lambda each: each.endpoint.get("ecn_marked", 0))
        probes = 0
    lost, copied = _missing(account)
    yield Entry("all switches", marked, got - copied, got + lost + probes)


@dataclass(frozen=True)
class Identity:
    """A row of the table: its name, and the function that yields its entries (whose docstring says what it is)."""

    name: str
    entries: Callable[[Account], Iterable[Entry]]


IDENTITIES: Final = (
    Identity("packets by link", _links),
    Identity("packets by switch", _switches),
    Identity("packets by plane", _planes),
    Identity("data packets", _data),
    Identity("first transmissions", _once),
    Identity("retransmissions", _retransmissions),
    Identity("duplicates", _duplicates),
    Identity("answers", _answers),
    Identity("losses", losses),
    Identity("trims", _trims),
    Identity("marks", _marks),
    Identity("bytes delivered", goodput),
    Identity("bytes put", puts),
    Identity("payload sent", payload),
    Identity("iterations", iterations),
    Identity("durations", durations),
    Identity("times", times),
    Identity("samples", samples),
)


def balance(account: Account) -> Books:
    """Return the balance of each identity that applies to a run."""
    balances = []
    for identity in IDENTITIES:
        entries = list(identity.entries(account))
        wrong = [entry.text() for entry in entries if not entry.balanced]
        if entries:
            slack = sum(entry.high - entry.low for entry in entries)
            more = [f"and {len(wrong) - _SHOWN} more"] if len(wrong) > _SHOWN else []
            balances.append(Balance(identity.name, len(entries), slack, [*wrong[:_SHOWN], *more]))
    lost = sorted({host.name for host in account.topology.hosts} - set(account.hosts))
    notes = [f"the agent of {', '.join(lost)} was lost or began again, and its counters with it"] if lost else []
    if account.emptied:
        notes.append(f"the program of {', '.join(sorted(account.emptied))} began again, and its counters with it")
    return Books(balances, notes)
