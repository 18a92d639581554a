"""Limits of the model, as far as a cluster comes near them: where packets showed that it is off, for a run's result.

Each figure is one that `docs/reference/scale-accuracy.md` has with the command that measured it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from mrc_fluid.clusterfile import Loaded
from mrc_fluid.fabric import Fabric
from mrc_fluid.timeline import Event

PAGE = "docs/reference/scale-accuracy.md"
#: The share of packets at which a grey element lost more than the model knows of.
HEAVY_LOSS = 0.5


@dataclass(frozen=True)
class Limit:
    """What a result is off by, and where: `text` for users, `source` is what the page has of it, word for word."""

    text: str
    source: tuple[str, ...]


class ModelLimits(Enum):
    """The limits that a cluster file can come near."""

    GREY_HEAVY = Limit(
        "a port or T0 that loses half of its packets or more (flows took 2368 µs, in the model 2027 µs)",
        ("| a port of four, 50 % | 2368 | 2027 |",),
    )
    SLOW_T1 = Limit(
        "a slow T1 (goodput of MRC within 2 %, of REPS within 3 %; that of oblivious spraying too low by 17 %)",
        ("With a slow T1 MRC is within 2 % and REPS within 3 %, and oblivious spraying is too low by 17 %.",),
    )
    THREE_TIERS = Limit(
        "three tiers (goodput 4 to 5 % too high where nothing fails, 12 % where a T1-T2 link dies)",
        (
            "Goodput is 4 to 5 % too high where nothing fails",
            "Where a T1-T2 link dies it is 12 % too high",
        ),
    )


def limits_of(loaded: Loaded) -> list[str]:
    """Return the limits that a cluster with its failures comes near, as texts."""
    return [each.value.text for each in _met(loaded)]


def note(loaded: Loaded) -> str:
    """Return these limits in one line, empty if there are none."""
    found = limits_of(loaded)
    return f"This run comes near limits of the model ({PAGE}): {'; '.join(found)}." if found else ""


def _met(loaded: Loaded) -> Iterator[ModelLimits]:
    cluster, failures = loaded.cluster, [each for each in loaded.events if each.by > 0]
    fabric = Fabric(loaded.shape)

    def classes(failed: Event) -> set[str]:
        return {kind for kind, _ in fabric.find(failed.name, failed.lanes)}

    if any(each.harm.loss >= HEAVY_LOSS and classes(each) & {"ports", "t0s"} for each in failures):
        yield ModelLimits.GREY_HEAVY
    slow = [each for each in failures if each.harm.rate < 1]
    if any("t1s" in classes(each) for each in slow):
        yield ModelLimits.SLOW_T1
    if cluster.tiers == 3:
        yield ModelLimits.THREE_TIERS
