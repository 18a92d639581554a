"""Bringing a real-clock lab up, taking it down, and cleaning up after whatever happened to it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import TypedDict

from libmrc.build import LINKS, SONAME, library
from mrc_topo.topology import Topology
from mrclab.lab import policies, scheduling
from mrclab.lab.hosts.hostnet import HostNetError, check_installed
from mrclab.lab.processes.launch import LaunchOrder
from mrclab.lab.processes.launcher import LaunchError, launch
from mrclab.lab.processes.namespaces import NamespaceError, Owner, lab_owner, user_name
from mrclab.lab.processes.process import KILL_AFTER_S, end_process, wait_dead
from mrclab.lab.records import rundir
from mrclab.lab.records.record import LAB_FOLDER, LIBRARY, LabState, last_line
from mrclab.lab.records.rundir import (
    DOWN_S,
    STARTING,
    LabDied,
    Progress,
    RunDir,
    RunError,
    all_parts,
    all_runs,
    await_up,
    base,
    base_lock,
    check_ours,
    claimed,
    is_locked,
)
from mrclab.lab.requested import LabRequest
from mrclab.lab.spread import SliceOfLab, machines_of
from mrclab.lab.switches import forwarders
from mrclab.lab.switches.program import FabricProgram, program_of
from p4lite.switch.errors import BuildError
from p4lite.switch.native import build

CACHE = "/run/cache"
DAEMON = "mrclab.lab.daemon"
#: The environment variables of root that root's labs inherit.
ENVIRONMENT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "TERM",
    "TZ",
    "CC",
    "PYTHONDONTWRITEBYTECODE",
    "P4LITE_SANITIZE",
    "LD_LIBRARY_PATH",
)


def quiet(text: str) -> None:
    """Ignore all steps."""


def check() -> None:
    """Check that this machine can run a real-clock lab, before anything is created.

    Raises:
        HostNetError: Mininet is missing.
        NamespaceError: the machine does not allow namespaces; the text names the setting and the ways out.
    """
    check_installed()
    command = [sys.executable, "-P", "-m", "mrclab.lab.processes.launch", "--probe"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        text = done.stdout.strip().removeprefix("error ") or (done.stderr.strip().splitlines() or ["no word"])[-1]
        raise NamespaceError(text)


def problem() -> str | None:
    """Return why this machine can run no real-clock lab, with the remedy; None if it can."""
    try:
        check()
    except (HostNetError, NamespaceError) as error:
        return str(error)
    return None


def up(wanted: LabRequest, progress: Progress = quiet, *, part: SliceOfLab | None = None) -> tuple[str, Topology]:
    """Bring a lab up that was checked (`LabRequest.of` with a clock); return its name and topology.

    With `part` only this slice of a lab on several machines comes up, here.

    Raises:
        ProgramError: p4c refuses the program, or the lab's own program cannot be used.
        RunError: the name is in use, or the lab did not come up.
        UsageError: it is on several machines, and the extra for that is not here.
        HostNetError: Mininet is missing.
        NamespaceError: this machine does not allow namespaces.
    """
    topology, links = wanted.topology, wanted.links
    if topology.lab.machines and part is None:
        machines_of(topology.lab.name).up(wanted, progress)
        return topology.lab.name, topology
    if wanted.connect is not None:
        raise RunError(f"--connect leads to other machines, and lab '{topology.lab.name}' has no `machines`")
    if links == "veth" and topology.lab.switch != "p4lite":
        raise RunError(f"links veth is for p4lite; links of switch {topology.lab.switch} are wires of one process")
    check()
    # The project's own program is compiled inside the lab.
    lab_runs_another = topology.lab.compiler == "p4c" or topology.lab.program is not None
    program = program_of(topology) if lab_runs_another else None
    owner = lab_owner()
    lab = topology.lab
    uid, gid = (os.geteuid(), os.getegid()) if owner is None else (owner.uid, owner.gid)
    state = LabState(
        lab.name,
        transport=wanted.transport,
        links=links,
        switch=lab.switch,
        compiler=lab.compiler,
        uid=uid,
        gid=gid,
        since=time.time(),
        shell=rundir.here(),
    )
    roles = [host.name for host in topology.hosts] + [switch.name for switch in topology.switches]
    with claimed(state, roles, progress) as run:
        _place_files(run, state, wanted, program, part)
        bmv2 = [forwarders.bmv2()] if lab.switch == "bmv2" else []
        order = LaunchOrder(
            command=[
                *(sys.executable, "-P", "-m", DAEMON if part is None else part.daemon, run.name),
                *(wanted.transport, links, lab.switch, lab.compiler, *map(str, bmv2)),
            ],
            binds={LAB_FOLDER: str(run.folder.path), CACHE: str(_cache(owner))},
            trees=[] if owner is None else trees(*(each.resolve().parent for each in bmv2)),
            owner=owner,
            clock_ahead_ns=0 if part is None else part.clock_ahead_ns,
        )
        descriptors = () if part is None else part.descriptors
        try:
            launch(run.name, order, run.log_file, _environment(owner), descriptors, run.started)
        except LaunchError as error:
            raise LabDied(f"lab '{run.name}' did not start: {last_line(run.log_file) or error}") from None
    # From here on the lab comes up by itself, even if this process is killed.
    processes = await_up(run, progress)
    if owner is not None:
        scheduling.grant(processes, {host.name for host in topology.hosts})
    return run.name, topology


def _cache(owner: Owner | None) -> pathlib.Path:
    """Return the folder of compiled switches that the lab loads from and writes to; root's labs have a separate one."""
    try:
        folder = build.cache_dir()
    except BuildError:
        # The user has no home directory.
        folder = base() / ".cache"
        folder.mkdir(exist_ok=True, mode=0o700)
    if owner is None:
        return folder
    folder = folder / f"labs-of-{owner.uid}"
    folder.mkdir(exist_ok=True, mode=0o700)
    os.chown(folder, owner.uid, owner.gid)
    return folder


def trees(*more: pathlib.Path) -> list[str]:
    """Return the folders that the user who runs the lab must be able to read: interpreter, libraries, our code, and
    `more`."""
    here = pathlib.Path(__file__).resolve()
    wanted = [pathlib.Path(sys.prefix), pathlib.Path(sys.base_prefix), here.parents[3], *more]
    wanted += [pathlib.Path(each) for each in sys.path if each]
    found: list[pathlib.Path] = []
    for path in sorted({each.resolve() for each in wanted if each.is_dir()}):
        if not any(path.is_relative_to(each) for each in found):
            found.append(path)
    return [str(each) for each in found]


def _environment(owner: Owner | None) -> dict[str, str]:
    if owner is None:
        return {**os.environ, "MRCLAB_CACHE": CACHE}
    kept = {key: os.environ[key] for key in ENVIRONMENT if key in os.environ}
    return {**kept, "HOME": LAB_FOLDER, "MRCLAB_CACHE": CACHE}


def _place_files(
    run: RunDir, state: LabState, wanted: LabRequest, program: FabricProgram | None, part: SliceOfLab | None
) -> None:
    """Write the files that the lab's daemon reads into the run directory: lab file, policies, program, description of
    the slice."""
    text, trusted = wanted.text, []
    if wanted.topology.lab.policies.named:
        trusted = policies.read(wanted.topology)
        text = policies.copied(text, trusted)
    for path in (run.lab_file, run.folder.path / run.lab_file.name):
        policies.place(trusted, path.parent)
        path.write_text(text, encoding="utf-8")
    if program is not None:
        for path in (run.program_file, run.folder.path / run.program_file.name):
            program.save(path)
    _place_library(run)
    # Root's umask may keep other users from reading what root writes. Until the lab runs, only we can open the folder.
    for path in run.folder.path.rglob("*"):
        os.chown(path, state.uid, state.gid, follow_symlinks=False)
    if part is not None:
        part.save(run.folder.path, state.uid, state.gid)


def _place_library(run: RunDir) -> None:
    """Copy libmrc into the lab's folder, where every lab can read it; there is none without what it is built with."""
    try:
        built = library()
    except BuildError:
        return
    folder = run.folder.path / LIBRARY
    folder.mkdir(mode=0o755)
    shutil.copyfile(built / SONAME, folder / SONAME)
    (folder / SONAME).chmod(0o755)
    for name in LINKS:
        (folder / name).symlink_to(SONAME)


class LabRow(TypedDict):
    """A lab in `mrclab list`. `phase` is dead where no process holds the lab any more, unreadable where its record
    cannot be read."""

    name: str
    phase: str
    hosts: int
    fabric: int
    transport: str
    links: str
    since: float
    user: str
    pid: int | None


def listing() -> list[LabRow]:
    """Return our labs, one row each."""
    rows: list[LabRow] = []
    for run in all_runs():
        row = LabRow(
            name=run.name,
            phase="unreadable",
            hosts=0,
            fabric=0,
            transport="",
            links="",
            since=0.0,
            user="",
            pid=None,
        )
        with contextlib.suppress(RunError):
            state = run.read()
            row["phase"] = "dead" if run.is_dead() else "ending" if state.ending else state.record.phase
            row["hosts"], row["fabric"] = len(state.record.hosts), len(state.record.fabric)
            row["transport"], row["links"], row["since"] = state.transport, state.links, state.since
            row["user"] = user_name(state.uid)
            row["pid"] = None if state.first is None else state.first.pid
        rows.append(row)
    return rows


def cleanup(progress: Progress = quiet) -> dict[str, list[str]]:
    """Remove every lab that no process holds any more, with everything left of it; return what was removed, by name.

    Wait for a lab that is ending, and leave a lab alone that is starting or up; report each to `progress`.
    """
    removed: dict[str, list[str]] = {}
    if not check_ours(base()):
        return removed
    for run in all_runs():
        if not run.is_dead() and not _await_end(run, progress):
            continue
        with base_lock():
            if run.exists() and run.is_dead():
                removed[run.name] = run.remove()
    # The coordinator ends slices that are up, on whatever machine it runs.
    for part in all_parts():
        with base_lock():
            if part.exists() and part.is_dead():
                removed[f"{part.name} (machine {part.path.parent.name})"] = part.remove()
    return removed


def _await_end(run: RunDir, progress: Progress) -> bool:
    """Wait for a living lab that is ending; return whether it ended."""
    if is_locked(run.path / STARTING):
        progress(f"lab {run.name}: is being started; left alone")
        return False
    try:
        state = run.read()
    except RunError as error:
        progress(f"lab {run.name}: is left alone: {error}")
        return False
    if state.first is None:
        return True
    if not state.ending and state.record.phase not in ("ending", "failed"):
        progress(f"lab {run.name}: is up; `mrclab down {run.name}` ends it")
        return False
    progress(f"lab {run.name}: is ending; waiting for it")
    if not wait_dead(state.first, DOWN_S + KILL_AFTER_S):
        end_process(state.first, 0.0)
    return True
