"""Sessions on labs for tests, on either clock."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from mrc_topo.labfile import builtin_labs
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.base import Session
from mrclab.runs.sessions import session_for
from p4lite.switch.targetapi.values import DeviceStats

#: Every workload with parameters that make its messages small.
SMALL_LOADS: dict[str, dict[str, Any]] = {
    "ring_all_reduce": {"size_bytes": 12_000},
    "reduce_scatter": {"size_bytes": 12_000},
    "all_gather": {"size_bytes": 12_000},
    "tree_all_reduce": {"size_bytes": 6000},
    "all_to_all": {"block_bytes": 3000},
    "permutation": {"message_bytes": 5000},
    "incast": {"message_bytes": 4000},
    "send_recv": {"message_bytes": 4000},
    "write_bw": {"message_bytes": 8000},
    "write_lat": {},
    "broadcast": {"size_bytes": 9000, "piece_bytes": 4000},
    "flows": {"flows": [[0, 1, 5000, 0], [1, 0, 3000, 1_000_000], [0, 1, 9]]},
    "load": {"load": 0.1, "time_ns": 20_000_000, "sizes": [[2000, 50], [9000, 100]], "seed": 3},
    "trace": {
        "model": "gpt3-6.7b",
        "layers": 1,
        "data": 2,
        "buckets": 2,
        "micro_batches": 1,
        "bytes_divisor": 50_000,
        "time_divisor": 100,
    },
    "training": {"compute_us": 3000, "gradient_bytes": 9000, "buckets": 2, "jitter_percent": 10},
}


def lab_file(folder: pathlib.Path, base: str = "default", **changes: Any) -> str:
    """Return a lab file that is like one that comes with the project but for some keys; nested mappings are merged."""
    document = yaml.safe_load(builtin_labs()[base].read_text())
    _merge(document, changes)
    path = folder / f"{document['name']}.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def _merge(into: dict[str, Any], changes: Mapping[str, Any]) -> None:
    for key, value in changes.items():
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


@contextlib.contextmanager
def session(lab: str, clock: str, transport: str = "mrc") -> Iterator[Session]:
    """Yield a lab that is up for as long as the context lasts."""
    with session_for(LabRequest.of(lab, transport, clock=clock)) as made:
        yield made


def switches(made: Session) -> dict[str, DeviceStats]:
    """Return the statistics of a lab's switches by name."""
    return {made.topology.switches[ident - 1].name: found for ident, found in made.stats().items()}
