"""The kinds of devices, by name; each is imported when it is used."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mrc_common.errors import UsageError
from mrc_conform.device import Device
from mrc_conform.wire import Transport


class DeviceKind(Enum):
    """What can be tested."""

    VIRTUAL = "virtual"
    AGENT = "agent"
    INTERFACE = "interface"


@dataclass(frozen=True)
class Target:
    """A device as the command line names it; `interfaces`, `peer`, `adapter`: of an endpoint behind interfaces."""

    kind: DeviceKind
    transport: Transport = Transport.MRC
    interfaces: tuple[str, ...] = ()
    peer: str = ""
    adapter: str = ""
    udp_port: int | None = None


def make(target: Target) -> Device:
    """Return the device.

    Raises:
        UsageError: there is no device of this kind for the transport.
        DeviceError: it cannot be reached.
    """
    if target.transport is Transport.ROCE:
        if target.kind is not DeviceKind.VIRTUAL:
            raise UsageError(
                f"--transport roce is tested on the virtual clock only, not with --device {target.kind.value}"
            )
        from mrc_conform.devices.virtual_roce import VirtualRoce

        return VirtualRoce()
    if target.kind is DeviceKind.AGENT:
        from mrc_conform.devices.agent import AgentDevice

        return AgentDevice(target.adapter)
    if target.kind is DeviceKind.INTERFACE:
        from mrc_conform.devices.interface import InterfaceDevice

        return InterfaceDevice(target.interfaces, target.peer, target.adapter, target.udp_port)
    from mrc_conform.devices.virtual import VirtualMrc

    return VirtualMrc()
