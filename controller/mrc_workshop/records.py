"""The records of a run as tables: what its hosts saw, without a word of what was done to the lab.

`events.csv` has a row for each EV that a host gave up or took into use again, `hosts.csv` what each host received.
Times count from the start of the run.
"""

from __future__ import annotations

import csv
import io
import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mrc_host.answers import Event, EvEvent, MrcHostStatistics
from mrc_host.proto.events import EvState
from mrc_results.record import RunResult
from mrc_topo.paths import Paths
from mrc_topo.topology import Path, Topology

#: Width of the bins of hosts.csv, seconds.
BIN_S = 0.1
#: Changes between other states say nothing of a path.
SHOWN = (EvState.ASSUMED_BAD.name, EvState.GOOD.name)


@dataclass(frozen=True)
class EvChange:
    """An EV of a host that became good or bad: when (ms after the start), its path, and the host's reason."""

    t_ms: float
    host: str
    peer: str
    plane: int
    ev: int
    path: Path
    old: str
    new: str
    cause: str


def ev_changes(result: RunResult, events: Mapping[str, Iterable[Event]], topology: Topology) -> Iterator[EvChange]:
    """Yield what happened to the EVs of each host that are on one known path, in the order of time."""
    paths, hosts = Paths(topology), {str(ipaddress.IPv6Address(host.address)): host for host in topology.hosts}
    found = []
    for name in events:
        statistics = result.statistics.get(name)
        if not isinstance(statistics, MrcHostStatistics):
            continue
        peers = {each.qpn: hosts[each.peer] for each in statistics.qps if each.peer is not None}
        source = topology.host(name)
        for event in events[name]:
            if not isinstance(event, EvEvent) or event.old == event.new or event.qpn not in peers:
                continue
            path = paths.path_of_ev(source.index, peers[event.qpn].index, event.ev)
            if path is None or event.new not in SHOWN or event.old not in SHOWN:
                continue
            t_ms = 1000 * result.since_start(event.t_ns)
            found.append(
                EvChange(
                    t_ms, name, peers[event.qpn].name, event.plane, event.ev, path, event.old, event.new, event.cause
                )
            )
    yield from sorted(found, key=lambda each: (each.t_ms, each.host, each.ev))


def tables(result: RunResult, topology: Topology) -> dict[str, str]:
    """Return the tables of a run as CSV, by file name."""
    changes = [
        (
            f"{each.t_ms:.1f}", each.host, each.peer, each.plane, f"{each.ev:08x}", " ".join(each.path.switches),
            each.old, each.new, each.cause,
        )
        for each in ev_changes(result, result.events, topology)
    ]  # fmt: skip
    edges = result.grid(BIN_S)
    received = []
    for name in result.ranks:
        columns = [result.rates(name, column, edges) for column in ("delivered_bytes", "retransmissions")]
        received += [
            (f"{1000 * edge:.0f}", name, f"{8 * rate / 1e6:.2f}", round(repeated * BIN_S))
            for edge, rate, repeated in zip(edges, *columns, strict=False)
        ]
    received.sort(key=lambda row: (float(row[0]), row[1]))
    return {
        "events.csv": _csv(("t_ms", "host", "peer", "plane", "ev", "path", "old", "new", "cause"), changes),
        "hosts.csv": _csv(("t_ms", "host", "received_mbps", "retransmissions"), received),
    }


def _csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
