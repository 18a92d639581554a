"""The scenarios that are explored when none is named, one for each part of the protocol that a fault may meet."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Final

from support.checker.scenario import MRC, REPAIRABLE, ROCE, FaultKind, Scenario
from support.checker.search import Ending, Result, explore

_PACKETS: Final = (FaultKind.DROP, FaultKind.DUPLICATE, FaultKind.LATE)
_OUTAGES: Final = (FaultKind.DROP, FaultKind.LINK, FaultKind.DISABLE)
_SILENCE: Final = (FaultKind.DROP, FaultKind.CUT, FaultKind.MUTE)

SUITE: Final[dict[str, tuple[Scenario, ...]]] = {
    MRC: (
        Scenario(messages=("1",), kinds=tuple(FaultKind)),
        Scenario(messages=("3",), kinds=REPAIRABLE),
        Scenario(messages=("2", "1i"), post_any_time=True),
        Scenario(messages=("1i", "2i"), sack_every=2),
        Scenario(messages=("b4", "1i", "1"), window_bytes=1, kinds=_PACKETS),
        Scenario(messages=("2",), planes=2, kinds=_OUTAGES),
        Scenario(messages=("2",), linear=0, doubled=3, kinds=_SILENCE),
        Scenario(messages=("3",), nscc=True),
        Scenario(messages=("1", "2i"), receives=0, sack_every=4, kinds=_PACKETS),
        Scenario(messages=("1", "1@1"), planes=2, kinds=_OUTAGES),
        Scenario(messages=("2", "1@1"), window_bytes=1, kinds=_PACKETS),
        Scenario(messages=("1", "1<"), planes=2, kinds=_OUTAGES),
        Scenario(messages=("1i", "1i<@1"), kinds=REPAIRABLE, post_any_time=True),
    ),
    ROCE: (
        Scenario(ROCE, ("3",), kinds=(*_PACKETS, FaultKind.MARK)),
        Scenario(ROCE, ("3",), kinds=_PACKETS, selective=True),
        Scenario(ROCE, ("2", "1i"), kinds=_PACKETS, post_any_time=True, late_receives=True),
        Scenario(ROCE, ("2", "1i"), kinds=_PACKETS, selective=True, late_receives=True),
        Scenario(ROCE, ("1", "2"), kinds=(*_OUTAGES, FaultKind.CUT, FaultKind.MUTE), post_any_time=True),
        Scenario(ROCE, ("2",), planes=2, kinds=_OUTAGES, selective=True),
        Scenario(ROCE, ("3", "1"), kinds=_PACKETS, ack_every=16, stays_rtr=True),
        Scenario(ROCE, ("1", "1<", "1@1"), kinds=_OUTAGES),
    ),
}


def explore_all(
    scenarios: Sequence[Scenario], faults: int, seconds: float, told: Callable[[Result], None]
) -> list[Result]:
    """Explore scenarios with 0, then 1, and up to `faults` faults, for `seconds` of CPU time together.

    A scenario that was not exhausted within its share of the time is not explored with more faults.
    """
    began = time.process_time()
    results: list[Result] = []
    open_: list[Scenario] = list(scenarios)
    for count in range(faults + 1):
        left = open_
        open_ = []
        for number, scenario in enumerate(left):
            share = (seconds - (time.process_time() - began)) / (len(left) - number)
            if share <= 0:
                return results
            result = explore(dataclasses.replace(scenario, faults=count), seconds=share)
            results.append(result)
            told(result)
            if result.ending is Ending.EXHAUSTED:
                open_.append(scenario)
    return results
