"""Collective operations over MRC, and the backend `mrc` of torch.distributed: docs/pytorch.md

`Collectives` needs no torch, and importing this does not import it. Whichever of the two is imported last makes the
backend known: this package here, torch by the entry point `torch.backends`.
"""

import sys

from mrc_torch.collectives import Collectives
from mrc_torch.errors import ClosedError, CollectiveError, MismatchError, RankDeadError, RankSilentError
from mrc_torch.stores import FolderStore
from mrc_torch.versions import refusal
from mrc_torch.work import Work

__all__ = [
    "ClosedError",
    "CollectiveError",
    "Collectives",
    "FolderStore",
    "MismatchError",
    "RankDeadError",
    "RankSilentError",
    "Work",
    "register",
]


def register() -> None:
    """Make the backend `mrc` known to torch.distributed. Torch calls it, too, when it is imported.

    It never raises, for `import torch` would fail by that: with a torch that it is not for, using the backend does.
    """
    import torch
    import torch.distributed as dist

    if not dist.is_available():
        return  # torch was built without it; then there are no backends at all
    said = refusal(torch.__version__)
    if said is None:
        from mrc_torch import backend

        backend.register()
    elif not hasattr(dist.Backend, "MRC"):

        def refuse(*_: object) -> None:
            raise RuntimeError(said)

        dist.Backend.register_backend("mrc", refuse, devices=["cpu"])


if "torch" in sys.modules and hasattr(sys.modules["torch"], "distributed"):
    register()
