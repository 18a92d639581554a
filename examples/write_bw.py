"""Bandwidth of writes between two hosts: run the same command on both, with the same path."""

from __future__ import annotations

import argparse
import time

from mrc_host import verbs
from mrc_host.verbs import SendFlags, SendRequest

DEPTH = 128
REPORT_EVERY = 16
LARGEST = 1 << 20


class Flow:
    """Writes one size over some queue pairs, `DEPTH` under way on each, and takes their completions."""

    def __init__(
        self, qps: list[verbs.QueuePair], cq: verbs.CompletionQueue, local: verbs.Sge, peer: list[int]
    ) -> None:
        self.qps = qps
        self.cq = cq
        self.local = local
        self.peer = peer

    def run(self, iterations: int) -> tuple[float, float]:
        """Bytes per second: of the best stretch between two completions, and of the whole."""
        left = {qp.qp_num: iterations for qp in self.qps}
        under_way = dict.fromkeys(left, 0)
        began = before = time.perf_counter()
        peak = 0.0
        while any(left.values()) or any(under_way.values()):
            for qp in self.qps:
                room = min(DEPTH - under_way[qp.qp_num], left[qp.qp_num]) // REPORT_EVERY * REPORT_EVERY
                if room:
                    qp.post_send(self.request(number) for number in range(room))
                    left[qp.qp_num] -= room
                    under_way[qp.qp_num] += room
            for done in self.cq.wait(60):
                if done.status is not verbs.WcStatus.SUCCESS:
                    raise SystemExit(verbs.status_text(done.status))
                under_way[done.qp_num] -= REPORT_EVERY
                now = time.perf_counter()
                peak = max(peak, REPORT_EVERY * self.local.length / max(now - before, 1e-9))
                before = now
        whole = iterations * len(self.qps) * self.local.length / (time.perf_counter() - began)
        return max(peak, whole), whole

    def request(self, number: int) -> SendRequest:
        """One write; the last of each `REPORT_EVERY` reports."""
        flags = SendFlags.NONE if (number + 1) % REPORT_EVERY else SendFlags.SIGNALED
        return SendRequest(self.local, self.peer[0], self.peer[1], flags=flags)


def main() -> None:
    """Receive writes if this rank came first, otherwise send them; with -b both send."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("meet", help="a path that both programs can reach, like /run/lab/meet")
    parser.add_argument("-n", type=int, default=1008, help="writes per queue pair (%(default)s; a multiple of 16)")
    parser.add_argument("-s", type=int, default=65536, help=f"bytes of a write, at most {LARGEST} (%(default)s)")
    parser.add_argument("-a", "--all", action="store_true", help="all powers of two up to -s")
    parser.add_argument("-q", type=int, default=1, help="queue pairs (%(default)s)")
    parser.add_argument("-b", action="store_true", help="both ends write")
    options = parser.parse_args()
    if options.n % REPORT_EVERY or options.n < 1 or not 1 <= options.s <= LARGEST:
        parser.error(f"-n is a multiple of {REPORT_EVERY}, -s from 1 to {LARGEST}")
    sizes = [1 << bit for bit in range(1, options.s.bit_length())] if options.all else [options.s]

    with verbs.open_device() as context, verbs.Rendezvous.at(options.meet) as meeting:
        domain = verbs.ProtectionDomain(context)
        cq = verbs.CompletionQueue(context, 1024, verbs.CompletionChannel(context))
        region = verbs.MemoryRegion(domain, 2 * LARGEST)
        qps = [verbs.QueuePair(domain, cq, cap=verbs.QpCap(max_send_wr=DEPTH)) for _ in range(options.q)]
        theirs = meeting.exchange({"qps": [qp.document() for qp in qps], "region": region.remote})
        for qp, document in zip(qps, theirs["qps"], strict=True):
            qp.connect(document)
        meeting.exchange("connected")
        if options.b or not meeting.first:
            print(" #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]")
            peer = [theirs["region"][0] + LARGEST, theirs["region"][1]]
            for size in sizes:
                peak, average = Flow(qps, cq, region.sge(0, size), peer).run(options.n)
                rate = average / size / 1e6
                print(f" {size:<10} {options.n:<14} {peak / 1e6:<18.2f} {average / 1e6:<20.2f} {rate:.6f}")
        meeting.exchange("done")


if __name__ == "__main__":
    main()
