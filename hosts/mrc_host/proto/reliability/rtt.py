"""The smoothed round-trip time of one queue pair and its variation (RFC 6298), ns."""

from __future__ import annotations


class Rtt:
    """All are 0 until the first sample; `least_ns` is the smallest of them."""

    __slots__ = ("least_ns", "srtt_ns", "var_ns")

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Nothing is known."""
        self.srtt_ns = self.var_ns = self.least_ns = 0

    def sample(self, rtt: int) -> None:
        """Take in an unambiguous sample."""
        if self.srtt_ns:
            if rtt < self.least_ns:
                self.least_ns = rtt
            error = rtt - self.srtt_ns
            self.srtt_ns += error >> 3
            self.var_ns += (abs(error) - self.var_ns) >> 2
        else:
            self.srtt_ns = self.least_ns = rtt
            self.var_ns = rtt >> 1
