"""Fidelity of a result: what the machine did while a run was going, whether it kept up, and its switches' load."""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import psutil

from mrc_host.answers import HostFidelity, Software
from mrc_topo.base import quantiles
from mrc_topo.base.plain import OMIT_NONE, encode
from mrclab.lab.processes.process import Process
from mrclab.lab.records.rundir import RunDir
from mrclab.lab.scheduling import MachineActivity, Scheduling
from p4lite.switch.fabric.values import Lateness, TunnelStats

#: By switch: the packets that its links delivered, and those that its program counted.
Seen = Mapping[str, tuple[int, int]]


class Thread(NamedTuple):
    """The resources of a thread since it began: CPU time and time in which it waited for a core (s), and its turns on
    one. Kernels without scheduler statistics report CPU time alone."""

    used: float
    waited: float = 0.0
    turns: int = 0

    def since(self, before: Thread) -> Thread:
        """Return the difference from an earlier reading."""
        return Thread(self.used - before.used, self.waited - before.waited, self.turns - before.turns)


def threads_of(pid: int) -> dict[int, Thread]:
    """Return all threads of a process; those that end meanwhile are left out.

    Raises:
        psutil.Error: there is no such process.
    """
    found = {}
    for each in psutil.Process(pid).threads():
        used = each.user_time + each.system_time
        found[each.id] = Thread(used)
        with contextlib.suppress(OSError, ValueError):
            ran, waited, turns = (
                pathlib.Path(f"/proc/{pid}/task/{each.id}/schedstat").read_text(encoding="utf-8").split()
            )
            if int(turns):
                found[each.id] = Thread(int(ran) / 1e9, int(waited) / 1e9, int(turns))
    return found


@dataclass(frozen=True)
class SwitchLoad:
    """The load of a switch's process, and how many packets it missed of those that its links delivered.

    `cpu_share` is the share of a core of all threads together, `busiest_thread` that of the busiest one. For the thread
    with the most to do, `runnable` is the share of the time in which it ran or waited for a core, and `waited_ns` its
    mean wait.
    """

    cpu_share: float
    busiest_thread: float
    runnable: float
    waited_ns: float
    given: int
    missed: int

    @classmethod
    def of(cls, spent: Collection[Thread], seconds: float, given: int, counted: int) -> SwitchLoad:
        """Return the load from what the threads of a process used in some seconds."""
        keenest = max(spent, key=lambda each: each.used + each.waited, default=Thread(0.0))
        return cls(
            cpu_share=sum(each.used for each in spent) / seconds,
            busiest_thread=max((each.used for each in spent), default=0.0) / seconds,
            runnable=(keenest.used + keenest.waited) / seconds,
            waited_ns=keenest.waited * 1e9 / max(keenest.turns, 1),
            given=given,
            missed=max(given - counted, 0),
        )


class ProcessLoad:
    """Measures, between `reset` and `measure`, the processes of a lab with the given roles."""

    def __init__(self, run: RunDir, roles: Collection[str]) -> None:
        self.run = run
        self.roles = roles
        self._since = time.monotonic()
        self._before: dict[str, tuple[Process, dict[int, Thread]]] = {}
        self._seen: Seen = {}

    def _now(self) -> dict[str, tuple[Process, dict[int, Thread]]]:
        found = {}
        for process in self.run.processes() if self.roles else ():
            if process.role in self.roles:
                with contextlib.suppress(psutil.Error):
                    found[process.role] = process, threads_of(process.pid)
        return found

    def reset(self, seen: Seen) -> None:
        """Restart the measurement."""
        self._since, self._before, self._seen = time.monotonic(), self._now(), seen

    def measure(self, seen: Seen) -> dict[str, SwitchLoad]:
        """Return the load by switch, without processes that were started meanwhile, because their counters started at
        0."""
        seconds = max(time.monotonic() - self._since, 1e-9)
        found = {}
        for role, (process, threads) in self._now().items():
            before, then = self._before.get(role, (None, {}))
            if process != before:
                continue
            given, counted = (
                (now - old for now, old in zip(seen[role], self._seen[role], strict=True))
                if role in seen and role in self._seen
                else (0, 0)
            )
            spent = [now.since(then.get(ident, Thread(0.0))) for ident, now in threads.items()]
            found[role] = SwitchLoad.of(spent, seconds, given, counted)
        return found


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
