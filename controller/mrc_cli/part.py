"""`mrclab part`: what `mrclab up` starts on each machine of a lab that is on several."""

from __future__ import annotations

import typer

from mrc_lab.machines import remote


def verb() -> None:
    """The part of a lab on this machine; started by `mrclab up`, which speaks to it by standard input and output."""
    raise typer.Exit(remote.main())
