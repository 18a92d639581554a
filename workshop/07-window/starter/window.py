"""A window that only grows: each byte that arrives is a byte more."""

from mrc_host.policy import WindowPolicy


class Window(WindowPolicy):
    def on_sack(self, now, newly, rtt_ns, ce, penalty, restore, whole=True):
        super().on_sack(now, newly, rtt_ns, ce, penalty, restore, whole)
        self.cwnd += newly
