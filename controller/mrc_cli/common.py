"""What the verbs share: errors in one line with the right exit code, and finding the lab that is meant."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Annotated, NoReturn

import typer

from mrc_host.policy import PolicyError
from mrc_host.proto.limits import ConfigError
from mrc_lab import lifecycle
from mrc_lab.faults.action import FailureError
from mrc_lab.faults.ledger import UnsettledError
from mrc_lab.hosts.hostclient import HostError
from mrc_lab.hosts.hostnet import HostNetError
from mrc_lab.machines.session import session_of
from mrc_lab.management.denylist import DenylistError
from mrc_lab.processes.namespaces import NamespaceError
from mrc_lab.records import shells
from mrc_lab.records.rundir import LabDied, RunError, all_runs, in_part
from mrc_lab.session.real import RealSession
from mrc_lab.switches.p4rt import P4RuntimeError
from mrc_lab.switches.program import OwnProgramError, ProgramError
from mrc_results.resultdir import FolderError
from mrc_runs.endings import LOST, is_silence
from mrc_runs.experiment import ExperimentError
from mrc_runs.interruption import Interrupted
from mrc_scale.clusterfile import ClusterError
from mrc_studies.calibration.produce import ScaleError
from mrc_studies.sweeps.work import SweepCut
from mrc_topo.labfile import LabError
from mrc_topo.topology import UnknownElement
from mrc_workshop.exercise import NotGraded, WorkshopError
from p4lite.files import WriteError
from p4lite.switch.listen import ServerError
from p4lite.switch.targetapi.client import TargetError

#: A lab by its name, as an argument or as an option.
_NAME = "the lab's name; $MRCLAB_LAB or this shell's only one if left out"
LabName = Annotated[str | None, typer.Argument(help=_NAME)]
LabOption = Annotated[str | None, typer.Option("--lab", help=_NAME)]

#: What forwards in a lab, and what compiles its program; the lab file's if left out.
Switch = Annotated[str | None, typer.Option("--switch", help="p4lite, bmv2 or kernel; as the lab says if left out")]
Compiler = Annotated[str | None, typer.Option("--compiler", help="p4lite or p4c; as the lab says if left out")]

TrustCode = Annotated[
    bool, typer.Option("--trust-code", help="on the real clock: run the policies that the lab names, as you")
]

#: What the user said was wrong, and what went wrong.
USAGE = (
    RunError,
    LabError,
    OwnProgramError,
    FailureError,
    UnknownElement,
    ExperimentError,
    DenylistError,
    FolderError,
    ConfigError,
    WorkshopError,
    ClusterError,
    ScaleError,
)
FAILED = (
    HostError,
    HostNetError,
    NamespaceError,
    P4RuntimeError,
    ProgramError,
    TargetError,
    ServerError,
    UnsettledError,
    SweepCut,
    WriteError,
)


def end(message: str, code: int = 2) -> NoReturn:
    """Ends the command with one line per problem, none of which a terminal would obey."""
    for line in message.splitlines():
        shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
        typer.echo(f"mrclab: error: {shown}", err=True)
    raise SystemExit(code)


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Turns what the parts raise into a line and an exit code."""
    try:
        yield
    except (LabDied, NotGraded) as error:
        end(str(error), 1)
    except USAGE as error:
        end(str(error), 2)
    except (*FAILED, PolicyError) as error:
        end(str(error), 1)
    except BrokenPipeError:  # whoever read our output has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk, a folder that went away
        # Of a copy the second name is that of the new file.
        where = error.filename2 or error.filename
        place = f"{where}: " if where else ""
        end(f"{place}{error.strerror or error}", 1)
    except Interrupted as error:
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)


@contextlib.contextmanager
def on_lab(name: str | None) -> Iterator[RealSession]:
    """A session on the lab that is meant. What does not answer is told with what has died or is frozen.

    Raises:
        RunError: there is no such lab.
        HostError: something of it does not answer.
    """
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
    """The value of an option in seconds, if it is a number that can be waited for.

    Raises:
        RunError: it is not finite, below `least`, or longer than eleven days.
    """
    if value is not None and not least <= value <= 1e6:
        raise RunError(f"{option} is a number of seconds from {least:g} to 1000000, not {value}")
    return value


def the_lab(name: str | None) -> str:
    """The lab that is meant: the named one, that of `MRCLAB_LAB`, or the only one that this shell brought up.

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
        raise RunError("no lab is up; `mrclab up`")
    raise RunError(
        f"no lab was brought up from this shell, but {', '.join(others)} from elsewhere; name it, or "
        f"`export {shells.VARIABLE}={others[0]}`"
    )


def own_lab() -> str | None:
    """The lab that a command means which names none: that of `MRCLAB_LAB`, or the only one that this shell brought up.

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
    """Checks that there can be a real-clock lab on this machine.

    Raises:
        HostNetError: Mininet is missing.
        NamespaceError: the machine gives no namespaces; the text names the setting and the ways out.
    """
    lifecycle.check()
