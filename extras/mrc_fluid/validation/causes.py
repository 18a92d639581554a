"""Known causes of differences between backends.

Each names the controlled runs that show it (`controls`); `mrclab validate --causes` runs them, and fails if one no
longer shows it. All else is unexplained.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mrc_fluid.validation.scenario import Backend, Quantity


class Change(StrEnum):
    """Changes of controlled runs, each of which takes a cause away."""

    LAST_HOP = "marks at the last hop"
    BITMAP = "bitmap, as in htsim, for MRC's sprayer"
    BITMAP_EVEN = "bitmap for MRC's sprayer, and all EVs are active"
    FIXED = "a fixed window for all"
    NEAR_FIXED = "a fixed window for all, and the same distance"
    FEW_MESSAGES = "a tenth of the load"
    TWO_UPLINKS = "twice as many hosts and uplinks to a T0"
    THREE_TIMES = "flows three times as long"
    ALL_EVS = "all EVs are active"


_SENT = frozenset({Quantity.TRIMMED, Quantity.AGAIN})
_INCASTS = frozenset(f"incast-{count}" for count in (2, 4, 8, 16, 32, 64))


@dataclass(frozen=True)
class Cause:
    """Why a backend differs from packets in some quantities of some scenarios.

    `shown_by`: the change of controlled runs with which the difference vanishes.
    """

    backend: Backend
    scenarios: frozenset[str]
    quantities: frozenset[Quantity]
    text: str
    shown_by: Change


CAUSES: tuple[Cause, ...] = (
    Cause(
        Backend.HTSIM,
        _INCASTS,
        _SENT | {Quantity.JAIN, Quantity.P50},
        "uet-htsim marks packets (ECN) in the last queue, before the receiver, too; MRC's fabrics do not mark "
        "there, so senders slow down only once packets are trimmed. With such marks (the scenarios whose names end "
        "in -marked) trims, fairness and medians are those of uet-htsim",
        Change.LAST_HOP,
    ),
    Cause(
        Backend.HTSIM,
        frozenset({"on-off"}),
        frozenset({Quantity.P99}),
        "uet-htsim marks packets (ECN) in the last queue, before the receiver, too. So the slowest messages, those to "
        "a host that receives several at once, are sent more slowly there. With such marks MRC's are as slow",
        Change.LAST_HOP,
    ),
    Cause(
        Backend.HTSIM,
        frozenset({"slow-t1", "slow-t1-long"}),
        frozenset({Quantity.GOODPUT, Quantity.P50, Quantity.P99}),
        "how senders leave slow paths: after an ECN mark MRC passes over a path once, uet-htsim several times; and of "
        "MRC's paths, which are drawn at random, some senders have more over the slow switch. With uet-htsim's own "
        "rule (bitmap) in both, and as many paths over each switch, what differs is no more than headers explain",
        Change.BITMAP_EVEN,
    ),
    Cause(
        Backend.HTSIM,
        frozenset({"oversubscribed-2-long"}),
        _SENT,
        "how senders leave full paths: after an ECN mark MRC passes over a path once, uet-htsim several times, and "
        "fewer packets meet a full queue. With uet-htsim's own rule (bitmap) in both, as many are trimmed",
        Change.BITMAP,
    ),
    Cause(
        Backend.FLUID,
        _INCASTS | {"incast-4-marked", "incast-8-marked", "incast-32-marked"},
        frozenset({Quantity.P50, Quantity.JAIN}),
        "shares: the flow model gives all senders the same part of the receiver's link. As packets, the congestion "
        "control gives them unequal parts (Jain's index says how unequal), and those with more than theirs end before "
        "the median of equal ones. With one fixed window for all, parts are equal",
        Change.FIXED,
    ),
    Cause(
        Backend.FLUID,
        frozenset({"mixed-rtt"}),
        frozenset({Quantity.P50, Quantity.JAIN}),
        "shares: the flow model gives all senders the same part of the receiver's link. As packets, the congestion "
        "control gives them unequal parts, and those nearby more. With all at the same distance, and one fixed window, "
        "parts are equal",
        Change.NEAR_FIXED,
    ),
    Cause(
        Backend.FLUID,
        frozenset({"on-off"}),
        frozenset({Quantity.P50}),
        "messages that overlap: in the flow model two that share a link share it equally, and both end late; as "
        "packets one of them ends much sooner than the other. At a tenth of the load, where few overlap, medians are "
        "the same",
        Change.FEW_MESSAGES,
    ),
    Cause(
        Backend.FLUID,
        frozenset({"oversubscribed-4"}),
        frozenset({Quantity.GOODPUT, Quantity.P99}),
        "a single uplink: the flow model lets flows end as unequally where links are oversubscribed as it was measured "
        "below T0s with several uplinks. With one uplink all flows meet the same queue, and the last ends sooner. With "
        "twice as many hosts on two uplinks, which is 4:1 too, it ends as late as in the flow model",
        Change.TWO_UPLINKS,
    ),
    Cause(
        Backend.FLUID,
        frozenset({"slow-plane"}),
        frozenset({Quantity.GOODPUT, Quantity.P99}),
        "the end of a flow: its last packets wait in the slow plane or are trimmed there, for a time that does not "
        "depend on how long the flow is; the flow model has this time too long. In flows three times as long it is "
        "a third as much of the whole",
        Change.THREE_TIMES,
    ),
    Cause(
        Backend.FLUID,
        frozenset({"slow-t1-long"}),
        frozenset({Quantity.P99}),
        "the draw of paths: a sender uses half of its paths (entropy values, EVs) at a time, drawn at random, so some "
        "senders have more of them than others over the slow switch. The flow model has what that "
        "costs only roughly. With all EVs in use, as many over each switch, it does not matter",
        Change.ALL_EVS,
    ),
)
