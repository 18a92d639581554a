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
#: Packets of the flows in which messages' ends were held against packets.
SHORT_PACKETS = 256
#: The share of packets at which a grey element lost more than the model knows of.
HEAVY_LOSS = 0.5


@dataclass(frozen=True)
class Limit:
    """What a result is off by, and where: `text` for users, `source` is what the page has of it, word for word."""

    text: str
    source: tuple[str, ...]


class ModelLimits(Enum):
    """The limits that a cluster file can come near."""

    SHORT_FLOWS = Limit(
        f"a failure in messages of up to {SHORT_PACKETS} packets (goodput off by up to 69 %, where a flow of packets "
        "ended twice as late; the slowest ones, P99, by up to 54 %)",
        ("| a T1 is dead | 23.2, 39.2 (+69 %) |", "| 126, 193 (+54 %) |", "A flow here has 256 packets"),
    )
    GREY_SHORT = Limit(
        f"a grey element and messages of up to {SHORT_PACKETS} packets (the slowest ones, P99, off by up to 56 %)",
        ("| a T0-T1 link loses one packet in five | 40.6, 39.6 (-2 %) | 112, 110 (-2 %) | 118, 183 (+56 %) |",),
    )
    GREY_HEAVY = Limit(
        "a port or T0 that loses half of its packets or more (flows took 2466 µs, in the model 2060 µs)",
        ("| a port of four, 50 % | 2466 | 2060 |",),
    )
    TWO_PLANES = Limit(
        "two planes, one of them slow (goodput too high by up to 44 %, P99 too low by up to 18 %)",
        ("| one of two planes at a tenth of its rate | 5.2, 7.4 (+44 %) | 594, 562 (-5 %) | 708, 578 (-18 %) |",),
    )
    SLOW_T1 = Limit(
        "a slow T1 (goodput too high by 3 %, that of REPS by 4 %; that of oblivious spraying too low by 14 %)",
        (
            "With a slow T1 MRC is too high by 3 %",
            "With a slow T1 REPS is too high by 4 %, and oblivious spraying is too low by 14 %.",
        ),
    )
    THREE_TIERS = Limit(
        "three tiers (goodput too high by up to 11 %, where a T1-T2 link dies)",
        ("and 11 % too high over 16 seeds where a T1-T2 link dies",),
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
    short = any(job.message <= SHORT_PACKETS * cluster.path_mtu for job in cluster.jobs)
    if short and any(each.harm.kills for each in failures):
        yield ModelLimits.SHORT_FLOWS
    if short and any(each.harm.loss for each in failures):
        yield ModelLimits.GREY_SHORT
    fabric = Fabric(loaded.shape)

    def classes(failed: Event) -> set[str]:
        return {kind for kind, _ in fabric.find(failed.name, failed.lanes)}

    if any(each.harm.loss >= HEAVY_LOSS and classes(each) & {"ports", "t0s"} for each in failures):
        yield ModelLimits.GREY_HEAVY
    slow = [each for each in failures if each.harm.rate < 1]
    planes = {f"p{number}" for number in range(cluster.planes)}
    if cluster.planes == 2 and any(each.name in planes for each in slow):
        yield ModelLimits.TWO_PLANES
    if any("t1s" in classes(each) for each in slow):
        yield ModelLimits.SLOW_T1
    if cluster.tiers == 3:
        yield ModelLimits.THREE_TIERS
