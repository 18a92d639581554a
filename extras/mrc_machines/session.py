"""A session on a lab that is on several machines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from mrc_machines.coordinator import recorded_machines
from mrc_machines.lab_slice import relayed
from mrc_machines.remote import VERBS
from mrc_machines.requests import ControlAgent, ListAgents, MeasureFidelity, SetCarrier, SignalProcess
from mrc_topo.placement import Placement
from mrclab.lab import describe
from mrclab.lab.hosts.hostclient import HostClient, HostError
from mrclab.lab.processes.process import Role, RoleKind, StoppedProcess
from mrclab.lab.session.fidelity import ClockFidelity, Fidelity, MachineFidelity
from mrclab.lab.session.real import AgentProcess, RealSession
from p4lite.switch.fabric.values import PortStats, TunnelStats

#: Events of a slice cannot be dated if its clock may differ from ours by more than this.
CLOCK_NS = 25_000_000
#: Fewer datagrams than this say nothing about a tunnel.
SENT = 20


#: The counts of a tunnel's end, by machine and link.
Counts = Mapping[str, Mapping[str, TunnelStats]]


class SpreadSession(RealSession):
    """A session on a lab that runs on several machines. It forwards requests for local processes to the slices."""

    def __init__(self, name: str, *, fresh: bool = False) -> None:
        super().__init__(name, fresh=fresh)
        self.placement = Placement(self.topology)
        self.machine_of = self.placement.machine_of
        self._parts = {
            machine: HostClient(f"machine {machine}", self.run.socket(f"{machine}.{VERBS}"))
            for machine in self.placement.machines
        }

        #: The counts of the tunnels' ends when the measurement began.
        self._before: Counts = {}

    def _of(self, host: str) -> HostClient:
        return self._parts[self.machine_of[host]]

    def set_carrier(self, host: str, port: int, up: bool) -> None:
        self._of(host).ask(SetCarrier(host, port, up))

    def freeze_agent(self, host: str) -> None:
        self._of(host).ask(ControlAgent(host, "freeze"))

    def thaw_agent(self, host: str) -> None:
        self._of(host).ask(ControlAgent(host, "thaw"))

    def kill_agent(self, host: str) -> None:
        self._of(host).ask(ControlAgent(host, "kill"))
        self.clients[host].close()

    def restart_agent(self, host: str) -> None:
        self._of(host).ask(ControlAgent(host, "restart"))
        self.clients[host].connect(wait_s=1.0)

    def signal_process(self, role: str, number: int) -> bool:
        machine, _, part = role.partition(".")
        if role in self.machine_of:
            machine, part = self.machine_of[role], role
        if machine not in self._parts:
            return super().signal_process(role, number)
        return self._parts[machine].ask(SignalProcess(part, number)).done

    def frozen(self) -> list[StoppedProcess]:
        return [
            *self.run.frozen(),
            *(StoppedProcess(role, since) for role, since in self.run.read().record.frozen.items()),
        ]

    def agents(self) -> list[AgentProcess]:
        found = []
        for part in self._parts.values():
            with contextlib.suppress(HostError):
                found += part.ask(ListAgents()).agents
        return found

    def lost(self) -> dict[str, str]:
        deaths = self.run.deaths(self.first)
        roles = {each: Role.parse(each.role) for each in deaths}
        return {role.name: each.text() for each, role in roles.items() if role.kind is RoleKind.MACHINE}

    def reset_fidelity(self) -> None:
        super().reset_fidelity()
        self._before = self._tunnels()

    def machines(self) -> dict[str, MachineFidelity]:
        known = recorded_machines(self.run)
        tunnels = self._tunnels()
        found = {}
        for name, spec in self.placement.machines.items():
            row = MachineFidelity(
                ssh=spec.ssh,
                address=spec.address,
                hosts=[host.name for host in self.placement.hosts(name)],
                switches=[switch.name for switch in self.placement.switches(name)],
                tunnels=tunnels.get(name, {}),
            )
            found[name] = replace(row, **vars(known[name])) if name in known else row
        return found

    def _tunnels(self) -> dict[str, dict[str, TunnelStats]]:
        """Return, by machine and link, what the tunnel's end there has sent, received and missed."""
        found: dict[str, dict[str, TunnelStats]] = {}
        for machine, link, _, port in self._ports():
            if port.tunnel is not None:
                found.setdefault(machine, {})[link] = port.tunnel
        return found

    def crossing(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for _, link, device, port in self._ports():
            count = 0 if port.tunnel is None else port.tunnel.sent - port.tunnel.received
            if device == describe.RELAY:
                # No book of switches has what a relay holds or drops.
                waiting = sum(queue.depth_packets for queue in port.queues)
                count += sum(port.drops.values()) + port.on_wire + waiting
            found[link] = found.get(link, 0) + count
        return found

    def _ports(self) -> Iterator[tuple[str, str, int, PortStats]]:
        """Yield the machine, the link, the device and the counts of each port of a tunnel or of a relay."""
        stats = self.target.by_process()
        relays = {machine: relayed(self.placement, machine) for machine in self.placement.machines}
        for machine in self.placement.machines:
            for device, each in stats.get(self.run.folder.address(f"{machine}.fabric"), {}).items():
                for number, port in each.ports.items():
                    if device == describe.RELAY:
                        yield machine, relays[machine][(number - 1) // 2], device, port
                    elif port.tunnel is not None:
                        yield machine, self.topology.switches[device - 1].links[number].name, device, port

    def fidelity(self) -> Fidelity:
        parts: dict[str, Fidelity] = {}
        reasons: list[str] = []
        for machine, client in self._parts.items():
            try:
                parts[machine] = client.ask(MeasureFidelity()).fidelity
            except HostError as error:
                reasons.append(f"fidelity of machine {machine} could not be measured: {error}")
        machines = self.machines()
        for machine, part in parts.items():
            machines[machine] = replace(
                machines[machine], fabric=part.fabric, scheduling=part.scheduling, machine=part.machine
            )
            reasons += [f"machine {machine}: {reason}" for reason in part.reasons]
        reasons += [text for machine, row in machines.items() if (text := clock_problem(machine, row.clock))]
        reasons += silent_tunnels(self.placement, self._before, {name: row.tunnels for name, row in machines.items()})
        hosts = {name: host for part in parts.values() for name, host in part.hosts.items()}
        # Where there is room for one fabric only, the one that was latest stands for all.
        fabrics = [part.fabric for part in parts.values() if part.fabric is not None]
        return Fidelity(
            valid=not reasons,
            reasons=reasons,
            fabric=max(fabrics, key=lambda each: each.loop.p99_ns, default=None),
            hosts={name: hosts[name] for name in self.clients if name in hosts},
            machines=machines,
        )

    def close(self) -> None:
        for client in self._parts.values():
            client.close()
        super().close()


def silent_tunnels(placement: Placement, before: Counts, after: Counts) -> list[str]:
    """Return a message for each tunnel that delivered less than half of its datagrams since `before`."""

    nothing = TunnelStats(0, 0, 0, 0, 0, 0)
    found = []
    for machine in placement.machines:
        for link, end in placement.ends(machine).items():
            tunnel = placement.tunnels[link]
            sender = tunnel.high.machine if tunnel.low.machine == machine else tunnel.low.machine
            if link not in after.get(machine, {}) or link not in after.get(sender, {}):
                continue  # a lost machine has no counts
            sent = after[sender][link].sent - before.get(sender, {}).get(link, nothing).sent
            got = after[machine][link].received - before.get(machine, {}).get(link, nothing).received
            if sent >= SENT and 2 * got < sent:
                found.append(
                    f"tunnel {link}: of {sent} datagrams from machine {sender} ({end.peer}), {got} arrived at machine "
                    f"{machine} ({end.local}); the network between drops UDP"
                )
    return found


def clock_problem(machine: str, clock: ClockFidelity | None) -> str:
    """Return why a slice's times cannot be compared with those of other slices; empty if they can."""
    if clock is None:
        return f"the clock of machine {machine} is not known"
    off = abs(clock.off_ns) + clock.uncertainty_ns
    if off <= CLOCK_NS:
        return ""
    return (
        f"the clock of machine {machine} is {clock.off_ns / 1e6:+.1f} ms off, "
        f"known within {clock.uncertainty_ns / 1e6:.1f} ms"
    )
