"""A session and a fabric that only remember, and that break off when they are told to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from mrc_topo.topology import Topology
from p4lite.switch.fabric.values import LinkSettings, SwitchState
from p4lite.switch.targetapi.values import FabricInfo, PortInfo, SwitchInfo


class BrokenOff(Exception):
    """A call that did not get through."""


@dataclass
class FakeLab:
    """Calls count down `calls_left`, where that is set; when none is left, each raises `BrokenOff`, the first of them
    either before or after (`late`) it has done what it does. `heal` ends that. `tables`: switches with entries."""

    topology: Topology
    switches: dict[int, SwitchInfo] = field(default_factory=dict)
    carriers: dict[tuple[str, int], bool] = field(default_factory=dict)
    tables: set[str] = field(default_factory=set)
    log: list[str] = field(default_factory=list)
    calls_left: int | None = None
    late: bool = False

    def __post_init__(self) -> None:
        self.tables = {switch.name for switch in self.topology.switches}
        self.carriers = {(host.name, port.plane): True for host in self.topology.hosts for port in host.ports}
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

    def heal(self) -> None:
        self.calls_left = None

    def _call(self, what: str) -> bool:
        """Return whether the call breaks off after its work."""
        self.log.append(what)
        if self.calls_left is None:
            return False
        self.calls_left -= 1
        if self.calls_left == 0 and self.late:
            return True
        if self.calls_left <= 0:
            raise BrokenOff(what)
        return False

    def state(self) -> tuple[Any, ...]:
        """Everything that failures may change."""
        return self._info(), dict(self.carriers), set(self.tables)

    def _info(self) -> FabricInfo:
        return FabricInfo(0, 0, 0, {key: replace(each, ports=dict(each.ports)) for key, each in self.switches.items()})

    def info(self) -> FabricInfo:
        if self._call("info"):
            raise BrokenOff("info")
        return self._info()

    def set_port_up(self, device_id: int, port: int, up: bool, direction: str = "both") -> None:
        broken_off = self._call(f"port {device_id}:{port} {direction} {up}")
        ports = self.switches[device_id].ports
        names = {"outgoing": ["up_outgoing"], "incoming": ["up_incoming"], "both": ["up_outgoing", "up_incoming"]}
        ports[port] = replace(ports[port], **dict.fromkeys(names[direction], up))  # type: ignore[arg-type]
        if broken_off:
            raise BrokenOff

    def set_port_link(self, device_id: int, port: int, *, outgoing: Any = None, incoming: Any = None) -> None:
        broken_off = self._call(f"link {device_id}:{port}")
        ports = self.switches[device_id].ports
        for name, value in (("outgoing", outgoing), ("incoming", incoming)):
            if isinstance(value, dict):
                value = replace(getattr(ports[port], name), **value)
            if value is not None:
                ports[port] = replace(ports[port], **{name: value})
        if broken_off:
            raise BrokenOff

    def set_state(self, device_id: int, state: Any) -> None:
        broken_off = self._call(f"state {device_id} {state}")
        self.switches[device_id] = replace(self.switches[device_id], state=SwitchState(state))
        if broken_off:
            raise BrokenOff

    def restart(self, device_id: int, *, disconnect: bool = False) -> None:
        broken_off = self._call(f"restart {device_id}{' disconnect' if disconnect else ''}")
        self.switches[device_id] = replace(self.switches[device_id], state=SwitchState.RUNNING)
        self.tables.discard(self.switches[device_id].name)
        if broken_off:
            raise BrokenOff

    def refill(self, name: str) -> None:
        broken_off = self._call(f"refill {name}")
        self.tables.add(name)
        if broken_off:
            raise BrokenOff

    def set_carrier(self, host: str, port: int, up: bool) -> None:
        broken_off = self._call(f"carrier {host}:{port} {up}")
        self.carriers[host, port] = up
        if broken_off:
            raise BrokenOff
