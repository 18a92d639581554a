"""`mrclab fail`, `flap`, `restore`, `deny` and `allow`: elements of a running lab that fail, or that hosts avoid."""

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
from mrclab.lab.faults.action import Action, Direction, FailureError, flapping
from mrclab.lab.faults.kinds import KINDS
from mrclab.lab.management import denylist
from mrclab.lab.session.base import Session

LEAST_S = 0.01
TargetArgument = Annotated[
    str, typer.Argument(help="a link (p0-t0.1--p0-t1.0), a host port (h3:2), or a switch (p0-t1.0)")
]
KindOption = Annotated[str | None, typer.Option(help=f"one of: {', '.join(KINDS)}")]
DirectionOption = Annotated[str, typer.Option(help="both, up (away from the host) or down (towards the host)")]
SettingOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="a setting of the failure, such as loss=0.2; may be given several times"),
]


def _checked(session: Session, target: str, kind: str | None, direction: str, setting: list[str] | None) -> Action:
    action = Action("fail", target, kind or "", cast(Direction, direction), parse_settings(setting or []))
    return session.failures.check(action)


def fail(
    target: TargetArgument,
    kind: KindOption = None,
    direction: DirectionOption = "both",
    setting: SettingOption = None,
    lab: Lab = None,
) -> None:
    """Inject a failure into a link, a host port or a switch."""
    with on_lab(lab) as session:
        action = _checked(session, target, kind, direction, setting)
        session.failures.fail(session, action)
        loss = session.failures.expected_loss()
    typer.echo(f"{action.describe()}; expected loss of capacity of the host that loses most: {loss:.1%}")


def flap(
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
        action = _checked(session, target, kind, direction, setting)
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


def restore(
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


def deny(
    elements: Annotated[
        list[str] | None,
        typer.Argument(help="links, host ports or switches (default: what the hosts' probes find dead)"),
    ] = None,
    lab: Lab = None,
) -> None:
    """Put elements on the denylist: no queue pair sends across them until `allow`."""
    with on_lab(lab) as session:
        names = elements or denylist.dead_now(session)
        changed = denylist.deny(session, names) if names else 0
        listed = ", ".join(sorted(session.denied)) or "nothing"
    if not names:
        typer.echo("the hosts' probes find nothing dead")
    typer.echo(f"denied: {listed}; EVs taken out of use: {changed}")


def allow(
    elements: Annotated[
        list[str] | None, typer.Argument(help="elements to take off the denylist (default: all)")
    ] = None,
    lab: Lab = None,
) -> None:
    """Take elements off the denylist; their EVs are used again."""
    with on_lab(lab) as session:
        changed = denylist.allow(session, elements or None)
        listed = ", ".join(sorted(session.denied)) or "nothing"
    typer.echo(f"denied: {listed}; EVs given back: {changed}")
