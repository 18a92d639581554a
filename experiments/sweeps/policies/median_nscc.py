"""Median NSCC: the window follows the median of the latest feedback, and not the latest packet's.

Source: Gerstein, Silberstein, Keslassy, "Congestion Control for Spraying with Congested Paths" (arXiv 2509.07907):
feedback of many paths is mishandled by rules for one, and a median is robust against a few congested paths. The paper's
principle; how many samples it is of is our choice: those of a window, at most 31.
"""

from __future__ import annotations

from collections import deque
from statistics import median_low

from mrc_host.policy import Nscc, NsccConfig

MOST = 31


class MedianNscc(Nscc):
    """NSCC over medians of delay and of marks."""

    def __init__(self, config: NsccConfig, mtu: int) -> None:
        super().__init__(config, mtu)
        self.delays: deque[int] = deque(maxlen=MOST)
        self.marks: deque[bool] = deque(maxlen=MOST)

    def on_sack(
        self, now: int, newly: int, rtt_ns: int, ce: bool, penalty: int, restore: bool, whole: bool = True
    ) -> None:
        """Apply NSCC's table to the median of a window's feedback."""
        if rtt_ns:
            self.delays.append(rtt_ns)
            self.marks.append(ce)
            count = max(min(int(self.cwnd) // self.mtu, MOST) | 1, 1)
            while len(self.delays) > count:
                self.delays.popleft()
                self.marks.popleft()
            rtt_ns = median_low(self.delays)
            ce = 2 * sum(self.marks) > len(self.marks)
        super().on_sack(now, newly, rtt_ns, ce, penalty, restore, whole)
