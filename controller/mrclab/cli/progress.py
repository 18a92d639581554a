"""Progress of a command on standard error: `-q` prints nothing, `-v` a line per step with its time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

import typer

from mrc_topo.base import interruption

if TYPE_CHECKING:
    from mrclab.studies.engine import Show


class Verbosity(IntEnum):
    """How much a command prints of its own work; results and errors are printed always."""

    QUIET = 0
    NORMAL = 1
    VERBOSE = 2


#: One command runs in a process, so this is set once, by its options.
_chosen = Verbosity.NORMAL


def choose(verbosity: Verbosity) -> None:
    """Set how much the command prints."""
    global _chosen
    _chosen = verbosity


def chosen() -> Verbosity:
    """Return how much the command prints."""
    return _chosen


def warn(text: str) -> None:
    """Print a line on standard error, unless the command is quiet."""
    if _chosen > Verbosity.QUIET:
        typer.echo(text, err=True)


class Tell(Protocol):
    """Takes the step that a command is at; `due`: it is printed even soon after another line."""

    def __call__(self, text: str, *, due: bool = False) -> None:
        """Show the step."""


def _ignore(text: str, *, due: bool = False) -> None:
    """Show nothing."""
    interruption.check()


@contextlib.contextmanager
def steps(first: str = "starting", *, lines: bool = False, pause_s: float = 0.0) -> Iterator[Tell]:
    """Show the step that a command is at: `first`, then each text that the yielded function is given.

    On a terminal the newest step replaces the one before. With `-v` each is a line, with the seconds since the first.

    The function also looks for signals, because a command calls it between the steps of its work.

    Args:
        lines: where standard error is no terminal, print each step but the first on a line.
        pause_s: the shortest time between two of these lines; a line that is `due` does not wait for it.
    """
    if _chosen is Verbosity.QUIET:
        yield _ignore
        return
    # A command that prints its version or refuses an option has no use for it, and it takes a moment to import.
    from mrclab.results.terminal import Terminal

    console = Terminal(stderr=True)
    if _chosen is Verbosity.NORMAL:
        told = -pause_s
        with console.status(first) as status:

            def show(text: str, *, due: bool = False) -> None:
                nonlocal told
                interruption.check()
                status.update(text)
                due = due or time.monotonic() - told >= pause_s
                if lines and text and due and not console.is_terminal:
                    told = time.monotonic()
                    console.print(text, style="dim", highlight=False)

            yield show
        return
    began = time.monotonic()

    def tell(text: str, *, due: bool = False) -> None:
        interruption.check()
        console.print(f"{time.monotonic() - began:7.2f} s  {text}", highlight=False, soft_wrap=True)

    tell(first)
    yield tell


@contextlib.contextmanager
def study_progress(pause_s: float = 0.0) -> Iterator[Show]:
    """Yield what shows the progress of a study as `steps` does, elsewhere than on a terminal by a line for each run."""
    with steps(lines=True, pause_s=pause_s) as tell:
        yield lambda progress: tell(str(progress), due=progress.done in (0, progress.total))
