"""Results of runs that never were, from documents with only the keys that a test is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mrc_host.answers import JobProgress
from mrc_topo.base.plain import encode
from mrclab.results.reading import completed
from mrclab.results.record import LabEvent, RunResult
from mrclab.results.recording import StoredRecording


def result_of(document: Mapping[str, Any]) -> RunResult:
    """Return a result; keys that are left out are 0 or empty. `samples`, `fabric` and `events` are rows."""
    made = {"lab": "default", "clock": "virtual", "seed": 1, "workload": "write_bw", "params": {}, "ranks": []}
    made |= {key: value for key, value in document.items() if key not in ("samples", "fabric", "events")}
    for key, kind in (("happenings", list[LabEvent]), ("progress", dict[str, JobProgress])):
        if key in made:
            made[key] = completed(kind, made[key])
    result = RunResult.parse(made)
    parts = (document.get(key, empty) for key, empty in (("samples", {}), ("fabric", []), ("events", {})))
    result.recording = StoredRecording.of(*parts)
    return result


def plain(result: RunResult) -> Any:
    """Return what result.json would hold, with the events of all hosts."""
    return {**result.document(), "events": {host: encode(list(rows)) for host, rows in result.events.items()}}
