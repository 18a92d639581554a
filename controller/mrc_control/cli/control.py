"""`mrclab fail`, `restore`, `deny`, `allow`: failures and denylists by hand on a running lab."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Annotated, Any, cast

import typer

from mrc_control.cli.common import on_lab
from mrc_control.faults.action import Action, Direction, FailureError
from mrc_control.faults.kinds import KINDS
from mrc_control.paths import denylist
from mrc_topo.document import printable

Lab = Annotated[str | None, typer.Option("--lab", help="the lab's name, if several are up")]


def parse_setting(text: str) -> tuple[str, Any]:
    """`loss=0.2` as a name and a finite number (or true, false, or a list of whole numbers: `sources=[1,2]`).

    Raises:
        FailureError: it is not of that form.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise FailureError(f"'{printable(text)}' is no setting; write one as name=value, like loss=0.2")
    if value in ("true", "false"):
        return key, value == "true"
    if re.fullmatch(r"\[(\d{1,9}(, ?\d{1,9})*)?\]", value):
        return key, [int(each) for each in value[1:-1].split(",") if each]
    try:
        if len(value) > 40:
            raise ValueError
        number = int(value) if re.fullmatch(r"[+-]?\d+", value) else float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise FailureError(f"'{printable(text)}': the value must be a finite number, a list like [1,2], true or false")
    return key, number


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """All `--set` options of a command.

    Raises:
        FailureError: one is not of the form NAME=VALUE, or a name is given twice.
    """
    settings: dict[str, Any] = {}
    for text in texts:
        key, value = parse_setting(text)
        if key in settings:
            raise FailureError(f"--set {printable(key)} is given twice; keep one")
        settings[key] = value
    return settings


def fail(
    target: Annotated[str, typer.Argument(help="a link p0-t0.1--p0-t1.0, a host port h3:2, a switch p0-t1.0")],
    kind: Annotated[str | None, typer.Option(help=f"one of: {', '.join(KINDS)}")] = None,
    direction: Annotated[str, typer.Option(help="both, up (away from the host) or down")] = "both",
    setting: Annotated[list[str] | None, typer.Option("--set", help="a setting of the failure: loss=0.2")] = None,
    lab: Lab = None,
) -> None:
    """Break something."""
    with on_lab(lab) as session:
        settings = parse_settings(setting or [])
        action = Action("fail", target, kind or "", cast(Direction, direction), settings)
        action = session.failures.check(action)
        session.failures.fail(session, action)
        loss = session.failures.expected_loss()
    typer.echo(f"{action.describe()}; expected loss of capacity of the host that loses most: {loss:.1%}")


def restore(
    target: Annotated[str | None, typer.Argument(help="what was broken; everything if left out")] = None,
    kind: Annotated[str | None, typer.Option(help="only the failure of this kind")] = None,
    lab: Lab = None,
) -> None:
    """Put back exactly what a failure changed."""
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
        list[str] | None, typer.Argument(help="links, host ports, switches; what the hosts find dead if left out")
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
    elements: Annotated[list[str] | None, typer.Argument(help="what was denied; everything if left out")] = None,
    lab: Lab = None,
) -> None:
    """Take elements off the denylist; their EVs are used again."""
    with on_lab(lab) as session:
        changed = denylist.allow(session, elements or None)
        listed = ", ".join(sorted(session.denied)) or "nothing"
    typer.echo(f"denied: {listed}; EVs given back: {changed}")


def register(app: typer.Typer) -> None:
    """Adds the verbs."""
    app.command()(fail)
    app.command()(restore)
    app.command()(deny)
    app.command()(allow)
