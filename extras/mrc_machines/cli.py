"""`mrclab part`: what `mrclab up` starts on each machine of a lab that is on several."""

from __future__ import annotations

import typer

from mrc_machines import remote


def verb() -> None:
    """Run this machine's slice of a lab; `mrclab up` starts it and talks to it over standard input and output."""
    raise typer.Exit(remote.main())
