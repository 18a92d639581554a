"""What a run's result depends on beside its inputs: the sources of the programs, as one digest."""

from __future__ import annotations

import hashlib
import pathlib
from functools import cache

from mrc_topo.shipped import shipped

#: Rooms of `mrc_control` that have runs made, and of which no result depends.
ABOVE = ("chaos", "cli", "figures", "sweeps", "web", "workshop")


@cache
def software(own: pathlib.Path) -> str:
    """Stands for all programs that a result depends on: a hash of their sources, and of `own`, which reduces it."""
    import mrc_control
    import mrc_host
    import mrc_topo
    import p4lite

    digest = hashlib.sha256()
    roots = [pathlib.Path(str(each.__file__)).parent for each in (p4lite, mrc_topo, mrc_host, mrc_control)]
    for root in (*roots, shipped("programs")):
        for path in sorted(root.rglob("*")):
            parts = path.relative_to(root).parts
            above = parts[0] in ABOVE and root.name == "mrc_control" and path != own
            if path.suffix in (".py", ".c", ".h", ".p4") and "__compiled__" not in parts and not above:
                digest.update("/".join(parts).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
