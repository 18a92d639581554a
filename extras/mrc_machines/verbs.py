"""The verb of labs on several machines."""

from __future__ import annotations

from mrclab.cli.verbs import Group, Verb

VERBS = {
    "part": Verb(
        Group.LAB,
        "Run this machine's slice of a lab; `mrclab up` starts it and talks to it over standard input and output.",
        (),
        "mrc_machines.cli",
        hidden=True,
    ),
}
