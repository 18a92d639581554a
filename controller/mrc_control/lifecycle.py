"""Bringing a real-clock lab up, taking it down, and cleaning up after whatever happened to it."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable

from mrc_control.hostnet import HostNetError
from mrc_control.rundir import RunDir, RunError, State, all_runs, end_processes
from mrc_topo.labfile import builtin_labs, load_lab
from mrc_topo.topology import Topology

UP_S = 180.0
DOWN_S = 20.0


def lab_path(lab: str) -> pathlib.Path:
    """The file of a lab given by path or by name."""
    path = pathlib.Path(lab)
    return (path if path.exists() else builtin_labs().get(lab, path)).resolve()


def is_dead(run: RunDir) -> bool:
    """Whether nothing holds a lab any more: its daemon is not alive."""
    try:
        state = run.read()
    except RunError:
        return True
    daemons = [process for process in state.processes if process.role == "labd"]
    return bool(daemons) and not any(process.alive() for process in daemons)


def up(
    lab: str, transport: str = "mrc", progress: Callable[[str], None] = lambda text: None, links: str = "memory"
) -> tuple[str, Topology]:
    """Brings a lab up; returns its name and topology. `links` is memory (one process carries all switches) or veth.

    Raises:
        LabError: the lab file.
        RunError: the name is in use, or the lab did not come up.
        HostNetError: Mininet is missing.
    """
    topology = load_lab(lab)
    if importlib.util.find_spec("mininet") is None:
        raise HostNetError("Mininet is missing; `make setup` installs it (Debian package mininet)")
    name = topology.lab.name
    run = RunDir(name)
    if run.exists() and is_dead(run):
        progress(f"removing what the last run of {name} left")
        run.remove()
    run.create()
    run.write(State(name, lab_file=str(lab_path(lab)), transport=transport, links=links))
    with (run.path / "labd.log").open("wb") as log:
        daemon = subprocess.Popen(
            [sys.executable, "-m", "mrc_control.labd", name], stdout=log, stderr=log, start_new_session=True
        )
    try:
        _wait_up(run, daemon, progress)
    except BaseException:
        down(name)
        raise
    return name, topology


def _wait_up(run: RunDir, daemon: subprocess.Popen[bytes], progress: Callable[[str], None]) -> None:
    deadline = time.monotonic() + UP_S
    seen = 0
    while True:
        dead = daemon.poll() is not None
        state = run.read()
        if len(state.processes) > seen:
            seen = len(state.processes)
            progress(f"starting: {state.processes[-1].role}")
        if state.phase == "up":
            return
        if state.phase == "failed" or dead:
            log = (run.path / "labd.log").read_text(errors="replace").strip().splitlines()
            raise RunError(f"lab '{run.name}' did not come up: {state.error or (log[-1] if log else 'it died')}")
        if time.monotonic() > deadline:
            raise RunError(
                f"lab '{run.name}' did not come up in {UP_S:.0f} s; see {run.path}/*.log before `mrclab down`"
            )
        time.sleep(0.05)


def down(name: str) -> list[str]:
    """Ends a lab; returns what was ended.

    Raises:
        RunError: there is none of this name.
    """
    run = RunDir(name)
    if not run.exists():
        run.read()
    try:
        daemons = [process for process in run.read().processes if process.role == "labd"]
    except RunError:
        daemons = []
    # The daemon first: it ends what it started in order; then whatever it could not.
    ended = end_processes(daemons, grace_s=DOWN_S)
    ended += run.remove()
    return ended


def cleanup() -> dict[str, list[str]]:
    """Removes every lab that nothing holds any more, and what is left of it; returns that by name."""
    return {run.name: run.remove() for run in all_runs() if is_dead(run) or _stuck(run)}


def _stuck(run: RunDir) -> bool:
    """A run directory whose daemon never came to record itself."""
    try:
        state = run.read()
    except RunError:
        return True
    return not state.processes and time.time() - os.stat(run.path).st_mtime > 5.0
