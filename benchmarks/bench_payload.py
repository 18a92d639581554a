"""What `payload: length` gains: permutations of 16 and 64 hosts at 100 Gb/s, with bytes and without in turn.

CPU is that of the process while simulated time advances, so it says something on a busy machine, too: medians of the
turns. A hop is a datagram over one of the four links between two hosts. `memory` is what the process took at most above
what it had when the lab was built. What the hosts and switches counted must be equal.

`MRCLAB_HTSIM=PATH`, a binary of `htsim_uec`: as many hosts, T0s, links to T1s, and bytes with uet-htsim in each turn,
on one plane, since it has no others. Its CPU is that of the whole process.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from benchmarks import scaled
from benchmarks.child import measured

TURNS = scaled(5, 1)
HOPS = 4
HTSIM: Final = os.environ.get("MRCLAB_HTSIM", "")
LAB = """
name: permutation
planes: 2
t0_per_plane: {t0}
t1_per_plane: {per_t0}
hosts: {hosts}
hosts_per_t0: {per_t0}
max_oversubscription: 1
links:
  host: {{rate: 100Gbps, delay: 1us}}
  fabric: {{rate: 100Gbps, delay: 1us}}
path_mtu: 4096
ev: {{size: 128, active: 64}}
payload: {payload}
"""
#: Hosts, hosts per T0, and messages of 1 MiB from each.
CASES = ((16, 4, scaled(12, 1)), (64, 8, scaled(4, 1)))


def measure(hosts: int, per_t0: int, messages: int, payload: str) -> dict[str, Any]:
    """One run in this process."""
    from mrc_topo.labfile import parse_lab
    from mrclab.lab.session.base import closing
    from mrclab.lab.session.virtual import VirtualSession
    from mrclab.results.recording import Recording
    from mrclab.runs.execute import run_on
    from mrclab.runs.experiment import Experiment, Workload

    workload = Workload(name="permutation", params={"message_bytes": 1 << 20, "iterations": messages})
    experiment = Experiment(name="permutation", title="permutation", lab="permutation", workload=workload)
    text = LAB.format(hosts=hosts, per_t0=per_t0, t0=hosts // per_t0, payload=payload)
    spent = [0.0]

    class Timed(VirtualSession):
        def advance(self, seconds: float) -> None:
            began = time.process_time()
            super().advance(seconds)
            spent[0] += time.process_time() - began

    session = Timed(parse_lab(text, "permutation"), experiment.transport)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with closing(session), Recording() as recording:
        result = run_on(session, experiment, None, recording)
        counted = json.dumps([result.document()["statistics"], repr(session.stats())], sort_keys=True, default=repr)
    document: Any = json.loads(counted)[0]
    sent = sum(each["endpoint"]["datagrams_sent"] for each in document.values())
    packets = sum(qp["requestor"]["packets_sent"] for each in document.values() for qp in each["qps"])
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"cpu": spent[0], "datagrams": sent, "packets": packets, "memory_kb": memory, "counted": counted}


def htsim(binary: str, hosts: int, per_t0: int, messages: int) -> float:
    """Return the CPU time per data packet of a permutation with uet-htsim (s)."""
    from mrc_fluid.validation.htsim import PACKET_BYTES, TOTALS

    tiers = ((per_t0, f"Radix_Up {per_t0}"), (hosts // per_t0, ""))
    topology = [f"Nodes {hosts}", "Tiers 2", f"Podsize {hosts}"]
    for tier, (down, up) in enumerate(tiers):
        topology += [f"Tier {tier}", "Downlink_speed_Gbps 100", f"Radix_Down {down}", up]
        topology += ["Downlink_Latency_ns 1000", "Switch_Latency_ns 0"]
    flows = [
        f"{host}->{(host + hosts // 2) % hosts} id {host + 1} start 0 size {messages << 20}" for host in range(hosts)
    ]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "t").write_text("\n".join(topology) + "\n")
        Path(folder, "m").write_text("\n".join([f"Nodes {hosts}", f"Connections {hosts}", *flows]) + "\n")
        command = [
            binary, "-tm", "m", "-topo", "t", "-o", "log", "-end", "100000", "-mtu", str(PACKET_BYTES), "-linkspeed",
            "100000", "-sender_cc_only", "-load_balancing_algo", "oblivious", "-paths", "64",
        ]  # fmt: skip
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    counted = TOTALS.search(done.stdout)
    ended = done.stdout.count(" finished at ")
    if counted is None or ended != hosts:
        raise SystemExit(f"{binary}: {ended} of {hosts} flows ended: {done.stdout[-200:]}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu / sum(map(int, counted.groups()[:2]))


def run() -> None:
    """Print a line per case and kind of payload."""
    for hosts, per_t0, messages in CASES:
        found: dict[str, list[dict[str, Any]]] = {"bytes": [], "length": []}
        others: list[float] = []
        for _ in range(TURNS):
            for payload, rows in found.items():
                rows.append(measured("bench_payload", hosts, per_t0, messages, payload))
            if HTSIM:
                others.append(htsim(HTSIM, hosts, per_t0, messages))
        for payload, rows in found.items():
            cpu = statistics.median(each["cpu"] for each in rows)
            least = min(each["cpu"] for each in rows)
            packets, hops = rows[0]["packets"], HOPS * rows[0]["datagrams"]
            memory = statistics.median(each["memory_kb"] for each in rows) / 1024
            print(
                f"permutation of {hosts} hosts, payload: {payload}: {cpu / packets * 1e6:.1f} us per data packet "
                f"(least {least / packets * 1e6:.1f}), {hops / cpu / 1e6:.2f} M hops per CPU second "
                f"(most {hops / least / 1e6:.2f}), memory {memory:.0f} MiB; load {os.getloadavg()[0]:.1f}"
            )
        if others:
            each = statistics.median(others)
            print(f"permutation of {hosts} hosts, uet-htsim: {each * 1e6:.1f} us per data packet")
        counted = {each["counted"] for rows in found.values() for each in rows}
        print(f"permutation of {hosts} hosts: counters {'equal' if len(counted) == 1 else 'NOT EQUAL'}")
