"""What large labs need on the virtual clock: nothing that grows with the pairs of hosts, one call for many ports."""

from __future__ import annotations

import pytest

from mrc_control.lab import describe, forwarders
from mrc_control.results.record import RunResult
from mrc_control.runs.runner import Run
from mrc_control.runs.workload import WorkloadSpec
from mrc_control.session import counters
from mrc_control.session.base import closing
from mrc_control.session.virtual import VirtualSession
from mrc_host.node.config import load
from mrc_topo import addressing
from mrc_topo.labfile import parse_lab

LOSSY = "name: a\nhosts: 4\nplanes: 2\nt0_per_plane: 2\npath_mtu: 1024\n"
LOSSLESS = LOSSY + "queues: {pfc: {xoff: 8KiB}}\n"


def run(session: VirtualSession, **params: int) -> RunResult:
    result = Run(session, WorkloadSpec("ring_all_reduce", dict(params))).go()
    assert not result.failures
    return result


@pytest.mark.parametrize(("lab", "transport"), [(LOSSY, "mrc"), (LOSSLESS, "roce")])
def test_a_sample_of_all_ports_is_what_each_port_says(lab: str, transport: str) -> None:
    """Over the way that the real clock takes: gRPC, port by port; the second lab has priority flow control."""
    with closing(VirtualSession(parse_lab(lab, "a"), transport)) as session:
        assert isinstance(session, VirtualSession)
        run(session, size_bytes=1 << 16)
        found = session.fabric_sample()
        assert found == counters.sample(session.topology, session.target)
        assert ("paused_ns" in str(found)) is (transport == "roce")
        assert sum(port["tx_bytes"] for port in found["ports"].values()) > 1 << 16


@pytest.mark.parametrize("mode", ["srv6_usid", "srv6_srh", "ecmp"])
def test_what_is_computed_on_demand_is_what_the_real_clock_writes_down(mode: str) -> None:
    topology = parse_lab(f"name: a\nhosts: 5\nhosts_per_t0: 2\nt0_per_plane: 3\nrouting: {{mode: {mode}}}\n", "a")
    host = topology.hosts[1]
    computed, written = (describe.host_config(topology, host, clock) for clock in ("virtual", "real"))
    for key in ("profiles", "paths"):
        assert type(written[key]) is dict
        assert dict(computed[key]) == written[key]
        assert len(computed[key]) == (0 if mode == "ecmp" and key == "paths" else 4)
        for other in (
            addressing.text(host.address),
            addressing.text(topology.hosts[0].ports[0].address),
            "fd00::",
            "x",
        ):
            assert computed[key].get(other) is None
    if mode == "ecmp":
        return
    resolvers = [load(each).endpoint().ev.resolver for each in (computed, written)]
    for peer in topology.hosts:
        if peer is not host:
            for plane in written["profiles"][addressing.text(peer.address)]:
                for value in plane:
                    lazy, whole = (resolver(value, peer.address) for resolver in resolvers if resolver is not None)
                    assert lazy == whole


def test_a_lab_too_large_for_the_real_clock_is_refused_there() -> None:
    topology = parse_lab("name: a\nhosts: 300\nhosts_per_t0: 100\nt0_per_plane: 3\n", "a")
    with pytest.raises(
        forwarders.PartMissing, match=r"lab 'a' has 300 hosts, the real clock takes 256 at most; .*virt"
    ):
        forwarders.check(topology)
