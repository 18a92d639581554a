"""Fidelity of a result: what the machine did while a run was going, and whether it kept up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mrc_host.answers import HostFidelity, Software
from mrc_topo.base import quantiles
from mrc_topo.base.plain import OMIT_NONE, encode
from mrclab.lab.scheduling import MachineActivity, Scheduling
from mrclab.lab.session.load import SwitchLoad
from p4lite.switch.fabric.values import Lateness, TunnelStats

#: Lateness in one of a hundred rounds of a loop that distorts round-trip times (share of the base RTT).
HOST_LAG_SHARE = 1.0
FABRIC_LAG_SHARE = 0.25
#: A round that is this late (base RTTs) is a stall of its own, which distorts recoveries and rates of MRC.
HOST_STALL_RTTS = 10
#: Above this share of one core a process has no room left to catch up. The same holds for a thread that runs, or waits
#: for a core, for that share of the time.
CPU_LIMIT = 0.95
#: The packets that may be on their way while a switch's counters are read, as a number and as a share.
MISSED, MISSED_SHARE = 32, 0.001


NOT_MEASURED = "fidelity was not measured"


@dataclass(frozen=True)
class ClockFidelity:
    """The measured clock of another machine, in ns.

    After it was moved by `set_ns` within `set_uncertainty_ns`, it is ahead of ours by `off_ns` within `uncertainty_ns`,
    according to an exchange of `rtt_ns`.
    """

    off_ns: int
    set_ns: int
    uncertainty_ns: int
    rtt_ns: int
    set_uncertainty_ns: int


@dataclass(frozen=True)
class MachineFidelity:
    """A machine that runs a slice of the lab: how it was lost, its clock, its tunnels, and the measurements of its
    slice.

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

    `simulated`: the lab ran on the virtual clock, where no process can be late. `payload`: "length" where packets had
    only the length of their payload, so that nothing was verified. `switches`: those with a process each.
    For a lab on several machines `fabric` is the latest one of `machines`.
    """

    valid: bool = False
    reasons: Sequence[str] = ()
    simulated: bool = False
    payload: str = ""
    software: Software | None = None
    fabric: Lateness | None = None
    hosts: Mapping[str, HostFidelity] = field(default_factory=dict)
    switches: Mapping[str, SwitchLoad] = field(default_factory=dict)
    scheduling: Scheduling | None = None
    machine: MachineActivity | None = None
    machines: Mapping[str, MachineFidelity] = field(default_factory=dict)

    @property
    def length_only(self) -> bool:
        """Whether packets had only the length of their payload: what arrived was then not verified."""
        return self.payload == "length"

    @property
    def doubt(self) -> str:
        """The reasons why times are not valid; empty if they are, or nothing was measured."""
        return "" if self.valid or self == UNMEASURED else "; ".join(self.reasons)

    def document(self) -> object:
        """Return the part of result.json with what was measured."""
        if self == UNMEASURED:
            return {}
        return {key: value for key, value in encode(self).items() if value or key in ("valid", "reasons")}


#: The value before a measurement has ended.
UNMEASURED = Fidelity(reasons=(NOT_MEASURED,))


def processes(hosts: Mapping[str, HostFidelity]) -> dict[tuple[str, ...], float]:
    """Return the agents' processes by the hosts that they run, with each one's share of a core."""
    return {tuple(host.process) or (name,): host.cpu_share for name, host in hosts.items()}


def _tail(count: int) -> str:
    """Return what a P99 by nearest rank of this many delays is."""
    return "p99" if quantiles.supported(count, 0.99) else f"the longest of {count}"


def judge(measured: Fidelity, base_rtt_ns: int) -> list[str]:
    """Return the reasons for which a run is not valid; none if the machine kept up."""
    reasons = []
    fabric = measured.fabric
    if fabric is not None:
        late = fabric.loop.p99_ns
        if late > FABRIC_LAG_SHARE * base_rtt_ns:
            which = _tail(fabric.loop.count)
            reasons.append(
                f"the fabric's loop was {late / 1e6:.2f} ms late ({which}); base RTT {base_rtt_ns / 1e6:.2f} ms"
            )
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
            which = _tail(host.loop_lag.count)
            reasons.append(f"{name}'s loop was {late / 1e6:.2f} ms late ({which}); base RTT {base_rtt_ns / 1e6:.2f} ms")
        elif (stall := host.loop_lag.max_ns) > HOST_STALL_RTTS * base_rtt_ns:
            reasons.append(f"{name}'s loop was {stall / 1e6:.0f} ms late once; base RTT {base_rtt_ns / 1e6:.2f} ms")
        if host.rx_ring_drops:
            reasons.append(f"{name} lost {host.rx_ring_drops} frames that the fabric delivered")
    for names, share in processes(measured.hosts).items():
        if share > CPU_LIMIT:
            reasons.append(f"the agent of {', '.join(names)} took {share:.0%} of a core")
    return reasons
