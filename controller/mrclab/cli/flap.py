"""`mrclab flap`: break something on a running lab again and again."""

from __future__ import annotations

import contextlib
import time
from typing import Annotated, cast

import typer

from mrc_topo.base import interruption
from mrc_topo.base.interruption import Interrupted
from mrclab.cli import common, progress
from mrclab.cli.common import LabOption as Lab
from mrclab.cli.common import on_lab, parse_settings
from mrclab.cli.common import seconds as waited
from mrclab.cli.fail import DirectionOption, KindOption, SettingOption, TargetArgument
from mrclab.lab.faults.action import Action, Direction, FailureError, flapping

LEAST_S = 0.01


def verb(
    target: TargetArgument,
    period: Annotated[
        float, typer.Option("--period", parser=common.parse_seconds, metavar="TIME", help="from a failure to the next")
    ] = 2.0,
    duty: Annotated[float, typer.Option("--duty", help="the share of a period in which it is broken")] = 0.5,
    count: Annotated[int, typer.Option("--count", min=0, help="how often; 0: until Ctrl-C")] = 0,
    kind: KindOption = None,
    direction: DirectionOption = "both",
    setting: SettingOption = None,
    lab: Lab = None,
) -> None:
    """Let a link, a host port or a switch fail and come back, again and again."""
    waited("--period", period, least=LEAST_S)
    if not 0 < duty < 1:
        raise FailureError(f"--duty {duty:g}: a share between 0 and 1, such as 0.5")
    with on_lab(lab) as session:
        failures = session.failures
        action = Action("fail", target, kind or "", cast(Direction, direction), parse_settings(setting or []))
        action = failures.check(action)
        progress.warn(f"{action.describe()}, every {period:g} s{f', {count} times' if count else '; Ctrl-C ends'}")
        done = 0
        start_s = time.monotonic()
        try:
            with contextlib.suppress(Interrupted):
                while not count or done < count:
                    for due_s, step in flapping(action, start_s + done * period, period, 1, duty):
                        interruption.sleep(max(due_s - time.monotonic(), 0.0))
                        failures.perform(session, step)
                    done += 1
        finally:
            failures.restore_own(session)
    typer.echo(f"{action.target} has flapped {done} times")
