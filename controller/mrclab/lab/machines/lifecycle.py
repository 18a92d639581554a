"""Bringing a lab up, wherever its parts are: on this machine, or, by a coordinator, on several."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from mrc_topo.placement import Placement
from mrc_topo.topology import Topology
from mrclab.lab import describe, lifecycle
from mrclab.lab.lifecycle import quiet
from mrclab.lab.machines import connect as reach
from mrclab.lab.records import rundir
from mrclab.lab.records.record import LabState, last_line
from mrclab.lab.records.rundir import LabDied, Progress, RunDir, RunError, await_up, claimed
from mrclab.lab.requested import LabRequest

if TYPE_CHECKING:
    from mrclab.lab.machines.coordinator import CoordinatorOrder

#: A shell script that starts a command and exits, so that the lab's first process reaps the command instead of a busy
#: parent.
LEAVE = 'exec 3<&0; "$@" <&3 3<&- >&2 & echo $!'

#: A smaller MTU is refused.
LEAST_PATH_MTU = 256


def up(wanted: LabRequest, progress: Progress = quiet) -> tuple[str, Topology]:
    """Bring a lab up that was checked (`LabRequest.of` with a clock), on all its machines.

    Raises:
        RunError: the lab cannot span several machines, or one of them cannot run its slice; as `lifecycle.up`.
    """
    topology, connect = wanted.topology, wanted.connect
    if not topology.lab.machines:
        if connect is not None:
            raise RunError(f"--connect leads to other machines, and lab '{topology.lab.name}' has no `machines`")
        return lifecycle.up(wanted, progress)
    # Most labs are on one machine, and come up sooner without what leads to others.
    from mrclab.lab.machines.coordinator import CoordinatorOrder

    check(wanted)
    commands = reach.commands(topology.lab.machines, connect)
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
    return run.name, topology


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


def in_pieces(name: str, topology: Topology) -> list[str]:
    """Describe the links of a running lab on which the network between the machines fragments full frames: with one
    fragment the frame is lost, and fragmentation costs time."""
    frame, found = describe.frame_bytes(topology), []
    if topology.lab.machines:
        from mrclab.lab.machines.coordinator import recorded_machines

        for machine, known in recorded_machines(RunDir(name)).items():
            room = known.frame_bytes
            if room is not None and room < frame:
                less = (topology.lab.path_mtu - (frame - room)) // 4 * 4
                found.append(
                    f"from machine {machine} full frames of {frame} bytes travel in pieces, since the network takes "
                    f"{room} in one; raise its MTU by {frame - room}"
                    + (f", or set path_mtu to {less}" if less >= LEAST_PATH_MTU else "")
                )
    return found


def roles(placement: Placement) -> list[str]:
    """Return the roles that have a socket in the run directory."""
    from mrclab.lab.machines.remote import VERBS

    hosts = [host.name for host in placement.topology.hosts]
    return [*hosts, *(f"{name}.{each}" for name in placement.machines for each in ("fabric", VERBS))]


def _start(run: RunDir, order: CoordinatorOrder) -> None:
    """Start the coordinator, and send it its order once it is recorded."""
    coordinator = [sys.executable, "-P", "-m", "mrclab.lab.machines.coordinator", run.name]
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
