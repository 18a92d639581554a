"""The order in which a processor shows its loads and stores to others, for rings in memory that is shared.

x86-64 shows stores in the order of the program, and loads as well. There a counter that is stored after an entry makes
the entry visible. arm64 does neither: a barrier must lie between the entry and the counter, at both ends. Python has no
barrier of its own. Its locks have one: taking a lock is an acquire operation (what follows stays behind it), and
releasing it is a release operation (what precedes stays before it).

One of each is not enough: what precedes the acquire may move into the section, what follows the release may move into
it, too, and there one can pass the other. Taking the lock twice puts a release before an acquire, and arm64 keeps these
two in order ("barrier-ordered-before" in the Arm Architecture Reference Manual, B2.3). So everything before `fence` is
seen before everything after it.
"""

from __future__ import annotations

import platform
import threading
from typing import Final

_LOCK: Final = threading.Lock()


def is_weak(machine: str) -> bool:
    """Return whether a machine, by its name in `platform.machine()`, may show loads or stores in another order than the
    program has; of a machine that is not known this is assumed."""
    return machine.lower() not in ("x86_64", "amd64", "i386", "i686")


#: Whether `fence` is needed here: callers look before the call, which costs more than the look.
WEAK: Final = is_weak(platform.machine())


def fence() -> None:
    """Let the loads and stores before this call be seen before those after it, by every processor."""
    with _LOCK:
        pass
    with _LOCK:
        pass
