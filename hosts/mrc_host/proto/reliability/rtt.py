"""The smoothed round-trip time of one queue pair and its variation (RFC 6298), ns, over all planes and of each."""

from __future__ import annotations


class Rtt:
    """`srtt_ns` and `var_ns` are of all planes together, `least_ns` is the smallest sample; all 0 until the first one.

    `windows[p]` is `srtt + 4 rttvar` of plane p alone, 0 until its first sample. Planes may differ in rate and delay,
    so that only the RTT of its own plane says when a packet is late.
    """

    __slots__ = ("_plane_srtt", "_plane_var", "least_ns", "srtt_ns", "var_ns", "windows")

    def __init__(self, planes: int) -> None:
        self.srtt_ns = self.var_ns = self.least_ns = 0
        self._plane_srtt = [0] * planes
        self._plane_var = [0] * planes
        self.windows = [0] * planes

    def reset(self) -> None:
        """Forget all samples."""
        self.srtt_ns = self.var_ns = self.least_ns = 0
        planes = len(self.windows)
        self._plane_srtt = [0] * planes
        self._plane_var = [0] * planes
        self.windows = [0] * planes

    def sample(self, rtt: int, plane: int) -> None:
        """Add an unambiguous sample of a packet that arrived in time."""
        if self.srtt_ns:
            if rtt < self.least_ns:
                self.least_ns = rtt
            error = rtt - self.srtt_ns
            self.srtt_ns += error >> 3
            self.var_ns += (abs(error) - self.var_ns) >> 2
        else:
            self.srtt_ns = self.least_ns = rtt
            self.var_ns = rtt >> 1
        self.sample_plane(rtt, plane)

    def sample_plane(self, rtt: int, plane: int) -> None:
        """Add a sample to its plane only.

        These are also samples of packets that were inferred lost and arrived after all: without them the estimate of a
        plane that became slower would never follow, because each of its packets would be inferred lost first.
        """
        srtt = self._plane_srtt[plane]
        if srtt:
            error = rtt - srtt
            srtt += error >> 3
            self._plane_var[plane] += (abs(error) - self._plane_var[plane]) >> 2
        else:
            srtt = rtt
            self._plane_var[plane] = rtt >> 1
        self._plane_srtt[plane] = srtt
        self.windows[plane] = srtt + 4 * self._plane_var[plane]
