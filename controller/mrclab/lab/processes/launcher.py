"""Has `launch` start a program in namespaces of its own: the order, its answers, and the word to go."""

from __future__ import annotations

import contextlib
import os
import pathlib
import select
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Final

from mrc_topo.base.errors import MrclabError
from mrclab.lab.processes.launch import LaunchOrder
from mrclab.lab.processes.namespaces import NamespaceError

LAUNCH_S: Final = 30.0


class LaunchError(MrclabError):
    """A program that did not start; the text says why."""


def launch(
    name: str,
    order: LaunchOrder,
    log: pathlib.Path,
    environment: Mapping[str, str],
    descriptors: Sequence[int],
    started: Callable[[int], object],
) -> None:
    """Launch a program, and let it run once `started` has recorded its first process.

    Args:
        log: receives its output.
        descriptors: are inherited.

    Raises:
        NamespaceError: this machine does not allow namespaces.
        LaunchError: the program did not start, or its first process died before it was recorded.
    """
    with log.open("wb") as file:
        launcher = subprocess.Popen(
            [sys.executable, "-P", "-m", "mrclab.lab.processes.launch", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env=environment,
            start_new_session=True,
            pass_fds=descriptors,
        )
    assert launcher.stdin is not None
    assert launcher.stdout is not None
    try:
        launcher.stdin.write(order.line().encode())
        launcher.stdin.flush()
        answers = _answers(launcher.stdout, 2)
        pid = next((int(each.split()[1]) for each in answers if each.startswith("pid ")), None)
        error = next((each.removeprefix("error ") for each in answers if each.startswith("error ")), None)
        if error is not None:
            raise NamespaceError(error)
        if pid is None or "ready" not in answers:
            raise LaunchError("no word from the launcher")
        started(pid)
        launcher.stdin.write(b"go\n")
        launcher.stdin.flush()
    except (BrokenPipeError, ProcessLookupError):
        raise LaunchError("it died") from None
    finally:
        with contextlib.suppress(BrokenPipeError):
            launcher.stdin.close()
        launcher.stdout.close()
        launcher.wait()


def _answers(pipe: IO[bytes], count: int) -> list[str]:
    """Return lines of the launcher, in the order in which two processes wrote them: `count` lines, or up to an
    error."""
    data = b""
    deadline = time.monotonic() + LAUNCH_S
    while data.count(b"\n") < count and b"error " not in data:
        if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
            break
        more = os.read(pipe.fileno(), 1 << 16)
        if not more:
            break
        data += more
    return data.decode(errors="replace").splitlines()
