"""Folders of the files that come with the project: labs, clusters, costs, experiments, P4 programs, exercises.

In a checkout they lie in folders of their own; the wheel carries them inside this package (`pyproject.toml`).
"""

from __future__ import annotations

import importlib.resources
from pathlib import Path
from typing import Literal

Kind = Literal["labs", "clusters", "costs", "experiments", "programs", "workshop"]

CHECKOUT: dict[Kind, str] = {
    "labs": "topologies/labs",
    "clusters": "topologies/clusters",
    "costs": "topologies/costs",
    "experiments": "experiments",
    "programs": "p4/programs",
    "workshop": "workshop",
}


def _carried(kind: Kind) -> Path:
    return _package() / "data" / kind


def _package() -> Path:
    return Path(str(importlib.resources.files("mrc_topo")))


def checkout() -> Path | None:
    """Return the root of the checkout that this package lies in; None if it is that of a wheel."""
    root = _package().parents[1]
    return root if (root / CHECKOUT["labs"]).is_dir() and not _carried("labs").is_dir() else None


def shipped(kind: Kind) -> Path:
    """Return the folder of a kind of files that come with the project: `labs/NAME.yaml`, `clusters/NAME.yaml`,
    `costs/NAME.yaml`, `experiments/NAME/`, `programs/NAME.p4`, `workshop/NN-NAME/`."""
    carried = _carried(kind)
    return carried if carried.is_dir() else _package().parents[1] / CHECKOUT[kind]
