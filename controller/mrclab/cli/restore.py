"""`mrclab restore`: put back what a failure changed."""

from __future__ import annotations

from typing import Annotated

import typer

from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import on_lab
from mrclab.lab.faults.action import FailureError


def verb(
    target: Annotated[str | None, typer.Argument(help="the element that failed (default: all)")] = None,
    kind: Annotated[str | None, typer.Option(help="undo only the failure of this kind")] = None,
    lab: Lab = None,
) -> None:
    """Undo injected failures: restore exactly what each of them changed."""
    if kind is not None and target is None:
        raise FailureError("--kind needs the target that failed like this")
    with on_lab(lab) as session:
        if target is None:
            restored = session.failures.restore_all(session)
        else:
            session.failures.restore(session, target, kind or "")
            restored = [target]
    typer.echo(f"restored: {', '.join(restored)}" if restored else "nothing is broken")
