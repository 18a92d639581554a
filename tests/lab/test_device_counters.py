"""What the P4Runtime client of a lab reads of counters, from a real server."""

from __future__ import annotations

from contextlib import closing

import grpc
import pytest

from mrclab.lab.switches.names import P4RuntimeError, TableEntry
from mrclab.lab.switches.p4rt import Device
from p4lite.switch.source import load_source
from support.switch.p4rt import PROGRAMS, Bench, ethernet


def test_a_direct_counter_has_its_entries_and_its_misses() -> None:
    config = load_source(PROGRAMS / "control.p4").config()
    with (
        closing(Bench()) as bench,
        grpc.insecure_channel(bench.address) as channel,
        closing(Device(channel, 1, "s1", str(config.p4info))) as device,
    ):
        device.become_primary()
        device.set_pipeline(config.p4_device_config)
        device.insert([TableEntry("I.l2", {"hdr.ethernet.dst": 2}, "I.forward", {"port": 3})])
        for destination in (2, 2, 9):
            bench.send(1, ethernet(destination))
        size = len(ethernet())
        assert device.counter("I.l2_count") == {0: (2, 2 * size), 1: (1, size)}
        assert bench.switch.instance.counter_read_all("I.l2_count")[1].packets == 1


def test_a_controller_takes_the_place_of_one_with_a_higher_election_id() -> None:
    """Election ids are times: after the machine's clock was set back, those of before are higher."""
    with (
        closing(Bench()) as bench,
        grpc.insecure_channel(bench.address) as channel,
        closing(Device(channel, 1, "s1", "")) as before,
        closing(Device(channel, 1, "s1", "")) as after,
    ):
        before.become_primary(1 << 70)
        with pytest.raises(P4RuntimeError, match="another controller"):
            after.become_primary(5)
    with (
        closing(Bench()) as bench,
        grpc.insecure_channel(bench.address) as channel,
        closing(Device(channel, 1, "s1", "")) as before,
        closing(Device(channel, 1, "s1", "")) as after,
    ):
        before.become_primary(1 << 70)
        after.become_primary(5, over=True)
        assert (after.election.high, after.election.low) == (1 << 6, 1)
