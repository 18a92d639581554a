"""Nodes and links as files of other tools have them, before they are the graph of a lab (`mrc_topo.graph_file`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from mrc_topo.base.document import DocumentError, printable
from mrc_topo.schema import MAX_LINKS

#: The units of tc, after which Mininet and p4-utils write delays, in ns; `secs` is `s`.
_UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DELAY = re.compile(r"\s*(\d{1,15}(?:\.\d{1,9})?)\s*(?:([mun]?s)(?:ecs?)?)?\s*\Z")


@dataclass(frozen=True)
class End:
    """An end of a link. `interface` is the name of its interface, "" if the file has none; `port` its number."""

    node: str
    interface: str = ""
    port: int | None = None


@dataclass
class Drawn:
    """What a file says: the kind of each node and the links, each with the place in the file for errors.

    `left_out` are links that lead out of the lab, with their place and type; `alone` nodes without any other link,
    which a lab has not; `ignored` other keys that a lab has not, by the section of the file. A link's `packets` is the
    length of its queues.
    """

    nodes: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    links: list[tuple[End, End, dict[str, Any]]] = field(default_factory=list)
    link_places: list[str] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    ignored: dict[str, set[str]] = field(default_factory=dict)

    def add(self, one: End, other: End, settings: Mapping[str, Any], place: str) -> None:
        """Add a link. Raises DocumentError if there are too many: edges between subgraphs multiply."""
        if len(self.links) == MAX_LINKS:
            raise DocumentError([f"{place}: more than {MAX_LINKS} links, which no lab can have; use fewer"])
        self.links.append((one, other, dict(settings)))
        self.link_places.append(place)

    def ignore(self, section: str, keys: Iterable[object]) -> None:
        """Note keys that a lab has not."""
        if named := {printable(str(key)) for key in keys}:
            self.ignored.setdefault(section, set()).update(named)

    def settings(self, options: Mapping[str, Any], bare_ns: int, place: str) -> dict[str, Any]:
        """Return what a link has that has these options of Mininet, and note the others.

        Args:
            options: bw in Mbit/s, delay, loss in percent, max_queue_size in packets.
            bare_ns: the unit of a delay that is a number, in ns.
            place: the link, for errors.

        Raises:
            DocumentError: an option is no such quantity.
        """
        self.ignore("links", options.keys() - _OPTIONS.keys())
        found: dict[str, Any] = {}
        for key, (name, unit, usage) in _OPTIONS.items():
            value = options.get(key)
            try:
                if key == "delay" and isinstance(value, str):
                    found[name] = _delay_ns(value)
                elif value is not None:
                    exact = Decimal(str(value)) * (bare_ns if key == "delay" else unit)
                    found[name] = float(exact) if key == "loss" else round(exact)
            except (ValueError, ArithmeticError):
                raise DocumentError(
                    [f"{place}: {key}: {printable(repr(value))} is not usable; write {usage}"]
                ) from None
        return found


#: Options of Mininet: the key of a lab's link, the number of its units in one of Mininet's, and an example.
_OPTIONS = {
    "bw": ("rate", Decimal(10**6), "Mbit/s, such as 10"),
    "delay": ("delay", Decimal(1), "a time such as 5ms"),
    "loss": ("loss", Decimal("0.01"), "a percentage, such as 2"),
    "max_queue_size": ("packets", Decimal(1), "packets, such as 100"),
}


def _delay_ns(text: str) -> int:
    """Return a delay in ns as tc reads it. Raises ValueError."""
    match = _DELAY.match(text)
    if match is None:
        raise ValueError(text)
    return round(Decimal(match[1]) * _UNITS[match[2] or "us"])
