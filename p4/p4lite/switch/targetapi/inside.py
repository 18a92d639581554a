"""The part of the target API that needs no server: what a fabric of this process says of itself, and how it fails.

It has the methods of `TargetClient` that a simulation uses, and imports neither gRPC nor protobuf.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Literal

from p4lite.switch.fabric.fabric import Fabric, FabricSwitch, Port
from p4lite.switch.fabric.values import LinkSettings, SwitchState
from p4lite.switch.targetapi.values import (
    DeviceSample,
    DeviceStats,
    FabricInfo,
    LinkChanges,
    LinkEnd,
    PortDirection,
    PortInfo,
    SwitchInfo,
)


def switch_info(switch: FabricSwitch, stream_drops: int = 0) -> SwitchInfo:
    """Describe a switch; `stream_drops` is P4Runtime's count of messages that a slow controller did not take."""
    return SwitchInfo(
        device_id=switch.device_id,
        name=switch.name,
        state=switch.state,
        program=None if switch.program is None else switch.program.name,
        cpu_port=switch.cpu_port,
        drop_port=switch.drop_port,
        priority_queues=switch.priority_queues,
        stream_drops=stream_drops,
        ports={port.number: port_info(port) for port in switch.ports.values()},
    )


def port_info(port: Port) -> PortInfo:
    """Describe a port and its link."""
    other = None if port.link is None else port.link.other(port)
    return PortInfo(
        port=port.number,
        name=port.name,
        interface=port.interface,
        peer=None if other is None else LinkEnd(other.device_id, other.number),
        up_outgoing=port.is_up("outgoing"),
        up_incoming=port.is_up("incoming"),
        outgoing=port.link_settings("outgoing"),
        incoming=port.link_settings("incoming"),
    )


class FabricInside:
    """A fabric of this process, with methods of `TargetClient`. Every method raises FabricError for what the fabric
    refuses, and ControlError for what the program does not have."""

    def __init__(self, fabric: Fabric) -> None:
        self._fabric = fabric

    def info(self) -> FabricInfo:
        """See `TargetClient.info`."""
        fabric = self._fabric
        switches = {ident: switch_info(switch) for ident, switch in fabric.switches.items()}
        return FabricInfo(fabric.now_ns, fabric.events(), fabric.notifications_lost(), switches)

    def set_state(self, device_id: int, state: SwitchState | Literal["running", "frozen", "stopped"]) -> None:
        """See `TargetClient.set_state`."""
        self._fabric.switch(device_id).set_state(SwitchState(state))

    def restart(self, device_id: int, *, disconnect: bool = False) -> None:
        """See `TargetClient.restart`; there are no controllers that could be disconnected."""
        del disconnect
        self._fabric.switch(device_id).restart()

    def set_port_up(self, device_id: int, port: int, up: bool, direction: PortDirection = "both") -> None:
        """See `TargetClient.set_port_up`."""
        self._fabric.switch(device_id).port(port).set_up(up, direction)

    def set_port_link(
        self,
        device_id: int,
        port: int,
        *,
        outgoing: LinkSettings | LinkChanges | None = None,
        incoming: LinkSettings | LinkChanges | None = None,
    ) -> PortInfo:
        """See `TargetClient.set_port_link`."""
        at = self._fabric.switch(device_id).port(port)
        at.set_link(
            outgoing=_merged(outgoing, at.link_settings("outgoing")),
            incoming=_merged(incoming, at.link_settings("incoming")),
        )
        return port_info(at)

    def stats(self) -> dict[int, DeviceStats]:
        """See `TargetClient.stats`; of all switches."""
        now_ns = self._fabric.now_ns
        return {
            ident: DeviceStats(now_ns, switch.stats(), {number: port.stats() for number, port in switch.ports.items()})
            for ident, switch in self._fabric.switches.items()
        }

    def samples(
        self, priority: int, reasons: Iterable[str] = (), counters: Iterable[str] = ()
    ) -> dict[int, DeviceSample]:
        """See `TargetClient.samples`."""
        fabric, counted = self._fabric, list(counters)
        ports = [port for switch in fabric.switches.values() for port in switch.ports.values()]
        rows = iter(fabric.port_samples(ports, priority, list(reasons)))
        return {
            ident: DeviceSample(
                fabric.now_ns, switch.state, {number: next(rows) for number in switch.ports}, totals(switch, counted)
            )
            for ident, switch in fabric.switches.items()
        }

    def read_counter(self, device_id: int, counter: str, index: int | None = None) -> list[tuple[int, int]]:
        """See `TargetClient.read_counter`."""
        instance = self._fabric.switch(device_id).instance
        cells = instance.counter_read_all(counter) if index is None else [instance.counter_read(counter, index)]
        return [(each.packets, each.bytes) for each in cells]


def totals(switch: FabricSwitch, counters: Iterable[str]) -> dict[str, int]:
    """Return packets of all cells of those counters that the switch's program has."""
    if not counters or switch.program is None:
        return {}
    instance = switch.instance
    known = instance.program.counters
    return {name: instance.counter_total(name).packets for name in counters if name in known}


def _merged(given: LinkSettings | LinkChanges | None, now: LinkSettings) -> LinkSettings | None:
    """Return the settings that changes make of the present ones; None: no changes."""
    if given is None or isinstance(given, LinkSettings):
        return given
    return dataclasses.replace(now, **given)
