"""Reorder distance: what a responder counts of packets that arrive below the highest PSN, and what becomes of it."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace
from typing import Any

import pytest

from mrc_host.answers import MrcHostStatistics
from mrc_host.proto.config import WireConfig
from mrc_host.proto.statistics import QpReordering
from mrc_host.proto.stats import EXACT, Reordering
from mrclab import Lab
from mrclab.results import reordering
from support.proto.net import NetConfig, drop_psns, opcode_of, psn_of
from support.proto.story import WIDE, Story

MTU = 1024
ECMP = str(pathlib.Path(__file__).parents[2] / "experiments/sweeps/policies/ecmp.py:Ecmp")
QUIET = NetConfig(trim_bytes=None, ecn=None)


def late(story: Story, delays: dict[int, int]) -> None:
    """Hold back packets by PSN, by so many ns each."""
    story.net.rules.append(lambda n, h, p, i, packet: delays.get(psn_of(packet)) if opcode_of(packet) <= 0xCB else None)


def counted(story: Story) -> QpReordering:
    return story.connection.peer.reordering()


@pytest.fixture
def story() -> Story:
    return Story(QUIET, wire=WireConfig(mtu=MTU), cc=WIDE)


def test_a_packet_is_as_late_as_it_is_below_the_highest_psn(story: Story) -> None:
    late(story, {2: 60_000, 4: 40_000})  # both after all others
    story.bench.post(story.connection, 10 * MTU - 24)
    story.until(lambda: story.bench.outstanding == 0)
    found = counted(story)
    assert (found.packets, found.again) == (10, 0)
    assert found.late == [0] * 6 + [1, 0, 1]  # PSNs 4 and 2 below 10: by 6 and by 8
    assert found.late_bytes == [0] * 13 + [1, 1]  # 6 and 8 KiB


def test_what_is_in_order_or_sent_again_is_no_reordering(story: Story) -> None:
    story.bench.post(story.connection, 10 * MTU)
    story.until(lambda: story.bench.outstanding == 0)
    assert (counted(story).late, counted(story).again) == ([], 0)
    story.net.rules.append(drop_psns([15]))
    story.bench.post(story.connection, 10 * MTU)
    story.until(lambda: story.bench.outstanding == 0)
    assert (counted(story).packets, counted(story).late, counted(story).again) == (20, [], 1)


def test_spans_of_the_histogram_have_no_gap_and_do_not_overlap() -> None:
    for span, of in ((reordering.span_of_packets, "packets"), (reordering.span_of_bytes, "bytes")):
        for distance in (1, 2, EXACT - 1, EXACT, EXACT + 1, 2 * EXACT - 1, 2 * EXACT, 1000, 4096):
            made = Reordering()
            made.late(distance, 1)
            index = len(getattr(made, of)) - 1
            least, most = span(index)
            assert least <= distance <= most, (of, distance)
            assert span(index + 1)[0] == most + 1


def result(*pairs: QpReordering) -> Any:
    statistics = MrcHostStatistics({}, {}, [], [], [], faults=0, reordering=pairs)
    return SimpleNamespace(statistics={"h0": statistics, "h1": None})


def test_the_quantile_of_distance_counts_packets_in_order_as_zero() -> None:
    found = reordering.of(
        result(QpReordering(1, None, 100, [0, 4, 0, 1], [], 2), QpReordering(2, None, 100, [0, 1], [], 0))
    )
    assert found is not None
    assert (found.placed, found.late, found.share, found.again) == (200, 6, 0.03, 2)
    assert [found.distance(share) for share in (0.5, 0.97, 0.98, 0.995, 1.0)] == [0, 0, 1, 1, 3]
    assert reordering.of(result()) is None


def test_spraying_reorders_and_one_path_does_not() -> None:
    shares = []
    for lab in (Lab("tiny", clock="virtual"), Lab("tiny", clock="virtual", planes=1, policies={"ev": ECMP})):
        with lab:
            made = lab.run("permutation", message_bytes=1 << 17, iterations=1)
        frame = made.frame("reordering")
        rows = [dict(zip(frame, each, strict=True)) for each in zip(*frame.values(), strict=True)]
        packets = sum(each["count"] for each in rows if each["unit"] == "packets")
        assert packets == sum(each["count"] for each in rows if each["unit"] == "bytes")
        assert {each["source"] for each in rows} <= {host.name for host in made.topology.hosts}
        found = reordering.of(made.run)
        assert found is not None
        assert found.late == packets
        assert len(reordering.tables(made.run)) == (2 if packets else 0)
        shares.append(found.share)
    assert shares[0] > 0.05
    assert shares[1] == 0
