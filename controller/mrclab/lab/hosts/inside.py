"""Running programs inside a lab that is up, as its owner, without more rights for any process outside or inside."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from libmrc.build import SONAME
from mrc_host.verbs.connection import ENVIRONMENT, verbs_socket
from mrclab.lab.processes import namespaces
from mrclab.lab.processes.process import SHELL, Process
from mrclab.lab.records.record import LAB_FOLDER, LIBRARY, LabFolder, LabState
from mrclab.lab.records.rundir import PART_VARIABLE, RunError


def command(
    state: LabState, words: Sequence[str], *, host: str | None = None, files: bool = True, by_hand: bool = False
) -> list[str]:
    """Return the command that runs `words` in the lab: in a host's network namespace, or in the fabric's (None).

    Args:
        files: whether to enter the lab's mount and PID namespaces, too.
        by_hand: whether a user's own program runs: it finds libmrc (`environment`), and has the host's name.

    Raises:
        RunError: the lab is dead, or has no such host.
    """
    first = _first(state)
    check_here(state, host)
    if host is not None:
        _check_host(state, host)
        variables = environment(state, host) if by_hand else _device(host)
        words = ["env", *(f"{name}={value}" for name, value in variables.items()), *words]
        if by_hand:
            words = [*_named(host), *words]
        words = ["mnexec", "-a", str(state.record.hosts[host]), *words]
    return [*_as_user(state), *namespaces.enter(first.pid, words, files=files)]


def environment(state: LabState, host: str) -> dict[str, str]:
    """Return the variables by which programs in a host find its agent, and libmrc where it is built.

    libmrc comes before what `LD_PRELOAD` and `LD_LIBRARY_PATH` have already.

    Raises:
        RunError: the lab is dead, or has no such host.
    """
    first = _first(state)
    check_here(state, host)
    _check_host(state, host)
    found = _device(host)
    folder = f"{LAB_FOLDER}/{LIBRARY}"
    if os.path.exists(f"/proc/{first.pid}/root{folder}/{SONAME}"):
        for name, ours in (("LD_LIBRARY_PATH", folder), ("LD_PRELOAD", f"{folder}/{SONAME}")):
            found[name] = ":".join(filter(None, (ours, os.environ.get(name))))
    return found


def _device(host: str) -> dict[str, str]:
    """Return the variable by which `mrc_host.verbs` finds the host's agent."""
    return {ENVIRONMENT: str(verbs_socket(LabFolder(pathlib.Path(LAB_FOLDER)).socket(host)))}


def _named(host: str) -> list[str]:
    """Return the words before a command that give it the host's name as the machine's: programs of MPI and of NCCL take
    equal names for one machine."""
    return ["unshare", "--uts", "--", "sh", "-c", 'hostname "$1" 2>/dev/null; shift; exec "$@"', "sh", host]


def _first(state: LabState) -> Process:
    """Return the lab's first process, which must be alive."""
    if state.first is None or not state.first.alive():
        raise RunError(f"lab '{state.name}' has died; `mrclab cleanup` removes what it left")
    return state.first


def _check_host(state: LabState, host: str) -> None:
    """Check that the lab has a host, and that something can enter it."""
    if host not in state.record.hosts:
        raise RunError(f"no host '{host}' in lab '{state.name}'; it has: {', '.join(state.record.hosts)}")
    for death in state.record.deaths:
        if death.role == f"{host}{SHELL}":
            raise RunError(f"{death.text()}; nothing can enter it; `mrclab down {state.name}` ends the lab")


def check_here(state: LabState, host: str | None = None) -> None:
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
    state: LabState,
    words: Sequence[str],
    *,
    host: str | None = None,
    files: bool = True,
    by_hand: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a command in the lab as the user that the lab is mapped to, and wait for it."""
    with _has_tools():
        return subprocess.run(command(state, words, host=host, files=files, by_hand=by_hand), check=False, **options)


def run_in_host(state: LabState, words: Sequence[str], *, host: str) -> None:
    """Run a command in a host; only the command receives signals from the terminal meanwhile."""
    before = _leave_the_terminal()
    try:
        run(state, words, host=host, by_hand=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave_the_terminal() -> dict[signal.Signals, Any]:
    return {each: signal.signal(each, signal.SIG_IGN) for each in namespaces.FROM_TERMINAL}


def exec_in_host(state: LabState, words: Sequence[str], *, host: str) -> NoReturn:
    """Replace this process by a command in a host. Its exit code is the command's, and killing it kills the command.

    Signals of the terminal reach the command alone, which decides when to end; this process waits for it.
    """
    line = command(state, words, host=host, by_hand=True)
    _leave_the_terminal()
    for each in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these signals, and a command would inherit that.
        signal.signal(each, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    with _has_tools():
        os.execvp(line[0], line)


@contextlib.contextmanager
def _has_tools() -> Iterator[None]:
    """Name the remedy where the program that enters a lab is missing."""
    try:
        yield
    except FileNotFoundError as error:
        raise RunError(
            "nsenter or setpriv, by which commands enter a lab, is not on the PATH; both come with util-linux"
        ) from error


def start(state: LabState, words: Sequence[str], *, host: str, **options: Any) -> None:
    """Start a command in a host as `run` does, and leave it running; it ends with the lab at the latest.

    The shell makes it a child of the lab's first process. As a child of nsenter it would outlive the lab unreaped if
    nsenter were stopped together with it.
    """
    left = ["sh", "-c", '"$@" &', "sh", *words]
    run(state, left, host=host, stdin=subprocess.DEVNULL, start_new_session=True, **options)


def _as_user(state: LabState) -> list[str]:
    """Return the command that runs a program as the lab's user, for it needs no root rights in the namespace.

    A separate program sets the user. If `subprocess` did so, it would fork and run gRPC's fork handlers, which end the
    child if another thread is calling into gRPC; without a change of user, vfork is enough.
    """
    if os.geteuid() == 0 and state.uid > 0:
        return ["setpriv", f"--reuid={state.uid}", f"--regid={state.gid}", "--clear-groups", "--"]
    return []
