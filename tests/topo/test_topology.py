"""What a topology derives for a link from its lab file."""

from __future__ import annotations

import textwrap

import pytest

from mrc_topo.labfile import parse_lab
from mrclab.lab import describe

LAB = """
name: slow
planes: 1
t0_per_plane: 2
t1_per_plane: 2
hosts: 4
hosts_per_t0: 2
path_mtu: 1024
links: {host: {rate: 20Mbps}, fabric: {rate: 20Mbps}}
"""


def test_queues_of_a_slower_link_hold_the_same_time() -> None:
    """98 304 bytes before trimming are 39 ms at 20 Mb/s, and would be 393 ms at 2 Mb/s."""
    overrides = """
    overrides:
      "h0:0": {rate: 2Mbps}
      "h1:0": {rate: 2Mbps, queue: {limit: 64KiB, trim: {threshold: 48KiB}}}
      p0-t0.0--p0-t1.0: {rate: 40Mbps}
    """
    topology = parse_lab(LAB + textwrap.dedent(overrides))
    usual = topology.lab.queues
    assert usual.trim is not None
    slow, own, fast = (topology.links[name].queue for name in ("h0:0", "h1:0", "p0-t0.0--p0-t1.0"))
    assert slow.trim is not None
    assert slow.trim.threshold == usual.trim.threshold // 10
    assert slow.limit == usual.limit // 10
    assert own.limit == 64 * 1024
    assert fast == usual


@pytest.mark.parametrize(
    ("more", "exponent"),
    [
        ("", 17),
        ('overrides: {"h0:0": {rate: 10Mbps}}', 17),
        ('overrides: {"h0:0": {rate: 1Mbps}}', 18),
        ('overrides: {"h0:0": {rate: 2Mbps, queue: {trim: {threshold: 98304}}}}', 21),
        ('reliability: {timeout: 16}\noverrides: {"h0:0": {rate: 1Mbps}}', 16),
    ],
)
def test_the_ack_timeout_outlasts_the_queue_of_a_slow_link(more: str, exponent: int) -> None:
    assert describe.ack_timeout_exponent(parse_lab(LAB + more)) == exponent
