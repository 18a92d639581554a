"""Both transports on one host: an endpoint of each behind one interface, on the same ports, memory and queues.

It is made with the first queue pair of the second transport; until then a host has one endpoint, which is called
directly. Packets are told apart by the opcode of their BTH: those of MRC are 0xC0 to 0xDF, those of RoCE's reliable
connection 0x00 to 0x1F, and its congestion notification packet is 0x81.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from mrc_host.proto.completion import Completion, CompletionQueue
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import Event
from mrc_host.proto.roce.endpoint import RoceEndpoint
from mrc_host.proto.statistics import QpReordering, QpStatistics, RoceQpStatistics, RoceStatistics, Statistics
from mrc_host.proto.stats import RequestorCounters, ResponderCounters
from mrc_host.proto.transport import TransportEndpoint
from mrc_host.proto.wire.fields import NEXT_UDP, RoceOpcode
from mrc_host.proto.wire.icrc import wire_length

_NEXT_HEADER_AT: Final = 6
_OPCODE_AT: Final = 48  # without SRv6, which RoCE does not use here
_ROCE_END: Final = 0x20
_CNP: Final = int(RoceOpcode.CNP)
_NO_REQUESTS: Final = dict.fromkeys(RequestorCounters.names, 0)
_NO_RESPONSES: Final = dict.fromkeys(ResponderCounters.names, 0)


class BothTransports(TransportEndpoint):
    """See the module's docstring. `first` is the host's own transport: it has the completion queues."""

    def __init__(self, mrc: Endpoint, roce: RoceEndpoint, first: Endpoint | RoceEndpoint) -> None:
        """Join two endpoints that share all but their queue pairs (`beside`)."""
        self.mrc = mrc
        self.roce = roce
        self.first = first
        mrc.taken, roce.taken = roce.numbers(), mrc.numbers()

    # --- packets and timers ---

    def receive_datagram(self, port: int, packet: bytes, now: int, missing: int = 0) -> None:
        """See `TransportEndpoint`."""
        if len(packet) > _OPCODE_AT and packet[_NEXT_HEADER_AT] == NEXT_UDP:
            opcode = packet[_OPCODE_AT]
            if opcode < _ROCE_END or opcode == _CNP:
                self.roce.receive_datagram(port, packet, now, missing)
                return
        self.mrc.receive_datagram(port, packet, now, missing)

    def quiet(self) -> bool:
        """See `TransportEndpoint`."""
        return self.mrc.quiet() and self.roce.idle()

    def datagrams_to_send(self, port: int, now: int, budget_bytes: int) -> list[bytes]:
        """See `TransportEndpoint`. Control packets of both wait in the same queue; data takes turns."""
        one: Endpoint | RoceEndpoint = self.mrc
        other: Endpoint | RoceEndpoint = self.roce
        if now & 1:  # neither takes all that there is room for
            one, other = other, one
        packets = one.datagrams_to_send(port, now, budget_bytes)
        left = budget_bytes - sum(map(wire_length, packets))
        if left > 0:
            packets += other.datagrams_to_send(port, now, left)
        return packets

    def next_timer(self) -> int | None:
        """See `TransportEndpoint`."""
        one, other = self.mrc.next_timer(), self.roce.next_timer()
        if one is None or (other is not None and other < one):
            return other
        return one

    def handle_timer(self, now: int) -> None:
        """See `TransportEndpoint`."""
        self.mrc.handle_timer(now)
        self.roce.handle_timer(now)

    def next_event(self) -> Event | None:
        """See `TransportEndpoint`. Both have one queue of events."""
        return self.first.next_event()

    # --- ports ---

    def set_port_state(self, port: int, up: bool, now: int) -> None:
        """See `TransportEndpoint`."""
        before = self.ports_up()[port]
        self.mrc.set_port_state(port, up, now)
        if self.ports_up()[port] != before:
            self.roce.follow_port(port, now)

    def set_port_enabled(self, port: int, enabled: bool, now: int) -> None:
        """See `TransportEndpoint`."""
        before = self.ports_up()[port]
        self.mrc.set_port_enabled(port, enabled, now)
        if self.ports_up()[port] != before:
            self.roce.follow_port(port, now)

    def ports_up(self) -> list[bool]:
        """See `TransportEndpoint`."""
        return self.first.ports_up()

    # --- completions ---

    def create_cq(self, depth: int = 65536) -> CompletionQueue:
        """See `TransportEndpoint`."""
        return self.first.create_cq(depth)

    def poll(self, cq: CompletionQueue, limit: int = 64) -> list[Completion]:
        """See `TransportEndpoint`."""
        return cq.poll(limit)

    # --- statistics ---

    def statistics(self) -> Statistics:
        """Return the statistics of the host's own transport, with the queue pairs of the other one among them.

        Counters of the endpoint of the same name are added up.
        """
        mrc, roce = self.mrc.statistics(), self.roce.statistics()
        endpoint = _sum(mrc.endpoint, roce.endpoint)
        drops = _sum(mrc.drops, roce.drops)
        if self.first is self.roce:
            rows = [*roce.qps, *map(_as_roce, mrc.qps)]
            return RoceStatistics(transport="roce", endpoint=endpoint, drops=drops, ports=roce.ports, qps=rows)
        own = [*mrc.qps, *map(_as_mrc, roce.qps)]
        return replace(mrc, endpoint=endpoint, drops=drops, qps=own)

    def reordering(self) -> Sequence[QpReordering]:
        """See `TransportEndpoint`."""
        return self.mrc.reordering()


def _sum(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {
        name: one.get(name, 0) + other.get(name, 0) for name in [*one, *(each for each in other if each not in one)]
    }


def _as_mrc(row: RoceQpStatistics) -> QpStatistics:
    """Return what there is of a RoCE queue pair in the form of MRC's."""
    return QpStatistics(
        qpn=row.qpn,
        state=row.state,
        error=None,
        peer=None,
        outstanding_packets=0,
        lost_packets=0,
        unacked_requests=row.outstanding,
        srtt_ns=0,
        ev_states={},
        ev_active=[],
        requestor={
            **_NO_REQUESTS, "packets_sent": row.packets_sent, "retransmissions": row.retransmissions,
        },
        responder=_NO_RESPONSES,
    )  # fmt: skip


def _as_roce(row: QpStatistics) -> RoceQpStatistics:
    """Return what there is of an MRC queue pair in the form of RoCE's."""
    return RoceQpStatistics(
        qpn=row.qpn,
        state=row.state,
        port=0,
        entropy=0,
        rate_bps=0,
        packets_sent=row.requestor["packets_sent"],
        retransmissions=row.requestor["retransmissions"],
        outstanding=row.unacked_requests,
    )
