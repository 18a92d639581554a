"""Control while packets flow: no packet sees half of an update, and programs can be replaced under load."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from p4lite.messages import p4runtime_pb2
from p4lite.switch.fabric.fabric import Fabric
from p4lite.switch.server import FabricServer
from p4lite.switch.targetapi.client import TargetClient
from support.switch.p4rt import INSERT, MODIFY, Controller, batch_codes, control_config, ethernet

pb = p4runtime_pb2
FRAMES = 20_000


@pytest.fixture
def busy() -> Any:
    """Return a switch on the real clock whose port 1 receives a frame every 20 µs; ports 2 and 3 count what leaves."""
    server = FabricServer(Fabric("real", seed=1))
    switch = server.add_switch(1, cpu_port=255)
    ports = [switch.add_port(number) for number in (1, 2, 3)]
    for port in ports:
        port.collect(False)
    address = server.start()
    with Controller(address) as controller, TargetClient(address) as target:
        controller.arbitrate()
        controller.set_pipeline(control_config())
        yield ports[0], controller, target
    server.stop()


def test_every_packet_takes_the_old_or_the_new_way(busy: Any) -> None:
    """While an entry is modified hundreds of times, each packet leaves through exactly one of its two ports."""
    source, controller, target = busy
    ways = [controller.entry("l2", {"hdr.ethernet.dst": b"\2"}, "forward", [bytes([port])]) for port in (2, 3)]
    controller.write((INSERT, ways[0]))
    source.generate([ethernet()], FRAMES, interval_ns=20_000)
    changes = 0
    while target.stats()[1].ports[1].rx_packets < FRAMES:
        changes += 1
        controller.write((MODIFY, ways[changes % 2]))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        stats = target.stats()[1]
        sent = [stats.ports[number].tx_packets for number in (2, 3)]
        if sum(sent) == FRAMES:
            break
    assert sum(sent) == FRAMES
    assert min(sent) > 0
    assert changes > 2
    assert stats.switch.drops["ingress"] == 0
    query = controller.entry("l2", {"hdr.ethernet.dst": b"\2"}, None, counter_data=pb.CounterData())
    (found,) = controller.read(query)
    assert found.table_entry.counter_data.packet_count == FRAMES


def test_programs_restarts_and_reads_under_load(busy: Any) -> None:
    """Pipelines replaced, switches restarted, everything read, entries written: from four threads at once."""
    source, controller, target = busy
    source.generate([ethernet(), ethernet(src=9)], 10 * FRAMES, interval_ns=10_000)
    failures: list[BaseException] = []
    stop = threading.Event()

    def repeat(step: Any) -> None:
        try:
            while not stop.is_set():
                step()
        except BaseException as error:
            failures.append(error)
            raise

    def write() -> None:
        entry = controller.entry("l2", {"hdr.ethernet.dst": b"\2"}, "forward", [b"\2"])
        # A moment ago it was there, or was taken away by the others.
        assert batch_codes(lambda: controller.write((INSERT, entry))) in ([], ["ALREADY_EXISTS"])

    steps = [
        write,
        lambda: controller.read(pb.Entity(table_entry=pb.TableEntry()), pb.Entity(counter_entry=pb.CounterEntry())),
        lambda: controller.set_pipeline(control_config()),
        lambda: (target.restart(1), target.read_register(1, "I.seen"), target.stats()),
    ]
    threads = [threading.Thread(target=repeat, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    time.sleep(2)
    stop.set()
    for thread in threads:
        thread.join(30)
    assert failures == []
    controller.set_pipeline(control_config())
    controller.write((INSERT, controller.entry("l2", {"hdr.ethernet.dst": b"\2"}, "forward", [b"\3"])))
