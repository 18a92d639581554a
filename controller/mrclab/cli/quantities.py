"""Times and rates as options take them: `--duration 2s`, `--rate 20Mbps`."""

from __future__ import annotations

import typer

from mrc_topo.base.document import printable
from mrc_topo.units import parse_rate_bps
from mrc_topo.units import parse_seconds as to_seconds


def parse_seconds(text: str | float) -> float:
    """Return the seconds of `2s`, `500ms` or a plain number.

    Raises:
        typer.BadParameter: it is neither.
    """
    try:
        return to_seconds(text)
    except ValueError as error:
        raise typer.BadParameter(
            f"'{printable(str(text))[:40]}' is not a time; write one such as 2s or 500ms"
        ) from error


def parse_mbps(text: str | int) -> int:
    """Return the whole Mb/s of `20Mbps` or a plain number, from 1 to 1000.

    Raises:
        typer.BadParameter: it is neither.
    """
    given = str(text)
    try:
        bps = int(given) * 10**6 if given.isdecimal() and len(given) <= 10 else parse_rate_bps(given)
    except ValueError as error:
        raise typer.BadParameter(f"'{printable(given)[:40]}' is not a rate; write one such as 20Mbps") from error
    if bps % 10**6 or not 10**6 <= bps <= 10**9:
        raise typer.BadParameter(f"{printable(given)[:40]}: give whole Mb/s from 1Mbps to 1Gbps")
    return bps // 10**6


def duration(help: str) -> typer.models.OptionInfo:
    """Return the option `--duration`, with its own explanation."""
    made: typer.models.OptionInfo = typer.Option("--duration", parser=parse_seconds, metavar="TIME", help=help)
    return made
