"""End of a command: an error as lines of text, and the exit code that goes with it."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NoReturn

import typer

from mrc_topo.base.errors import ExitCode, MrclabError
from mrc_topo.base.interruption import Interrupted
from p4lite.errors import P4liteError
from p4lite.files import discard_output
from p4lite.terminal import harmless

#: Characters of a line of an error; a value that a message quotes may be of any length.
LONGEST = 2000
NO_MEMORY = "no memory is left; use fewer hosts, smaller messages or smaller files, or raise `ulimit -v`"
#: What the loader says of a library for which there is no memory.
UNMAPPED = "failed to map segment"
#: Errors of packages that do not use `mrc_topo.base`, by module and name, with their exit codes.
FOREIGN = (("mrc_host.policy", "PolicyError", ExitCode.FAILED),)


def end(message: str, code: int = ExitCode.USAGE) -> NoReturn:
    """End the command with one line per problem; of a line that quotes a huge value only the two ends are shown."""
    for line in message.splitlines():
        shown = line if len(line) <= LONGEST else f"{line[: LONGEST // 2]} ... {line[-LONGEST // 4 :]}"
        typer.echo(f"mrclab: error: {harmless(shown)}", err=True)
    raise SystemExit(int(code))


def _foreign(error: BaseException) -> ExitCode | None:
    """Return the exit code of one of `FOREIGN`. A module that was never imported cannot have raised it."""
    for module, name, code in FOREIGN:
        if module in sys.modules and isinstance(error, getattr(sys.modules[module], name)):
            return code
    return None


def offer(message: str, install: Sequence[str]) -> None:
    """On a terminal, ask whether to run a command that installs what is missing, and start ours again if it succeeded.

    Elsewhere no user could answer, so nothing happens; the error names the command to type.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    typer.echo(f"mrclab: {message}", err=True)
    if not typer.confirm(f"Run `{shlex.join(install)}` now?", default=False, err=True):
        return
    if subprocess.run(install, check=False).returncode:
        end(f"`{shlex.join(install)}` failed; its messages are above", ExitCode.FAILED)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


@contextlib.contextmanager
def report_errors() -> Iterator[None]:
    """Turn the errors of all packages into lines of text and an exit code."""
    try:
        yield
    except MrclabError as error:
        if error.packages:
            offer(str(error), [sys.executable, "-m", "pip", "install", *error.packages])
        end(str(error), error.exit_code)
    except P4liteError as error:
        end(str(error), ExitCode(error.exit_code))
    except BrokenPipeError:  # the reader of our output has closed it
        discard_output()
        sys.exit(ExitCode.FAILED)
    except OSError as error:  # a full disk, a folder that went away
        # Of a copy the second name is that of the new file.
        where = error.filename2 or error.filename
        place = f"{where}: " if where else ""
        end(f"{place}{error.strerror or error}", ExitCode.FAILED)
    except MemoryError:
        end(NO_MEMORY, ExitCode.FAILED)
    except ImportError as error:
        if UNMAPPED not in str(error):
            raise
        end(NO_MEMORY, ExitCode.FAILED)
    except Interrupted as error:
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(ExitCode.INTERRUPTED)
    except BaseException as error:
        code = _foreign(error)
        if code is None:
            raise
        end(str(error), code)
