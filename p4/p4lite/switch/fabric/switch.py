"""Switches and their ports, as the fabric hands them out (see `fabric.py`)."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from p4lite.switch.fabric import core as _core
from p4lite.switch.fabric.values import (
    BurstLoss,
    CloneSession,
    FabricError,
    Lag,
    LinkSettings,
    PortStats,
    QueueLimits,
    QueueStats,
    Replica,
    SwitchState,
    SwitchStats,
)

if TYPE_CHECKING:
    from p4lite.switch.fabric.fabric import Fabric, Link
    from p4lite.switch.runtime.instance import ProgramInstance
    from p4lite.switch.runtime.loader import Program

PLAIN = LinkSettings()
PortDirection = Literal["outgoing", "incoming"]
_STATES = (SwitchState.RUNNING, SwitchState.FROZEN, SwitchState.STOPPED)


def file_name(path: str | os.PathLike[str]) -> bytes:
    """The path as C takes it."""
    return os.fsencode(path)


def lag(c: _core.CLag) -> Lag:
    """A histogram's summary."""
    return Lag(c.count, c.p50_ns, c.p90_ns, c.p99_ns, c.max_ns)


def c_settings(settings: LinkSettings) -> _core.CLinkSettings:
    """The settings as C takes them. Raises FabricError for a value out of range."""
    settings.check()
    burst = settings.burst_loss or BurstLoss(0.0, 0.0, 0.0, 0.0)
    return _core.CLinkSettings(
        rate_bps=settings.rate_bps,
        delay_ns=settings.delay_ns,
        reorder_extra_ns=settings.reorder_extra_ns,
        host_queue_bytes=settings.host_queue_bytes,
        loss=settings.loss,
        ge_to_bad=burst.to_bad,
        ge_to_good=burst.to_good,
        ge_loss_bad=burst.loss_bad,
        ge_loss_good=burst.loss_good,
        corrupt=settings.corrupt,
        duplicate=settings.duplicate,
        reorder=settings.reorder,
        overhead_bytes=settings.overhead_bytes,
        blackhole=int(settings.blackhole),
    )


def _c_replicas(replicas: Sequence[Replica], where: str) -> ctypes.Array[_core.CReplica]:
    for replica in replicas:
        if not (0 <= replica.port < 1 << 32 and 0 <= replica.rid < 1 << 16):
            raise FabricError(f"{where}: replica {replica}: port or rid out of range")
    return (_core.CReplica * max(1, len(replicas)))(*(_core.CReplica(r.port, r.rid) for r in replicas))


class Switch:
    """One v1model switch (made by `Fabric.add_switch`)."""

    def __init__(
        self,
        fabric: Fabric,
        device_id: int,
        name: str,
        priority_queues: int,
        drop_port: int,
        cpu_port: int | None,
        loop_limit: int,
    ) -> None:
        self.fabric = fabric
        self.device_id = device_id
        self.name = name
        self.priority_queues = priority_queues
        self.drop_port = drop_port
        self.cpu_port = cpu_port
        self.loop_limit = loop_limit
        config = _core.CSwitchConfig(
            device_id, priority_queues, drop_port, loop_limit, -1 if cpu_port is None else cpu_port
        )
        self._pointer = self._lib.pf_switch_add(fabric.pointer, ctypes.byref(config))
        if not self._pointer:
            raise FabricError(f"{name}: out of memory")
        self._ports: dict[int, Port] = {}
        self._program: Program | None = None
        self._instance: ProgramInstance | None = None
        self._state = SwitchState.RUNNING
        self._groups: dict[int, tuple[Replica, ...]] = {}
        self._sessions: dict[int, CloneSession] = {}

    @property
    def _lib(self) -> Any:
        return self.fabric.lib

    def __repr__(self) -> str:
        return f"<Switch {self.name} device_id={self.device_id}>"

    # -- program --------------------------------------------------------------------------------------

    @property
    def program(self) -> Program | None:
        """The loaded program."""
        return self._program

    @property
    def instance(self) -> ProgramInstance:
        """The loaded program's tables, counters, registers … of this switch; FabricError without program."""
        if self._instance is None:
            raise FabricError(f"{self.name}: no program is loaded; call load() first")
        self._lib.pf_switch_tick(self._pointer)
        return self._instance

    def load(self, program: Program) -> None:
        """Run `program` from now on: empty tables, no groups and sessions; waiting packets are dropped.

        Raises BuildError when the program cannot be compiled; the old program then runs on.
        """
        lock = int(self._lib.pf_lock_address(self.fabric.pointer))
        seed = (self.fabric.seed * 0x9E3779B97F4A7C15 + self.device_id * 0xD1342543DE82EF95) % (1 << 64) or 1
        fresh = program.instance(seed=seed, drop_port=self.drop_port, lock=lock)
        self._attach(fresh.pointer)
        old, self._instance, self._program = self._instance, fresh, program
        if old is not None:
            old.close()

    def unload(self) -> None:
        """Back to no program."""
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
        """Let go of the program and of the C side (the fabric closes or the switch is removed)."""
        self.unload()
        self._ports.clear()

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
    ) -> Port:
        """A port: on an interface (AF_PACKET, real clock), or external (`inject` and deliveries) until it is
        linked to another port. `to_host` and `to_switch` are the directions of the link outside.

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
        outgoing, incoming = c_settings(to_host), c_settings(to_switch)
        pointer = ctypes.c_void_p()
        result = self._lib.pf_port_add(self._pointer, number, ctypes.byref(pointer))
        if result != 0 or pointer.value is None:
            raise FabricError(f"{self.name}: port {number}: out of memory")
        port = Port(self, number, label, pointer.value)
        try:
            if interface is not None:
                port.attach(interface)
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

    def remove_port(self, number: int) -> None:
        """Take a port away (its link becomes free, its queues are flushed)."""
        port = self.port(number)
        if port.link is not None:
            self.fabric.unlink(port.link)
        self._lib.pf_port_remove(port.pointer)
        del self._ports[number]

    def port(self, number: int) -> Port:
        """The port with this number; FabricError when there is none."""
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
        self._lib.pf_switch_state(self._pointer, _STATES.index(wanted))
        self._state = wanted

    def restart(self) -> None:
        """As after a reboot: tables, registers, groups and sessions empty, queues flushed, then running."""
        with self.fabric.lock():
            self._lib.pf_switch_restart(self._pointer)
            if self._instance is not None:
                self._instance.restart()
            self._groups.clear()
            self._sessions.clear()
            self._state = SwitchState.RUNNING

    def packet_out(self, frame: bytes) -> None:
        """Receive a packet on the CPU port (its controller header first). FabricError without CPU port."""
        if self.cpu_port is None:
            raise FabricError(f"{self.name}: packet-out needs a CPU port (cpu_port=, --cpu-port)")
        if self._lib.pf_switch_packet_out(self._pointer, frame, len(frame)) != 0:
            raise FabricError(f"{self.name}: packet-out of {len(frame)} bytes: at most 65536")

    # -- replication ----------------------------------------------------------------------------------

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Create or replace a group (1-65535); replicas are made in the given order."""
        where = f"{self.name}: multicast group {group}"
        array = _c_replicas(replicas, where)
        if self._lib.pf_switch_group(self._pointer, group & 0xFFFFFFFF, array, len(replicas)) != 0:
            raise FabricError(f"{where}: the number must be 1-65535")
        self._groups[group] = tuple(replicas)

    def delete_multicast_group(self, group: int) -> None:
        """FabricError when there is none."""
        if self._lib.pf_switch_group_delete(self._pointer, group & 0xFFFFFFFF) != 0:
            raise FabricError(f"{self.name}: no multicast group {group}")
        del self._groups[group]

    def multicast_groups(self) -> dict[int, tuple[Replica, ...]]:
        """All groups."""
        return dict(self._groups)

    def set_clone_session(self, session: int, config: CloneSession) -> None:
        """Create or replace a mirror session (0-32767)."""
        where = f"{self.name}: clone session {session}"
        array = _c_replicas(config.replicas, where)
        port = -1 if config.port is None else config.port
        group = -1 if config.mcast_group is None else config.mcast_group
        if port >= 1 << 32 or group >= 1 << 16 or not 0 <= config.truncate_bytes < 1 << 32:
            raise FabricError(f"{where}: {config}: a number is out of range")
        result = self._lib.pf_switch_session(
            self._pointer,
            session & 0xFFFFFFFF,
            port,
            group,
            array,
            len(config.replicas),
            config.truncate_bytes,
        )
        if result != 0:
            raise FabricError(f"{where}: the number must be 0-32767")
        self._sessions[session] = config

    def delete_clone_session(self, session: int) -> None:
        """FabricError when there is none."""
        if self._lib.pf_switch_session_delete(self._pointer, session & 0xFFFFFFFF) != 0:
            raise FabricError(f"{self.name}: no clone session {session}")
        del self._sessions[session]

    def clone_sessions(self) -> dict[int, CloneSession]:
        """All sessions."""
        return dict(self._sessions)

    # -- statistics -----------------------------------------------------------------------------------

    def stats(self) -> SwitchStats:
        """Counters of the target since the switch was made or `reset_stats`."""
        return self._read_stats(reset=False)

    def reset_stats(self) -> None:
        """Zero the switch's and its ports' counters and high-water marks."""
        self._read_stats(reset=True)

    def _read_stats(self, reset: bool) -> SwitchStats:
        c = _core.CSwitchStats()
        self._lib.pf_switch_stats(self._pointer, ctypes.byref(c), int(reset))
        return SwitchStats(
            received=c.received,
            ingress=c.ingress,
            egress=c.egress,
            transmitted=c.transmitted,
            drops=dict(zip(_core.SWITCH_DROPS, c.drops, strict=True)),
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
            other_drops=dict(zip(_core.PORT_DROPS, c.other_drops, strict=True)),
        )


class Port:
    """One port of a switch (made by `Switch.add_port`)."""

    def __init__(self, switch: Switch, number: int, name: str, pointer: int) -> None:
        self.switch = switch
        self.number = number
        self.name = name
        self.interface: str | None = None
        self.pointer = pointer
        self.link: Link | None = None
        self.outgoing = PLAIN
        self.incoming = PLAIN

    @property
    def _lib(self) -> Any:
        return self.switch.fabric.lib

    def __repr__(self) -> str:
        return f"<Port {self.name}>"

    def attach(self, interface: str) -> None:
        """Bind an external port to an interface (real clock). FabricError: unknown, in use, no permission."""
        result = self._lib.pf_port_interface(self.pointer, os.fsencode(interface))
        if result == 0:
            self.interface = interface
            return
        reason = {
            _core.E_CLOCK: "interfaces need the real clock",
            _core.E_EXISTS: "another port uses this interface",
            _core.E_BUSY: "the port has a link or an interface already",
            _core.E_RANGE: "not an interface name",
        }.get(result, "out of memory")
        if result == _core.E_SYSTEM:
            code = ctypes.get_errno()
            reason = {
                errno.ENODEV: "no such interface (ip link shows those there are)",
                errno.EPERM: "no permission for raw sockets; run as root or with CAP_NET_RAW",
            }.get(code, os.strerror(code))
        raise FabricError(f"{self.name}: interface {interface}: {reason}")

    def set_link(self, *, outgoing: LinkSettings | None = None, incoming: LinkSettings | None = None) -> None:
        """Change the direction away from (outgoing) or towards (incoming) this switch, at run time.

        A change of rate holds from the next packet (a faster link also finishes sooner what it is sending), of
        delay for packets sent from now on (those of one direction never overtake each other unless `reorder`
        says so).
        """
        for flag, settings in ((1, outgoing), (0, incoming)):
            if settings is None:
                continue
            self._lib.pf_port_settings(self.pointer, flag, ctypes.byref(c_settings(settings)))
            other = None if self.link is None else self.link.other(self)
            if flag:
                self.outgoing = settings
                if other is not None:
                    other.incoming = settings
            else:
                self.incoming = settings
                if other is not None:
                    other.outgoing = settings

    def link_settings(self, direction: PortDirection) -> LinkSettings:
        """The settings in force."""
        return self.outgoing if direction == "outgoing" else self.incoming

    def set_up(self, up: bool, direction: Literal["both", "outgoing", "incoming"] = "both") -> None:
        """Cut or mend the link at this port, in both directions or one. What is on the wire is lost."""
        if direction in ("both", "outgoing"):
            self._lib.pf_port_up(self.pointer, 1, int(up))
        if direction in ("both", "incoming"):
            self._lib.pf_port_up(self.pointer, 0, int(up))

    def is_up(self, direction: PortDirection) -> bool:
        """Administrative state of a direction (and of the interface, if any)."""
        return bool(self._lib.pf_port_is_up(self.pointer, int(direction == "outgoing")))

    def set_queue(self, limits: QueueLimits, priority: int | None = None) -> None:
        """Capacity of one priority's queue, or of each (None). Packets already waiting stay."""
        which = -1 if priority is None else priority
        if priority is not None and not 0 <= priority < self.switch.priority_queues:
            raise FabricError(f"{self.name}: no queue of priority {priority} (there are {self.switch.priority_queues})")
        self._set_limits(which, limits)

    def set_buffer(self, limits: QueueLimits) -> None:
        """Capacity of the whole port over all priorities (default: no limit beside the queues')."""
        self._set_limits(-2, limits)

    def _set_limits(self, which: int, limits: QueueLimits) -> None:
        if limits.packets < 0 or limits.bytes < 0:
            raise FabricError(f"{self.name}: {limits}: a capacity cannot be negative (0: no limit)")
        self._lib.pf_port_queue(self.pointer, which, limits.packets, limits.bytes)

    def capture(self, path: str | os.PathLike[str] | None, snaplen: int = 0, *, limited: bool = False) -> None:
        """Write both directions to a pcap-ng file with nanosecond stamps; None ends it.

        `limited`: what it takes counts against `Fabric.set_files_room`, and it ends when there is none left.
        """
        name = None if path is None else file_name(path)
        if self._lib.pf_port_capture(self.pointer, name, snaplen, int(limited)) != 0:
            raise FabricError(f"{path}: cannot write the capture: {os.strerror(ctypes.get_errno())}")

    def collect(self, wanted: bool) -> None:
        """Whether what leaves this external port is delivered to Python (default) or only counted."""
        self._lib.pf_port_collect(self.pointer, int(wanted))

    def generate(self, frames: Sequence[bytes], count: int, *, interval_ns: int, start_ns: int | None = None) -> None:
        """An outside source in the core: `count` frames, cycling through `frames`, one every interval_ns.

        For background traffic and measurements; ends with the port. FabricError: not an external port, no
        frames, a start in the past.
        """
        start = self.switch.fabric.now_ns if start_ns is None else start_ns
        lengths = (ctypes.c_uint32 * max(1, len(frames)))(*(len(frame) for frame in frames))
        result = self._lib.pf_port_generate(
            self.pointer, b"".join(frames), lengths, len(frames), count, start, interval_ns
        )
        if result != 0:
            reason = {
                _core.E_RANGE: "nothing to send",
                _core.E_BUSY: "not an external port",
                _core.E_PAST: f"{start} ns is past",
            }.get(result, "a frame is longer than 65536 bytes, or out of memory")
            raise FabricError(f"{self.name}: generate: {reason}")

    def stats(self, *, reset: bool = False) -> PortStats:
        """Counters, queues and high-water marks; `reset` zeroes them in the same instant."""
        c = _core.CPortStats()
        self._lib.pf_port_stats(self.pointer, ctypes.byref(c), int(reset))
        queues = tuple(
            QueueStats(
                priority,
                q.depth_packets,
                q.depth_bytes,
                q.max_packets,
                q.max_bytes,
                q.enqueued_packets,
                q.enqueued_bytes,
                q.dropped_packets,
                q.dropped_bytes,
            )
            for priority, q in enumerate(c.queues[: self.switch.priority_queues])
        )
        return PortStats(
            rx_packets=c.rx_packets,
            rx_bytes=c.rx_bytes,
            tx_packets=c.tx_packets,
            tx_bytes=c.tx_bytes,
            drops=dict(zip(_core.PORT_DROPS, c.drops, strict=True)),
            corrupted=c.corrupted,
            duplicated=c.duplicated,
            reordered=c.reordered,
            queues=queues,
            service_lag=lag(c.service_lag),
        )
