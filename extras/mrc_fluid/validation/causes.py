"""Known causes of differences between backends, and what shows that they are.

A cause is listed only if a run shows it (`mrclab validate --causes` runs most of them); all else is unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass

from mrc_fluid.validation.scenario import Backend, Quantity

_TIMES = frozenset({Quantity.GOODPUT, Quantity.STEADY, Quantity.P50, Quantity.P99})
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
        "uet-htsim marks packets (ECN) in the last queue, before the receiver, too; MRC's fabrics do not mark "
        "there, so senders slow down only once packets are trimmed. With such marks (the scenarios whose names end "
        "in -marked) trims, fairness and times are those of uet-htsim",
    ),
    Cause(
        Backend.HTSIM,
        frozenset({"incast-32-marked"}),
        frozenset({Quantity.JAIN}),
        "a rule of the congestion control, quick adapt, cuts a sender's window to what it delivered in the last "
        "round trip. With 32 senders that is a few packets, and a packet more or less makes shares unequal. Without"
        " this rule (cc.disable_qa) Jain's index is 0.966, and 0.972 in uet-htsim",
    ),
    Cause(
        Backend.HTSIM,
        frozenset({"incast-8-marked"}),
        frozenset({Quantity.P50}),
        "some senders are below the receiver's own switch, and their round trip is half as long as the others'. "
        "With all 8 senders below other switches the medians differ by 4 %",
    ),
    Cause(
        Backend.HTSIM,
        frozenset({"slow-t1", "slow-t1-long"}),
        _TIMES | _SENT,
        "how senders leave slow paths: after an ECN mark MRC passes over a path once, uet-htsim several times. With"
        " uet-htsim's own rule (bitmap) in both, goodput differs by 4 % beyond what headers explain, P50 and P99 by"
        " 4 %",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"slow-t1"}),
        frozenset({Quantity.P50}),
        "the start: packets leave with the largest window before the first mark says which paths are slow, and that"
        " costs each flow about 20 us, however long it is; the flow model has no start. With flows of 1500 packets,"
        " three times as long, the medians differ by 1 %",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"oversubscribed-2", "oversubscribed-2-long", "pods-oversubscribed-2"}),
        frozenset({Quantity.GOODPUT, Quantity.P99}),
        "shares: the congestion control of packets gives flows unequal windows for a while, so the last flow ends "
        "late, and the flow model gives all the same. With one fixed window for all flows goodput, P50 and P99 "
        "differ by up to 4 %",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"on-off"}),
        frozenset({Quantity.P50}),
        "messages that overlap: two that share a link both end after 45.0 us in the flow model, as packets the "
        "first after 40.9 and the second after 51.9 us",
    ),
    Cause(
        Backend.FLUID,
        _INCASTS | _MARKED | {"mixed-rtt"},
        frozenset({Quantity.P50, Quantity.JAIN}),
        "shares: the flow model gives all senders the same part of the receiver's link. As packets they have "
        "unequal parts (Jain's index says how unequal), and those with more than theirs end before the median of "
        "equal ones",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"dead-uplink", "lossy-uplink"}),
        frozenset({Quantity.GOODPUT, Quantity.P99}),
        "chance: a flow that loses one of its last packets finds that late, and the latest of 16 flows decides "
        "goodput. Over 16 seeds instead of 5 goodput differs by 5 and 2 %, P99 by 4 and 2 %",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"pods", "pods-planes", "permutation-planes-long"}),
        _TIMES,
        "the draw of paths: a sender uses half of its entropy values (EVs) at a time, drawn at random, so some "
        "links between pods get more of them, and packets wait there. With all EVs in use goodput, P50 and P99 "
        "differ by 2 % at most",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"pods-dead-uplink"}),
        frozenset({Quantity.GOODPUT, Quantity.P99}),
        "a late end: where one of a flow's last packets is lost, it ends two round trips late or more, and the "
        "latest of 32 flows decides goodput. In the steady state (pods-dead-uplink-long) goodput differs by 5.0 %, "
        "P50 by 4 %",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"incast-64"}),
        frozenset({Quantity.GOODPUT, Quantity.P99}),
        "trims: two of three packets are trimmed, and their headers and what is sent again use the receiver's link,"
        " which the flow model has not. Where senders get marks before (incast-64-marked), half of the packets are "
        "trimmed, and goodput and P99 differ by 5 % at most beyond the headers",
    ),
    Cause(
        Backend.FLUID,
        frozenset({"flapping-uplink"}),
        _TIMES,
        "in the flow model every sender loses a packet on each of its paths over the link, each time that the link "
        "goes down. As packets few of these paths are used in the 20 us for which it is down",
    ),
)
