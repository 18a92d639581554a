"""Parts that verbs share: their options, and the search for the lab that a command means.

Sessions on labs, and what reads lab files, are imported in the functions that need them: most of what such a session
imports (gRPC, NumPy) is nothing to a verb that simulates or only lists labs, and takes longer than the rest of its
start.
"""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mrc_topo.base.document import printable
from mrc_topo.base.errors import UsageError, not_linux
from mrc_topo.units import LONGEST, parse_rate_bps, quantity
from mrc_topo.units import parse_seconds as to_seconds
from mrclab.lab.records import rundir
from mrclab.lab.records.rundir import RunDir, RunError, all_runs, in_part

if TYPE_CHECKING:
    from mrclab.lab.session.real import RealSession


#: A lab by its name, as an argument or as an option.
_NAME = "the lab's name (default: $MRCLAB_LAB, otherwise the only lab of this shell)"


def _running_labs(incomplete: str) -> list[str]:
    """Return the names of labs that are up, for a shell that completes one."""
    return [run.name for run in all_runs() if run.name.startswith(incomplete)]


LabName = Annotated[str | None, typer.Argument(help=_NAME, autocompletion=_running_labs)]
LabOption = Annotated[str | None, typer.Option("--lab", help=_NAME, autocompletion=_running_labs)]

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


Custom = Annotated[
    str | None, typer.Option("--custom", help="instead of a lab: a Python file of yours with topologies of Mininet")
]
Topo = Annotated[
    str | None, typer.Option("--topo", help="the topology of the file of --custom, as for mn: NAME or NAME,ARGUMENTS")
]


@contextlib.contextmanager
def lab_or_custom(lab: str | None, custom: str | None, topo: str | None) -> Iterator[str | None]:
    """Yield the lab that a command names, or the file of the one that `--custom` and `--topo` make.

    Raises:
        UsageError: both are given, or only one of the two options.
        DocumentError: the file of `--custom` makes no lab.
    """
    if custom is None and topo is None:
        yield lab
        return
    if custom is None or topo is None or lab is not None:
        raise UsageError("give --custom FILE and --topo NAME together, and no other lab beside them")
    from mrc_topo.labfile import LabError
    from mrc_topo.mininet_topo import load
    from mrclab.runs import sessions

    read = load(custom, topo)
    sessions.print_warnings(read.name, read.notes)
    with sessions.lab_file(read.data) as file:
        try:
            yield file
        except LabError as error:
            raise LabError([text.replace(file, read.name) for text in error.problems]) from None


@contextlib.contextmanager
def on_lab(name: str | None) -> Iterator[RealSession]:
    """Open a session on the selected lab. If it does not answer, the error names the processes that died or are frozen.

    Raises:
        RunError: there is no such lab.
        HostError: something of it does not answer.
    """
    from mrclab.lab.hosts.hostclient import HostError
    from mrclab.lab.spread import session_of
    from mrclab.runs.endings import LOST, is_silence

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
        f"`export {rundir.VARIABLE}={others[0]}`"
    )


def own_lab() -> str | None:
    """Return the lab for a command that names none: that of `MRCLAB_LAB`, or the only one that this shell brought up.

    Never one of another shell's, but the only part of one that is kept elsewhere, when parts are meant
    (`rundir.in_part`). None: there is none.

    Raises:
        RunError: this shell brought several up, or the variable names none that is up.
    """
    runs = all_runs()
    chosen = os.environ.get(rundir.VARIABLE)
    if chosen:
        if chosen not in [run.name for run in runs]:
            known = ", ".join(run.name for run in runs) or "none"
            raise RunError(f"{rundir.VARIABLE}: lab '{chosen}' is not up; up: {known}; `unset {rundir.VARIABLE}`?")
        return chosen
    if in_part() and len(runs) == 1:
        return runs[0].name  # a keeper brought it up, and no shell
    names = []
    for run in runs:
        with contextlib.suppress(RunError):  # it has just gone
            if rundir.is_here(run.read().shell):
                names.append(run.name)
    if len(names) > 1:
        raise RunError(
            f"several labs are up ({', '.join(names)}); name one with --lab, or `export {rundir.VARIABLE}={names[0]}`"
        )
    return names[0] if names else None


def lab_file(name: str, clock: str | None = None) -> str:
    """Return what to load for a lab that is given by name or path: of a lab that is up, its recorded file, and
    otherwise the name as it is.

    A name of a lab that comes with the project means that one in simulated time (`clock`), and where the lab that is
    up is the same.

    Raises:
        LabError: the lab that comes with the project cannot be read.
    """
    from mrc_topo.labfile import builtin_labs, read_lab
    from mrc_topo.shipped import is_path

    known = builtin_labs()
    if is_path(name) or (clock == "virtual" and name in known):
        return name
    run = next((each for each in all_runs() if each.name == name), None)
    if run is None:
        return name
    try:
        file = run.read().lab_file
        same = name in known and pathlib.Path(file).read_text(encoding="utf-8") == read_lab(name)[0]
    except (RunError, OSError):  # it has just gone
        return name
    return name if same else file


def own_file(clock: str | None) -> str | None:
    """Return what to load for a command that names no lab, on this clock (None: not chosen yet); None: there is no lab
    of its own.

    In simulated time it is the lab of `MRCLAB_LAB` only, which may be one that comes with the project and is not up.

    Raises:
        RunError: as of `own_lab`.
    """
    from mrc_topo.labfile import builtin_labs

    chosen = os.environ.get(rundir.VARIABLE)
    if clock == "virtual" and (not chosen or chosen in builtin_labs()):
        return chosen or None
    up = own_lab()
    return None if up is None else RunDir(up).read().lab_file


def need_namespaces() -> None:
    """Check that there can be a real-clock lab on this machine.

    Raises:
        HostNetError: Mininet is missing.
        NamespaceError: the machine gives no namespaces; the text names the setting and the ways out.
    """
    from mrclab.lab import lifecycle

    lifecycle.check()


def parse_setting(text: str, texts: Collection[str] = ()) -> tuple[str, Any]:
    """Parse a setting such as `loss=0.2` into its name and value.

    The value is a finite number, a quantity with its unit (`rate_bps=20Mbps`, also `rate=20Mbps`; `loss=20%`), true,
    false, or a list of whole numbers, as in `sources=[1,2]`; of those named in `texts` it is the text itself.

    Raises:
        FailureError: it is not of that form.
    """
    from mrclab.lab.faults.action import FailureError

    key, equals, value = text.partition("=")
    if not equals:
        raise FailureError(f"'{printable(text)}' is not a setting; write one as name=value, like loss=0.2")
    if key in texts:
        return key, value
    if value in ("true", "false"):
        return key, value == "true"
    if re.fullmatch(r"\[(\d{1,9}(, ?\d{1,9})*)?\]", value):
        return key, [int(each) for each in value[1:-1].split(",") if each]
    try:
        found = quantity(key, value) if len(value) <= LONGEST else None
    except ValueError as error:
        raise FailureError(f"'{printable(text)}': {error}") from error
    if found is not None:
        return found
    try:
        if len(value) > LONGEST:
            raise ValueError
        number = int(value) if re.fullmatch(r"[+-]?\d+", value) else float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        more = f"; texts, such as the names of files, are taken by: {', '.join(sorted(texts))}" if texts else ""
        raise FailureError(
            f"'{printable(text)}': the value must be a finite number, a list like [1,2], true or false{more}"
        )
    return key, number


def parse_settings(given: Iterable[str], texts: Collection[str] = ()) -> dict[str, Any]:
    """Return all `--set` options of a command; see `parse_setting`.

    Raises:
        FailureError: one is not of the form NAME=VALUE, or a name is given twice.
    """
    from mrclab.lab.faults.action import FailureError

    settings: dict[str, Any] = {}
    for text in given:
        key, value = parse_setting(text, texts)
        if key in settings:
            raise FailureError(f"--set {printable(key)} is given twice; keep one")
        settings[key] = value
    return settings


def parse_seconds(text: str | float) -> float:
    """Return the seconds of `2s`, `500ms` or a plain number.

    Raises:
        typer.BadParameter: it is neither.
    """
    try:
        return to_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"'{printable(str(text))[:40]}' is not a time; write one such as 2s or 500ms"
        ) from error


def parse_mbps(text: str | int) -> int:
    """Return the whole Mb/s of `20Mbps` or a plain number, from 1 to 1000.

    Raises:
        typer.BadParameter: it is neither.
    """
    given = str(text)
    try:
        bps = int(given) * 10**6 if given.isdecimal() and len(given) <= 10 else parse_rate_bps(given)
    except ValueError as error:
        raise typer.BadParameter(f"'{printable(given)[:40]}' is not a rate; write one such as 20Mbps") from error
    if bps % 10**6 or not 10**6 <= bps <= 10**9:
        raise typer.BadParameter(f"{printable(given)[:40]}: give whole Mb/s from 1Mbps to 1Gbps")
    return bps // 10**6


def duration(help: str) -> typer.models.OptionInfo:
    """Return the option `--duration`, with its own explanation."""
    made: typer.models.OptionInfo = typer.Option("--duration", parser=parse_seconds, metavar="TIME", help=help)
    return made
