"""A simulation's tables, filled by calls within the process, are those that P4Runtime fills."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from mrc_topo.labfile import load_lab
from mrclab.lab.faults.action import Action
from mrclab.lab.session.virtual import VirtualSession
from mrclab.lab.switches.p4rt import Device
from mrclab.lab.switches.program import fabric_program
from p4lite.messages import p4runtime_pb2
from p4lite.switch.native import build as native
from p4lite.switch.runtime import loader
from support.lab.labs import session

Rows = dict[str, dict[str, Any]]


def tables(made: VirtualSession) -> Rows:
    """Return what every switch has: entries without their handles, in any order, and default actions."""
    found: Rows = {}
    for switch in made.topology.switches:
        instance = made.simulated.switch(switch.device_id).instance
        rows = found[switch.name] = {}
        for name in instance.program.tables:
            entries = {(each.key, each.priority, each.action, each.is_const) for each in instance.table_entries(name)}
            rows[name] = (entries, instance.table_default(name))
    return found


def told(made: VirtualSession) -> dict[str, list[bytes]]:
    """Return every entry of every switch as P4Runtime reads it, default actions included."""
    wanted = p4runtime_pb2.Entity()
    wanted.table_entry.table_id = 0
    with grpc.insecure_channel(made.p4runtime_address("")) as channel:
        found = {}
        for switch in made.topology.switches:
            device = Device(channel, switch.device_id, switch.name, fabric_program().p4info)
            rows = list(device._read_entities(wanted))
            for table in device.names.tables.values():
                default = p4runtime_pb2.Entity()
                default.table_entry.table_id, default.table_entry.is_default_action = table.id, True
                rows += device._read_entities(default)
            found[switch.name] = sorted(each.SerializeToString(deterministic=True) for each in rows)
    return found


@pytest.fixture(params=["tiny", "default", "ecmp", "srv6-srh"])
def simulation(request: pytest.FixtureRequest) -> Iterator[VirtualSession]:
    made = VirtualSession(load_lab(request.param))
    yield made
    made.close()


def test_tables_are_those_that_p4runtime_fills(simulation: VirtualSession) -> None:
    direct = tables(simulation)
    assert simulation._served is None
    adopted = told(simulation)
    assert tables(simulation) == direct  # taking over changes nothing
    for switch in simulation.topology.switches:
        simulation._refill(switch.name)
    assert tables(simulation) == direct
    assert told(simulation) == adopted
    assert all(len(rows) > 10 for rows in adopted.values())


def test_a_switch_that_lost_its_tables_gets_them_again_served_or_not() -> None:
    with session("tiny", "virtual") as made:
        assert isinstance(made, VirtualSession)
        direct, name = tables(made), "p1-t1.0"
        for served in (False, True):
            if served:
                assert made.target.info() == made.fabric.info()
            assert (made._served is not None) == served
            made.fabric.restart(made.topology.switch(name).device_id)
            assert tables(made) != direct
            made._refill(name)
            assert tables(made) == direct
            made.failures.perform(made, Action("fail", name, "reboot"))
            made.failures.perform(made, Action("restore", name))
            assert tables(made) == direct


def test_the_cache_is_asked_for_a_program_once_and_not_for_every_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def build(name: str, *given: Any, **named: Any) -> pathlib.Path:
        asked.append(name)
        return native.build(name, *given, **named)

    monkeypatch.setattr(loader, "build", build)
    with session("tiny", "virtual") as made:
        assert isinstance(made, VirtualSession)
        assert asked == ["fabric"]
        made._serve()
        for switch in made.topology.switches:
            made._refill(switch.name)
        assert len(made.topology.switches) == 8
        # P4Runtime has a program of its own. It is built at each check until the first switch has loaded it.
        assert asked == ["fabric"] * 4


def test_both_ways_to_command_a_fabric_say_the_same() -> None:
    with session("tiny", "virtual") as made:
        assert isinstance(made, VirtualSession)
        made.advance(0.01)
        inside, names = made.fabric, list(made.program.counters.values())
        before = inside.info().switches[1].ports[1].outgoing
        inside.set_port_link(1, 1, outgoing={"loss": 0.25})
        inside.set_port_up(1, 2, False, "incoming")
        inside.set_state(2, "frozen")
        served = made.target
        assert served is made.fabric
        assert served.info() == inside.info()
        assert served.info().switches[1].ports[1].outgoing.loss == 0.25 != before.loss
        assert served.stats() == inside.stats()
        assert served.samples(0, ["loss"], names) == inside.samples(0, ["loss"], names)
        for name in names:
            assert served.read_counter(1, name) == inside.read_counter(1, name)
            assert served.read_counter(1, name, 0) == inside.read_counter(1, name, 0)
