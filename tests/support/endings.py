"""Runs of a study that end as their name says, in a module that worker processes can import."""

from __future__ import annotations

import os
from typing import Final

from mrclab.studies.engine import Answer, RunStatus

ENDINGS: Final = {
    "good": RunStatus.GOOD,
    "failed": RunStatus.FAILED,
    "error": RunStatus.ERROR,
    "died": RunStatus.DIED,
}


def answer_of(word: str) -> Answer:
    """Return how a run of this name ends; one process ends with its run."""
    if word == "exits":
        os._exit(3)
    return Answer(ENDINGS[word], "" if word == "good" else word)
