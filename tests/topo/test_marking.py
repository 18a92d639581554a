"""ECN thresholds: bytes, times and shares of the base RTT, in bytes at each port, for the last hop and the others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrc_topo import rules
from mrc_topo.labfile import LabError, at_rate, parse_lab
from mrc_topo.schema import EcnSpec, Lab, Marks, marks, parse_depth, written
from mrc_topo.topology import Topology
from mrclab.lab import describe

UPLINK = "p0-t0.0--p0-t1.0"


def lab(ecn: str, more: str = "") -> Topology:
    return parse_lab(f"name: a\nqueues:\n  ecn: {{{ecn}}}\n{more}")


def test_a_time_is_what_each_ports_link_sends_in_it() -> None:
    links = "links: {host: {rate: 40Mbps}, fabric: {rate: 20Mbps}}\noverrides:\n  p1-t0.0--p1-t1.0: {rate: 5Mbps}\n"
    found = lab("kmin: 2ms, kmax: 8ms, last_hop: true", links).links
    assert found[UPLINK].marks == Marks(5_000, 20_000)
    assert found["h0:0"].marks == Marks(10_000, 40_000)
    assert found["p1-t0.0--p1-t1.0"].marks == Marks(1_250, 5_000)


def test_a_share_of_the_base_rtt_is_the_same_on_both_clocks() -> None:
    made = {clock: lab("kmin: 0.2rtt, kmax: 0.8rtt", f"clock: {clock}\n") for clock in ("real", "virtual")}
    base = made["real"].base_rtt_ns(made["real"].lab.interface_mtu + 14)
    assert made["real"].links[UPLINK].marks == Marks(base * 20 // 8000 // 5, base * 20 // 8000 * 4 // 5)
    assert describe.base_rtt_ns(made["real"], "real") > describe.base_rtt_ns(made["virtual"], "virtual")
    assert rules.all_entries(made["real"]) == rules.all_entries(made["virtual"])


def test_a_share_is_of_the_base_rtt_that_the_file_gives() -> None:
    assert lab("kmin: 0.2rtt, kmax: 0.8rtt", "cc: {base_rtt: 10ms}\n").links[UPLINK].marks == Marks(5_000, 20_000)


def test_the_last_hop_marks_as_an_option_and_with_thresholds_of_its_own() -> None:
    assert lab("kmin: 4KiB, kmax: 8KiB").links["h0:0"].marks is None
    assert lab("kmin: 4KiB, kmax: 8KiB, last_hop: true").links["h0:0"].marks == Marks(4096, 8192)
    own = lab("kmin: 4KiB, kmax: 8KiB, last_hop: true, last_hop_kmax: 8ms").links
    assert (own["h0:0"].marks, own[UPLINK].marks) == (Marks(4096, 20_000), Marks(4096, 8192))


def test_what_switches_are_told_are_the_bytes_of_each_port() -> None:
    topology = lab("kmin: 2ms, kmax: 8ms, last_hop: true, last_hop_kmin: 1ms")
    told = {
        entry.match[0].value: (entry.params["mark_min"], entry.params["mark_range"])
        for entry in rules.switch_entries(topology, topology.switch("p0-t0.0"))
        if entry.table == rules.PORTS
    }
    assert told == {1: (2_500, 17_500), 2: (2_500, 17_500), 3: (5_000, 15_000), 4: (5_000, 15_000)}


def test_roce_marks_at_the_last_hop_with_its_thresholds() -> None:
    topology = lab("kmin: 2ms, kmax: 8ms, last_hop_kmin: 1ms")
    assert topology.links["h0:0"].marks is None
    assert topology.for_transport("roce").links["h0:0"].marks == Marks(2_500, 20_000)


def test_times_and_shares_stay_at_another_rate_and_bytes_do_not() -> None:
    made = lab("kmin: 2ms, kmax: 8ms, last_hop: true, last_hop_kmin: 16KiB, last_hop_kmax: 2rtt").lab
    ecn = Lab.model_validate(at_rate(made, 10 * made.links.host.rate)).queues.ecn
    assert ecn is not None
    assert (ecn.kmin, ecn.kmax, ecn.last_hop_kmax) == (parse_depth("2ms"), parse_depth("8ms"), parse_depth("2rtt"))
    assert ecn.last_hop_kmin == 160 * 1024


@given(
    st.integers(0, 2**31 - 1)
    | st.integers(0, 10**12).map("{}ns".format)
    | st.decimals(0, 1000, places=4).map("{}rtt".format)
)
def test_a_depth_survives_being_written(given: int | str) -> None:
    depth = parse_depth(given)
    assert parse_depth(written(depth)) == depth


@given(st.integers(1, 10**9), st.integers(1_000, 10**13))
def test_a_link_sends_its_threshold_in_its_time(ns: int, rate: int) -> None:
    high = ns * rate // (8 * 10**9)
    ecn = EcnSpec(kmin=0, kmax=f"{ns}ns", last_hop=True)  # type: ignore[arg-type]
    if 0 < high < 2**31:
        assert marks(ecn, True, "h0:0", rate, 1, 2**31 - 1) == Marks(0, high)
        return
    with pytest.raises(ValueError, match=r"kmax .* on h0:0"):
        marks(ecn, True, "h0:0", rate, 1, 2**31 - 1)


@pytest.mark.parametrize(
    ("ecn", "line", "key", "text"),
    [
        ("kmin: 3 furlongs", 3, "queues.ecn.kmin", "write bytes such as 16KiB, a time such as 2ms, or a share"),
        ("kmin: 1.5", 3, "queues.ecn.kmin", "'1.5' is no depth of a queue"),
        ("kmin: 0.2rtts", 3, "queues.ecn.kmin", "such as 0.2rtt"),
        ("kmin: -1", 3, "queues.ecn.kmin", "must be at least 0 bytes, not -1"),
        ("kmax: 5GiB", 3, "queues.ecn.kmax", "kmax (5 GiB) is 5368709120 bytes on h0:0 at 20 Mb/s, more than"),
        ("kmin: 1rtt, kmax: 0.5rtt", 3, "queues.ecn", "kmax (0.5rtt) must be above kmin (1rtt)"),
        ("last_hop_kmax: 1KiB", 3, "queues.ecn", "last_hop_kmax (1024) must be above last_hop_kmin (16384)"),
        ("kmin: 1s, kmax: 2s", 3, "queues.ecn.kmin", "is 2500000 bytes on h0:0 at 20 Mb/s, but the queue holds 131072"),
        ("kmax: 1us", 3, "queues.ecn.kmax", "kmax (1us) is 2 bytes on h0:0 at 20 Mb/s, not above kmin (16 KiB)"),
        ("kmax: 20000s", 3, "queues.ecn.kmax", "more than any queue holds (2147483647); lower it"),
        ("host_ports: true", 3, "queues.ecn.host_ports", "was renamed; write 'last_hop' instead"),
        ("last_hop_kmin: 512KiB, last_hop_kmax: 1MiB", 2, "queues", "last_hop_kmin (524288) must not be above limit"),
    ],
)  # fmt: skip
def test_a_threshold_that_cannot_be_is_refused_with_its_place(ecn: str, line: int, key: str, text: str) -> None:
    with pytest.raises(LabError) as raised:
        lab(ecn)
    (problem,) = raised.value.problems
    assert problem.startswith(f"<lab>:{line}: {key}: ")
    assert text in problem


def test_a_threshold_of_one_link_is_refused_there() -> None:
    more = "overrides:\n  h1:1:\n    queue:\n      ecn: {kmin: 1s, kmax: 2s}\n"
    with pytest.raises(LabError, match=r"<lab>:7: overrides\.h1:1\.queue\.ecn\.kmin: .* on h1:1 at 20 Mb/s"):
        lab("kmin: 4KiB", more)
