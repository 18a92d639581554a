"""Congestion control behind one small interface; one controller per destination (`mrc-protocol.md §8`).

`inflight` and `cwnd` (bytes) are plain attributes: the data path compares without a call. A packet may leave while
`inflight + size <= cwnd`, and always when nothing is in flight. Controllers read `inflight`, which is up to date
when they are told of something; `inflight.InflightAccount` alone writes it.
"""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from mrc_host.proto.statistics import CcStatistics


# A user's algorithm may be plain Python.
@mypyc_attr(allow_interpreted_subclasses=True)
class CongestionControl:
    """The interface between the requestor and a controller, with the state that all controllers share."""

    __slots__ = ("base_rtt_ns", "cwnd", "inflight", "max_wnd", "mtu", "rtt_ns", "srtt_ns")

    def __init__(self, mtu: int, base_rtt_ns: int, cwnd: float, max_wnd: float) -> None:
        """Create a controller; `mtu` is the nominal size of a full packet (UDP length + 40), bytes."""
        self.mtu = mtu
        self.base_rtt_ns = base_rtt_ns
        self.cwnd = cwnd
        self.max_wnd = max_wnd
        self.inflight = 0
        self.rtt_ns = 0  # latest sample
        self.srtt_ns = 0  # smoothed

    def on_sack(
        self, now: int, newly: int, rtt_ns: int, ce: bool, penalty: int, restore: bool, whole: bool = True
    ) -> None:
        """Handle a SACK of `newly` bytes more; `rtt_ns` 0: no unambiguous sample; `ce`: the packet was marked.

        `whole`: the sample is that of a packet of the full MTU, for which the base RTT is defined.
        """
        if rtt_ns:
            self.sample(rtt_ns, whole)

    def on_trim(self, now: int, size: int) -> None:
        """Handle a packet of `size` bytes that was trimmed."""

    def on_loss(self, now: int, size: int) -> None:
        """Handle a packet of `size` bytes that was inferred lost."""

    def sample(self, rtt_ns: int, whole: bool = True) -> None:
        """Take an RTT sample into the smoothed RTT, and that of a `whole` packet into the base RTT."""
        self.rtt_ns = rtt_ns
        if rtt_ns < self.base_rtt_ns and whole:
            self.base_rtt_ns = rtt_ns
        self.srtt_ns += (rtt_ns - self.srtt_ns) >> 3 if self.srtt_ns else rtt_ns

    def snapshot(self) -> CcStatistics:
        """Return the state."""
        return CcStatistics(int(self.cwnd), self.inflight, self.base_rtt_ns, self.srtt_ns)
