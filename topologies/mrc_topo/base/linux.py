"""Linux-only parts: the text that says where labs can run, and processes that end with their parent."""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1
_TEXT: Final = (
    "labs need Linux, on the real clock for network namespaces and in simulated time for the switch's C code, and "
    "this is {system}; run mrclab in a Linux machine (docs/howto/virtual-machine.md) or a container "
    "(docs/howto/container.md)"
)


def not_linux() -> str:
    """Return why no lab runs on this machine, and where one does; empty on Linux."""
    return "" if sys.platform == "linux" else _TEXT.format(system=platform.system())


def end_with_parent() -> None:
    """Have this process killed when the thread that started it ends. Children do not inherit this; it is lost when the
    user changes. On other systems nothing is done.

    Raises:
        OSError: the kernel refuses.
    """
    if sys.platform == "linux" and ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        raise OSError(ctypes.get_errno(), f"ending with the parent: {os.strerror(ctypes.get_errno())}")
