"""Interface of failures to a lab, and the calls that put one link, carrier or switch into a state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from mrc_topo.topology import Link, Switch, Topology
from mrclab.lab.faults.action import DOWN, UP, Effects
from p4lite.switch.fabric.values import LinkSettings, SwitchState
from p4lite.switch.targetapi.values import FabricInfo, LinkChanges, LinkEnd


class FabricControl(Protocol):
    """The part of the target API that failures use; `TargetClient` and `FabricInside` have it."""

    def info(self) -> FabricInfo:
        """Return the state of all switches and ports."""

    def set_port_up(
        self, device_id: int, port: int, up: bool, direction: Literal["both", "outgoing", "incoming"] = "both"
    ) -> None:
        """Take a port down, or bring it back up."""

    def set_port_link(
        self,
        device_id: int,
        port: int,
        *,
        outgoing: LinkSettings | LinkChanges | None = None,
        incoming: LinkSettings | LinkChanges | None = None,
    ) -> object:
        """Change settings of a port's link."""

    def set_state(self, device_id: int, state: SwitchState | Literal["running", "frozen", "stopped"]) -> None:
        """Run, freeze or stop a switch."""

    def restart(self, device_id: int, *, disconnect: bool = False) -> None:
        """Restart a switch as after a reboot, with empty tables."""


class FaultTarget(Protocol):
    """A lab whose fabric and NICs can fail (a session)."""

    @property
    def fabric(self) -> FabricControl:
        """The lab's switches and links."""

    def set_carrier(self, host: str, port: int, up: bool) -> None:
        """Set or clear the carrier of a NIC port."""


@dataclass(frozen=True)
class DirectionState:
    """The state of one direction of a link."""

    up: bool
    settings: LinkSettings


@dataclass(frozen=True)
class LinkState:
    """The state of a link before its first failure; up is away from the host."""

    up: DirectionState
    down: DirectionState


#: The state of a link or a switch before its first failure.
Found = LinkState | SwitchState


def look(topology: Topology, lab: FaultTarget, names: Iterable[str]) -> dict[str, Found]:
    """Return the present state of links and switches."""
    switches = lab.fabric.info().switches
    found: dict[str, Found] = {}
    for name in names:
        element = topology.element(name)
        if isinstance(element, Switch):
            found[name] = switches[element.device_id].state
        elif isinstance(element, Link):
            device, number = _switch_end(topology, element)
            port = switches[device].ports[number]
            # A port on an interface also reads as down while the interface is down, or has just come up again; that
            # does not mean that the link is cut.
            device_down = port.interface is not None and not (port.up_outgoing or port.up_incoming)
            outgoing = DirectionState(port.up_outgoing or device_down, port.outgoing)
            incoming = DirectionState(port.up_incoming or device_down, port.incoming)
            up, down = (incoming, outgoing) if element.is_host_link else (outgoing, incoming)
            found[name] = LinkState(up, down)
    return found


def wanted(name: str, found: LinkState, effects: Effects) -> LinkState:
    """Return the state of a link under all effects."""
    up, down = (
        DirectionState(
            state.up and (name, way) not in effects.cut,
            replace(state.settings, **effects.settings.get((name, way), {})),
        )
        for way, state in ((UP, found.up), (DOWN, found.down))
    )
    return LinkState(up, down)


def put_link(topology: Topology, lab: FaultTarget, link: Link, now: LinkState | None, then: LinkState) -> None:
    """Bring a link from a state (None: unknown) into another."""
    device, number = _switch_end(topology, link)
    # Seen from the port at the T0, away from the host is outgoing on fabric links, incoming on host links.
    names: tuple[Literal["outgoing", "incoming"], ...] = ("incoming", "outgoing")
    pairs = [
        (name, old, new)
        for name, old, new in zip(
            names if link.is_host_link else reversed(names),
            (None, None) if now is None else (now.up, now.down),
            (then.up, then.down),
            strict=True,
        )
    ]
    settings = {name: new.settings for name, old, new in pairs if old is None or old.settings != new.settings}
    if settings:
        lab.fabric.set_port_link(device, number, **settings)
    turned = [(name, new.up) for name, old, new in pairs if old is None or old.up != new.up]
    if len(turned) == 2 and turned[0][1] == turned[1][1]:
        lab.fabric.set_port_up(device, number, turned[0][1])
    else:
        for name, up in turned:
            lab.fabric.set_port_up(device, number, up, name)


def put_carrier(lab: FaultTarget, link: Link, up: bool) -> None:
    """Set or clear the carrier of a host port."""
    lab.set_carrier(link.low.node, link.low.port, up)


def _switch_end(topology: Topology, link: Link) -> LinkEnd:
    """Return the end of a link at a T0."""
    end = link.high if link.is_host_link else link.low
    return LinkEnd(topology.switch(end.node).device_id, end.port)
