"""The extra as the core sees it (`mrclab.lab.spread`): labs on several machines, which a coordinator brings up."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

from mrc_machines import connect as reach
from mrc_machines.coordinator import CoordinatorOrder, recorded_machines
from mrc_machines.remote import VERBS
from mrc_machines.session import SpreadSession
from mrc_topo.placement import Placement
from mrc_topo.topology import Topology
from mrclab.lab import describe
from mrclab.lab.records import rundir
from mrclab.lab.records.record import LabState, last_line
from mrclab.lab.records.rundir import LabDied, Progress, RunDir, RunError, await_up, claimed
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.real import RealSession

#: A shell script that starts a command and exits, so that the lab's first process reaps the command instead of a busy
#: parent.
LEAVE = 'exec 3<&0; "$@" <&3 3<&- >&2 & echo $!'

#: A smaller MTU is refused.
LEAST_PATH_MTU = 256


def up(wanted: LabRequest, progress: Progress) -> None:
    """Bring a lab up that was checked (`LabRequest.of` with a clock), on all its machines.

    Raises:
        RunError: the lab cannot span several machines, or one of them cannot run its slice; as `lifecycle.up`.
    """
    topology = wanted.topology
    check(wanted)
    commands = reach.commands(topology.lab.machines, wanted.connect)
    placement = Placement(topology)
    state = LabState(
        topology.lab.name,
        transport=wanted.transport,
        switch=topology.lab.switch,
        compiler=topology.lab.compiler,
        uid=os.geteuid(),
        gid=os.getegid(),
        since=time.time(),
        machines={name: [host.name for host in placement.hosts(name)] for name in placement.machines},
        shell=rundir.here(),
    )
    with claimed(state, roles(placement), progress) as run:
        run.lab_file.write_text(wanted.text, encoding="utf-8")
        _start(run, CoordinatorOrder(commands, wanted.transport))
    # The coordinator continues by itself.
    await_up(run, progress)


def session_of(name: str, *, fresh: bool) -> RealSession:
    """Open a session on a lab that is up; errors as `RealSession`."""
    return SpreadSession(name, fresh=fresh)


def check(wanted: LabRequest) -> None:
    """Check that a lab can span several machines.

    Raises:
        RunError: it cannot; the text says what would work.
    """
    lab = wanted.topology.lab
    if lab.switch != "p4lite" or lab.compiler != "p4lite":
        raise RunError(
            f"lab '{lab.name}' has `machines`: its switches are p4lite's, not {lab.switch}'s or {lab.compiler}'s"
        )
    if wanted.links != "memory":
        raise RunError(f"lab '{lab.name}' has `machines`: one process carries the switches of each; leave --links out")
    for key, given in (("program", lab.program), ("policies", lab.policies.named)):
        if given:
            raise RunError(
                f"lab '{lab.name}' has `machines`, where files of its own are not brought; leave `{key}` out"
            )


def warnings(topology: Topology) -> list[str]:
    """Describe the links of a running lab on which the network between the machines fragments full frames: with one
    fragment the frame is lost, and fragmentation costs time."""
    frame, found = describe.frame_bytes(topology), []
    for machine, known in recorded_machines(RunDir(topology.lab.name)).items():
        room = known.frame_bytes
        if room is not None and room < frame:
            less = (topology.lab.path_mtu - (frame - room)) // 4 * 4
            found.append(
                f"from machine {machine} full frames of {frame} bytes travel in pieces, since the network takes {room} "
                f"in one; raise its MTU by {frame - room}"
                + (f", or set path_mtu to {less}" if less >= LEAST_PATH_MTU else "")
            )
    return found


def roles(placement: Placement) -> list[str]:
    """Return the roles that have a socket in the run directory."""
    hosts = [host.name for host in placement.topology.hosts]
    return [*hosts, *(f"{name}.{each}" for name in placement.machines for each in ("fabric", VERBS))]


def _start(run: RunDir, order: CoordinatorOrder) -> None:
    """Start the coordinator, and send it its order once it is recorded."""
    coordinator = [sys.executable, "-P", "-m", "mrc_machines.coordinator", run.name]
    with run.log_file.open("wb") as log:
        starter = subprocess.Popen(
            ["sh", "-c", LEAVE, "sh", *coordinator],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert starter.stdin is not None
    assert starter.stdout is not None
    try:
        run.started(int(starter.stdout.readline()))
        starter.stdin.write(order.line().encode())
        starter.stdin.flush()
    except (BrokenPipeError, ProcessLookupError, ValueError):
        raise LabDied(f"lab '{run.name}' did not start: {last_line(run.log_file) or 'its coordinator died'}") from None
    finally:
        with contextlib.suppress(BrokenPipeError):
            starter.stdin.close()
        starter.stdout.close()
        starter.wait()
