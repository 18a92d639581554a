"""A short experiment on the virtual clock, with losses, failures and marks, and all that came of it.

python -m support.drivers.history TRANSPORT...    how the core runs, and the digest of a run under each
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from typing import Any

from mrc_host import running
from mrc_topo.base.plain import encode
from mrc_topo.labfile import parse_lab
from mrclab.lab.faults.action import Action
from mrclab.lab.session.virtual import VirtualSession
from mrclab.results.recording import Series
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec

LAB = """
name: twice
planes: 2
t0_per_plane: 2
t1_per_plane: 2
hosts: 4
hosts_per_t0: 2
path_mtu: 1024
ev: {size: 32, active: 16}
queues: {limit: 64KiB, ecn: {kmin: 8KiB, kmax: 24KiB}, trim: {threshold: 32KiB}}
"""
SCHEDULE = [
    (0.1, Action("fail", "p0-t0.0--p0-t1.0", "impair", settings={"loss": 0.05})),
    (0.2, Action("fail", "h1:1", "port_down")),
    (0.3, Action("fail", "p1-t1.0", "freeze")),
    (0.5, Action("restore", "h1:1")),
    (0.6, Action("restore", "p1-t1.0")),
]


def outcome(transport: str, seed: int) -> str:
    session = VirtualSession(parse_lab(LAB + f"seed: {seed}\n"), transport)
    try:
        random.random()  # nothing may depend on the global generator
        spec = WorkloadSpec("all_to_all", {"block_bytes": 60_000}, duration_s=0.8)
        result = WorkloadRun(session, spec, SCHEDULE).go()
        document: dict[str, Any] = {**result.document(recorded=False), "program_counters": session.program_counters()}
    finally:
        session.close()
    assert not result.failures
    del document["fidelity"]["software"]  # says how the core runs
    recording = result.recording
    document |= {"samples": recording.samples, "fabric": recording.fabric}
    document["events"] = {host: [encode(event) for event in events] for host, events in recording.events.items()}
    return json.dumps(document, default=columns)


def columns(series: Series) -> dict[str, Any]:
    """All that a host's or the fabric's series holds."""
    names = list(series.columns)
    return dict(zip(names, (each.tolist() for each in series.take(names)), strict=True))


def digest(transport: str, seed: int = 5) -> str:
    """Of `outcome`."""
    return hashlib.sha256(outcome(transport, seed).encode()).hexdigest()


if __name__ == "__main__":
    print(running.document()["core"], *map(digest, sys.argv[1:]))
