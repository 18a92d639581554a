"""Counters of endpoint and queue pair: plain integers, snapshots as dicts."""

from __future__ import annotations

from typing import ClassVar, Final

_ENDPOINT: Final = (
    "control_overflow",
    "datagrams_received",
    "datagrams_sent",
    "ev_probes_answered",
    "ev_probes_sent",
    "faults",
    "port_status_received",
    "port_status_sent",
)
_REQUESTOR: Final = (
    "acks_received",
    "bogus_acks",
    "bogus_nacks",
    "bogus_sacks",
    "late_arrivals",
    "lost_nack",
    "lost_port_down",
    "lost_rack",
    "lost_same_ev",
    "lost_timeout",
    "losses_flushed",
    "nacks_received",
    "packets_expired",
    "packets_inferred",
    "packets_sent",
    "payload_bytes_sent",
    "probes_answered",
    "probes_sent",
    "repeats",
    "requests_completed",
    "requests_flushed",
    "retransmissions",
    "sacks_received",
    "skip_once",
    "spurious_losses",
    "stale_nacks",
)
_RESPONDER: Final = (
    "acks_sent",
    "duplicates",
    "ecn_marked",
    "ecn_refused",
    "immediates_delivered",
    "messages_completed",
    "nacks_sent",
    "naks_sent",
    "out_of_order",
    "out_of_window",
    "packets_placed",
    "payload_bytes_placed",
    "probes_answered",
    "refused",
    "sacks_sent",
    "trimmed",
    "trimmed_duplicates",
)


class Counters:
    """Integers, all starting at 0; `names` has those of a class."""

    __slots__ = ()
    names: ClassVar[tuple[str, ...]] = ()

    def __init__(self) -> None:
        for name in self.names:
            setattr(self, name, 0)

    def snapshot(self) -> dict[str, int]:
        """Return all counters by name."""
        return {name: getattr(self, name) for name in self.names}


class EndpointCounters(Counters):
    """Counters of an endpoint."""

    __slots__ = _ENDPOINT
    names = _ENDPOINT
    control_overflow: int
    datagrams_received: int
    datagrams_sent: int
    ev_probes_answered: int
    ev_probes_sent: int
    faults: int
    port_status_received: int
    port_status_sent: int


class RequestorCounters(Counters):
    """Counters of the sending half of a queue pair.

    `lost_*` count packets by the reason for which they were inferred lost. Each of them is sent again, or acknowledged
    before that (`spurious_losses`), or given up with its queue pair (`losses_flushed`). `packets_expired` counts them
    where their timer expires, `packets_inferred` where a detector of losses names them. `retransmissions` have the
    `repeats` among them: packets that are sent again though they have arrived, since their transport ACK is missing.
    """

    __slots__ = _REQUESTOR
    names = _REQUESTOR
    acks_received: int
    bogus_acks: int
    bogus_nacks: int
    bogus_sacks: int
    late_arrivals: int
    lost_nack: int
    lost_port_down: int
    lost_rack: int
    lost_same_ev: int
    lost_timeout: int
    losses_flushed: int
    nacks_received: int
    packets_expired: int
    packets_inferred: int
    packets_sent: int
    payload_bytes_sent: int
    probes_answered: int
    probes_sent: int
    repeats: int
    requests_completed: int
    requests_flushed: int
    retransmissions: int
    sacks_received: int
    skip_once: int
    spurious_losses: int
    stale_nacks: int


class ResponderCounters(Counters):
    """Counters of the receiving half of a queue pair.

    `trimmed` and `duplicates` exclude each other: a trimmed packet whose data had arrived before counts in
    `duplicates`, and in `trimmed_duplicates`. `ecn_refused`: packets with CE that were not placed, of which no mark
    goes back.
    """

    __slots__ = _RESPONDER
    names = _RESPONDER
    acks_sent: int
    duplicates: int
    ecn_marked: int
    ecn_refused: int
    immediates_delivered: int
    messages_completed: int
    nacks_sent: int
    naks_sent: int
    out_of_order: int
    out_of_window: int
    packets_placed: int
    payload_bytes_placed: int
    probes_answered: int
    refused: int
    sacks_sent: int
    trimmed: int
    trimmed_duplicates: int


_EXACT_BITS: Final = 6
#: Distances below this many packets are counted one by one.
EXACT: Final = 1 << _EXACT_BITS - 1


class Reordering:
    """Histograms of reorder distance: how far below the highest PSN that had come a late packet arrived.

    Element i of `packets` counts distances of i packets, below `EXACT`, and from there on spans that double. `bytes`
    has the same distances in bytes, where each packet counts as many as the late one has: element i those of
    2**(i - 1) to 2**i - 1. Retransmissions are no reordering of the network: `again` counts them.
    """

    __slots__ = ("again", "bytes", "packets")

    def __init__(self) -> None:
        self.packets: list[int] = []
        self.bytes: list[int] = []
        self.again = 0

    def late(self, distance: int, size: int) -> None:
        """Count a packet of `size` bytes that arrived `distance` below the highest PSN."""
        _count(self.packets, distance if distance < EXACT else EXACT - _EXACT_BITS + distance.bit_length())
        _count(self.bytes, (distance * size).bit_length())


def _count(bins: list[int], index: int) -> None:
    while len(bins) <= index:
        bins.append(0)
    bins[index] += 1
