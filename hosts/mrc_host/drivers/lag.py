"""Histograms of how late something happened: the raw material of a run's fidelity."""

from __future__ import annotations

from mrc_host.answers import LagSummary

SUB_BITS = 3
SUB = 1 << SUB_BITS


class LagHistogram:
    """Counts of delays in logarithmic buckets, each at most 12.5 % wide; adding is a few integer operations."""

    __slots__ = ("count", "counts", "max_ns")

    def __init__(self) -> None:
        self.counts = [0] * (64 * SUB)
        self.count = 0
        self.max_ns = 0

    def add(self, lag_ns: int) -> None:
        """Count one delay; a negative one counts as 0."""
        lag_ns = max(lag_ns, 0)
        shift = max(lag_ns.bit_length() - SUB_BITS - 1, 0)
        self.counts[min(shift * SUB + (lag_ns >> shift), len(self.counts) - 1)] += 1
        self.count += 1
        if lag_ns > self.max_ns:
            self.max_ns = lag_ns

    def quantile(self, share: float) -> int:
        """Return the lower edge (ns) of the bucket in which this share of all delays is reached; 0 when there is
        none.
        """
        wanted = share * self.count
        seen = 0
        for index, number in enumerate(self.counts):
            seen += number
            if number and seen >= wanted:
                shift = max(index // SUB - 1, 0)
                return (index - shift * SUB) << shift
        return 0

    def summary(self) -> LagSummary:
        """Return the count, and quantiles in ns."""
        return LagSummary(self.count, self.quantile(0.5), self.quantile(0.9), self.quantile(0.99), self.max_ns)
