"""ECN thresholds of a lab file: bytes, the time in which a link sends what waits, or a share of the base RTT."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from mrc_topo.base.document import Model, formerly, printable
from mrc_topo.units import SIZES, TIMES, format_rate, format_size, parse_size_bytes, parse_time_ns

#: The unit of a threshold that is a multiple of the base RTT.
RTT = "rtt"
#: No queue holds more bytes.
MOST_BYTES = 2**31 - 1
_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "us"))
_NUMBER = re.compile(r"\s*(?P<number>\d+(?:\.\d{1,6})?)\s*(?P<unit>[A-Za-zµ]+)\s*\Z")


class MarkingError(ValueError):
    """A threshold that a port cannot have; `key` is the wrong key of `ecn`."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class DrainUnit(Enum):
    """In what the time is given in which a link sends what waits."""

    NS = "ns"
    RTT = RTT


@dataclass(frozen=True, slots=True)
class Drain:
    """What a link sends in a time: nanoseconds, or base RTTs of the lab."""

    value: Fraction
    unit: DrainUnit

    def __str__(self) -> str:
        """Return it as a lab file says it."""
        if self.unit is DrainUnit.RTT:
            return f"{Decimal(self.value.numerator) / Decimal(self.value.denominator):f}{RTT}"
        ns = int(self.value)
        factor, unit = next((each for each in _TIMES if ns % each[0] == 0 and ns >= each[0]), (1, "ns"))
        return f"{ns // factor}{unit}"

    def bytes_at(self, rate_bps: int, base_rtt_ns: int) -> int:
        """Return the bytes that a link of this rate (bits/s) sends meanwhile, rounded down."""
        ns = self.value if self.unit is DrainUnit.NS else self.value * base_rtt_ns
        return int(ns * rate_bps / (8 * 10**9))


def parse_depth(value: object) -> int | Drain:
    """Return bytes of `64KiB`, `9000B` or an integer, or what a link sends in `2ms` or `0.2rtt`.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(value, Drain):
        return value
    found = _NUMBER.match(value) if isinstance(value, str) else None
    unit = found["unit"].lower() if found else ""
    if found and unit == RTT:
        return Drain(Fraction(Decimal(found["number"])), DrainUnit.RTT)
    if unit in TIMES:
        return Drain(Fraction(parse_time_ns(value)), DrainUnit.NS)
    if isinstance(value, bool) or not (isinstance(value, int) or unit in SIZES):
        raise ValueError(
            f"'{printable(str(value))}' is no depth of a queue; write bytes such as 16KiB, a time such as 2ms, or a "
            "share of the base RTT such as 0.2rtt"
        )
    count = parse_size_bytes(value)
    if count < 0:
        raise ValueError(f"must be at least 0 bytes, not {count}")
    return count


def written(depth: int | Drain) -> int | str:
    """Return a depth as a lab file may say it."""
    return depth if isinstance(depth, int) else str(depth)


def described(depth: int | Drain) -> str:
    """Return a depth for a reader."""
    return format_size(depth) if isinstance(depth, int) else str(depth)


#: How much waits in a queue.
Depth = Annotated[
    int | Drain,
    BeforeValidator(parse_depth),
    PlainSerializer(written),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]


@dataclass(frozen=True, slots=True)
class Marks:
    """Where a port marks, in bytes that wait: never up to `kmin`, always from `kmax` on."""

    kmin: int
    kmax: int


class EcnSpec(Model):
    """Marking probability rises from 0 at `kmin` to 1 at `kmax` in the egress data queue. A depth is bytes (`16KiB`),
    or what the port's link sends in a time (`2ms`) or in a share of the lab's base RTT (`0.2rtt`).

    Queues towards hosts mark only with `last_hop`: MRC's never do by default, DCQCN's always (`Lab.for_transport`).
    `last_hop_kmin` and `last_hop_kmax` are their own thresholds; null: those of the other queues.
    """

    kmin: Depth = 16_384
    kmax: Depth = 65_536
    last_hop: Annotated[bool, Field(json_schema_extra=formerly("host_ports"))] = False
    last_hop_kmin: Depth | None = None
    last_hop_kmax: Depth | None = None

    def thresholds(self, last_hop: bool) -> tuple[int | Drain, int | Drain]:
        """Return kmin and kmax of the queues towards hosts, or of the others."""
        if not last_hop:
            return self.kmin, self.kmax
        return (
            self.kmin if self.last_hop_kmin is None else self.last_hop_kmin,
            self.kmax if self.last_hop_kmax is None else self.last_hop_kmax,
        )

    @property
    def depths(self) -> dict[str, int | Drain]:
        """The thresholds that are given, by key."""
        keys = ("kmin", "kmax", "last_hop_kmin", "last_hop_kmax")
        return {key: depth for key in keys if (depth := getattr(self, key)) is not None}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for last_hop in (False, True):
            low, high = self.thresholds(last_hop)
            if isinstance(low, int) and isinstance(high, int):
                ordered = low < high
            elif isinstance(low, Drain) and isinstance(high, Drain) and low.unit is high.unit:
                ordered = low.value < high.value
            else:
                continue  # Which one is larger depends on the port (`marks`).
            if not ordered:
                prefix = "last_hop_" if last_hop else ""
                raise ValueError(f"{prefix}kmax ({written(high)}) must be above {prefix}kmin ({written(low)})")
        return self


def marks(ecn: EcnSpec, last_hop: bool, port: str, rate_bps: int, base_rtt_ns: int, limit: int) -> Marks:
    """Return the thresholds of a port in bytes.

    Args:
        port: its name, for errors.
        rate_bps: of its link, bits/s.
        base_rtt_ns: of the lab, the same on both clocks, ns.
        limit: bytes that the queue holds.

    Raises:
        MarkingError: they are not in order there, or no queue reaches them.
    """
    found = [
        each if isinstance(each, int) else each.bytes_at(rate_bps, base_rtt_ns) for each in ecn.thresholds(last_hop)
    ]
    low, high = found
    names = ["kmin", "kmax"]
    if last_hop:
        own = (ecn.last_hop_kmin is not None, ecn.last_hop_kmax is not None)
        names = [f"last_hop_{name}" if given else name for name, given in zip(names, own, strict=True)]
    said = [f"{name} ({described(depth)})" for name, depth in zip(names, ecn.thresholds(last_hop), strict=True)]
    where = f"on {port} at {format_rate(rate_bps)}"
    if high <= low:
        raise MarkingError(
            f"{said[1]} is {high} bytes {where}, not above {said[0]}, which is {low}; raise {names[1]}", names[1]
        )
    if low > limit:
        raise MarkingError(
            f"{said[0]} is {low} bytes {where}, but the queue holds {limit}; lower {names[0]} or raise limit", names[0]
        )
    if high > MOST_BYTES:
        raise MarkingError(
            f"{said[1]} is {high} bytes {where}, more than any queue holds ({MOST_BYTES}); lower it", names[1]
        )
    return Marks(low, high)
