"""Limits of the shell (`ulimit`) that a lab cannot live with, named before anything starts.

Without this the first call that fails would tell something else: a cache that cannot be written, a silent switch.
"""

from __future__ import annotations

import resource

from mrc_topo.base.errors import SIMULATE
from mrc_topo.units import format_size
from mrclab.lab.records.rundir import RunError

#: The number of open files that the smallest labs need, with room for Python's and gRPC's own.
LEAST_FILES = 256
#: The address space of a process of a real-clock lab: gRPC's and the fabric's threads reserve most of it.
LEAST_SPACE = 2 << 30
#: That of the process of a simulation: the programs themselves, and the smallest lab.
LEAST_SIMULATION = 256 << 20


class LimitError(RunError):
    """A limit that is too low; the text names it and the remedy."""


def check(clock: str) -> None:
    """Raise the limit of open files as far as allowed, and check the limits.

    Raises:
        LimitError: a limit is too low for a lab on this clock.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < LEAST_FILES:
        wanted = LEAST_FILES if hard == resource.RLIM_INFINITY else min(LEAST_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        if wanted < LEAST_FILES:
            raise LimitError(
                f"a process may have {hard} files open here, a lab needs {LEAST_FILES}; raise it (`ulimit -n 1024`)"
            )
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    real = clock == "real"
    least = LEAST_SPACE if real else LEAST_SIMULATION
    if space != resource.RLIM_INFINITY and space < least:
        raise LimitError(
            f"a process may have {format_size(space)} of address space here, a lab on the {clock} clock needs "
            f"{format_size(least)}; raise it (`ulimit -v unlimited`){f', or {SIMULATE}' if real else ''}"
        )
