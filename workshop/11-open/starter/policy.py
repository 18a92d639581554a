"""Four packets in flight, whatever happens. Paths and loss detection are ours; each class may be changed, or stay."""

from mrc_host.policy import EvSet, LossDetector, WindowPolicy


class Window(WindowPolicy):
    def __init__(self, config, mtu):
        super().__init__(config, mtu)
        self.cwnd = 4 * mtu


class Paths(EvSet):
    """Which EV a packet takes: override `choose`, `apply`, `probe_answered`, `replacement`."""


class Detector(LossDetector):
    """What must be lost: override `infer`."""
