"""The kinds of devices, by name; each is imported when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mrc_conform.device import Device


class DeviceKind(Enum):
    """What can be tested."""

    VIRTUAL = "virtual"
    AGENT = "agent"
    INTERFACE = "interface"


@dataclass(frozen=True)
class Target:
    """A device as the command line names it; `interfaces`, `peer`, `adapter`: of an endpoint behind interfaces."""

    kind: DeviceKind
    interfaces: tuple[str, ...] = ()
    peer: str = ""
    adapter: str = ""
    udp_port: int | None = None


def make(target: Target) -> Device:
    """Return the device.

    Raises:
        DeviceError: it cannot be reached.
    """
    if target.kind is DeviceKind.AGENT:
        from mrc_conform.devices.agent import AgentDevice

        return AgentDevice(target.adapter)
    if target.kind is DeviceKind.INTERFACE:
        from mrc_conform.devices.interface import InterfaceDevice

        return InterfaceDevice(target.interfaces, target.peer, target.adapter, target.udp_port)
    from mrc_conform.devices.virtual import VirtualMrc

    return VirtualMrc()
