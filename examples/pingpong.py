"""Latency of small writes with immediate between two hosts: run the same command on both, with the same path."""

from __future__ import annotations

import argparse
import time

from mrc_host import verbs
from mrc_host.verbs import SendFlags

RECEIVES = 64


def main() -> None:
    """Answer if this rank came first, otherwise measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("meet", help="a path that both programs can reach, like /run/lab/meet")
    parser.add_argument("-n", type=int, default=1000, help="round trips (%(default)s)")
    parser.add_argument("-s", type=int, default=8, help="bytes (%(default)s)")
    parser.add_argument("--poll", action="store_true", help="poll without end instead of waiting for notifications")
    options = parser.parse_args()

    with verbs.open_device() as context:
        domain = verbs.ProtectionDomain(context)
        cq = verbs.CompletionQueue(context, 256, verbs.CompletionChannel(context))
        region = verbs.MemoryRegion(domain, max(options.s, 1))
        qp = verbs.QueuePair(domain, cq)
        with verbs.Rendezvous.at(options.meet) as meeting:
            qp.document()  # INIT: from now on receives may be posted
            qp.post_recv(count=RECEIVES)
            theirs = meeting.exchange({"qp": qp.document(), "region": region.remote, "n": options.n, "s": options.s})
            if (theirs["n"], theirs["s"]) != (options.n, options.s):
                raise SystemExit("both ends take the same -n and -s")
            qp.connect(theirs["qp"])
            meeting.exchange("connected")
            addr, rkey, _ = theirs["region"]

            def send(number: int) -> None:
                # Every eighth reports, so that places in the send queue become free.
                flags = SendFlags.NONE if number % 8 else SendFlags.SIGNALED
                qp.post_write_imm(region.sge(0, options.s), addr, rkey, number, flags=flags)

            def receive() -> None:
                while True:
                    for done in cq.poll() if options.poll else cq.wait(30):
                        if done.status is not verbs.WcStatus.SUCCESS:
                            raise SystemExit(f"{verbs.status_text(done.status)}: {qp.query().why}")
                        if done.opcode is verbs.WcOpcode.RECV_RDMA_WITH_IMM:
                            qp.post_recv()
                            return

            times = []
            for number in range(options.n):
                began = time.perf_counter_ns()
                if meeting.first:
                    receive()
                    send(number)
                else:
                    send(number)
                    receive()
                    times.append((time.perf_counter_ns() - began) / 2000)
            meeting.exchange("done")
    if times:
        times.sort()
        print(
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]   99% percentile[usec]"
        )
        average, typical, late = sum(times) / len(times), times[len(times) // 2], times[len(times) * 99 // 100]
        print(
            f" {options.s:<6} {options.n:<11} {times[0]:14.2f} {times[-1]:14.2f} {typical:16.2f} {average:14.2f} "
            f"{late:22.2f}"
        )


if __name__ == "__main__":
    main()
