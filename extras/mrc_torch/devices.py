"""Open devices of this process: groups on one device share one context, for a host serves few programs."""

from __future__ import annotations

import os
import threading
from typing import Final

from mrc_host import verbs
from mrc_host.verbs.connection import device_path

#: Of the environment: the devices of a machine's ranks, and the number of this rank there, which torchrun sets.
DEVICES: Final = "MRC_DEVICES"
LOCAL_RANK: Final = "LOCAL_RANK"
_LOCK: Final = [threading.Lock()]  # one; a forked child has another
_OPEN: Final[dict[str, tuple[verbs.Context, int]]] = {}  # with how many use it


def of_local_rank() -> str | None:
    """Return the device of this process among those that `torchrun` starts on one machine; None: that of `MRC_DEVICE`.

    `MRC_DEVICES` lists hosts' names or paths of their agents' sockets, one for each `LOCAL_RANK`.

    Raises:
        ValueError: there are too few.
    """
    listed, rank = os.environ.get(DEVICES, ""), os.environ.get(LOCAL_RANK, "")
    if not listed or not rank.isdecimal():
        return None
    names = [each.strip() for each in listed.split(",")]
    if int(rank) >= len(names):
        raise ValueError(f"{DEVICES} lists {len(names)} devices, and {LOCAL_RANK} is {rank}: list one for each rank")
    return names[int(rank)]


def acquire(name: str | None) -> verbs.Context:
    """Return the context of a device (None: that of `MRC_DEVICE`). Raises VerbsError when there is none."""
    path = str(device_path(name))
    with _LOCK[0]:
        context, users = _OPEN.get(path, (None, 0))
        if context is None:
            context = verbs.open_device(path)
        _OPEN[path] = context, users + 1
        return context


def release(context: verbs.Context) -> None:
    """Give it back; the last one closes it."""
    with _LOCK[0]:
        for path, (each, users) in _OPEN.items():
            if each is context:
                if users > 1:
                    _OPEN[path] = context, users - 1
                else:
                    del _OPEN[path]
                    context.close()
                return


def _forget_all() -> None:
    """Forget all contexts in a forked child: they are the parent's, and a thread that is not here may have held the
    lock.
    """
    _LOCK[0] = threading.Lock()
    _OPEN.clear()


os.register_at_fork(after_in_child=_forget_all)
