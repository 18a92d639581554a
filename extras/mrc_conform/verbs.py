"""Verbs of the conformance kit in `mrclab --help`."""

from __future__ import annotations

from mrclab.cli.verbs import Group, Verb

VERBS = {
    "conform": Verb(
        Group.LEARN,
        "Test an endpoint against MRC 1.0 with scripted packets, and name each rule that it breaks.",
        ("mrclab conform", "mrclab conform --list"),
        "mrc_conform.cli",
    ),
}
