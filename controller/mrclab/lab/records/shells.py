"""From which shell a lab was brought up: a command that names no lab means one of its own shell, or none.

Otherwise a command typed in one window could break, capture or end what a user does in another.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

import psutil

#: The variable with the name of the lab that commands use if they name none; `mrclab up` prints it.
VARIABLE: Final = "MRCLAB_LAB"
#: The programs that may stand between a shell and a command that it runs.
BETWEEN: Final = frozenset(("sudo", "doas", "su", "pkexec", "env", "time", "timeout", "nice", "mrclab"))


def _identity(pid: int) -> str:
    """Return a text that identifies a process, even if its PID is used again."""
    try:
        return f"{pid} {psutil.Process(pid).create_time():.2f}"
    except psutil.Error:
        return f"{pid} gone"


def here() -> list[str]:
    """Return the identity of this command's shell: its session, and the nearest ancestor that is not a wrapper.

    sudo starts each command in a new session, and the commands of a script share a session, but not a parent.
    """
    found = [f"session {_identity(os.getsid(0))}"]
    with contextlib.suppress(psutil.Error):
        parent = next((each for each in psutil.Process().parents() if each.name() not in BETWEEN), None)
        if parent is not None and parent.pid > 1:
            found.append(f"shell {_identity(parent.pid)}")
    return found


def is_here(shell: list[str]) -> bool:
    """Return whether the result of `here` for another command means this command's shell."""
    return not set(shell).isdisjoint(here())
