"""What is lost? TCP's old answer: a packet is lost when a third later one has been acknowledged."""

from mrc_host.policy import LossDetector


class Detector(LossDetector):
    def infer(self, acked, overtaken, base_rtt_ns, now):
        newest = max((sent.psn for sent in acked), default=-1)
        return [sent for sent in self.in_flight() if sent.psn + 3 <= newest]
