"""Open devices of this process: groups on one device share one context, for a host serves few programs."""

from __future__ import annotations

import os
import threading
from typing import Final

from mrc_host import verbs
from mrc_host.verbs.connection import device_path

_LOCK: Final = threading.Lock()
_OPEN: Final[dict[tuple[int, str], tuple[verbs.Context, int]]] = {}  # with how many use it


def acquire(name: str | None) -> verbs.Context:
    """The context of a device (None: that of `MRC_DEVICE`). Raises VerbsError when there is none."""
    path = str(device_path(name))
    with _LOCK:
        # By process, too: a fork has its parent's dictionary, and none of its connections.
        key = os.getpid(), path
        context, users = _OPEN.get(key, (None, 0))
        if context is None:
            context = verbs.open_device(path)
        _OPEN[key] = context, users + 1
        return context


def release(context: verbs.Context) -> None:
    """Gives it back; the last one closes it."""
    with _LOCK:
        for key, (each, users) in _OPEN.items():
            if each is context:
                if users > 1:
                    _OPEN[key] = context, users - 1
                else:
                    del _OPEN[key]
                    context.close()
                return
