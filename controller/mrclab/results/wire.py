"""Bytes of flows on the wire, from the sizes of headers, and how long packets take on empty, healthy paths."""

from __future__ import annotations

from dataclasses import dataclass, fields

from mrc_host.proto.roce.endpoint import RoceConfig
from mrc_host.proto.wire.fields import HEADERS, MRC_LAYOUTS, ROCE_LAYOUTS, Layout, Opcode, RoceOpcode
from mrc_topo.modes import MODES
from mrc_topo.topology import Topology

ETHERNET_BYTES, ICRC_BYTES, SEGMENT_BYTES = 14, 4, 16


def _size(*names: str) -> int:
    return sum(HEADERS[name].size for name in names)


def _behind_bth(layout: Layout) -> int:
    return sum(header.size for header in layout.headers)


#: What all packets have.
COMMON_BYTES = ETHERNET_BYTES + _size("IPV6", "UDP", "BTH") + ICRC_BYTES
DATA_BYTES = _behind_bth(MRC_LAYOUTS[Opcode.WRITE_MIDDLE])
SACK_BYTES = _behind_bth(MRC_LAYOUTS[Opcode.SACK])
#: Of the first packet of a RoCE write; the others have nothing behind BTH.
ROCE_FIRST_BYTES = _behind_bth(ROCE_LAYOUTS[RoceOpcode.WRITE_FIRST])
ROCE_ACK_BYTES = _behind_bth(ROCE_LAYOUTS[RoceOpcode.ACK])
ROCE_ACK_EVERY: int = {each.name: each.default for each in fields(RoceConfig)}["ack_every"]  # type: ignore[assignment]
#: What steers a packet, by the number of SRv6 carriers: an outer IPv6 header, and an SRH of one segment behind it.
OUTER_BYTES = {0: 0, 1: _size("IPV6"), 2: _size("IPV6", "SRH") + SEGMENT_BYTES}


@dataclass(frozen=True, slots=True)
class Costs:
    """Bytes of a transport on the wire, with Ethernet header: `data_bytes` for a write and `frame_bytes` for
    one full packet of it, of which there are `packets`, `ack_bytes` for each acknowledgement, of which a write has
    `acks`; over `ports` of a host."""

    data_bytes: int
    frame_bytes: int
    ack_bytes: int
    acks: int
    ports: int
    packets: int


def costs(topology: Topology, transport: str, qps_per_peer: int, write_bytes: int) -> Costs:
    """Return the costs of a write, which RoCE cuts into as many parts as it has queue pairs."""
    lab, overhead = topology.lab, topology.lab.link_overhead
    if transport == "roce":
        part = -(-write_bytes // qps_per_peer)
        packets = -(-part // lab.path_mtu)
        frame = COMMON_BYTES + overhead
        data = qps_per_peer * (packets * frame + ROCE_FIRST_BYTES) + write_bytes
        acks = qps_per_peer * -(-packets // ROCE_ACK_EVERY)
        return Costs(
            data,
            frame + lab.path_mtu,
            frame + ROCE_ACK_BYTES,
            acks,
            min(qps_per_peer, lab.planes),
            qps_per_peer * packets,
        )
    frame = COMMON_BYTES + OUTER_BYTES[MODES[lab.routing.mode].carriers] + overhead
    packets = -(-write_bytes // lab.path_mtu)
    data = packets * (frame + DATA_BYTES) + write_bytes
    acks = -(-packets // lab.reliability.sack_every)
    return Costs(data, frame + DATA_BYTES + lab.path_mtu, frame + SACK_BYTES, acks, lab.planes, packets)


def message_bytes(topology: Topology, opcode: Opcode) -> int:
    """Return the bytes of a packet of MRC on the wire, without its payload."""
    lab = topology.lab
    carriers = OUTER_BYTES[MODES[lab.routing.mode].carriers]
    return COMMON_BYTES + carriers + lab.link_overhead + _behind_bth(MRC_LAYOUTS[opcode])


def payload_share(topology: Topology, transport: str, qps_per_peer: int, write_bytes: int) -> float:
    """Return the share of payload in all that a link carries, on which a host sends writes and acknowledges as many."""
    cost = costs(topology, transport, qps_per_peer, write_bytes)
    return write_bytes / (cost.data_bytes + cost.acks * cost.ack_bytes)


def beyond_first(topology: Topology, src: int, dst: int, frame_bytes: int) -> float:
    """Return how long after a packet has left its host it has arrived, s."""
    way = topology.path(src, dst, 0, topology.choices(src, dst, 0)[0])
    links = [topology.links[name].spec for name in way.links]
    delay = sum(link.delay for link in links) / 1e9
    return delay + sum(frame_bytes * 8 / link.rate for link in links[1:])


def alone_ns(topology: Topology, transport: str, qps_per_peer: int, src: int, dst: int, write_bytes: int) -> int:
    """Return the completion time of a write from host to host that has the fabric for itself, ns.

    The port with most of its packets sends them at its rate, headers too; the last full packet goes to the target, on
    the first path of plane 0, and what is behind it there follows; then the acknowledgements come back.
    """
    cost = costs(topology, transport, qps_per_peer, write_bytes)
    roce = transport == "roce"
    packets, turns = cost.packets, -(-cost.packets // cost.ports)
    first = cost.frame_bytes - topology.lab.path_mtu
    last = first + write_bytes - (packets - 1) * topology.lab.path_mtu
    more = ROCE_FIRST_BYTES if roce else 0
    short = packets % cost.ports == 1 % cost.ports
    at_port = (turns - 1) * cost.frame_bytes + (last if short else cost.frame_bytes) + more
    slowest = last + more if packets == 1 else cost.frame_bytes
    # MRC completes a write by an ACK, which follows the SACK of its last packet.
    at_port += cost.ack_bytes + (0 if roce else message_bytes(topology, Opcode.ACK))
    way = beyond_first(topology, src, dst, slowest) + beyond_first(topology, dst, src, cost.ack_bytes)
    return round((at_port * 8 / topology.lab.links.host.rate + way) * 1e9)
