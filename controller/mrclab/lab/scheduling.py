"""Priority of the processes of a real-clock lab: asked for, granted by root where it can, and measured."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
import platform
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from mrc_topo.base.plain import OMIT_NONE
from mrclab.lab.processes.process import Process, Role, RoleKind
from mrclab.lab.records.rundir import RunDir, RunError, all_runs

#: The agents' niceness: hosts depend on the time, and other work of the machine can wait a little.
AGENT_NICE = -15

#: How long a process of a lab runs before another one that is ready has its turn, ns: the least that Linux knows. With
#: the usual 3 ms, agents that share a core wait for each other longer than a round trip takes.
SLICE_NS = 100_000
#: The numbers of the system calls sched_setattr and sched_getattr (include/uapi/asm-generic/unistd.h, and x86's table).
SCHED_ATTR_CALLS = {"x86_64": (314, 315), "aarch64": (274, 275)}

FABRIC_THREAD = "p4lite-fabric"
POLICIES = {
    getattr(os, name): name
    for name in ("SCHED_OTHER", "SCHED_FIFO", "SCHED_RR", "SCHED_BATCH", "SCHED_IDLE")
    if hasattr(os, name)
}


@dataclass(frozen=True)
class Priority:
    """The requested priority of a thread or process, and what the kernel reports.

    `session` is the niceness of the agents' session, where the kernel groups processes by session.
    """

    asked: str
    granted: str
    session: str | None = field(default=None, metadata=OMIT_NONE)


@dataclass(frozen=True)
class Scheduling:
    """The priorities of a lab's fabric processes and agents."""

    fabric: Priority
    agents: Priority


@dataclass(frozen=True)
class MachineActivity:
    """The other work of the machine: other labs (ours by name, those of other users by number), cores, and the load of
    a minute."""

    other_labs: Sequence[str]
    labs_of_others: int
    cores: int
    load_1min: float


class _Attributes(ctypes.Structure):
    """`struct sched_attr` (sched_setattr(2)) in its first form."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def _attributes(pid: int) -> _Attributes | None:
    """Return a thread's scheduling attributes; None where the system calls are not known or not permitted."""
    calls = SCHED_ATTR_CALLS.get(platform.machine())
    found = _Attributes()
    size = ctypes.sizeof(found)
    if calls is None or ctypes.CDLL(None).syscall(calls[1], pid, ctypes.byref(found), size, 0) != 0:
        return None
    return found


def slice_ns(pid: int) -> int:
    """Return the time slice of a thread in ns: its own or the kernel's; 0 where the kernel does not report one."""
    found = _attributes(pid)
    return found.runtime if found is not None and found.policy == os.SCHED_OTHER else 0


def shorten_slice() -> bool:
    """Ask for time slices of `SLICE_NS` for this thread and for processes that it starts from now on.

    Returns whether the kernel does that, which Linux 6.12 and later do for everyone (sched(7)). Earlier ones ignore the
    request.
    """
    wanted = _attributes(0)
    if wanted is None or wanted.policy != os.SCHED_OTHER:
        return False
    wanted.size, wanted.runtime = ctypes.sizeof(wanted), SLICE_NS
    ctypes.CDLL(None).syscall(SCHED_ATTR_CALLS[platform.machine()][0], 0, ctypes.byref(wanted), 0)
    return slice_ns(0) == SLICE_NS


def _fabric_threads(process: Process) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                if (task / "comm").read_text(encoding="utf-8").strip() == FABRIC_THREAD:
                    found.append(int(task.name))
    return found


def _parts(processes: Iterable[Process], hosts: Collection[str]) -> tuple[list[Process], list[Process]]:
    """Return the fabric processes and the agents among the processes of a lab."""
    fabric, agents = [], []
    for each in processes:
        role = Role.parse(each.role)
        if each.role in hosts:
            agents.append(each)
        elif role.kind not in (RoleKind.LAB, RoleKind.DAEMON):
            fabric.append(each)
    return fabric, agents


def grant(processes: Iterable[Process], hosts: Collection[str]) -> None:
    """Give the fabric's threads SCHED_RR and the agents their niceness, from outside and as root, if that is allowed.

    The processes inside then need no such right.

    Args:
        processes: those of the lab.
        hosts: the names of the processes that are agents.
    """
    fabric, agents = _parts(processes, hosts)
    with contextlib.suppress(OSError):
        for process in fabric:
            for thread in _fabric_threads(process):
                os.sched_setscheduler(thread, os.SCHED_RR, os.sched_param(1))
    with contextlib.suppress(OSError):
        for process in agents:
            os.setpriority(os.PRIO_PROCESS, process.pid, AGENT_NICE)
            raise_session(process.pid)


def raise_session(pid: int | str) -> bool:
    """Give the session of a process the agents' niceness; return whether the kernel supports and permits it.

    Where the kernel groups processes by session (`kernel.sched_autogroup_enabled`), a process's own niceness counts
    only within its session: against a busy loop in a shell it has no effect.
    """
    try:
        pathlib.Path(f"/proc/{pid}/autogroup").write_text(str(AGENT_NICE), encoding="utf-8")
    except OSError:
        return False
    return True


def measure(run: RunDir) -> Scheduling:
    """Return the priorities of a lab's processes."""
    fabric, agents = _parts(run.processes(), run.read().record.hosts)
    policies, nices, sessions = set(), set(), set()
    for process in fabric:
        for thread in _fabric_threads(process):
            with contextlib.suppress(OSError):
                policies.add(POLICIES.get(os.sched_getscheduler(thread), "another policy"))
    for process in agents:
        with contextlib.suppress(OSError):
            nices.add(os.getpriority(os.PRIO_PROCESS, process.pid))
        with contextlib.suppress(OSError, ValueError):
            sessions.add(int(pathlib.Path(f"/proc/{process.pid}/autogroup").read_text(encoding="utf-8").split()[-1]))
    return Scheduling(
        Priority("SCHED_RR", " and ".join(sorted(policies)) or "unknown"),
        Priority(
            f"nice {AGENT_NICE}",
            " and ".join(f"nice {each}" for each in sorted(nices)) or "unknown",
            " and ".join(f"nice {each}" for each in sorted(sessions)) or "not grouped",
        ),
    )


def machine_activity(run: RunDir) -> MachineActivity:
    """Return the other work of the machine beside a lab."""
    ours: dict[int, str] = {}
    for other in all_runs():
        with contextlib.suppress(RunError):
            first = other.first()
            if first is not None:
                ours[first.pid] = other.name
    running = {int(entry.name) for entry in pathlib.Path("/proc").iterdir() if entry.name.isdigit() and _is_lab(entry)}
    return MachineActivity(
        other_labs=sorted(name for pid, name in ours.items() if pid in running and name != run.name),
        labs_of_others=len(running - set(ours)),
        cores=os.cpu_count() or 1,
        load_1min=round(os.getloadavg()[0], 2),
    )


def _is_lab(entry: pathlib.Path) -> bool:
    """Return whether a process is the first one of a lab, by its command, which every user may read."""
    try:
        return b"mrclab.lab.processes.launch" in (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
