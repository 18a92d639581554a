"""The records of a run as tables: what its hosts saw, without a word of what was done to the lab.

`events.csv` has a row for each EV that a host gave up or took into use again, `hosts.csv` what each host received.
Times count from the start of the run.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from mrc_host.answers import Event
from mrc_host.proto.events import EvState
from mrc_topo.topology import Path, Topology
from mrclab.results.history import EvChange, ev_changes
from mrclab.results.record import RunResult

#: Width of the bins of hosts.csv, seconds.
BIN_S = 0.1
#: Changes between other states say nothing of a path.
SHOWN = (EvState.ASSUMED_BAD.name, EvState.GOOD.name)


def path_changes(
    result: RunResult, events: Mapping[str, Iterable[Event]], topology: Topology
) -> Iterator[tuple[EvChange, Path]]:
    """Yield each time that a host gave up an EV on a known path or took it into use again, in the order of time."""
    for each in ev_changes(result, events, topology):
        if each.path is not None and each.old in SHOWN and each.new in SHOWN:
            yield each, each.path


def tables(result: RunResult, topology: Topology) -> dict[str, str]:
    """Return the tables of a run as CSV, by file name."""
    changes = [
        (
            f"{each.t_ms:.1f}", each.host, each.peer, each.plane, f"{each.ev:08x}", " ".join(path.switches),
            each.old, each.new, each.cause,
        )
        for each, path in path_changes(result, result.events, topology)
    ]  # fmt: skip
    edges = result.grid(BIN_S)
    received = []
    for name in result.ranks:
        rates, again = (result.rates(name, column, edges) for column in ("delivered_bytes", "retransmissions"))
        # Rounded sums, not rounded bins: so all rows together have as many as the run.
        sums = np.rint(np.cumsum(again * np.diff(edges))).astype(int)
        received += [
            (f"{1000 * edge:.0f}", name, f"{8 * rate / 1e6:.2f}", repeated)
            for edge, rate, repeated in zip(edges, rates, np.diff(sums, prepend=0).tolist(), strict=False)
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
