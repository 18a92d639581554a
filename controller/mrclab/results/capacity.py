"""Use of the capacity of the hosts' ports in a run: payload, what travels beside it, and what stayed unused."""

from __future__ import annotations

from dataclasses import dataclass

from mrc_host.answers import MrcHostStatistics
from mrc_host.proto.wire.fields import Opcode
from mrc_topo.topology import Topology
from mrc_topo.units import format_time
from mrclab.lab import describe
from mrclab.results import wire
from mrclab.results.record import RunResult


@dataclass(frozen=True)
class CapacityUse:
    """Shares of what the ranks' ports could have sent while the ranks worked.

    Attributes:
        payload: what was placed at responders.
        headers: of the packets that carried it, down to Ethernet's.
        answers: SACKs, ACKs and NACKs.
        again: whole packets that were sent more than once, because they were trimmed or lost.
        other: probes and the rest of what the endpoints sent.
        unused: no packet was there to be sent, but for probes of the Clustermapper.
        rtt_ns: mean of the smoothed RTTs to all peers at the end; 0: none was measured.
        window: what the largest window to one destination carries in this RTT; None: no RTT, or none is set.
    """

    payload: float
    headers: float
    answers: float
    again: float
    other: float
    unused: float
    rtt_ns: float
    window: float | None

    def text(self) -> str:
        """Return it in a sentence."""
        told = ", ".join(
            f"{name} {share:.1%}"
            for name, share in (
                ("payload", self.payload),
                ("headers", self.headers),
                ("SACKs, ACKs and NACKs", self.answers),
                ("sent again", self.again),
                ("other", self.other),
                ("unused", self.unused),
            )
        )
        if self.window is None:
            return told
        rtt = format_time(round(self.rtt_ns))
        return f"{told}; at the last RTT, {rtt}, the largest window to one destination carries {self.window:.0%}"


def use_of(result: RunResult, topology: Topology) -> CapacityUse | None:
    """Return what became of the capacity; None where hosts were not counted, or another transport than MRC ran."""
    lab, sent = topology.lab, result.counter("requestor.packets_sent")
    capacity = lab.host_rate_bps * len(result.ranks) * result.busy_s / 8
    counted = {name: result.counter(name) for name in (
        "responder.payload_bytes_placed", "responder.sacks_sent", "responder.acks_sent", "responder.nacks_sent",
        "ports.sent_bytes", "endpoint.datagrams_sent", "retransmissions",
    )}  # fmt: skip
    if not sent or not capacity or None in counted.values():
        return None
    placed, sacks, acks, nacks, on_ports, packets, again = (count or 0 for count in counted.values())
    cost = wire.costs(topology, "mrc", 1, lab.path_mtu)
    around = wire.ETHERNET_BYTES + lab.link_overhead
    headers = (sent - again) * (cost.frame_bytes - lab.path_mtu)
    answers = sacks * cost.ack_bytes + sum(
        count * wire.message_bytes(topology, opcode) for count, opcode in ((acks, Opcode.ACK), (nacks, Opcode.NACK))
    )
    repeated = again * cost.frame_bytes
    carried = on_ports + around * packets
    hosts = [each for each in result.statistics.values() if isinstance(each, MrcHostStatistics)]
    rtts = [peer.cc.srtt_ns for each in hosts for peer in each.peers if peer.cc.srtt_ns]
    rtt_ns = sum(rtts) / len(rtts) if rtts else 0.0
    window_bytes = describe.endpoint_settings(topology, result.clock)["cc"]["max_wnd_bytes"]
    window = None
    if isinstance(window_bytes, int) and rtt_ns:
        window = window_bytes * 8e9 / rtt_ns / lab.host_rate_bps
    return CapacityUse(
        placed / capacity,
        headers / capacity,
        answers / capacity,
        repeated / capacity,
        max(carried - placed - headers - answers - repeated, 0) / capacity,
        max(1 - carried / capacity, 0.0),
        rtt_ns,
        window,
    )
