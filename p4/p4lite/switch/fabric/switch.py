"""Switches, as the fabric hands them out (see `fabric.py`)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any, Literal

from p4lite.switch.fabric.core import FabricCore
from p4lite.switch.fabric.port import PLAIN, Link, Port, c_settings
from p4lite.switch.fabric.values import (
    CloneSession,
    FabricError,
    LinkSettings,
    Replica,
    SwitchState,
    SwitchStats,
    TunnelSettings,
    check_clone_session,
    check_multicast_group,
)
from p4lite.switch.runtime.loader import LoadedProgram, ProgramInstance


def _c_replicas(core: FabricCore, replicas: Sequence[Replica]) -> Any:
    array = core.array("pf_replica", len(replicas))
    for cell, replica in zip(array, replicas, strict=False):
        cell.port, cell.rid = replica.port, replica.rid
    return array


class FabricSwitch:
    """One v1model switch (made by `Fabric.add_switch`)."""

    def __init__(
        self,
        core: FabricCore,
        links: list[Link],
        device_id: int,
        name: str,
        priority_queues: int,
        drop_port: int,
        cpu_port: int | None,
        loop_limit: int,
    ) -> None:
        """Create a switch; its ports use some of `links`, which are those of the fabric."""
        self._core = core
        self._links = links
        self.device_id = device_id
        self.name = name
        self.priority_queues = priority_queues
        self.drop_port = drop_port
        self.cpu_port = cpu_port
        self.loop_limit = loop_limit
        config = core.new(
            "pf_switch_config",
            device_id=device_id,
            priority_queues=priority_queues,
            drop_port=drop_port,
            loop_limit=loop_limit,
            cpu_port=core.none if cpu_port is None else cpu_port,
        )
        self._address: int | None = self._lib.pf_switch_add(core.pointer, ctypes.byref(config))
        if not self._address:
            raise FabricError(f"{name}: out of memory")
        self._ports: dict[int, Port] = {}
        self._program: LoadedProgram | None = None
        self._instance: ProgramInstance | None = None
        self._state = SwitchState.RUNNING
        self._groups: dict[int, tuple[Replica, ...]] = {}
        self._sessions: dict[int, CloneSession] = {}

    @property
    def _lib(self) -> Any:
        return self._core.c

    @property
    def _pointer(self) -> int:
        if self._address is None:
            raise FabricError(f"{self.name}: the switch was removed, or its fabric is closed")
        return self._address

    def __repr__(self) -> str:
        return f"<Switch {self.name} device_id={self.device_id}>"

    # -- program --------------------------------------------------------------------------------------

    @property
    def program(self) -> LoadedProgram | None:
        """The loaded program."""
        return self._program

    @property
    def instance(self) -> ProgramInstance:
        """The loaded program's tables, counters, registers … of this switch; FabricError without program."""
        if self._instance is None:
            raise FabricError(f"{self.name}: no program is loaded; call load() first")
        self._lib.pf_switch_tick(self._pointer)
        return self._instance

    def load(self, program: LoadedProgram) -> None:
        """Load `program` and run it from now on: empty tables, no groups and sessions; waiting packets are dropped.

        Raises BuildError when the program cannot be compiled; the old program then continues.
        """
        lock = int(self._lib.pf_lock_address(self._core.pointer))
        seed = (self._core.seed * 0x9E3779B97F4A7C15 + self.device_id * 0xD1342543DE82EF95) % (1 << 64) or 1
        fresh = program.instance(seed=seed, drop_port=self.drop_port, lock=lock)
        self._attach(fresh.pointer)
        old, self._instance, self._program = self._instance, fresh, program
        if old is not None:
            old.close()

    def unload(self) -> None:
        """Remove the program."""
        old, self._instance, self._program = self._instance, None, None
        self._attach(None)
        if old is not None:
            old.close()

    def _attach(self, instance: int | None) -> None:
        if self._lib.pf_switch_load(self._pointer, instance) != 0:
            raise FabricError(f"{self.name}: the program was compiled for another core; empty the cache")
        self._groups.clear()
        self._sessions.clear()

    def detach(self) -> None:
        """Release the program and the C side (the fabric closes or the switch is removed)."""
        self.unload()
        for port in self._ports.values():
            port.freed()
        self._ports.clear()
        self._address = None

    # -- ports ----------------------------------------------------------------------------------------

    def add_port(
        self,
        number: int,
        *,
        interface: str | None = None,
        name: str | None = None,
        to_host: LinkSettings = PLAIN,
        to_switch: LinkSettings = PLAIN,
        pcap: str | os.PathLike[str] | None = None,
        tunnel: TunnelSettings | None = None,
    ) -> Port:
        """Return a port: on an interface (AF_PACKET; real clock), a tunnel to another machine
        (likewise), or external (`inject` and deliveries) until it is linked to another port. `to_host` and `to_switch`
        are the directions of the link outside.

        FabricError: number in use or beyond 65535 or the drop port, interface unknown or in use by another
        port, no permission.
        """
        label = name or f"{self.name}-p{number}"
        if number in self._ports or number == self.cpu_port:
            raise FabricError(f"{self.name}: port {number} is in use")
        if not 0 <= number <= 65535 or number == self.drop_port:
            raise FabricError(
                f"{self.name}: port {number}: not a port number (0-65535 without the drop port {self.drop_port})"
            )
        outgoing, incoming = c_settings(self._core, to_host), c_settings(self._core, to_switch)
        pointer = ctypes.c_void_p()
        result = self._lib.pf_port_add(self._pointer, number, ctypes.byref(pointer))
        if result != 0 or pointer.value is None:
            raise FabricError(f"{self.name}: port {number}: out of memory")
        port = Port(self._core, self.device_id, number, label, pointer.value, self.priority_queues)
        try:
            if interface is not None:
                port.attach(interface)
            if tunnel is not None:
                port.tunnel(tunnel)
            if pcap is not None:
                port.capture(pcap)
        except FabricError:
            self._lib.pf_port_remove(pointer)
            raise
        if to_host != PLAIN:
            self._lib.pf_port_settings(pointer, 1, ctypes.byref(outgoing))
        if to_switch != PLAIN:
            self._lib.pf_port_settings(pointer, 0, ctypes.byref(incoming))
        port.outgoing, port.incoming = to_host, to_switch
        self._ports[number] = port
        return port

    def patch(self, one: int, other: int) -> None:
        """Wire two ports: a packet that comes in at one goes out at the other, without any program.

        Each port keeps its link, its queue (priority 0), counters and captures; the switch's state applies to the wire,
        too. The wire ends when either port is removed. Raises FabricError for a port that is not there or patched
        already.
        """
        a, b = self.port(one), self.port(other)
        result = self._lib.pf_port_patch(a.pointer, b.pointer)
        if result != 0:
            reason = "a port cannot be patched to itself"
            if self._core.failure(result) == "busy":
                reason = "a port is patched already"
            raise FabricError(f"{self.name}: patch {one} - {other}: {reason}")

    def remove_port(self, number: int) -> None:
        """Remove a port; its link becomes free, and its queues are flushed."""
        port = self.port(number)
        if port.link is not None:
            self._links.remove(port.link)
            port.link.remove()
        self._lib.pf_port_remove(port.pointer)
        port.freed()
        del self._ports[number]

    def port(self, number: int) -> Port:
        """Return the port with this number. Raises FabricError when there is none."""
        try:
            return self._ports[number]
        except KeyError:
            known = ", ".join(map(str, sorted(self._ports))) or "none"
            raise FabricError(f"{self.name}: no port {number} (there are: {known})") from None

    @property
    def ports(self) -> dict[int, Port]:
        """All ports by number."""
        return dict(self._ports)

    # -- state ----------------------------------------------------------------------------------------

    @property
    def state(self) -> SwitchState:
        """What the switch does with packets."""
        return self._state

    def set_state(self, state: SwitchState | Literal["running", "frozen", "stopped"]) -> None:
        """Run, freeze or stop; see SwitchState. Tables and registers stay."""
        try:
            wanted = SwitchState(state)
        except ValueError:
            raise FabricError(f"{self.name}: no state '{state}'; running, frozen or stopped") from None
        self._lib.pf_switch_state(self._pointer, self._core.states[wanted.value])
        self._state = wanted

    def restart(self) -> None:
        """Restart as after a reboot: tables, registers, groups and sessions empty, queues flushed, then running."""
        with self._core.lock():
            self._lib.pf_switch_restart(self._pointer)
            if self._instance is not None:
                self._instance.restart()
            self._groups.clear()
            self._sessions.clear()
            self._state = SwitchState.RUNNING

    def packet_out(self, frame: bytes) -> None:
        """Receive a packet on the CPU port (its controller header first). Raises FabricError without a CPU port."""
        if self.cpu_port is None:
            raise FabricError(f"{self.name}: packet-out needs a CPU port (cpu_port=, --cpu-port)")
        if self._lib.pf_switch_packet_out(self._pointer, frame, len(frame)) != 0:
            raise FabricError(f"{self.name}: packet-out of {len(frame)} bytes: at most 65536")

    # -- replication ----------------------------------------------------------------------------------

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Create or replace a group (1-65535); replicas are made in the given order."""
        check_multicast_group(f"{self.name}: ", group, replicas)
        array = _c_replicas(self._core, replicas)
        if self._lib.pf_switch_group(self._pointer, group, array, len(replicas)) != 0:
            raise FabricError(f"{self.name}: multicast group {group}: out of memory")
        self._groups[group] = tuple(replicas)

    def delete_multicast_group(self, group: int) -> None:
        """Delete a multicast group. Raises FabricError when there is none."""
        if group not in self._groups or self._lib.pf_switch_group_delete(self._pointer, group) != 0:
            raise FabricError(f"{self.name}: no multicast group {group}")
        del self._groups[group]

    def multicast_groups(self) -> dict[int, tuple[Replica, ...]]:
        """Return all groups."""
        return dict(self._groups)

    def set_clone_session(self, session: int, config: CloneSession) -> None:
        """Create or replace a mirror session (0-32767)."""
        check_clone_session(f"{self.name}: ", session, config)
        array = _c_replicas(self._core, config.replicas)
        port = self._core.none if config.port is None else config.port
        group = self._core.none if config.mcast_group is None else config.mcast_group
        result = self._lib.pf_switch_session(
            self._pointer,
            session,
            port,
            group,
            array,
            len(config.replicas),
            config.truncate_bytes,
        )
        if result != 0:
            raise FabricError(f"{self.name}: clone session {session}: out of memory")
        self._sessions[session] = config

    def delete_clone_session(self, session: int) -> None:
        """Delete a clone session. Raises FabricError when there is none."""
        if session not in self._sessions or self._lib.pf_switch_session_delete(self._pointer, session) != 0:
            raise FabricError(f"{self.name}: no clone session {session}")
        del self._sessions[session]

    def clone_sessions(self) -> dict[int, CloneSession]:
        """Return all sessions."""
        return dict(self._sessions)

    # -- statistics -----------------------------------------------------------------------------------

    def stats(self) -> SwitchStats:
        """Return counters of the target since the switch was made or `reset_stats`."""
        return self._read_stats(reset=False)

    def reset_stats(self) -> None:
        """Reset the counters and high-water marks of the switch and its ports to zero."""
        self._read_stats(reset=True)

    def _read_stats(self, reset: bool) -> SwitchStats:
        c = self._core.new("pf_switch_stats")
        self._lib.pf_switch_stats(self._pointer, ctypes.byref(c), int(reset))
        return SwitchStats(
            received=c.received,
            ingress=c.ingress,
            egress=c.egress,
            transmitted=c.transmitted,
            drops=dict(zip(self._core.switch_drops, c.drops, strict=True)),
            ingress_clones=c.ingress_clones,
            egress_clones=c.egress_clones,
            resubmits=c.resubmits,
            recirculations=c.recirculations,
            replicas=c.replicas,
            digests=c.digests,
            parser_errors=c.parser_errors,
            absorbed=c.absorbed,
            copies_missed=c.copies_missed,
            other_queued=c.other_queued,
            other_drops=dict(zip(self._core.port_drops, c.other_drops, strict=True)),
        )
