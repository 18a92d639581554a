"""Verbs of the workshop in `mrclab --help`."""

from __future__ import annotations

from mrclab.cli.verbs import Group, Verb

VERBS = {
    "workshop": Verb(
        Group.LEARN,
        "Learn MRC with exercises that check your own code in simulated time.",
        ("mrclab workshop list", "mrclab workshop start 1", "mrclab workshop check 1"),
        "mrc_workshop.cli",
    ),
}
