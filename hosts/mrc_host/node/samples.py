"""A host's time series: counters and levels, taken at a fixed interval from the endpoint's statistics."""

from __future__ import annotations

from collections import deque
from itertools import takewhile
from typing import Final

from mrc_host.answers import Sample
from mrc_host.proto.statistics import MrcStatistics, RoceStatistics, Statistics
from mrc_host.proto.transport import TransportEndpoint

#: A minute at the usual interval; a recording fetches them many times a second.
MAX_SAMPLES = 1_200
_LOSSES: Final = ("lost_nack", "lost_port_down", "lost_rack", "lost_same_ev", "lost_timeout")


def condense(statistics: Statistics, now: int) -> Sample:
    """Return one sample of the values that an endpoint reports."""
    if isinstance(statistics, RoceStatistics):
        return _roce(statistics, now)
    return _mrc(statistics, now)


def _roce(statistics: RoceStatistics, now: int) -> Sample:
    counters, ports, qps = statistics.endpoint, statistics.ports, statistics.qps
    return Sample(
        t_ns=now,
        tx_bytes=[port.sent_bytes for port in ports],
        rx_bytes=[port.received_bytes for port in ports],
        ports_up=sum(port.up for port in ports),
        delivered_bytes=counters.get("payload_bytes_placed", 0),
        packets=sum(qp.packets_sent for qp in qps),
        retransmissions=sum(qp.retransmissions for qp in qps),
        losses=counters.get("naks_sent", 0),
        trims=0,
        marks=counters.get("ecn_marked", 0),
        timeouts=counters.get("timeouts", 0),
        spurious_retransmissions=counters.get("duplicates", 0),
        ev={},
        cc={"rate_bps": sum(qp.rate_bps for qp in qps)},
    )


def _mrc(statistics: MrcStatistics, now: int) -> Sample:
    ports = statistics.ports
    beside = statistics.endpoint  # RoCE beside MRC counts at its endpoint
    requestors = [qp.requestor for qp in statistics.qps]
    responders = [qp.responder for qp in statistics.qps]
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
        delivered_bytes=sum(each["payload_bytes_placed"] for each in responders)
        + beside.get("payload_bytes_placed", 0),
        packets=sum(each["packets_sent"] for each in requestors),
        retransmissions=sum(each["retransmissions"] for each in requestors),
        losses=sum(each[key] for each in requestors for key in _LOSSES) + beside.get("naks_sent", 0),
        trims=sum(each["trimmed"] for each in responders),
        marks=sum(each["ecn_marked"] for each in responders) + beside.get("ecn_marked", 0),
        timeouts=sum(each["lost_timeout"] for each in requestors) + beside.get("timeouts", 0),
        spurious_retransmissions=sum(each["duplicates"] for each in responders),
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
        self.due: int | None = None

    def start(self, now: int) -> None:
        """Take the first sample and plans the next."""
        self.take(now)

    def take(self, now: int) -> None:
        """Take a sample now."""
        self.samples.append(condense(self.source.statistics(), now))
        self.due = now + self.interval_ns

    def stop(self) -> None:
        """Take no more samples."""
        self.due = None

    def newest(self, now: int) -> Sample | None:
        """Return the newest sample, at most two intervals old; None if there is none."""
        if self.due is None or not self.samples or now - self.samples[-1].t_ns > 2 * self.interval_ns:
            return None
        return self.samples[-1]

    def since(self, time_ns: int) -> list[Sample]:
        """Return the samples taken at `time_ns` or later, oldest first."""
        newest = list(takewhile(lambda sample: sample.t_ns >= time_ns, reversed(self.samples)))
        return newest[::-1]
