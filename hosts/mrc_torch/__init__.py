"""Collective operations over MRC, and the backend `mrc` of torch.distributed: docs/pytorch.md

`Collectives` needs no torch, and importing this does not import it. Whichever of the two is imported last makes the
backend known: this package here, torch by the entry point `torch.backends`.
"""

import sys

from mrc_torch.collectives import Collectives
from mrc_torch.errors import ClosedError, CollectiveError, MismatchError, RankDeadError, RankSilentError
from mrc_torch.stores import FolderStore
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
    """Makes the backend `mrc` known to torch.distributed. Torch calls it, too, when it is imported."""
    from mrc_torch import backend

    backend.register()


if "torch" in sys.modules and hasattr(sys.modules["torch"], "distributed"):
    register()
