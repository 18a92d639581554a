"""How far a result can be trusted: what the machine did while a run was going, and whether it kept up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mrc_common.plain import OMIT_NONE, encode
from mrc_host.answers import HostFidelity, Software
from mrc_lab.scheduling import MachineActivity, Scheduling
from mrc_lab.session.load import SwitchLoad
from p4lite.switch.fabric.values import Lateness, TunnelStats

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


NOT_MEASURED = "fidelity was not measured"


@dataclass(frozen=True)
class ClockFidelity:
    """What is known of the clock of another machine, in ns.

    Moved by `set_ns` within `set_uncertainty_ns`, it is ahead of ours by `off_ns` within `uncertainty_ns`, as an
    exchange of `rtt_ns` said.
    """

    off_ns: int
    set_ns: int
    uncertainty_ns: int
    rtt_ns: int
    set_uncertainty_ns: int


@dataclass(frozen=True)
class MachineFidelity:
    """A machine that carries a part of the lab: how it was lost, its clock, its tunnels, and what its part measured.

    `frame_bytes`: the largest frame that goes through its tunnels in one piece; `time_namespaces`: whether its kernel
    can give a lab another clock.
    """

    ssh: str | None = None
    address: str = ""
    hosts: Sequence[str] = ()
    switches: Sequence[str] = ()
    lost: str | None = None
    clock: ClockFidelity | None = None
    frame_bytes: int | None = field(default=None, metadata=OMIT_NONE)
    time_namespaces: bool | None = field(default=None, metadata=OMIT_NONE)
    tunnels: Mapping[str, TunnelStats] = field(default_factory=dict)
    fabric: Lateness | None = field(default=None, metadata=OMIT_NONE)
    scheduling: Scheduling | None = field(default=None, metadata=OMIT_NONE)
    machine: MachineActivity | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Fidelity:
    """Whether the machine kept up since the measurement began, and why not.

    `simulated`: on the virtual clock, where nothing can be late. `switches`: those that are a process each. Of a lab on
    several machines `fabric` is the latest one of `machines`.
    """

    valid: bool = False
    reasons: Sequence[str] = ()
    simulated: bool = False
    software: Software | None = None
    fabric: Lateness | None = None
    hosts: Mapping[str, HostFidelity] = field(default_factory=dict)
    switches: Mapping[str, SwitchLoad] = field(default_factory=dict)
    scheduling: Scheduling | None = None
    machine: MachineActivity | None = None
    machines: Mapping[str, MachineFidelity] = field(default_factory=dict)

    @property
    def doubt(self) -> str:
        """Why times are not valid; empty if they are, or nothing was measured."""
        return "" if self.valid or self == UNMEASURED else "; ".join(self.reasons)

    def document(self) -> object:
        """Return the part of result.json: what was measured only."""
        if self == UNMEASURED:
            return {}
        return {key: value for key, value in encode(self).items() if value or key in ("valid", "reasons")}


#: Before a measurement has ended.
UNMEASURED = Fidelity(reasons=(NOT_MEASURED,))


def processes(hosts: Mapping[str, HostFidelity]) -> dict[tuple[str, ...], float]:
    """Return the agents' processes by the hosts that they carry, with each one's share of a core."""
    return {tuple(host.process) or (name,): host.cpu_share for name, host in hosts.items()}


def judge(measured: Fidelity, base_rtt_ns: int) -> list[str]:
    """Return the reasons for which a run is not valid; none: the machine kept up."""
    reasons = []
    fabric = measured.fabric
    if fabric is not None:
        late = fabric.loop.p99_ns
        if late > FABRIC_LAG_SHARE * base_rtt_ns:
            reasons.append(f"the fabric's loop was {late / 1e6:.2f} ms late (p99); base RTT {base_rtt_ns / 1e6:.2f} ms")
        if fabric.cpu_share > CPU_LIMIT:
            reasons.append(f"the fabric took {fabric.cpu_share:.0%} of a core")
    for name, switch in measured.switches.items():
        if switch.busiest_thread > CPU_LIMIT:
            reasons.append(f"a thread of {name} took {switch.busiest_thread:.0%} of a core")
        elif switch.runnable > CPU_LIMIT:
            reasons.append(
                f"{name} is starved: a thread of it had work {switch.runnable:.0%} of the time, and no thread of it "
                f"got more than {switch.busiest_thread:.0%} of a core"
            )
        elif switch.waited_ns > FABRIC_LAG_SHARE * base_rtt_ns:
            reasons.append(
                f"{name} is starved: a thread of it waited {switch.waited_ns / 1e6:.2f} ms for a core each time "
                f"(mean); base RTT {base_rtt_ns / 1e6:.2f} ms"
            )
        if switch.missed > max(MISSED, MISSED_SHARE * switch.given):
            reasons.append(f"{name} missed {switch.missed} of {switch.given} packets that its links gave it")
    for name, host in measured.hosts.items():
        late = host.loop_lag.p99_ns
        if late > HOST_LAG_SHARE * base_rtt_ns:
            reasons.append(f"{name}'s loop was {late / 1e6:.2f} ms late (p99); base RTT {base_rtt_ns / 1e6:.2f} ms")
        elif (stall := host.loop_lag.max_ns) > HOST_STALL_RTTS * base_rtt_ns:
            reasons.append(f"{name}'s loop was {stall / 1e6:.0f} ms late once; base RTT {base_rtt_ns / 1e6:.2f} ms")
        if host.rx_ring_drops:
            reasons.append(f"{name} lost {host.rx_ring_drops} frames that the fabric delivered")
    for names, share in processes(measured.hosts).items():
        if share > CPU_LIMIT:
            reasons.append(f"the agent of {', '.join(names)} took {share:.0%} of a core")
    return reasons
