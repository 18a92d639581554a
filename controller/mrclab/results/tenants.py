"""Figures of a run's tenants: what each carried and lost, how fairly, and what was denied between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mrc_topo.schema import Lab
from mrc_topo.tenants import COMMON_NAME
from mrc_topo.topology import Topology
from mrc_topo.units import Unit, shown
from mrclab.results import performance
from mrclab.results.check import Check
from mrclab.results.performance import Table
from mrclab.results.record import RunResult


@dataclass(frozen=True)
class TenantFigures:
    """Sums over the hosts of a tenant that took part.

    `goodput_bps`: the sum over hosts of the payload placed there, over the time that its rank worked. `lost`: data
    packets that they, as senders, took for lost. `jain`: Jain's index of the rates of the streams between them, or
    without streams of their own goodput; None of fewer than two, and where nothing flows.
    """

    tenant: str
    hosts: int
    goodput_bps: float
    lost: int
    trims: int
    timeouts: int
    jain: float | None


def figures(result: RunResult) -> list[TenantFigures]:
    """Return the figures of the hosts in no tenant, if any take part, and of each tenant in the order of the lab file;
    nothing of a lab without tenants."""
    if not isinstance(result.topology, Mapping) or not result.topology.get("tenants"):
        return []
    segments = Lab.model_validate(result.topology).segments
    made = []
    for segment in sorted({segments[name] for name in result.ranks}, key=lambda each: each.number):
        hosts = [name for name in result.ranks if segments[name] is segment]
        grown = {
            name: result.samples_of(name).growth(("delivered_bytes", "losses", "trims", "timeouts")) for name in hosts
        }
        sums = {key: sum(each[key] for each in grown.values()) for key in grown[hosts[0]]}
        own = {name: 8 * each["delivered_bytes"] / _busy_s(result, name) for name, each in grown.items()}
        rates = [
            rate
            for source in hosts
            for target in hosts
            for rate in performance.stream_rates(result, source, target).values()
        ] or list(own.values())
        made.append(
            TenantFigures(
                segment.name or COMMON_NAME,
                len(hosts),
                sum(own.values()),
                sums["losses"],
                sums["trims"],
                sums["timeouts"],
                performance.jain(rates) if len(rates) > 1 and any(rates) else None,
            )
        )
    return made


def _busy_s(result: RunResult, host: str) -> float:
    found = result.progress.get(host)
    return (found.finished_ns - found.started_ns) / 1e9 if found is not None and found.finished_ns else result.seconds


def tables(result: RunResult) -> list[Table]:
    """Return the figures as a table; none of a lab without tenants."""
    rows = [
        (
            each.tenant,
            str(each.hosts),
            f"{each.goodput_bps / 1e6:.3f}",
            *map(str, (each.lost, each.trims, each.timeouts)),
            "-" if each.jain is None else shown(each.jain, Unit.COUNT, 3),
        )
        for each in figures(result)
    ]
    heads = ("tenant", "hosts", "goodput", "taken for lost", "trims", "timeouts", "Jain's index")
    return [Table("tenants, goodput in Mb/s; Jain's index of their own streams", heads, rows)] if rows else []


def crossing(result: RunResult, topology: Topology) -> dict[tuple[str, str], int]:
    """Return how many messages were acknowledged of each stream between hosts of different tenants, by its hosts."""
    ranks = result.ranks
    return {
        (name, ranks[int(rank)]): stream.messages
        for name in ranks
        for rank, stream in (performance.measured(result, name).streams or {}).items()
        if topology.host(name).segment is not topology.host(ranks[int(rank)]).segment
    }


def failures(result: RunResult, topology: Topology) -> list[str]:
    """Return what failed in a run in which hosts write to other tenants, without the ends of those streams."""
    ends = {host for pair in crossing(result, topology) for host in pair}
    ranks = [each.failure for name, each in result.progress.items() if each.failure and name not in ends]
    return ranks + [each.text(result.started_ns) for each in result.deaths]


def denials(result: RunResult, topology: Topology, least: int) -> list[Check]:
    """Return the checks of such a run: the switches denied packets, and no message came."""
    denied = (result.program_counters or {}).get("drop_tenant_denied", 0)
    messages = crossing(result, topology).values()
    text = f"{sum(messages)} of {len(messages)} streams"
    return [
        Check("packets denied between tenants", f"at least {least}", str(denied), denied >= least),
        Check("messages between tenants", "0 of some streams", text, bool(messages) and not any(messages)),
    ]
