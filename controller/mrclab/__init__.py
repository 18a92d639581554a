"""Laboratory for MRC: labs, runs, results, studies, the live view, the command line, and the API for scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mrclab.api import Failure, Host, Job, Lab, Link, Result, Switch
    from mrclab.studies.sweeps.sweep import Sweep

__all__ = ["Failure", "Host", "Job", "Lab", "Link", "Result", "Sweep", "Switch"]


def __getattr__(name: str) -> Any:
    """Return a class of the API, which takes longer to import than verbs that do without it take."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "Sweep":
        from mrclab.studies.sweeps.sweep import Sweep

        return Sweep
    from mrclab import api

    return getattr(api, name)
