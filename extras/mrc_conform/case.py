"""Conformance cases: a name, the rule that the case proves, the rule's source, and its script; and their catalogue."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final

from mrc_conform.device import Need, Settings
from mrc_conform.script import Script
from mrc_topo.base.errors import UsageError


class Area(Enum):
    """What a rule is about; the catalogue is in this order."""

    OPCODES = "opcodes and header bits"
    INTEGRITY = "ICRC, lengths, padding, reserved bits"
    PSN = "PSNs and windows"
    PLACEMENT = "placement, duplicates, overlaps"
    SACK = "SACK bitmaps and coalescing"
    NACK = "NACK reasons and their effects"
    TRIM = "trimmed packets"
    ORDER = "immediates, order and MSN"
    MPR = "MPR and dynamic MPR"
    EV = "entropy values"
    PROBE = "probes"
    PORT = "port status"
    RETRY = "timeouts and retry budget"
    LOSS = "loss inference"
    CONGESTION = "congestion control"
    PROTECTION = "keys and protection"
    STATE = "queue pair states, errors, flushes"
    HOSTILE = "hostile input"
    RESTART = "restart of the peer"


class Basis(Enum):
    """Where a rule stands. A rule that is only our reading makes a difference, not a failure."""

    OCP = "OCP mrc.h and mrc_ctl.h 1.0.1"
    NOTES = "public notes on MRC 1.0"
    UET = "Ultra Ethernet Transport 1.0"
    IBTA = "IBTA 1.4 and RoCEv2"
    RFC = "RFC"
    OURS = "our reading"


@dataclass(frozen=True)
class Case:
    """One case. `clause` is the place in its source, `section` in mrc-protocol.md."""

    name: str
    area: Area
    rule: str
    basis: Basis
    clause: str
    script: Callable[[Script], None]
    settings: Settings
    needs: frozenset[Need]
    connected: bool


_CASES: Final[dict[str, Case]] = {}


def case(
    name: str,
    area: Area,
    rule: str,
    basis: Basis,
    clause: str,
    *needs: Need,
    settings: Settings | None = None,
    connected: bool = True,
) -> Callable[[Callable[[Script], None]], Callable[[Script], None]]:
    """Make a script the case `name`.

    `needs`: what it asks of the device beside packets. `settings`: None: the usual ones; others need `Need.SETTINGS`.
    `connected`: whether a queue pair is connected before the script begins.
    """

    def enter(script: Callable[[Script], None]) -> Callable[[Script], None]:
        if name in _CASES:
            raise ValueError(f"two cases have the name {name}")
        asked = set(needs)
        if settings is not None:
            asked.add(Need.SETTINGS)
        _CASES[name] = Case(
            name, area, rule, basis, clause, script, settings or Settings(), frozenset(asked), connected
        )
        return script

    return enter


@cache
def catalogue() -> tuple[Case, ...]:
    """Return every case, by area and in the order of its module."""
    package = importlib.import_module("mrc_conform.cases")
    for module in pkgutil.iter_modules(package.__path__, "mrc_conform.cases."):
        importlib.import_module(module.name)
    order = list(Area)
    return tuple(sorted(_CASES.values(), key=lambda each: order.index(each.area)))


def select(patterns: Iterable[str]) -> list[Case]:
    """Return the cases whose name begins with a pattern, or whose area has that name; all without any.

    Raises:
        UsageError: a pattern that selects nothing.
    """
    every = list(catalogue())
    wanted = list(patterns)
    if not wanted:
        return every
    chosen: list[Case] = []
    for pattern in wanted:
        found = [each for each in every if each.name.startswith(pattern) or each.area.name.lower() == pattern.lower()]
        if not found:
            areas = ", ".join(area.name.lower() for area in Area)
            raise UsageError(
                f"--only {pattern}: no case's name begins so; `mrclab conform --list` has them; areas: {areas}"
            )
        chosen += [each for each in found if each not in chosen]
    return chosen
