"""Failures as data: checked against the topology, and undone to exactly what was there."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from mrc_control.failures import Action, Broken, FailureError, Failures, default_kind, flapping
from mrc_topo.labfile import load_lab
from mrc_topo.topology import Topology, UnknownElement
from p4lite.switch.fabric_types import LinkSettings, SwitchState
from p4lite.switch.target import FabricInfo, PortInfo, SwitchInfo

LINK, PORT, T1 = "p1-t0.0--p1-t1.0", "h3:2", "p0-t1.1"


@dataclass
class Fake:
    """A session and a fabric that only remember."""

    topology: Topology
    switches: dict[int, SwitchInfo] = field(default_factory=dict)
    carriers: dict[tuple[str, int], bool] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for switch in self.topology.switches:
            ports = {
                number: PortInfo(number, "", None, None, True, True, LinkSettings(number * 1000), LinkSettings(7))
                for number in switch.links
            }
            self.switches[switch.device_id] = SwitchInfo(
                switch.device_id, switch.name, SwitchState.RUNNING, None, None, 511, 8, 0, ports
            )

    @property
    def fabric(self) -> Any:
        return self

    def info(self) -> FabricInfo:
        return FabricInfo(0, 0, 0, {key: replace(each, ports=dict(each.ports)) for key, each in self.switches.items()})

    def set_port_up(self, device_id: int, port: int, up: bool, direction: str = "both") -> None:
        ports = self.switches[device_id].ports
        names = {"outgoing": ["up_outgoing"], "incoming": ["up_incoming"], "both": ["up_outgoing", "up_incoming"]}
        ports[port] = replace(ports[port], **dict.fromkeys(names[direction], up))

    def set_port_link(self, device_id: int, port: int, *, outgoing: Any = None, incoming: Any = None) -> None:
        ports = self.switches[device_id].ports
        for name, value in (("outgoing", outgoing), ("incoming", incoming)):
            if isinstance(value, dict):
                value = replace(getattr(ports[port], name), **value)
            if value is not None:
                ports[port] = replace(ports[port], **{name: value})

    def set_state(self, device_id: int, state: Any) -> None:
        self.switches[device_id] = replace(self.switches[device_id], state=SwitchState(state))

    def restart(self, device_id: int, *, disconnect: bool = False) -> None:
        self.log.append(f"restart {device_id}")

    def set_carrier(self, host: str, port: int, up: bool) -> None:
        self.carriers[host, port] = up


@pytest.fixture
def fake() -> Fake:
    return Fake(load_lab("default"))


@pytest.mark.parametrize(
    "action",
    [
        Action("fail", LINK, "link_down"),
        Action("fail", LINK, "link_down", "up"),
        Action("fail", LINK, "link_down", "down"),
        Action("fail", PORT, "port_down"),
        Action("fail", PORT, "link_down", "up"),
        Action("fail", LINK, "impair", settings={"loss": 0.2, "delay_ns": 5}),
        Action("fail", PORT, "impair", "down", {"rate_bps": 5000}),
        Action("fail", "p0-t0.1", "transceiver", settings={"first": 3, "count": 2}),
        Action("fail", T1, "stop"),
        Action("fail", "p2-t0.1", "stop"),
        Action("fail", T1, "freeze"),
        Action("fail", T1, "reboot"),
    ],
    ids=Action.describe,
)
def test_restore_puts_back_exactly_what_was_there(fake: Fake, action: Action) -> None:
    refilled: list[str] = []
    failures = Failures(fake.topology, refilled.append)
    before = fake.info()
    failures.perform(fake, action)  # type: ignore[arg-type]
    assert fake.info() != before
    assert all(not up for up in fake.carriers.values())
    assert bool(fake.carriers) == (action.target in (PORT, "p2-t0.1") and action.kind in ("port_down", "stop"))
    # Another process restores it, from what this one wrote down.
    other = Failures(fake.topology, refilled.append)
    other.broken = {
        name: Broken.from_document(json.loads(json.dumps(broken.document())))
        for name, broken in failures.broken.items()
    }
    other.perform(fake, Action("restore", action.target))  # type: ignore[arg-type]
    assert fake.info() == before
    assert all(fake.carriers.values())
    assert refilled == ([T1] if action.kind == "reboot" else [])


def test_directions_are_seen_from_the_host(fake: Fake) -> None:
    failures = Failures(fake.topology, lambda name: None)
    for target, outgoing in ((LINK, False), (PORT, True)):
        failures.fail(fake, Action("fail", target, "link_down", "up"))  # type: ignore[arg-type]
        link = fake.topology.links[target]
        end = link.high if link.is_host_link else link.low
        port = fake.switches[fake.topology.switch(end.node).device_id].ports[end.port]
        assert (port.up_outgoing, port.up_incoming) == (outgoing, not outgoing)


def test_expected_loss(fake: Fake) -> None:
    failures = Failures(fake.topology, lambda name: None)
    failures.fail(fake, Action("fail", PORT, "port_down"))  # type: ignore[arg-type]
    assert failures.expected_loss(fake.topology) == pytest.approx(0.25)
    failures.fail(fake, Action("fail", LINK, "impair", settings={"loss": 0.5}))  # type: ignore[arg-type]
    assert failures.expected_loss(fake.topology) == pytest.approx(0.25)
    failures.restore_all(fake)  # type: ignore[arg-type]
    assert failures.expected_loss(fake.topology) == 0


@pytest.mark.parametrize(
    ("action", "hint"),
    [
        (Action("fail", LINK, "melt"), "no failure 'melt'; known: link_down"),
        (Action("fail", LINK, "stop"), "needs a switch like p0-t1.0"),
        (Action("fail", T1, "link_down"), "needs a link"),
        (Action("fail", LINK, "port_down"), "needs a host port"),
        (Action("fail", LINK, "impair"), "at least one of"),
        (Action("fail", LINK, "impair", settings={"loss": 2}), "probability"),
        (Action("fail", LINK, "impair", settings={"rate_bps": 0}), "at least 1000"),
        (Action("fail", LINK, "impair", settings={"lag": 1}), "takes no 'lag'"),
        (Action("fail", T1, "transceiver", settings={"first": 90}), "has no ports 90 to 91"),
        (Action("restore", LINK), "is not broken; broken: nothing is"),
    ],
)
def test_bad_actions(fake: Fake, action: Action, hint: str) -> None:
    with pytest.raises(FailureError, match=hint):
        Failures(fake.topology, lambda name: None).perform(fake, action)  # type: ignore[arg-type]


def test_unknown_targets_and_double_failures(fake: Fake) -> None:
    failures = Failures(fake.topology, lambda name: None)
    with pytest.raises(UnknownElement, match=r"p0-t1\.0"):
        failures.check(Action("fail", "p0-t1.9", "stop"))
    failures.fail(fake, Action("fail", T1, "freeze"))  # type: ignore[arg-type]
    with pytest.raises(FailureError, match="broken already"):
        failures.fail(fake, Action("fail", T1, "stop"))  # type: ignore[arg-type]


def test_default_kinds_and_flapping(fake: Fake) -> None:
    assert [default_kind(fake.topology, name) for name in (LINK, PORT, T1)] == ["link_down", "port_down", "stop"]
    with pytest.raises(FailureError, match="h3:0"):
        default_kind(fake.topology, "h3")
    times = [(time, action.verb) for time, action in flapping(LINK, "link_down", 1.0, 0.5, 2)]
    assert times == [(1.0, "fail"), (1.25, "restore"), (1.5, "fail"), (1.75, "restore")]
