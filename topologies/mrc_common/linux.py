"""What to say where labs cannot run because the system is no Linux."""

from __future__ import annotations

import platform
import sys
from typing import Final

_TEXT: Final = (
    "labs need Linux, on the real clock for network namespaces and in simulated time for the switch's C code, and "
    "this is {system}; run mrclab in a Linux machine (docs/howto/virtual-machine.md) or a container "
    "(docs/howto/container.md)"
)


def not_linux() -> str:
    """Return why no lab runs on this machine, and where one does; empty on Linux."""
    return "" if sys.platform == "linux" else _TEXT.format(system=platform.system())
