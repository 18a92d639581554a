"""Known causes of differences between backends, and what shows that they are.

A cause is listed only if a run shows it; all else is reported as unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_studies.validation.scenario import Backend, Quantity

_TIMES = frozenset({Quantity.GOODPUT, Quantity.P50, Quantity.P99})
_SENT = frozenset({Quantity.TRIMMED, Quantity.AGAIN})
_SENDERS = (2, 4, 8, 16, 32, 64)
_INCASTS = frozenset(f"incast-{count}" for count in _SENDERS)
_MARKED = frozenset(f"incast-{count}-marked" for count in _SENDERS)


@dataclass(frozen=True)
class Cause:
    """Why a backend differs from packets in some quantities of some scenarios; the text says what shows it."""

    backend: Backend
    scenarios: frozenset[str]
    quantities: frozenset[Quantity]
    text: str


CAUSES: tuple[Cause, ...] = (
    Cause(
        Backend.HTSIM,
        frozenset({"incast-64", "incast-64-marked"}),
        frozenset({Quantity.JAIN}),
        "senders below the receiver's T0: their round trip is half as long, and with a window of one packet they send "
        "twice as often; with senders below other T0s alone Jain's index is 0.91 to 0.96, and htsim's 0.98 to 0.99",
    ),
    Cause(
        Backend.HTSIM,
        _INCASTS - {"incast-64"},
        _SENT | {Quantity.JAIN, Quantity.P50, Quantity.GOODPUT, Quantity.P99},
        "htsim marks at the last hop, MRC does not; with these marks (the scenarios -marked) trims, fairness and times "
        "are htsim's up to 32 senders",
    ),
    Cause(
        Backend.HTSIM,
        frozenset({"slow-t1"}),
        _TIMES | _SENT,
        "the sprayer: MRC passes over an EV once for a mark, htsim more often; with htsim's bitmap as a policy packets "
        "carry 961 Gb/s, which the difference of headers makes 1015, and htsim 1017",
    ),
    Cause(
        Backend.FLUID,
        _INCASTS | _MARKED | {"mixed-rtt"},
        frozenset({Quantity.P50, Quantity.JAIN}),
        "the fluid shares a link equally; packets do so with the index that stands there, and flows with more than "
        "their share end before the median of equal ones",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"incast-64"}),
        frozenset({Quantity.GOODPUT, Quantity.P99}),
        "headers of trimmed packets use the receiver's link: 1.7 of 178 bytes for each packet that arrives, 7 % of it",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"slow-plane"}),
        _TIMES,
        "the fluid loads planes equally, so all wait for the slowest; packets that the slow plane trims are sent again "
        "on the others",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"dead-uplink", "cold-start", "lossy-uplink"}),
        frozenset({Quantity.GOODPUT, Quantity.P99}),
        "the last packets of a flow: their loss is found by a probe after two smoothed round trips, and the repetition "
        "or the probe may be lost, too; the fluid has no ends of messages, and goodput counts to the last flow's end",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"flapping-uplink"}),
        _TIMES,
        "in the fluid every queue pair loses packets on all its EVs across a link that was down, each time; packets "
        "meet few of them in 20 us",
    ),
)
