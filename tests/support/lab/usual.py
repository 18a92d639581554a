"""The project's experiments that tests run."""

from __future__ import annotations

import os

from mrclab.runs.experiment import known_experiments

#: Minutes each; `MRCLAB_LONG=1 pytest tests/lab/test_experiments.py tests/lab/test_evidence.py` runs them, too.
LONG = {"thousand-ranks", "training-64"}


def usual_experiments() -> list[str]:
    """By name; all of them where `MRCLAB_LONG` is set."""
    return sorted(name for name in known_experiments() if name not in LONG or os.environ.get("MRCLAB_LONG"))
