"""Caveat of the model: what it leaves out, and how far it was off in the calibration.

A run quotes the errors of its own cases, which may be larger (`cases.accuracy`).
"""

from __future__ import annotations

import importlib.resources
import json
from typing import Any

#: What `mrclab scale --calibrate` measured last, in the repository.
FILE = "calibrated.json"
#: Of the calibration's fabrics.
NICS = 8
#: What stands beside every result.
NATURE = "A flow model (a fluid): no packets, no queues, no timers of a single queue pair."


def measured() -> dict[str, Any] | None:
    """Return the errors of the last calibration, None if there is none."""
    path = importlib.resources.files("mrc_fluid") / FILE
    if not path.is_file():
        return None
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def caveat() -> str:
    """Return what the model leaves out and how far it is off in the calibration, in one line; never beside a run."""
    errors = measured()
    if errors is None:
        return f"{NATURE} It has not been held against packets (mrclab scale --calibrate)."
    worse = errors.get("lost, overloaded")
    overload = "" if worse is None else f", where links are overloaded {worse:.0%}"
    return (
        f"{NATURE} Beside packets in simulated time, in {errors['scenarios']} scenarios of streams between {NICS} "
        f"NICs, its goodput is off by {errors['goodput']:.1%} at most and its counts of lost packets by "
        f"{errors['lost']:.0%}{overload} (mrclab scale --calibrate)."
    )
