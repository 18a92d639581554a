"""What is lost? What a later packet of the same path has overtaken, or what is later than any path takes."""

from mrc_host.policy import LossDetector


class Detector(LossDetector):
    def infer(self, acked, overtaken, base_rtt_ns, now):
        # (b) One EV is one path, and a path is a queue: what left it later cannot arrive earlier.
        newest = {}
        for sent in acked:
            newest[sent.ev] = max(newest.get(sent.ev, 0), sent.sent_ns)
        passed = [sent for sent in self.in_flight() if sent.sent_ns < newest.get(sent.ev, 0)]
        # (c) No path takes longer than this; a packet that was sent so much later has arrived.
        window = max(base_rtt_ns, self.rtt.srtt_ns + 4 * self.rtt.var_ns)
        late = [sent for sent in self.in_flight() if sent.sent_ns < self.board.newest_ns - window]
        return passed + late
