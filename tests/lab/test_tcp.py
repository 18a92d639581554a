"""The kernel's TCP as a baseline: what a comparison may ask of it, and that its bytes take the planes it says."""

from __future__ import annotations

import json
import math
import pathlib
from typing import Any

import pytest
import yaml

from mrc_host.answers import JobProgress
from mrc_topo.labfile import load_lab
from mrclab.lab.hosts import inside
from mrclab.lab.requested import LabRequest
from mrclab.lab.session.real import RealSession
from mrclab.runs import compare, tcp
from mrclab.runs.compare import Comparison
from mrclab.runs.experiment import ExperimentError
from mrclab.runs.sessions import session_for
from mrclab.runs.workload import WorkloadSpec


@pytest.fixture(autouse=True)
def run_directory(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))


RING = WorkloadSpec("ring_all_reduce", {"size_bytes": 1 << 16, "iterations": 2}, limit_s=60)


def document(**changes: Any) -> dict[str, Any]:
    return {
        "name": "x",
        "title": "y",
        "clock": "real",
        "workload": {"name": "write_bw", "params": {"message_bytes": 20_000}},
        "variants": [{"name": "a", "transport": "tcp", "over": "ecmp"}],
        "conditions": [{"name": "good"}],
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"clock": "virtual"}, "a: tcp is the kernel's own TCP, which runs on the real clock only"),
        ({"variants": [{"name": "a", "transport": "tcp"}]}, "transport tcp needs `over: one_plane` or `over: ecmp`"),
        ({"variants": [{"name": "a", "over": "ecmp"}]}, "`over` is only for tcp and iperf3; remove it"),
        ({"workload": {"name": "write_bw", "duration": 1}}, "a: tcp ends after `params.iterations`"),
        (
            {
                "workload": {"name": "all_to_all"},
                "variants": [{"name": "a", "transport": "iperf3", "over": "one_plane"}],
            },
            "a: iperf3 sends from one host to another, which is write_bw",
        ),
    ],
)
def test_what_tcp_cannot_do_is_said_before_anything_starts(
    changes: dict[str, Any], hint: str, tmp_path: pathlib.Path
) -> None:
    path = tmp_path / "compare.yaml"
    path.write_text(yaml.safe_dump(document(**changes)))
    with pytest.raises(ExperimentError, match=hint) as caught:
        compare.load_comparison(str(path))
    assert str(caught.value).startswith(str(path))


def test_without_iperf3_the_remedy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tcp, "have_iperf3", lambda: False)
    asked = document(variants=[{"name": "a", "transport": "iperf3", "over": "ecmp"}])
    with pytest.raises(ExperimentError, match=r"comparison x: a: iperf3 is missing; install it .* or leave"):
        compare.compare(Comparison.model_validate(asked))


@pytest.mark.parametrize("name", ["mrc-vs-tcp", "tcp-bandwidth"])
def test_the_comparisons_of_the_project_are_sound(name: str) -> None:
    comparison = compare.load_comparison(name)
    assert {each.over for each in comparison.variants} == {None, "one_plane", "ecmp"}
    assert all((compare.ideals(comparison)[each.name] is None) for each in comparison.variants if each.over)


def test_routes_over_all_planes_go_as_they_came() -> None:
    topology = load_lab("tiny")
    there = tcp.route_lines(topology, "h1", ["h0", "h1", "h2"], "add")
    back = tcp.route_lines(topology, "h1", ["h0", "h1", "h2"], "del")
    assert [line.split()[2] for line in there] == [line.split()[2] for line in reversed(back)]
    assert [line.count("nexthop") for line in there] == [0, 2, 2]
    assert tcp.addresses(topology, ["h0", "h1"], "one_plane") != tcp.addresses(topology, ["h0", "h1"], "ecmp")


def rank(**changes: Any) -> JobProgress:
    made = {"iterations": 2, "bytes_verified": 5, "started_ns": 10**9, "finished_ns": 3 * 10**9}
    return JobProgress(**{**made, **changes})


def test_a_result_counts_only_if_every_byte_was_right() -> None:
    fine = tcp.judged([rank(), rank(started_ns=0), rank(takes_part=False, iterations=0)], ["", "", ""])
    assert (fine.seconds, fine.failure, fine.verified) == (1.5, "", 10)
    for progress, errors, why in (
        ([rank(mismatches=3), rank()], ["", ""], "3 values are wrong"),
        ([rank(failure="rank 0 to rank 1: reset"), rank()], ["", ""], "rank 0 to rank 1: reset"),
        ([rank(), rank(takes_part=False)], ["", "no route"], "no route"),
        ([rank(iterations=0)], [""], "no rank has ended an iteration"),
    ):
        found = tcp.judged(progress, errors)
        assert (found.seconds, found.failure) == (math.inf, why)


def carried(session: RealSession) -> list[int]:
    """Bytes that hosts have got from each plane."""
    ports = session.fabric_sample()["ports"]
    return [
        sum(ports[f"{host.ports[plane].t0}:{host.ports[plane].t0_port}"]["tx_bytes"] for host in session.topology.hosts)
        for plane in range(session.topology.lab.planes)
    ]


@pytest.mark.lab
@pytest.mark.slow
def test_tcp_takes_the_planes_that_it_says_and_leaves_no_route() -> None:
    with session_for(LabRequest.of("tiny", clock="real")) as session:
        assert isinstance(session, RealSession)
        payload = 2 * 4 * 6 * (1 << 14)
        share = []
        for over, streams in (("one_plane", 1), ("ecmp", 8)):
            RING.qps_per_peer = streams
            before = carried(session)
            made = tcp.run(session, RING, over)
            assert (made.failure, made.verified) == ("", 2 * 4 * (1 << 16))
            assert 0 < made.seconds < math.inf
            share.append((carried(session)[1] - before[1]) / payload)
        # What else crosses plane 1 are the agents' probes, which are more the longer a busy machine takes.
        assert share[0] < 0.3
        assert share[1] > 0.15
        left = inside.run(session.state, ["ip", "-j", "-6", "route"], host="h0", capture_output=True, text=True)
        assert all(len(each.get("nexthops", ())) == 0 for each in json.loads(left.stdout))
        own = tcp.addresses(session.topology, ["h0"], "ecmp")[0]
        shown = inside.run(session.state, ["ip", "address"], host="h0", capture_output=True, text=True)
        assert own not in shown.stdout.split()
        if tcp.have_iperf3():
            bandwidth = WorkloadSpec("write_bw", {"message_bytes": 50_000, "source": 1, "target": 2, "iterations": 4})
            for over in ("one_plane", "ecmp"):
                made = tcp.iperf3(session, bandwidth, over)
                assert made.failure == ""
                assert 0 < made.seconds < math.inf
        # What a rank dies of is told, not waited for.
        bandwidth = WorkloadSpec("write_bw", {"message_bytes": 50_000, "source": 0, "target": 9}, ["h0", "h1"])
        assert "unusable configuration" in tcp.run(session, bandwidth, "one_plane").failure
