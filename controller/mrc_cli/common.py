"""What the verbs share: options, and finding the lab that is meant.

Sessions on labs are imported in the functions that open them: most of what such a session imports (gRPC, NumPy) is
nothing to a verb that simulates or only lists labs, and takes longer than the rest of its start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from mrc_common.linux import not_linux
from mrc_lab.records import shells
from mrc_lab.records.rundir import RunError, all_runs, in_part

if TYPE_CHECKING:
    from mrc_lab.session.real import RealSession

#: A lab by its name, as an argument or as an option.
_NAME = "the lab's name (default: $MRCLAB_LAB, otherwise the only lab of this shell)"
LabName = Annotated[str | None, typer.Argument(help=_NAME)]
LabOption = Annotated[str | None, typer.Option("--lab", help=_NAME)]

#: What forwards in a lab, and what compiles its program; the lab file's by default.
Switch = Annotated[str | None, typer.Option("--switch", help="p4lite, bmv2 or kernel (default: as in the lab file)")]
Payload = Annotated[
    str | None,
    typer.Option(
        "--payload", help="bytes, or in simulated time length: packets without their payload (default: as in the file)"
    ),
]
Compiler = Annotated[str | None, typer.Option("--compiler", help="p4lite or p4c (default: as in the lab file)")]

TrustCode = Annotated[
    bool,
    typer.Option("--trust-code", help="allow policies named in the lab file to run as your user on the real clock"),
]


@contextlib.contextmanager
def on_lab(name: str | None) -> Iterator[RealSession]:
    """Open a session on the selected lab. If it does not answer, the error names the processes that died or are frozen.

    Raises:
        RunError: there is no such lab.
        HostError: something of it does not answer.
    """
    from mrc_lab.hosts.hostclient import HostError
    from mrc_lab.machines.session import session_of
    from mrc_runs.endings import LOST, is_silence

    session = session_of(the_lab(name))
    try:
        yield session
    except LOST as error:
        told = session.harm() if is_silence(error) else []
        if told:
            raise HostError(f"{error}; {'; '.join(told)}") from error
        raise
    finally:
        session.close()


def seconds(option: str, value: float | None, *, least: float = 0.0) -> float | None:
    """Return an option's value in seconds. Raise an error unless it is a finite number that is not negative.

    Raises:
        RunError: it is not finite, below `least`, or longer than eleven days.
    """
    if value is not None and not least <= value <= 1e6:
        raise RunError(f"{option} is a number of seconds from {least:g} to 1000000, not {value}")
    return value


def the_lab(name: str | None) -> str:
    """Return the selected lab: the named one, that of `MRCLAB_LAB`, or the only one that this shell brought up.

    Raises:
        RunError: none or several are up here; the text names those of other shells.
    """
    if name is not None:
        return name
    chosen = own_lab()
    if chosen is not None:
        return chosen
    others = [run.name for run in all_runs()]
    if not others:
        raise RunError(f"no lab is up; {not_linux() or '`mrclab up`'}")
    raise RunError(
        f"no lab was brought up from this shell, but {', '.join(others)} from elsewhere; name it, or "
        f"`export {shells.VARIABLE}={others[0]}`"
    )


def own_lab() -> str | None:
    """Return the lab for a command that names none: that of `MRCLAB_LAB`, or the only one that this shell brought up.

    Never one of another shell's, but the only part of one that is kept elsewhere, when parts are meant
    (`rundir.in_part`). None: there is none.

    Raises:
        RunError: this shell brought several up, or the variable names none that is up.
    """
    runs = all_runs()
    chosen = os.environ.get(shells.VARIABLE)
    if chosen:
        if chosen not in [run.name for run in runs]:
            known = ", ".join(run.name for run in runs) or "none"
            raise RunError(f"{shells.VARIABLE}: lab '{chosen}' is not up; up: {known}; `unset {shells.VARIABLE}`?")
        return chosen
    if in_part() and len(runs) == 1:
        return runs[0].name  # a keeper brought it up, and no shell
    names = []
    for run in runs:
        with contextlib.suppress(RunError):  # it has just gone
            if shells.is_here(run.read().shell):
                names.append(run.name)
    if len(names) > 1:
        raise RunError(
            f"several labs are up ({', '.join(names)}); name one with --lab, or `export {shells.VARIABLE}={names[0]}`"
        )
    return names[0] if names else None


def need_namespaces() -> None:
    """Check that there can be a real-clock lab on this machine.

    Raises:
        HostNetError: Mininet is missing.
        NamespaceError: the machine gives no namespaces; the text names the setting and the ways out.
    """
    from mrc_lab import lifecycle

    lifecycle.check()
