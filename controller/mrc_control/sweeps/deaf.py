"""What Dask's workers on this machine load first: Ctrl-C is for the command, which then ends them."""

from __future__ import annotations

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Called in each worker's process, by Dask."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
