"""The fabric of a lab in which something else forwards: wires of the fabric process, and the switches behind them.

To failures, samples and captures it is like any other: a switch's ports are the wires', and what is done to the switch
is done to both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeVar

import grpc

from mrc_topo.base.rpc import Request
from mrc_topo.topology import Topology
from mrclab.lab.describe import BEHIND
from mrclab.lab.hosts.hostclient import HostClient, HostGone
from mrclab.lab.session.fabricset import FabricSet
from mrclab.lab.switches.backend import CheckSwitch, HoldSwitch, RestartSwitch, SizeQueue
from mrclab.lab.switches.names import P4RuntimeError
from mrclab.lab.switches.p4rt import Device
from p4lite.switch.fabric.values import LinkSettings, SwitchState
from p4lite.switch.targetapi.values import DeviceSample, DeviceStats, FabricInfo, LinkChanges

A = TypeVar("A")
#: The number of switches whose counters are read at a time.
COUNTED: Final = 4


class WiredFabric(FabricSet):
    """A `FabricSet` whose ports are wires to other switches; `commands` is the daemon's socket, `switches` the
    P4Runtime address of each switch that has one.

    Args:
        refill: gives a restarted switch (by name) its program and tables.
        p4info: returns the P4Info of the program, for its counters.
    """

    def __init__(
        self,
        wires: Mapping[str, Sequence[int]],
        topology: Topology,
        commands: pathlib.Path,
        switches: Mapping[str, str],
        refill: Callable[[str], object],
        p4info: Callable[[], str],
    ) -> None:
        super().__init__(wires)
        self.topology = topology
        self.commands = commands
        self.switches = switches
        self.refill = refill
        self.p4info = p4info
        self._channels: dict[str, grpc.Channel] = {}
        self._devices: dict[str, Device] = {}
        self._turn = 0
        self._read_last: dict[int, dict[str, int]] = {}

    def _name(self, device_id: int) -> str:
        return self.topology.switches[device_id - 1].name

    def _tell(self, request: Request[A], name: str) -> A:
        client = HostClient("labd", self.commands)
        try:
            return client.ask(request)
        except HostGone as error:
            raise HostGone(f"the lab's daemon does not answer to {request.verb} {name}") from error
        finally:
            client.close()

    def info(self) -> FabricInfo:
        found = super().info()
        switches = {
            ident: dataclasses.replace(switch, ports={n: port for n, port in switch.ports.items() if n < BEHIND})
            for ident, switch in found.switches.items()
        }
        return dataclasses.replace(found, switches=switches)

    def stats(self) -> dict[int, DeviceStats]:
        return {
            ident: dataclasses.replace(device, ports={n: port for n, port in device.ports.items() if n < BEHIND})
            for ident, device in super().stats().items()
        }

    def samples(
        self, priority: int, reasons: Iterable[str] = (), counters: Iterable[str] = ()
    ) -> dict[int, DeviceSample]:
        """Return samples of all switches, with new counters for a few of them and the last ones for the others: reading
        counters by P4Runtime is slow."""
        found, names = super().samples(priority, reasons), list(counters)
        for ident in self._in_turn(list(found)) if names else ():
            cells = {name: self.read_counter(ident, name) for name in names}
            self._read_last[ident] = {name: sum(packets for packets, _ in each) for name, each in cells.items() if each}
        return {
            ident: dataclasses.replace(
                device,
                ports={n: port for n, port in device.ports.items() if n < BEHIND},
                counters=self._read_last.get(ident, {}),
            )
            for ident, device in found.items()
        }

    def _in_turn(self, idents: list[int]) -> list[int]:
        """Return the switches whose counters are read next."""
        began, self._turn = self._turn, (self._turn + COUNTED) % max(len(idents), 1)
        return (idents + idents)[began : began + min(COUNTED, len(idents))]

    def set_state(self, device_id: int, state: SwitchState | Literal["running", "frozen", "stopped"]) -> None:
        name, wanted = self._name(device_id), SwitchState(state)
        self._tell(CheckSwitch(name), name)  # before the wires are touched
        if wanted is not SwitchState.RUNNING:
            super().set_state(device_id, wanted)
        if wanted is SwitchState.STOPPED:
            self._hold(name, "stopped")
            return
        # A stopped switch must have its tables before any packet arrives, or before it is frozen.
        if self._hold(name, "running"):
            self._forget(name)
            self.refill(name)
        if wanted is SwitchState.FROZEN:
            self._hold(name, "frozen")
        else:
            super().set_state(device_id, wanted)

    def _hold(self, name: str, state: Literal["running", "frozen", "stopped"]) -> bool:
        """Bring a switch into a state; return whether it has restarted."""
        return self._tell(HoldSwitch(name, state), name).fresh

    def _forget(self, name: str) -> None:
        """Drop the connection to a switch whose server has been replaced."""
        self._devices.pop(name, None)
        if name in self._channels:
            self._channels.pop(name).close()

    def restart(self, device_id: int, *, disconnect: bool = False) -> None:
        self._tell(RestartSwitch(self._name(device_id)), self._name(device_id))
        self._forget(self._name(device_id))
        super().restart(device_id, disconnect=disconnect)

    def set_port_link(
        self,
        device_id: int,
        port: int,
        *,
        outgoing: LinkSettings | LinkChanges | None = None,
        incoming: LinkSettings | LinkChanges | None = None,
    ) -> None:
        super().set_port_link(device_id, port, outgoing=outgoing, incoming=incoming)
        switch = self.topology.switches[device_id - 1]
        peer = switch.peer(port)
        ends = [(switch.name, port, outgoing)]
        if not switch.links[port].is_host_link:
            ends.append((peer.node, peer.port, incoming))
        for name, number, settings in ends:
            if isinstance(settings, LinkSettings):
                self._tell(SizeQueue(name, number, settings.rate_bps), name)

    def address(self, device_id: int) -> str:
        return self.switches.get(self._name(device_id)) or super().address(device_id)

    def read_counter(self, device_id: int, counter: str, index: int | None = None) -> list[tuple[int, int]]:
        """Return (packets, bytes) of a counter's cells; none for a switch without P4Runtime or that does not answer."""
        name = self._name(device_id)
        if name not in self.switches or super().info().switches[device_id].state is not SwitchState.RUNNING:
            return []
        if name not in self._devices:
            self._channels[name] = grpc.insecure_channel(self.switches[name])
            self._devices[name] = Device(self._channels[name], device_id, name, self.p4info())
        cells = self._devices[name].counter(counter)
        found = [cells.get(each, (0, 0)) for each in range(max(cells, default=-1) + 1)]
        return found if index is None else [found[index] if index < len(found) else (0, 0)]

    def received(self, counter: str, *, begin: bool) -> dict[str, tuple[int, int]]:
        """Return, by switch, how many packets its wires gave it since the start, and how many its program counted.

        At the `begin` of a measurement the program's counters are read first, later last. Packets arrive meanwhile, and
        in this order a packet never seems missed by mistake.
        """
        counted = self._counted(counter) if begin else {}
        given = {
            self._name(ident): sum(port.tx_packets for number, port in device.ports.items() if number >= BEHIND)
            for ident, device in super().stats().items()
        }
        counted = counted if begin else self._counted(counter)
        return {name: (given[name], packets) for name, packets in counted.items()}

    def _counted(self, counter: str) -> dict[str, int]:
        found = {}
        for switch in self.topology.switches:
            with contextlib.suppress(P4RuntimeError):
                cells = self.read_counter(switch.device_id, counter)
                found[switch.name] = sum(packets for packets, _ in cells)
        return found

    def close(self) -> None:
        super().close()
        for channel in self._channels.values():
            channel.close()
