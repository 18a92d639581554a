"""Times, rates and sizes as options take them: `--duration 2s`, `--set rate_bps=20Mbps`."""

from __future__ import annotations

from collections.abc import Callable

import typer

from mrc_common.document import printable
from mrc_topo.units import RATES, SIZES, TIMES, parse_rate_bps, parse_size_bytes, parse_time_ns, unit_of
from mrc_topo.units import parse_seconds as to_seconds

#: The ending of a setting's name says in what unit its number is.
ENDINGS: dict[str, tuple[dict[str, int], Callable[[object], int], str]] = {
    "_bps": (RATES, parse_rate_bps, "a rate such as 20Mbps"),
    "_ns": (TIMES, parse_time_ns, "a time such as 2ms"),
    "_bytes": (SIZES, parse_size_bytes, "a size such as 64KiB"),
}


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


def quantity(name: str, text: str) -> tuple[str, int | float] | None:
    """Return a setting whose value has a unit, with the full name of the setting and the number in its own unit.

    A name may lack its ending: `rate=20Mbps` is `rate_bps`. `20%` is 0.2.

    Returns:
        None: the value has no unit.

    Raises:
        ValueError: the unit does not go with the name; the text says which does.
    """
    if text.endswith("%"):
        try:
            return name, float(text[:-1]) / 100
        except ValueError:
            return None
    unit = unit_of(text)
    if unit is None:
        return None
    for ending, (units, parse, example) in ENDINGS.items():
        if name.endswith(ending):
            if unit not in units:
                raise ValueError(f"'{name}' takes {example}")
            return name, parse(text)
    # A name without an ending gets that of the unit. `b` of a size and `bps` of a rate differ, so one table has it.
    for ending, (units, parse, _) in ENDINGS.items():
        if unit in units:
            return name + ending, parse(text)
    return None


def duration(help: str) -> typer.models.OptionInfo:
    """Return the option `--duration`, with its own explanation."""
    made: typer.models.OptionInfo = typer.Option("--duration", parser=parse_seconds, metavar="TIME", help=help)
    return made
