"""Measurements that perftest's users look for, in bounded memory: distributions of times, and bandwidth of a stream."""

from __future__ import annotations

import math
from collections import Counter, deque

import numpy as np

from mrc_host.answers import Stream, Times
from mrc_topo.base import quantiles

#: Times are kept to this many leading bits: quantiles are within 0.05 %.
KEPT_BITS = 12
#: Messages whose times a meter remembers, evenly spread over the stream; all of them up to this many.
MARKS = 2048


class Distribution:
    """Times in ns. Minimum, maximum, mean and standard deviation are exact, quantiles within 0.05 %."""

    def __init__(self) -> None:
        self.count = 0
        self.low = self.high = 0
        self._sum = self._squares = 0
        self._buckets: Counter[int] = Counter()

    def add(self, value: int) -> None:
        """Add one value."""
        self.low = min(self.low, value) if self.count else value
        self.high = max(self.high, value)
        self.count += 1
        self._sum += value
        self._squares += value * value
        shift = max(value.bit_length() - KEPT_BITS, 0)
        self._buckets[value >> shift << shift] += 1

    def quantile(self, share: float) -> int:
        """Return the smallest time that this share of all times do not exceed (nearest rank)."""
        rank = quantiles.rank(self.count, share)
        seen = 0
        for value in sorted(self._buckets):
            seen += self._buckets[value]
            if seen >= rank:
                return min(max(value, self.low), self.high)
        return self.high

    def _supported(self, share: float) -> int | None:
        return self.quantile(share) if quantiles.supported(self.count, share) else None

    def summary(self) -> Times | None:
        """Return the times by perftest's names (`typical` is the median), in ns; None if there is none."""
        if not self.count:
            return None
        mean = self._sum / self.count
        # Whole numbers until here: the difference of two large sums is exact.
        variance = (self._squares * self.count - self._sum * self._sum) / self.count**2
        return Times(
            count=self.count,
            min=self.low,
            typical=self.quantile(0.5),
            mean=mean,
            stdev=math.sqrt(variance),
            p99=self._supported(0.99),
            p99_9=self._supported(0.999),
            max=self.high,
        )


class Meter:
    """Bandwidth of one stream of messages of equal size, as ib_write_bw defines it.

    Average: all bytes from the first post to the last completion. Peak: the highest average between any message's post
    and any later (or the same) message's completion, over the messages that are kept.
    """

    def __init__(self, message_bytes: int) -> None:
        self.message_bytes = message_bytes
        self.posts = self.completions = 0
        self._first = self._last = 0
        self._stride = 1
        self._posted: list[int] = []
        self._completed: list[int] = []
        self._in_flight: deque[int] = deque()
        self._times = Distribution()

    def posted(self, now: int) -> None:
        """Record that the next message was handed to the queue pair."""
        if not self.posts:
            self._first = now
        if self.posts % self._stride == 0:
            self._posted.append(now)
        self.posts += 1
        self._in_flight.append(now)

    def completed(self, now: int) -> None:
        """Record that the oldest message in flight was acknowledged."""
        self._last = now
        self._times.add(now - self._in_flight.popleft())
        if self.completions % self._stride == 0:
            self._completed.append(now)
        self.completions += 1
        if len(self._completed) > MARKS:
            # Of both, only multiples of the new stride stay.
            self._stride *= 2
            self._posted, self._completed = self._posted[::2], self._completed[::2]

    def _peak_bps(self) -> float:
        ends = np.array(self._completed, dtype=np.float64)
        best = 0.0
        for index, begin in enumerate(self._posted[: len(ends)]):
            spans = ends[index:] - begin
            counts = np.arange(len(spans)) * self._stride + 1
            rates = np.divide(counts, spans, out=np.zeros(len(spans)), where=spans > 0)
            best = max(best, float(rates.max()))
        return best * self.message_bytes * 8e9

    def summary(self) -> Stream:
        """Return the messages and bytes acknowledged, peak and average in bits per second, messages per second, and the
        messages' times from post to completion.

        The average is over the stream's own time, from `began_ns` to `ended_ns`. Averages of streams that share a link
        and end at different times add up to more than the link carries.
        """
        span_s = (self._last - self._first) / 1e9
        rate = self.completions / span_s if self.completions and span_s > 0 else 0.0
        average = rate * self.message_bytes * 8
        return Stream(
            message_bytes=self.message_bytes,
            messages=self.completions,
            bytes=self.completions * self.message_bytes,
            peak_bps=max(self._peak_bps(), average),
            average_bps=average,
            began_ns=self._first,
            ended_ns=self._last,
            messages_per_s=rate,
            completion_ns=self._times.summary(),
        )
