"""Rights to memory regions, as the protocol and programs name them."""

from __future__ import annotations

from enum import IntFlag


class Access(IntFlag):
    """Rights to a memory region, with the numbers of `ibv_access_flags`."""

    NONE = 0
    LOCAL_WRITE = 1
    REMOTE_WRITE = 2
    REMOTE_READ = 4
    REMOTE_ATOMIC = 8
