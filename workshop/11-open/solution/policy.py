"""Window and paths are ours. The detector also takes for lost what has been on its way for much too long."""

from mrc_host.policy import EvSet, LossDetector, Nscc


class Window(Nscc):
    """Ours: NSCC."""


class Paths(EvSet):
    """Ours."""


class Detector(LossDetector):
    def infer(self, acked, overtaken, base_rtt_ns, now):
        lost = list(super().infer(acked, overtaken, base_rtt_ns, now) or ())
        known = {sent.psn for sent in lost}
        # Ours measures from the newest packet that arrived; behind a slow link that one is old itself.
        limit = now - 2 * (self.rtt.srtt_ns + 4 * self.rtt.var_ns)
        return lost + [sent for sent in self.in_flight() if sent.sent_ns < limit and sent.psn not in known]
