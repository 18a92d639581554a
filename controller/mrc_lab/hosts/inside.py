"""Running programs inside a lab that is up, as its owner, without more rights for any process outside or inside."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from mrc_host.verbs.connection import ENVIRONMENT, verbs_socket
from mrc_lab.processes import namespaces
from mrc_lab.processes.exits import SHELL
from mrc_lab.records.record import LAB_FOLDER, LabFolder, State
from mrc_lab.records.rundir import PART_VARIABLE, RunError


def command(state: State, words: Sequence[str], *, host: str | None = None, files: bool = True) -> list[str]:
    """Return the command that runs `words` in the lab: in a host's network namespace, or in the fabric's (None).

    Args:
        files: whether to enter the lab's mount and PID namespaces, too.

    Raises:
        RunError: the lab is dead, or has no such host.
    """
    if state.first is None or not state.first.alive():
        raise RunError(f"lab '{state.name}' has died; `mrclab cleanup` removes what it left")
    check_here(state, host)
    if host is not None:
        if host not in state.record.hosts:
            raise RunError(f"no host '{host}' in lab '{state.name}'; it has: {', '.join(state.record.hosts)}")
        for death in state.record.deaths:
            if death.role == f"{host}{SHELL}":
                raise RunError(f"{death.text()}; nothing can enter it; `mrclab down {state.name}` ends the lab")
        # `mrc_host.verbs` finds the host's agent by this variable.
        device = f"{ENVIRONMENT}={verbs_socket(LabFolder(pathlib.Path(LAB_FOLDER)).socket(host))}"
        words = ["mnexec", "-a", str(state.record.hosts[host]), "env", device, *words]
    return [*_as_user(state), *namespaces.enter(state.first.pid, words, files=files)]


def check_here(state: State, host: str | None = None) -> None:
    """Check that the whole lab runs on this machine, as entering its namespaces requires.

    Raises:
        RunError: it runs on several machines; the text names the host's.
    """
    if state.machines:
        machine = next((name for name, hosts in state.machines.items() if host in hosts), "MACHINE")
        what = f"lab '{state.name}' is on several machines" if host is None else f"host {host} is on machine {machine}"
        raise RunError(
            f"{what}: this is done there, with {PART_VARIABLE}={machine} in the environment (docs/machines.md)"
        )


def run(
    state: State, words: Sequence[str], *, host: str | None = None, files: bool = True, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command in the lab as the user that the lab is mapped to, and wait for it."""
    return subprocess.run(command(state, words, host=host, files=files), check=False, **options)


def run_in_host(state: State, words: Sequence[str], *, host: str) -> None:
    """Run a command in a host; only the command receives signals from the terminal meanwhile."""
    before = _leave_the_terminal()
    try:
        run(state, words, host=host)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_the_terminal() -> dict[signal.Signals, Any]:
    return {each: signal.signal(each, signal.SIG_IGN) for each in namespaces.FROM_TERMINAL}


def exec_in_host(state: State, words: Sequence[str], *, host: str) -> NoReturn:
    """Replace this process by a command in a host. Its exit code is the command's, and killing it kills the command.

    Signals of the terminal reach the command alone, which decides when to end; this process waits for it.
    """
    line = command(state, words, host=host)
    _leave_the_terminal()
    for each in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these signals, and a command would inherit that.
        signal.signal(each, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execvp(line[0], line)


def start(state: State, words: Sequence[str], *, host: str, **options: Any) -> None:
    """Start a command in a host as `run` does, and leave it running; it ends with the lab at the latest.

    The shell makes it a child of the lab's first process. As a child of nsenter it would outlive the lab unreaped if
    nsenter were stopped together with it.
    """
    left = ["sh", "-c", '"$@" &', "sh", *words]
    run(state, left, host=host, stdin=subprocess.DEVNULL, start_new_session=True, **options)


def _as_user(state: State) -> list[str]:
    """Return the command that runs a program as the lab's user, for it needs no root rights in the namespace.

    A separate program sets the user. If `subprocess` did so, it would fork and run gRPC's fork handlers, which end the
    child if another thread is calling into gRPC; without a change of user, vfork is enough.
    """
    if os.geteuid() == 0 and state.uid > 0:
        return ["setpriv", f"--reuid={state.uid}", f"--regid={state.gid}", "--clear-groups", "--"]
    return []
