"""What large labs need on the virtual clock: nothing that grows with the pairs of hosts, one call for many ports."""

from __future__ import annotations

import threading
import time

import pytest

from mrc_topo import addressing, rules
from mrc_topo.labfile import parse_lab
from mrc_topo.shipped import shipped
from mrclab.lab import describe
from mrclab.lab.faults.action import Action, flapping
from mrclab.lab.session import counters
from mrclab.lab.session.base import closing
from mrclab.lab.session.virtual import VirtualSession
from mrclab.lab.switches import forwarders
from mrclab.results.record import RunResult
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec

LOSSY = "name: a\nhosts: 4\nplanes: 2\nt0_per_plane: 2\npath_mtu: 1024\n"
LOSSLESS = LOSSY + "queues: {pfc: {xoff: 8KiB}}\n"


def run(session: VirtualSession, **params: int) -> RunResult:
    result = WorkloadRun(session, WorkloadSpec("ring_all_reduce", dict(params))).go()
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
        names = sorted(session.counter_names().values())
        assert session.samples(names) == session.target.samples(rules.DATA_PRIORITY, counters.FAILURE_DROPS, names)
        assert ("paused_ns" in str(found)) is (transport == "roce")
        assert sum(port["tx_bytes"] for port in found["ports"].values()) > 1 << 16


@pytest.mark.parametrize("mode", ["srv6_usid", "srv6_srh", "ecmp"])
def test_what_is_computed_on_demand_is_what_the_real_clock_writes_down(mode: str) -> None:
    topology = parse_lab(f"name: a\nhosts: 5\nhosts_per_t0: 2\nt0_per_plane: 3\nrouting: {{mode: {mode}}}\n", "a")
    host = topology.hosts[1]
    computed, written = (describe.host_config(topology, host, clock) for clock in ("virtual", "real"))
    for key in ("profiles", "paths"):
        assert type(getattr(written, key)) is dict
        assert dict(getattr(computed, key)) == getattr(written, key)
        assert len(getattr(computed, key)) == (0 if mode == "ecmp" and key == "paths" else 4)
        for other in (
            addressing.text(host.address),
            addressing.text(topology.hosts[0].ports[0].address),
            "fd00::",
            "x",
        ):
            assert getattr(computed, key).get(other) is None
    if mode == "ecmp":
        return
    resolvers = [each.endpoint().ev.resolver for each in (computed, written)]
    for peer in topology.hosts:
        if peer is not host:
            for plane in written.profiles[addressing.text(peer.address)]:
                for value in plane:
                    lazy, whole = (resolver(value, peer.address) for resolver in resolvers if resolver is not None)
                    assert lazy == whole


def test_a_lab_too_large_for_the_real_clock_is_refused_there() -> None:
    topology = parse_lab("name: a\nhosts: 300\nhosts_per_t0: 100\nt0_per_plane: 3\n", "a")
    with pytest.raises(
        forwarders.ReferencePartMissing, match=r"lab 'a' has 300 hosts, the real clock takes 256 at most; .*virt"
    ):
        forwarders.check(topology)


def test_no_thread_waits_for_a_switch_of_a_simulation() -> None:
    """They would wake up many times a second: two for each switch."""
    with closing(VirtualSession(parse_lab(LOSSY, "a"))) as session:
        until = time.monotonic() + 120
        while [each for each in threading.enumerate() if each.name.startswith("p4rt-p")] and time.monotonic() < until:
            time.sleep(0.01)
        assert not [each.name for each in threading.enumerate() if each.name.startswith("p4rt-p")]
        session.failures.perform(session, Action("fail", "p0-t1.0", "reboot"))
        session.failures.perform(session, Action("restore", "p0-t1.0"))
        assert session.failures.broken == {}


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_64_ranks_go_on_while_a_link_flaps(transport: str) -> None:
    """The small sister of `mrclab run thousand-ranks`, which takes minutes."""
    text = (shipped("labs") / "thousand.yaml").read_text()
    for key, value in {"t0_per_plane: 32": "t0_per_plane: 4", "hosts: 1024": "hosts: 64", "_t0: 32": "_t0: 16"}.items():
        assert key in text
        text = text.replace(key, value)
    schedule = flapping(Action("fail", "p0-t0.0--p0-t1.0", loss=0.0), 0.05, 0.1, 1)
    spec = WorkloadSpec("tree_all_reduce", {"size_bytes": 1024}, duration_s=0.2)
    with closing(VirtualSession(parse_lab(text, "thousand"), transport)) as session:
        result = WorkloadRun(session, spec, schedule).go()
    assert not result.failures
    assert all(each.iterations and not each.mismatches for each in result.progress.values())
