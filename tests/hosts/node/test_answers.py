"""The typed answers are what hosts of both transports answer, key for key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mrc_host import answers
from mrc_topo.base.plain import decode, encode
from mrc_topo.labfile import parse_lab
from mrclab.lab.session.virtual import VirtualSession
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec

LAB = """
name: answers
planes: 2
t0_per_plane: 2
t1_per_plane: 2
hosts: 4
hosts_per_t0: 2
path_mtu: 1024
ev: {size: 16, active: 8}
links: {host: {rate: 20Mbps, delay: 50us}, fabric: {rate: 20Mbps, delay: 50us}}
"""
LOADS: list[tuple[str, dict[str, Any]]] = [
    ("write_bw", {"message_bytes": 4096, "iterations": 8}),
    ("write_lat", {"iterations": 4}),
    ("training", {"compute_us": 1000, "gradient_bytes": 1 << 14, "iterations": 2}),
]


def same(kind: Any, document: Any) -> None:
    """Check that a document is of a kind, with all keys in their order."""
    text = json.dumps(document)
    assert json.dumps(encode(decode(kind, json.loads(text)))) == text


@pytest.mark.parametrize("transport", ["mrc", "roce"])
@pytest.mark.parametrize(("name", "params"), LOADS)
def test_every_answer_of_a_run_survives_encoding(transport: str, name: str, params: dict[str, Any]) -> None:
    session = VirtualSession(parse_lab(LAB), transport)
    try:
        run = WorkloadRun(session, WorkloadSpec(name, params, hosts=["h0", "h2"]))
        result = run.go()
        for host in session.hosts.values():
            same(answers.HostStatistics, host.request("statistics"))
            for sample in host.request("samples")["samples"]:
                same(answers.Sample, sample)
            for event in host.request("events")["events"]:
                same(answers.Event, event)
            for row in host.request("map")["probes"]:
                same(answers.ProbeRow, row)
    finally:
        session.close()
    for progress in result.progress.values():
        same(answers.JobProgress, encode(progress))
        assert progress.measured is not None
