"""What a workload takes at least, and that what is measured without loss is explained by it."""

from __future__ import annotations

import pytest

from mrc_host.proto.wire.fields import HEADERS
from mrc_topo.labfile import load_lab, parse_lab
from mrc_topo.schema import HEADER_BYTES
from mrclab.results.wire import costs
from mrclab.runs import compare
from mrclab.runs.compare import ideal_seconds
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from support.lab.labs import session

RING = {"size_bytes": 1 << 20, "iterations": 1}


def test_costs_of_a_packet_are_those_of_its_headers() -> None:
    topology = load_lab("tiny")
    mrc = costs(topology, "mrc", 1, 10_240)
    # Ethernet, outer IPv6, IPv6, UDP, BTH, METH, TSETH, RETH, ICRC; the SACK has SETH and CC_STATE.
    assert mrc.data_bytes == 10 * (14 + 40 + 40 + 8 + 12 + 4 + 4 + 16 + 4) + 10_240
    assert (mrc.ack_bytes, mrc.acks, mrc.ports) == (14 + 40 + 40 + 8 + 12 + 28 + 8 + 4, 10, 2)
    roce = costs(topology, "roce", 1, 10_240)
    assert roce.data_bytes == 10 * (14 + 40 + 8 + 12 + 4) + 16 + 10_240
    assert (roce.ack_bytes, roce.acks, roce.ports) == (82, 1, 1)
    assert costs(topology, "roce", 16, 10_240).ports == 2


def test_a_lab_reckons_with_the_headers_that_there_are() -> None:
    """`mrc_topo` imports nothing of ours, and so has the sum in figures."""
    names = ("IPV6", "SRH", "IPV6", "UDP", "BTH", "METH", "TSETH", "RETH")
    sizes = [HEADERS[name].size for name in names]
    assert sum(sizes) + 14 + 16 + 4 == HEADER_BYTES  # Ethernet, a segment, ICRC


def test_ideal_time_of_two_ranks_is_that_reckoned_by_hand() -> None:
    text = (
        "name: x\nplanes: 1\nt0_per_plane: 1\nt1_per_plane: 0\nhosts: 2\npath_mtu: 1000\nev: {size: 8, active: 8}\n"
        "links: {host: {rate: 8Mbps, delay: 10ms}}"
    )
    spec = WorkloadSpec("all_gather", {"size_bytes": 8000, "iterations": 1})
    # Four packets of 1078 bytes at 1 byte per us and 16 of RETH, nothing to acknowledge meanwhile; the last one crosses
    # the second link; then its acknowledgement of 82 bytes comes back.
    data, way, back = 4 * 1078 + 16, 20_000 + 1078, 20_000 + 82
    ideal = ideal_seconds(parse_lab(text), spec, "roce")
    assert ideal == pytest.approx((data + way + back) / 1e6)


def test_ideal_time_of_a_workload_without_a_model_is_none() -> None:
    assert ideal_seconds(load_lab("tiny"), WorkloadSpec("incast", {}), "mrc") is None


@pytest.mark.slow
@pytest.mark.parametrize(("transport", "qps"), [("mrc", 1), ("roce", 1), ("roce", 4)])
def test_what_is_measured_without_loss_is_explained_to_two_percent(transport: str, qps: int) -> None:
    lab = compare.load_comparison("mrc-vs-roce").lab
    spec = WorkloadSpec("ring_all_reduce", RING, qps_per_peer=qps)
    with session(lab, "virtual", transport) as made:
        measured = compare.seconds_per_iteration(WorkloadRun(made, spec).go())
        ideal = ideal_seconds(made.topology, spec, transport)
    assert ideal is not None
    assert measured == pytest.approx(ideal, rel=0.02)
