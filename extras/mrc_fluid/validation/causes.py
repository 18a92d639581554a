"""Known causes of differences between backends, and what shows that they are.

A cause is listed only if a run shows it (`mrclab validate --causes` runs most of them); all else is unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_fluid.validation.scenario import Backend, Quantity

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
        _INCASTS,
        _SENT | {Quantity.JAIN, Quantity.P50, Quantity.GOODPUT, Quantity.P99},
        "htsim marks at the last hop, MRC does not; with these marks (the scenarios -marked) trims, fairness and times "
        "are htsim's",
    ),
    Cause(
        Backend.HTSIM,
        frozenset({"incast-32-marked"}),
        frozenset({Quantity.JAIN}),
        "quick adapt leaves windows of a few packets unequal: without it (cc.disable_qa) Jain's index is 0.966, "
        "htsim's 0.972",
    ),
    Cause(
        Backend.HTSIM,
        frozenset({"incast-8-marked"}),
        frozenset({Quantity.P50}),
        "senders below the receiver's T0, whose round trip is half as long: with 8 senders below other T0s P50 differs "
        "by 4 %",
    ),
    Cause(
        Backend.HTSIM,
        frozenset({"slow-t1"}),
        _TIMES | _SENT,
        "the sprayer: MRC passes over an EV once for a mark, htsim more often; with the bitmap in both goodput differs "
        "by 4 % beyond the headers, P50 and P99 by 4 %",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"slow-t1"}),
        frozenset({Quantity.P50}),
        "the start: windows begin at their largest, before a mark says which paths are slow; that costs packets about "
        "20 us however long a flow is, and with flows of 1500 packets P50 differs by 1 %",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"oversubscribed-2", "pods-oversubscribed-2"}),
        frozenset({Quantity.GOODPUT, Quantity.P99}),
        "NSCC's windows, which are unequal for a while, so the last flow ends late; with the same fixed window for all "
        "flows goodput, P50 and P99 differ by up to 4 %",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"on-off"}),
        frozenset({Quantity.P50}),
        "a lone message takes 32.2 us in the flow model, whose links carry 97 % and SACKs of messages the other way, "
        "and 30.5 us as packets; two that overlap both take 45.0 us in the flow model, as packets 40.9 and 51.9 us",
    ),
    Cause(
        Backend.FLUID,
        _INCASTS | _MARKED | {"mixed-rtt"},
        frozenset({Quantity.P50, Quantity.JAIN}),
        "the flow model shares a link equally; packets do so with the Jain's index of their row, and flows with more "
        "than their share end before the median of equal ones",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"dead-uplink", "lossy-uplink"}),
        frozenset({Quantity.GOODPUT, Quantity.P99}),
        "chance: a flow that loses one of its last packets ends late, and the latest of 16 decides goodput; over 16 "
        "seeds (--seeds 16) goodput differs by 5 and 2 %, P99 by 4 and 2 %",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"pods", "pods-planes"}),
        _TIMES,
        "the draw of EVs: paths between pods get unequal shares of the active EVs, and packets wait in the fuller "
        "queues; with all EVs active goodput, P50 and P99 differ by 2 % at most",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"flapping-uplink"}),
        _TIMES,
        "in the flow model every queue pair loses packets on all its EVs across a link that was down, each time; "
        "packets meet few of them in 20 us",
    ),
)
