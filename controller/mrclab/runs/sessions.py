"""Sessions for runs: a simulation, or a real lab, which is brought up and taken down again where it is not up."""

from __future__ import annotations

import contextlib
import json
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from mrc_topo.base import interruption
from mrc_topo.base.document import LAB_NAME
from mrc_topo.labfile import load_lab
from mrclab.lab import describe
from mrclab.lab import policies as own
from mrclab.lab.faults.ledger import UnsettledError
from mrclab.lab.processes.process import Process, several
from mrclab.lab.records import rundir
from mrclab.lab.records.rundir import RunDir, RunError
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import Session
from mrclab.lab.session.virtual import VirtualSession
from mrclab.lab.switches import mapping
from mrclab.runs.endings import LOST, is_silence
from p4lite.scratch import scratch


@contextlib.contextmanager
def lab_file(document: Mapping[str, object]) -> Iterator[str]:
    """Yield the path of a file with a lab's document, as long as the context lasts."""
    with scratch("lab") as folder:
        name = str(document.get("name"))
        path = pathlib.Path(folder, f"{name if re.match(LAB_NAME, name) else 'lab'}.yaml")
        path.write_text(json.dumps(document), encoding="utf-8")  # JSON is YAML
        yield str(path)


def print_warnings(lab: str, texts: Iterable[str]) -> None:
    """Print warnings about a lab to stderr, a line each."""
    for text in texts:
        print(f"warning: {lab}: {text}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def session_for(wanted: LabRequest, progress: Callable[[str], None] = lambda text: None) -> Iterator[Session]:
    """Yield a session on a lab that was checked for a clock: a virtual one is built here; a real one is used if it is
    up, else brought up and down again.

    Raises:
        RunError: the lab that is up has another transport, switch or compiler; a part for these is missing.
        ConfigError: a policy cannot be loaded.
        NamespaceError: there can be no real-clock lab here.
    """
    lab, topology, transport, clock = wanted.lab, wanted.topology, wanted.transport, wanted.clock
    if clock is None:
        raise ValueError(f"the request of lab {lab} was not checked for a clock: LabRequest.of(..., clock=...)")
    print_warnings(lab, describe.warnings(topology, clock, transport))
    if clock == "virtual":
        progress("building the simulation")
        session: Session = VirtualSession(topology, transport)
        _print_unsupported(lab, session)
        try:
            yield session
        finally:
            session.close()
        return
    run = RunDir(topology.lab.name)
    ours = not run.exists() or run.is_dead()
    with (
        interruption.at_once(partial(_down_apart, run.name)) if ours else contextlib.nullcontext(),
        _real_session(wanted, run, ours, progress) as real,
    ):
        yield real


@contextlib.contextmanager
def _real_session(wanted: LabRequest, run: RunDir, ours: bool, progress: Callable[[str], None]) -> Iterator[Session]:
    """Open a session on a lab on the real clock, which is brought up and down again if it is `ours`."""
    # A simulation does without these, which import gRPC and take as long as the rest of its start.
    from mrclab.lab import lifecycle
    from mrclab.lab.spread import session_of

    lab, topology = wanted.lab, wanted.topology
    if ours:
        lifecycle.up(wanted, progress)
    else:
        check_usable(run, transport=wanted.transport, switch=wanted.switch, compiler=wanted.compiler)
        up = load_lab(run.lab_file)
        if not own.same(topology, up):
            raise RunError(f"lab '{run.name}' is up with other policies; `mrclab down {run.name}` first")
        if topology.lab.seed != up.lab.seed:
            seeds = f"seed {up.lab.seed}, not {topology.lab.seed}"
            raise RunError(f"lab '{run.name}' is up with {seeds}; `mrclab down {run.name}` first")
    first = None
    try:
        session = session_of(topology.lab.name, fresh=ours)
        first = session.first
        _print_unsupported(lab, session)
        try:
            yield session
        finally:
            try:
                session.failures.restore_own(session)
            except (*LOST, UnsettledError) as error:
                # Failures that cannot be restored because a process is dead or frozen end with the lab, or stay noted.
                if not session.deaths() and not session.frozen() and not is_silence(error):
                    raise
            session.close()
    finally:
        if ours:
            _down(run, first)


def _print_unsupported(lab: str, session: Session) -> None:
    """Print to stderr what a program of the lab's own does not implement, a line each."""
    if session.topology.lab.program is not None:
        program = session.program
        for text in mapping.lacking(session.topology, program.names):
            print(f"note: {lab}: {program.path}: {text}", file=sys.stderr, flush=True)


def check_usable(run: RunDir, **wanted: str | None) -> None:
    """Raise RunError when a lab that is up cannot carry a run: where it is other than wanted (None: as it is)."""
    state = run.read()
    for what, value in wanted.items():
        found = getattr(state, what)
        if value is not None and found != value:
            raise RunError(f"lab '{run.name}' is up with {what} {found}; `mrclab down {run.name}` first")
    dead = [death for death in state.record.deaths if death.role not in state.record.hosts]
    if dead:
        raise RunError(f"lab '{run.name}' is damaged: {several(dead, ', ')}; `mrclab down {run.name}` first")


@contextlib.contextmanager
def down_if_killed(name: str) -> Iterator[None]:
    """Have a lab taken down if this process dies in the context, of whatever signal."""
    # The shell's input ends with this process.
    watch = ["/bin/sh", "-c", 'read -r line || exec "$@"', "sh", *_down_command(name)]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(watch, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True) as shell:
        assert shell.stdin is not None
        try:
            yield
        finally:
            with contextlib.suppress(BrokenPipeError):
                shell.stdin.write(b"over\n")
                shell.stdin.flush()


def _down_command(name: str) -> list[str]:
    return [sys.executable, "-P", "-m", "mrclab.cli", "down", name]


def _down_apart(name: str) -> None:
    """Have another process take a lab down, which outlives this one."""
    quiet = subprocess.DEVNULL
    subprocess.Popen(_down_command(name), stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)


def _down(run: RunDir, first: Process | None) -> None:
    """Take the lab with this first process down, unless another process already does."""

    with contextlib.suppress(RunError):
        if first is None or run.read().first == first:
            rundir.down(run.name)
