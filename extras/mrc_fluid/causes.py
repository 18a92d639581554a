"""Causes of the hours that a design loses in a year of failures, in a sentence each."""

from __future__ import annotations

from mrc_fluid.schema import Cluster, ElementRates, YearSpec
from mrc_fluid.year import YearOutcome

#: Elements of a class, one of them.
ONE = {
    "links": "T0-T1 link",
    "upper_links": "T1-T2 link",
    "ports": "NIC port",
    "t0s": "T0",
    "t1s": "T1",
    "t2s": "T2",
}
#: The share of the time from which on more failures hardly find a time in which nothing is away.
OFTEN = 0.5


def cause(outcome: YearOutcome, cluster: Cluster, spec: YearSpec) -> str:
    """Return what takes most of the hours that a design loses, in one sentence without a full stop."""
    parts = {"slower": outcome.slower_h, "stalled": outcome.stalled_h, "restarts": outcome.restarts_h}
    most = max(parts, key=lambda part: parts[part])
    if parts[most] <= 0:
        return "nothing that fails slows or interrupts the job"
    if most == "restarts":
        each = spec.restart_minutes + spec.checkpoint_minutes / 2
        return (
            f"{outcome.restarts_h:,.1f} h are interruptions: each takes {each:g} min, and the job then goes on without "
            "the NICs that were cut off"
        )
    if most == "stalled":
        return f"{outcome.stalled_h:,.1f} h it stands still, {cluster.roce.ecmp / 1e9:g} s for each change of paths"
    return f"{outcome.slower_h:,.1f} h are slower steps: {_slower(outcome, spec)}"


def _slower(outcome: YearOutcome, spec: YearSpec) -> str:
    repair = max(each.hours for each in _rates(outcome.slow_by, spec))
    text = (
        f"for {outcome.slow_for_h:,.0f} h of {outcome.hours:,.0f} at least one {ONE[outcome.slow_by]} is away (up to "
        f"{repair:g} h until its repair), and the whole job waits for the NICs there, which costs "
        f"{outcome.slow_by_h / outcome.slow_for_h:.1%} of its pace"
    )
    if outcome.slow_for_h < OFTEN * outcome.hours:
        return text
    return f"{text}; a second one elsewhere at the same time costs nothing more, so failure rates matter little"


def _rates(kind: str, spec: YearSpec) -> tuple[ElementRates, ...]:
    """Return the rates of the failures of a class."""
    match kind:
        case "links" | "upper_links":
            return spec.flaps, spec.links
        case "ports":
            return spec.port_flaps, spec.ports
        case "t0s":
            return (spec.t0s,)
        case _:
            return (spec.t1s,)
