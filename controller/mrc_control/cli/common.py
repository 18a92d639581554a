"""What the verbs share: errors in one line with the right exit code, and finding the lab that is meant."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import NoReturn

import typer

from mrc_control.denylist import DenylistError
from mrc_control.experiment import ExperimentError
from mrc_control.faults.action import FailureError
from mrc_control.faults.ledger import UnsettledError
from mrc_control.hostclient import HostError
from mrc_control.hostnet import HostNetError
from mrc_control.p4rt import P4RuntimeError
from mrc_control.program import ProgramError
from mrc_control.rundir import RunError, all_runs
from mrc_topo.labfile import LabError
from mrc_topo.topology import UnknownElement
from p4lite.switch.server import ServerError
from p4lite.switch.target import TargetError

#: What the user said was wrong, and what went wrong.
USAGE = (RunError, LabError, FailureError, UnknownElement, ExperimentError, DenylistError)
FAILED = (HostError, HostNetError, P4RuntimeError, ProgramError, TargetError, ServerError, UnsettledError)


def fail(message: str, code: int = 2) -> NoReturn:
    """Ends the command with one line per problem."""
    for line in message.splitlines():
        typer.echo(f"mrclab: error: {line}", err=True)
    raise SystemExit(code)


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Turns what the parts raise into a line and an exit code."""
    try:
        yield
    except USAGE as error:
        fail(str(error), 2)
    except FAILED as error:
        fail(str(error), 1)
    except KeyboardInterrupt:
        sys.exit(130)


def the_lab(name: str | None) -> str:
    """The lab that is meant: the named one, or the only one that is up.

    Raises:
        RunError: none or several are up.
    """
    if name is not None:
        return name
    names = [run.name for run in all_runs()]
    if len(names) != 1:
        what = (
            f"several labs are up ({', '.join(names)}); name one with --lab" if names else "no lab is up; `mrclab up`"
        )
        raise RunError(what)
    return names[0]


def need_root() -> None:
    """Real namespaces need root.

    Raises:
        RunError: we are not.
    """
    if os.geteuid() != 0:
        raise RunError("a real-clock lab needs root (namespaces, raw sockets): use sudo, or --clock virtual")
