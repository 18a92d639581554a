"""How far a result can be trusted: what the machine did while a run was going, and whether it kept up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: A loop that is this late in one of a hundred rounds distorts round-trip times (share of the base RTT).
HOST_LAG_SHARE = 1.0
FABRIC_LAG_SHARE = 0.25
#: One round that is this late (base RTTs) is a stall of its own, which recoveries and rates show as if it were MRC's.
HOST_STALL_RTTS = 10
#: Beyond this share of one core a process has no room left to catch up.
CPU_LIMIT = 0.95
#: So is a thread that has work for that share of the time, whether it runs or waits for a core.
#: Packets that were on their way when a switch was asked how many it has seen.
MISSED, MISSED_SHARE = 32, 0.001


def processes(hosts: Mapping[str, Mapping[str, Any]]) -> dict[tuple[str, ...], float]:
    """The agents' processes by the hosts that they carry, with each one's share of a core."""
    return {tuple(host.get("process", (name,))): host["cpu_share"] for name, host in hosts.items()}


def judge(measured: Mapping[str, Any], base_rtt_ns: int) -> list[str]:
    """Reasons for which a run is not valid; none: the machine kept up.

    `measured` has `fabric` (lateness) and `hosts` (by name: loop_lag, rx_ring_drops, and cpu_share of its process, with
    the names of all hosts in it), and `switches` where each is a process (by name: `load.document`, given, missed).
    """
    reasons = []
    fabric = measured.get("fabric") or {}
    late = fabric.get("loop", {}).get("p99_ns", 0)
    if late > FABRIC_LAG_SHARE * base_rtt_ns:
        reasons.append(f"the fabric's loop was {late / 1e6:.2f} ms late (p99); base RTT {base_rtt_ns / 1e6:.2f} ms")
    if fabric.get("cpu_share", 0) > CPU_LIMIT:
        reasons.append(f"the fabric took {fabric['cpu_share']:.0%} of a core")
    for name, switch in measured.get("switches", {}).items():
        if switch["busiest_thread"] > CPU_LIMIT:
            reasons.append(f"a thread of {name} took {switch['busiest_thread']:.0%} of a core")
        elif switch["runnable"] > CPU_LIMIT:
            reasons.append(
                f"{name} is starved: a thread of it had work {switch['runnable']:.0%} of the time, and no thread of it "
                f"got more than {switch['busiest_thread']:.0%} of a core"
            )
        elif switch["waited_ns"] > FABRIC_LAG_SHARE * base_rtt_ns:
            reasons.append(
                f"{name} is starved: a thread of it waited {switch['waited_ns'] / 1e6:.2f} ms for a core each time "
                f"(mean); base RTT {base_rtt_ns / 1e6:.2f} ms"
            )
        if switch["missed"] > max(MISSED, MISSED_SHARE * switch["given"]):
            reasons.append(f"{name} missed {switch['missed']} of {switch['given']} packets that its links gave it")
    for name, host in measured.get("hosts", {}).items():
        late = host["loop_lag"]["p99_ns"]
        if late > HOST_LAG_SHARE * base_rtt_ns:
            reasons.append(f"{name}'s loop was {late / 1e6:.2f} ms late (p99); base RTT {base_rtt_ns / 1e6:.2f} ms")
        elif (stall := host["loop_lag"]["max_ns"]) > HOST_STALL_RTTS * base_rtt_ns:
            reasons.append(f"{name}'s loop was {stall / 1e6:.0f} ms late once; base RTT {base_rtt_ns / 1e6:.2f} ms")
        if host["rx_ring_drops"]:
            reasons.append(f"{name} lost {host['rx_ring_drops']} frames that the fabric delivered")
    for names, share in processes(measured.get("hosts", {})).items():
        if share > CPU_LIMIT:
            reasons.append(f"the agent of {', '.join(names)} took {share:.0%} of a core")
    return reasons
