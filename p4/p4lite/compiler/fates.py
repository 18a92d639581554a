"""Facts about packets at a place in a program, and the drops that some of them had (see `drops`)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from p4lite.compiler.position import Pos

Known = dict[str, bool]
"""Conditions, as text, that hold (True) or do not."""


@dataclass(frozen=True)
class Drop:
    """A drop: what dropped the packet and where, what is known of such packets, the places that were set with it, and
    all that may tell such packets from others."""

    what: str
    pos: Pos
    known: Known
    beside: frozenset[str] = frozenset()
    telling: frozenset[str] = frozenset()


@dataclass
class Path:
    """What is known at a place of every packet that comes there, and the drops that some of them had, by place.

    `assigned`: the places that the action at hand has set to constants.
    """

    known: Known = field(default_factory=dict)
    drops: dict[tuple[Pos, str], Drop] = field(default_factory=dict)
    assigned: frozenset[str] = frozenset()

    def copy(self) -> Path:
        return Path(dict(self.known), dict(self.drops), self.assigned)

    def tells_apart(self, drop: Drop, place: str) -> bool:
        """Return whether a place has a value that says whether the drop happened."""
        if is_fate(place):
            return True
        facts = {text for text in drop.known if text == place or text.startswith(f"{place} == ")}
        return place in drop.beside and not facts <= self.known.keys()


def joined(paths: Iterable[Path | None]) -> Path | None:
    """Return what holds where paths meet, None if no path leads there."""
    some = [path for path in paths if path is not None]
    if len(some) < 2:
        return some[0] if some else None
    drops: dict[tuple[Pos, str], Drop] = {}
    for path in some:
        for key, drop in path.drops.items():
            other = drops.get(key)
            if other is not None:
                drop = replace(
                    drop,
                    known=common(other.known, drop.known),
                    beside=other.beside | drop.beside,
                    telling=other.telling | drop.telling,
                )
            drops[key] = drop
    known = some[0].known
    for path in some[1:]:
        known = common(known, path.known)
    return Path(dict(known), drops, frozenset[str]().union(*(path.assigned for path in some)))


def common(one: Known, other: Known) -> Known:
    return {text: holds for text, holds in one.items() if other.get(text) is holds}


def overlap(one: str, other: str) -> bool:
    """Return whether two places have bits in common: one is the other or inside of it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def is_fate(place: str) -> bool:
    """Return whether a place says itself that a packet was dropped."""
    return place.endswith((".egress_spec", ".mcast_grp", ".drop"))
