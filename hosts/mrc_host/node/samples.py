"""A host's time series: counters and levels, taken at a fixed interval from the endpoint's statistics."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain, takewhile
from typing import Final

from mypy_extensions import i64

from mrc_host.answers import Sample
from mrc_host.drivers.surface import FOREVER
from mrc_host.proto.statistics import MrcStatistics, RoceStatistics, Statistics
from mrc_host.proto.transport import TransportEndpoint

#: A minute at the usual interval; a recording fetches them many times a second.
MAX_SAMPLES = 1_200
#: Counters of requestors by the reason for which a packet was inferred lost.
LOSSES: Final = ("lost_nack", "lost_port_down", "lost_rack", "lost_same_ev", "lost_timeout")


def summed(rows: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counters of the same names."""
    sums: dict[str, int] = {}
    for row in rows:
        for name, count in row.items():
            sums[name] = sums.get(name, 0) + count
    return sums


def requestors(statistics: MrcStatistics) -> dict[str, int]:
    """Return the sums of the requestors' counters of all queue pairs, those that are gone included."""
    return summed(chain([statistics.gone_requestors], (qp.requestor for qp in statistics.qps)))


def responders(statistics: MrcStatistics) -> dict[str, int]:
    """Return the sums of the responders' counters, as `requestors`."""
    return summed(chain([statistics.gone_responders], (qp.responder for qp in statistics.qps)))


def condense(statistics: Statistics, now: int) -> Sample:
    """Return one sample of the values that an endpoint reports."""
    if isinstance(statistics, RoceStatistics):
        return _roce(statistics, now)
    return _mrc(statistics, now)


def _roce(statistics: RoceStatistics, now: int) -> Sample:
    counters, ports = statistics.endpoint, statistics.ports
    return Sample(
        t_ns=now,
        tx_bytes=[port.sent_bytes for port in ports],
        rx_bytes=[port.received_bytes for port in ports],
        ports_up=sum(port.up for port in ports),
        delivered_bytes=counters.get("payload_bytes_placed", 0),
        packets=counters.get("packets_sent", 0),
        retransmissions=counters.get("retransmissions", 0),
        losses=counters.get("naks_sent", 0),
        trims=0,
        marks=counters.get("ecn_marked", 0),
        timeouts=counters.get("timeouts", 0),
        spurious_retransmissions=counters.get("duplicates", 0),
        ev={},
        cc={"rate_bps": sum(qp.rate_bps for qp in statistics.qps)},
    )


def _mrc(statistics: MrcStatistics, now: int) -> Sample:
    ports = statistics.ports
    beside = statistics.endpoint  # RoCE beside MRC counts at its endpoint
    sent, received = requestors(statistics), responders(statistics)
    states: dict[str, int] = {}
    for qp in statistics.qps:
        for state, count in qp.ev_states.items():
            states[state] = states.get(state, 0) + count
    peers = [peer.cc for peer in statistics.peers]
    measured = [peer.srtt_ns for peer in peers if peer.srtt_ns]
    return Sample(
        t_ns=now,
        tx_bytes=[port.sent_bytes for port in ports],
        rx_bytes=[port.received_bytes for port in ports],
        ports_up=sum(port.up for port in ports),
        delivered_bytes=received.get("payload_bytes_placed", 0) + beside.get("payload_bytes_placed", 0),
        packets=sent.get("packets_sent", 0),
        retransmissions=sent.get("retransmissions", 0),
        losses=sum(sent.get(reason, 0) for reason in LOSSES) + beside.get("naks_sent", 0),
        trims=received.get("trimmed", 0) + received.get("trimmed_duplicates", 0),
        marks=received.get("ecn_marked", 0) + received.get("ecn_refused", 0) + beside.get("ecn_marked", 0),
        timeouts=sent.get("lost_timeout", 0) + beside.get("timeouts", 0),
        spurious_retransmissions=received.get("duplicates", 0),
        ev=states,
        cc={
            "cwnd": sum(peer.cwnd for peer in peers),
            "inflight": sum(peer.inflight for peer in peers),
            "rtt_ns": sum(measured) // len(measured) if measured else 0,
        },
    )


class Sampler:
    """Takes a sample every `interval_ns` once started; keeps the newest `MAX_SAMPLES`."""

    def __init__(self, source: TransportEndpoint, interval_ns: int) -> None:
        self.source = source
        self.interval_ns = interval_ns
        self.samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self.due: i64 = FOREVER

    def start(self, now: int) -> None:
        """Take the first sample and plans the next."""
        self.take(now)

    def take(self, now: int) -> None:
        """Take a sample now."""
        self.samples.append(condense(self.source.statistics(), now))
        self.due = now + self.interval_ns

    def stop(self) -> None:
        """Take no more samples."""
        self.due = FOREVER

    def newest(self, now: int) -> Sample | None:
        """Return the newest sample, at most two intervals old; None if there is none."""
        if self.due == FOREVER or not self.samples or now - self.samples[-1].t_ns > 2 * self.interval_ns:
            return None
        return self.samples[-1]

    def since(self, time_ns: int) -> list[Sample]:
        """Return the samples taken at `time_ns` or later, oldest first."""
        newest = list(takewhile(lambda sample: sample.t_ns >= time_ns, reversed(self.samples)))
        return newest[::-1]
