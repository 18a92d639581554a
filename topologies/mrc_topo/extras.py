"""Installation of the extras of mrclab (`scale`, `web`, ...): from the checkout that runs, or as the release."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Literal

from mrc_topo.shipped import checkout

Extra = Literal["cluster", "dot", "scale", "torch", "web"]


def requirement(extra: Extra) -> tuple[str, ...]:
    """Return pip's arguments that install an extra, from any folder: of a checkout, its path as an editable
    installation; otherwise the released package."""
    root = checkout()
    return (f"mrclab[{extra}]",) if root is None else ("-e", f"{root}[{extra}]")


def install(extra: Extra) -> str:
    """Return the command that installs an extra, as a message shows it: in the folder of a checkout it names `.`,
    elsewhere the checkout's path."""
    root = checkout()
    if root is None:
        return f"pip install 'mrclab[{extra}]'"
    here = "." if root == Path.cwd() else str(root)
    target = f"{here}[{extra}]"
    return f"pip install -e {shlex.quote(target)}"
