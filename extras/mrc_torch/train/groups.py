"""The group of all ranks, by the backend that is wanted."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch.distributed as dist


def join(config: Mapping[str, Any]) -> None:
    """Join the group.

    Ranks find each other by a file, so that no link that fails carries more than the job's own data. `backend` is gloo,
    which uses the kernel's TCP over the interface that `GLOO_SOCKET_IFNAME` names, or mrc: the verbs of the host's
    agent, whatever transport it speaks.
    """
    if config["backend"] == "mrc":
        import mrc_torch

        mrc_torch.register()
    store = dist.FileStore(str(pathlib.Path(config["store"])), int(config["size"]))
    dist.init_process_group(
        config["backend"],
        store=store,
        rank=int(config["rank"]),
        world_size=int(config["size"]),
        timeout=timedelta(seconds=float(config["timeout_s"])),
    )
