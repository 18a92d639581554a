"""Slowdown by flow size beside uet-htsim: the same flows for all, times alone, and groups of sizes."""

from __future__ import annotations

import pathlib

import pytest

from mrc_fluid.validation import slowdown
from mrc_fluid.validation.htsim import Algorithms, Htsim
from mrc_fluid.validation.scenario import MTU, NIC_BPS, Backend, FlowSpec
from mrc_fluid.validation.slowdown import GROUPS, SlowFlow


def test_all_backends_have_the_same_flows_and_no_pair_has_two() -> None:
    made = slowdown.scenario(0.6)
    flows = made.flows(1)
    assert flows == slowdown.scenario(0.6).flows(1) != made.flows(2)
    pairs = {(each.source, each.target) for each in flows}
    assert len(pairs) == len(flows) > 200
    assert all(source != target for source, target in pairs)
    assert all(each.start_ns % 1000 == 0 for each in flows)
    offered = [
        sum(each.bytes for each in made.flows(seed)) * 8e9 / slowdown.TIME_NS / NIC_BPS / 32 for seed in range(5)
    ]
    assert sum(offered) / 5 == pytest.approx(0.6, rel=0.1)


def test_one_path_is_what_htsim_is_told() -> None:
    folder = pathlib.Path("x")
    words = Htsim(folder, Algorithms(paths=1)).command(slowdown.scenario(0.3), 1, folder, "y")
    assert words[words.index("-paths") + 1] == "1"


def test_a_flow_alone_takes_its_packets_and_the_way_there_and_back() -> None:
    """A packet of 4 KiB: over four links and back 8 us, and at each of four ports 4160 bytes and an answer of 64."""
    flow = FlowSpec(0, 31, MTU)
    assert slowdown.alone_us(slowdown.prepare_of(slowdown.scenario(0.3)), Backend.HTSIM, flow) == pytest.approx(
        8 + 4 * (MTU + 64 + 64) * 8e6 / NIC_BPS
    )


def test_groups_are_by_size_and_their_means_over_seeds() -> None:
    flows = [
        SlowFlow(0.3, "packets", "spraying", seed, size, 1.0, 1.0, float(seed))
        for seed in range(1, 6)
        for size in (1, GROUPS[0], GROUPS[0] + 1)
    ]
    groups = slowdown.grouped(flows)[0.3, "packets", "spraying"]
    assert [len(each) for each in groups] == [10, 5, 0, 0, 0]
    mean, half, p99 = slowdown.summary(groups[1])
    assert (mean, p99) == pytest.approx((3.0, 4.96))
    assert half == pytest.approx(1.963, abs=1e-3)
    assert "3.00 ± 1.96, 5.0 | –" in slowdown.table(slowdown.grouped(flows))
