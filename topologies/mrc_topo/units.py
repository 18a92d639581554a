"""Rates, times, sizes and shares as people write them in files and options: `100Mbps`, `5us`, `64KiB`, `5%`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

RATES = {"bps": 1, "kbps": 10**3, "mbps": 10**6, "gbps": 10**9, "tbps": 10**12}
TIMES = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9}
SIZES = {"b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
#: A longer text is no quantity.
LONGEST = 40

_PERCENTAGE = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*%\s*\Z")
_QUANTITY = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-zµ]+)\s*\Z")


def _parse(value: object, units: dict[str, int], kind: str, example: str) -> int:
    """Return an integer number of the smallest unit; plain integers are taken as they are."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"write a {kind} such as {example}")
    if isinstance(value, int):
        return value
    found = _QUANTITY.match(value)
    factor = units.get(found["unit"].lower()) if found else None
    if found is None or factor is None:
        raise ValueError(f"'{value}' is not a {kind}; write one such as {example}")
    exact = Fraction(Decimal(found["number"])) * factor
    if exact.denominator != 1:
        smallest = next(iter(units))
        raise ValueError(f"'{value}' is not a whole number of {smallest}")
    return int(exact)


def unit_of(text: str) -> str | None:
    """Return the unit of a quantity such as `20Mbps`, in small letters; None if the text is not one."""
    found = _QUANTITY.match(text)
    unit = found["unit"].lower() if found else ""
    return unit if unit in RATES or unit in TIMES or unit in SIZES else None


def parse_rate_bps(value: object) -> int:
    """Return bits per second of `100Mbps`, `1.6Gbps` or an integer. Raises ValueError."""
    return _parse(value, RATES, "rate", "100Mbps")


def parse_time_ns(value: object) -> int:
    """Return the nanoseconds of `5us`, `1.5ms` or an integer. Raises ValueError."""
    return _parse(value, TIMES, "time", "5us")


def parse_seconds(value: object) -> float:
    """Return the seconds of `2s`, `500ms` or a plain number. Raises ValueError."""
    try:
        return float(value)  # type: ignore[arg-type]
    except TypeError:
        raise ValueError("write a time such as 2s or 500ms") from None
    except ValueError:
        return _parse(value, TIMES, "time", "2s or 500ms") / 1e9


def parse_size_bytes(value: object) -> int:
    """Return bytes of `64KiB`, `9000B` or an integer. Raises ValueError."""
    return _parse(value, SIZES, "size", "64KiB")


def parse_share(value: object) -> object:
    """Return the number of `5%`; anything else is returned as it is."""
    found = _PERCENTAGE.match(value) if isinstance(value, str) and len(value) <= LONGEST else None
    return value if found is None else float(found["number"]) / 100


#: The ending of a setting's name says in what unit its number is.
ENDINGS: dict[str, tuple[dict[str, int], Callable[[object], int], str]] = {
    "_bps": (RATES, parse_rate_bps, "a rate such as 20Mbps"),
    "_ns": (TIMES, parse_time_ns, "a time such as 2ms"),
    "_bytes": (SIZES, parse_size_bytes, "a size such as 64KiB"),
}


def quantity(name: str, text: str) -> tuple[str, int | float] | None:
    """Return a setting whose value has a unit, with the full name of the setting and the number in its own unit.

    A name may lack its ending: `rate=20Mbps` is `rate_bps`. `20%` is 0.2.

    Returns:
        None: the value has no unit.

    Raises:
        ValueError: the unit does not go with the name; the text says which does.
    """
    share = parse_share(text)
    if isinstance(share, float):
        return name, share
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


def with_quantities(settings: Mapping[str, Any], texts: Collection[str] = ()) -> dict[str, Any]:
    """Return the settings of a file with numbers where it has quantities: `rate: 20Mbps` is `rate_bps: 20000000`.

    Settings named in `texts`, and what is no quantity, are left as they are.

    Raises:
        ValueError: a unit does not go with a name, or two names are one setting.
    """
    made: dict[str, Any] = {}
    for name, value in settings.items():
        named = isinstance(name, str) and name not in texts
        found = quantity(name, value) if named and isinstance(value, str) and len(value) <= LONGEST else None
        key, number = (name, value) if found is None else found
        if key in made:
            raise ValueError(f"'{key}' is given twice; keep one")
        made[key] = number
    return made


class Unit(Enum):
    """A unit of a quantity: its symbol, and its multiples from the largest, each with a factor."""

    RATE = (
        "b/s",
        tuple((10.0**power, f"{letter}b/s") for power, letter in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k"))),
    )
    TIME = "s", ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
    SIZE = "B", ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))
    SHARE = "%", ((0.01, "%"),)
    COUNT = "", ()
    TIMES = "×", ()

    def scale(self, largest: float) -> tuple[float, str]:
        """Return the factor and symbol of the multiple in which values up to `largest` are written."""
        symbol, multiples = self.value
        if self is Unit.TIME and not largest:
            return 1.0, symbol
        least = multiples[-1] if self in (Unit.TIME, Unit.SHARE) else (1.0, symbol)
        # What rounds to 1000 of one multiple is 1 of the next.
        return next((each for each in multiples if abs(largest) >= each[0] * 0.99995), least)


#: Digits that a quantity is told with, and the largest number that has a comma at the thousands.
DIGITS = 4


def digits(value: float, count: int = DIGITS) -> str:
    """Return a number with some significant digits, never with an exponent: `0.0123`, `12,346`; "-" for no number."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else "\N{INFINITY}" if value > 0 else "-\N{INFINITY}"
    places = count - 1 - (math.floor(math.log10(abs(value))) if value else 0)
    text = f"{value:,.{max(places, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def shown(value: float | None, unit: Unit = Unit.COUNT, count: int = DIGITS) -> str:
    """Return a quantity as people read it on pages and in terminals: `100 Mb/s`, `35.5 µs`, `64 KiB`, `94.2 %`.

    Args:
        value: in bit/s, seconds, bytes, or as a share; None: "-".
        count: significant digits.
    """
    if value is None:
        return "-"
    factor, symbol = unit.scale(value) if math.isfinite(value) else (1.0, "")
    return f"{digits(value / factor, count)} {symbol}".rstrip()


def format_rate(bps: float) -> str:
    """Return a rate in bits per second as text: `100 Mb/s`."""
    return shown(round(bps), Unit.RATE)


def format_time(ns: int) -> str:
    """Return a time in nanoseconds as text: `5 µs`."""
    return shown(ns / 1e9, Unit.TIME)


def format_size(count: int) -> str:
    """Return a size in bytes as text: `64 KiB`."""
    return shown(count, Unit.SIZE)


#: Parts of a key that are common to many, and units at the end of a key (`_bps`): what a reader need not see.
_KEY_UNITS = {"bps": Unit.RATE, "s": Unit.TIME, "bytes": Unit.SIZE, "share": Unit.SHARE}


def named(key: str) -> tuple[str, Unit, float]:
    """Return the name of a key (`workload.params.size_bytes`) for people, its unit, and the value of 1 in that unit."""
    words = key.rpartition(".")[2].split("_")
    if len(words) > 1 and words[-1] == "ns":
        return " ".join(words[:-1]), Unit.TIME, 1e-9
    unit = _KEY_UNITS.get(words[-1]) if len(words) > 1 else None
    return " ".join(words[:-1] if unit else words), unit or Unit.COUNT, 1.0


def format_duration_ms(seconds: float | None) -> str:
    """Return how long something took as whole milliseconds, or "never" for None."""
    return "never" if seconds is None else f"{seconds * 1e3:.0f} ms"
