"""`mrclab fail`: break something on a running lab."""

from __future__ import annotations

from typing import Annotated, cast

import typer

from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import on_lab, parse_settings
from mrclab.lab.faults.action import Action, Direction
from mrclab.lab.faults.kinds import KINDS

TargetArgument = Annotated[
    str, typer.Argument(help="a link (p0-t0.1--p0-t1.0), a host port (h3:2), or a switch (p0-t1.0)")
]
KindOption = Annotated[str | None, typer.Option(help=f"one of: {', '.join(KINDS)}")]
DirectionOption = Annotated[str, typer.Option(help="both, up (away from the host) or down (towards the host)")]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="a setting of the failure, such as loss=0.2; may be given several times"),
]


def verb(
    target: TargetArgument,
    kind: KindOption = None,
    direction: DirectionOption = "both",
    setting: SettingOption = None,
    lab: Lab = None,
) -> None:
    """Inject a failure into a link, a host port or a switch."""
    with on_lab(lab) as session:
        settings = parse_settings(setting or [])
        action = Action("fail", target, kind or "", cast(Direction, direction), settings)
        action = session.failures.check(action)
        session.failures.fail(session, action)
        loss = session.failures.expected_loss()
    typer.echo(f"{action.describe()}; expected loss of capacity of the host that loses most: {loss:.1%}")
