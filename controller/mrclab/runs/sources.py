"""Digest of the programs' sources, on which a run's result depends beside its inputs."""

from __future__ import annotations

import hashlib
import importlib
import pathlib
from functools import cache

from mrc_topo.shipped import shipped

#: The packages on whose sources a run's result depends. Those above them start runs and change no result.
PACKAGES = ("p4lite", "mrc_topo", "mrc_host", "mrclab.lab", "mrclab.results", "mrclab.runs")


@cache
def software(*own: pathlib.Path) -> str:
    """Return a hash of all programs that a result depends on: their sources, and `own`, which reduce it."""
    digest = hashlib.sha256()
    roots = [pathlib.Path(str(importlib.import_module(each).__file__)).parent for each in PACKAGES]
    for root in (*roots, shipped("programs")):
        for path in sorted(root.rglob("*")):
            parts = path.relative_to(root.parent).parts
            if path.suffix in (".py", ".c", ".h", ".p4") and "__compiled__" not in parts:
                digest.update("/".join(parts).encode() + b"\0" + path.read_bytes())
    for path in own:
        digest.update(path.read_bytes())
    return digest.hexdigest()
