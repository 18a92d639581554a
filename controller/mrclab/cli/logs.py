"""`mrclab logs`: what a lab's processes have written."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from mrc_topo.base import interruption
from mrc_topo.base.document import printable
from mrclab.cli import progress
from mrclab.cli.common import LabOption, the_lab
from mrclab.lab.records.record import GrowingFile
from mrclab.lab.records.rundir import RunDir, RunError

#: The role under which the log of the lab's first process is shown; the log is outside the lab's folder.
DAEMON = "labd"
POLL_S = 0.2
#: A log is read from at most this many bytes before its end, which its own size limit does not reach.
LONGEST = 1 << 24


@dataclass(frozen=True)
class LogFile:
    """A file of log lines and the processes that write to it: hosts that share a process share its log."""

    roles: tuple[str, ...]
    path: pathlib.Path

    @property
    def title(self) -> str:
        """Return what stands before each line."""
        return self.roles[0] if len(self.roles) == 1 else f"{self.roles[0]}..{self.roles[-1]}"


def logs_of(run: RunDir) -> list[LogFile]:
    """Return the logs of a lab: that of its first process, then those of its record."""
    record = run.read().record
    roles: dict[int, list[str]] = {}
    for role, pid in record.roles.items():
        roles.setdefault(pid, []).append(role)
    found = [LogFile((DAEMON,), run.log_file)]
    for shared in roles.values():
        path = next((run.folder.log(role) for role in shared if run.folder.log(role).exists()), None)
        if path is not None:
            found.append(LogFile(tuple(shared), path))
    return found


class LogTail:
    """The lines of a log, made printable: each is returned once, when it is complete.

    A lab may have written anything.
    """

    def __init__(self, path: pathlib.Path) -> None:
        self._file = GrowingFile(path)
        self._begun = b""

    def new_lines(self, *, whole: bool = True) -> list[str]:
        """Return the lines that were written since the last call; none if there is no file.

        Args:
            whole: keep a last line without its end until the rest of it is there.
        """
        try:
            before, appended = self._file.taken, self._file.read(LONGEST)
        except OSError:
            self._file, self._begun = GrowingFile(self._file.path), b""
            return []
        # A file that was cut off or replaced is another: what was begun in the old one never ends.
        begun = b"" if self._file.taken - len(appended) < before else self._begun
        *lines, self._begun = (begun + appended).split(b"\n")
        if self._begun and not whole:
            lines, self._begun = [*lines, self._begun], b""
        return [printable(line.decode(errors="replace").rstrip("\r")) for line in lines]


def verb(
    process: Annotated[
        str | None, typer.Argument(help="a host, a switch, fabric or labd (default: all)", show_default=False)
    ] = None,
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="go on with new lines, until Ctrl-C or the lab's end")
    ] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=0, help="of each log, how many of the last lines")] = 100,
    lab: LabOption = None,
) -> None:
    """Print the logs of a lab's processes."""
    run = RunDir(the_lab(lab))
    logs = chosen(logs_of(run), process)
    width = max(len(each.title) for each in logs)
    tails = {log: LogTail(log.path) for log in logs}
    written = False
    for log, tail in tails.items():
        found = tail.new_lines(whole=follow)
        written |= bool(found)
        for line in found[len(found) - min(lines, len(found)) :]:
            _print(log, line, width, len(logs))
    if not written:
        progress.warn(f"nothing is written so far: {len(logs)} logs, which processes write only if something is wrong")
    if follow:
        for log, line in _new_lines(run, process, tails):
            _print(log, line, width, len(tails))


def chosen(logs: list[LogFile], process: str | None) -> list[LogFile]:
    """Return the logs of a process, or all.

    Raises:
        RunError: there is no such process, or it has no log.
    """
    found = [log for log in logs if process is None or process in log.roles]
    if not found:
        known = ", ".join(role for log in logs for role in log.roles)
        raise RunError(f"no process '{printable(process or '')[:64]}' has a log; with a log: {known}")
    return found


def _print(log: LogFile, line: str, width: int, count: int) -> None:
    typer.echo(line if count == 1 else f"{log.title:<{width}} | {line}")


def _new_lines(run: RunDir, process: str | None, tails: dict[LogFile, LogTail]) -> Iterator[tuple[LogFile, str]]:
    """Yield lines as they are written, until the lab has ended; logs that appear meanwhile join `tails`."""
    while True:
        ended = not run.exists() or run.is_dead()
        with contextlib.suppress(RunError):  # The lab ends, and has no record any more.
            for log in chosen(logs_of(run), process):
                tails.setdefault(log, LogTail(log.path))
        for log, tail in tails.items():
            for line in tail.new_lines(whole=not ended):
                yield log, line
        if ended:
            return
        interruption.sleep(POLL_S)
