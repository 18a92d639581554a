"""Counts of a run: what its ranks achieved, and how much counters of hosts and switches grew in it, that is
final minus initial statistics.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from mrc_host.answers import HostStatistics, JobProgress, MrcHostStatistics
from mrc_host.node.samples import condense, requestors, responders
from p4lite.switch.fabric.values import CreditStats, PfcStats
from p4lite.switch.targetapi.values import DeviceStats

#: By `SWITCH:PORT` and priority.
Pauses = Mapping[str, Mapping[str, PfcStats]]
Credits = Mapping[str, Mapping[str, CreditStats]]

S = TypeVar("S", PfcStats, CreditStats)
H = TypeVar("H", bound=HostStatistics)

#: Levels, which the end of a run has, and high-water marks, which are of all the time that the lab is up.
_LEVELS: Final = (
    "priority", "held_bytes", "buffer_bytes", "credit_bytes", "max_held_bytes", "least_credit_bytes",
)  # fmt: skip
#: Counters of samples of which a run has sums.
TOTALS: Final = ("retransmissions", "spurious_retransmissions", "trims", "marks", "timeouts", "losses", "packets")


@dataclass(frozen=True)
class Achieved:
    """What the ranks of a run achieved together: iterations of those that did fewest and most of the ranks that take
    part, bytes that arrived and are right, values that are wrong, queue pairs, and those in error."""

    least_iterations: int
    most_iterations: int
    bytes_verified: int
    mismatches: int
    qps: int
    qp_errors: int


def achieved(progress: Collection[JobProgress]) -> Achieved:
    """Return what ranks achieved together, from the progress of each."""
    iterations = [each.iterations for each in progress if each.takes_part]
    return Achieved(
        min(iterations, default=0),
        max(iterations, default=0),
        sum(each.bytes_verified for each in progress),
        sum(each.mismatches for each in progress),
        sum(each.qps for each in progress),
        sum(each.qps - each.qps_in_rts for each in progress),
    )


def counters(statistics: HostStatistics) -> dict[str, int]:
    """Return all counters of a host: `TOTALS` as samples have them, `endpoint.NAME`, `ports.sent_bytes` over its ports,
    and with MRC those of its queue pairs, `requestor.NAME` and `responder.NAME`, of which those that are gone are a
    part."""
    sample = condense(statistics, 0)
    found: dict[str, int] = {name: getattr(sample, name) for name in TOTALS}
    found |= {f"endpoint.{name}": count for name, count in statistics.endpoint.items()}
    found["ports.sent_bytes"] = sum(port.sent_bytes for port in statistics.ports)
    if isinstance(statistics, MrcHostStatistics):
        found |= {f"requestor.{name}": count for name, count in requestors(statistics).items()}
        found |= {f"responder.{name}": count for name, count in responders(statistics).items()}
    return found


def grown(before: H | None, after: H, count: Callable[[H], Mapping[str, int]] = counters) -> dict[str, int]:
    """Return how much each of a host's counts grew; of one whose agent began again meanwhile, since then."""
    same = before is not None and getattr(before, "instance", 0) == getattr(after, "instance", 0)
    first = count(before) if before is not None and same else {}
    return {name: value - first.get(name, 0) for name, value in count(after).items()}


def pauses(before: Mapping[str, DeviceStats], after: Mapping[str, DeviceStats]) -> dict[str, dict[str, PfcStats]]:
    """Return what priority flow control did between two readings of the switches, where it did anything."""
    return _controls(before, after, lambda device, port: device.ports[port].pfc,
                     lambda each: each.pauses_sent or each.pauses_received or each.headroom_drops)  # fmt: skip


def credits(before: Mapping[str, DeviceStats], after: Mapping[str, DeviceStats]) -> dict[str, dict[str, CreditStats]]:
    """Return what credits did between two readings of the switches, where a port had to wait for some."""
    return _controls(before, after, lambda device, port: device.ports[port].credits, lambda each: each.stalls)


def _controls(
    before: Mapping[str, DeviceStats],
    after: Mapping[str, DeviceStats],
    rows: Callable[[DeviceStats, int], Sequence[S]],
    some: Callable[[S], object],
) -> dict[str, dict[str, S]]:
    found: dict[str, dict[str, S]] = {}
    for name, device in after.items():
        for port in device.ports:
            known = name in before and port in before[name].ports
            earlier = {each.priority: each for each in (rows(before[name], port) if known else ())}
            for each in rows(device, port):
                mine = _between(earlier.get(each.priority), each)
                if some(mine):
                    found.setdefault(f"{name}:{port}", {})[str(each.priority)] = mine
    return found


def _between(before: S | None, after: S) -> S:
    """Return statistics of the time between two readings: counters as far as they grew, the levels of its end."""
    if before is None:
        return after
    made: dict[str, Any] = {}
    for each in dataclasses.fields(after):
        last = getattr(after, each.name)
        if not isinstance(last, bool) and each.name not in _LEVELS:
            made[each.name] = last - getattr(before, each.name)
    return dataclasses.replace(after, **made)
