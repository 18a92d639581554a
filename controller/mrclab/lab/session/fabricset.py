"""The switches of a lab behind one target API, whether they live in one process or each in its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from p4lite.switch.fabric.values import Lag, Lateness, LinkSettings, SwitchState
from p4lite.switch.targetapi.client import TargetClient, TargetError
from p4lite.switch.targetapi.values import (
    DeviceSample,
    DeviceStats,
    FabricInfo,
    LinkChanges,
    PortDirection,
    SwitchInfo,
)


class FabricSet:
    """Sends every call to the fabric process of the switch.

    Args:
        addresses: the device ids behind each gRPC address.
    """

    def __init__(self, addresses: Mapping[str, Sequence[int]]) -> None:
        self.clients = [TargetClient(address) for address in addresses]
        self._by_device = {
            device: client
            for client, devices in zip(self.clients, addresses.values(), strict=True)
            for device in devices
        }

    def info(self) -> FabricInfo:
        """Return the state of all switches; the clock is that of the first process."""
        parts = [client.info() for client in self.clients]
        switches = {
            device: each for part in parts for device, each in part.switches.items() if device in self._by_device
        }
        events = sum(part.events for part in parts)
        lost = sum(part.notifications_lost for part in parts)
        return FabricInfo(parts[0].now_ns, events, lost, dict(sorted(switches.items())))

    def stats(self) -> dict[int, DeviceStats]:
        """Return the statistics of all switches."""
        found = {device: stats for client in self.clients for device, stats in client.stats().items()}
        return {device: stats for device, stats in found.items() if device in self._by_device}

    def answering(self) -> tuple[dict[int, SwitchInfo], dict[int, DeviceStats]]:
        """Return `info` and `stats` of the switches whose process answers."""
        info: dict[int, SwitchInfo] = {}
        stats: dict[int, DeviceStats] = {}
        for client in self.clients:
            with contextlib.suppress(TargetError):
                found = client.info().switches
                counted = client.stats()
                info |= {device: each for device, each in found.items() if device in self._by_device}
                stats |= {device: each for device, each in counted.items() if device in self._by_device}
        return dict(sorted(info.items())), stats

    def by_process(self) -> dict[str, dict[int, DeviceStats]]:
        """Return the statistics of all devices, relays included, by address and device id."""
        found: dict[str, dict[int, DeviceStats]] = {}
        for client in self.clients:
            with contextlib.suppress(TargetError):  # a dead process has no statistics
                found[client.address] = client.stats()
        return found

    def samples(
        self, priority: int, reasons: Iterable[str] = (), counters: Iterable[str] = ()
    ) -> dict[int, DeviceSample]:
        """Return samples of all switches."""
        parts = [client.samples(priority, reasons, counters) for client in self.clients]
        found = {device: sample for part in parts for device, sample in part.items()}
        return {device: sample for device, sample in found.items() if device in self._by_device}

    def read_counter(self, device_id: int, counter: str, index: int | None = None) -> list[tuple[int, int]]:
        """Return cells of a counter of a switch's program."""
        return self._by_device[device_id].read_counter(device_id, counter, index)

    def set_port_up(self, device_id: int, port: int, up: bool, direction: PortDirection = "both") -> None:
        """Take the link at a port down, or bring it back up."""
        self._by_device[device_id].set_port_up(device_id, port, up, direction)

    def set_port_link(
        self,
        device_id: int,
        port: int,
        *,
        outgoing: LinkSettings | LinkChanges | None = None,
        incoming: LinkSettings | LinkChanges | None = None,
    ) -> None:
        """Change the directions of a port's link."""
        self._by_device[device_id].set_port_link(device_id, port, outgoing=outgoing, incoming=incoming)

    def set_state(self, device_id: int, state: SwitchState | Literal["running", "frozen", "stopped"]) -> None:
        """Run, freeze or stop a switch."""
        self._by_device[device_id].set_state(device_id, state)

    def restart(self, device_id: int, *, disconnect: bool = False) -> None:
        """Restart a switch as after a reboot."""
        self._by_device[device_id].restart(device_id, disconnect=disconnect)

    def capture(self, device_id: int, port: int, path: str | None, **options: Any) -> None:
        """Capture a port into a file; None ends the capture. The options are those of `TargetClient.capture`."""
        self._by_device[device_id].capture(device_id, port, path, **options)

    def address(self, device_id: int) -> str:
        """Return the gRPC address of a switch."""
        return self._by_device[device_id].address

    def lateness(self, *, reset: bool = False) -> Lateness:
        """Return the lateness of the latest process; CPU shares are added up."""
        parts = [client.lateness(reset=reset) for client in self.clients]
        worst = max(parts, key=lambda each: each.loop.p99_ns)
        busy: Lag = worst.busy
        return Lateness(worst.loop, busy, sum(each.cpu_share for each in parts), sum(each.events for each in parts))

    def close(self) -> None:
        """Close all connections."""
        for client in self.clients:
            client.close()
