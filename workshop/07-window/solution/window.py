"""The four cases of section 8, in their simplest form."""

from mrc_host.policy import WindowPolicy


class Window(WindowPolicy):
    def __init__(self, config, mtu):
        super().__init__(config, mtu)
        self.cwnd = 8 * mtu
        self.average_ns = 0.0
        self.decreased_at = 0

    def on_sack(self, now, newly, rtt_ns, ce, penalty, restore, whole=True):
        super().on_sack(now, newly, rtt_ns, ce, penalty, restore, whole)
        if not rtt_ns:
            return
        delay = max(rtt_ns - self.base_rtt_ns, 0)
        self.average_ns += (delay - self.average_ns) / 16
        if not ce and delay < self.target_ns:
            # Proportional: the more room there is below the target, the more.
            self.cwnd += 2 * newly * self.mtu * (1 - delay / self.target_ns) / self.cwnd
        elif not ce:
            # Fair: a little, and the same for everybody.
            self.cwnd += 0.1 * newly * self.mtu / self.cwnd
        elif delay >= self.target_ns and now - self.decreased_at > self.base_rtt_ns:
            # Multiplicative, by how far the average is above the target, once per round trip.
            over = max(self.average_ns - self.target_ns, 0) / max(self.average_ns, 1)
            self.cwnd *= max(1 - 0.8 * over, 0.5)
            self.decreased_at = now
        self.cwnd = min(max(self.cwnd, self.mtu), self.max_wnd)

    def on_loss(self, now, size):
        self.cwnd = max(self.cwnd - size, self.mtu)
