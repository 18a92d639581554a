"""Verbs of the PyTorch backend in `mrclab --help`."""

from __future__ import annotations

from mrclab.cli.verbs import Group, Verb

VERBS = {
    "train": Verb(
        Group.RUN,
        "Train a PyTorch model with one rank per host while the lab fails around it.",
        ("mrclab train", "mrclab train --backend roce --steps 20"),
        "mrc_torch.cli",
    ),
}
