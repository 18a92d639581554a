"""The fabric: many switches, their ports, queues and links, and one event loop, in one process.

    fabric = Fabric(clock="virtual", seed=7)
    s1 = fabric.add_switch(device_id=1)
    s1.load(program)
    s1.add_port(1, to_switch=LinkSettings(rate_bps=10**8, delay_ns=1000))
    s1.add_port(2)
    s2 = fabric.add_switch(device_id=2)
    s2.load(program)
    s2.add_port(1)
    fabric.link(s1.port(2), s2.port(1), LinkSettings(rate_bps=10**8, delay_ns=5000))
    fabric.inject(s1.port(1), frame, at_ns=0)
    for time_ns, device_id, port, data in fabric.advance(10**6):
        ...

The core is C (`core/`); every call here takes the fabric's lock for as long as it lasts, so it falls between
two batches of packets: a packet sees a table before or after an update. On the real clock the loop runs in
a thread of C that never needs the interpreter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from p4lite.switch.fabric.core import FabricCore
from p4lite.switch.fabric.outside import ExternalHosts, not_run, not_sent
from p4lite.switch.fabric.port import PLAIN, Link, Port, file_name, lag
from p4lite.switch.fabric.switch import FabricSwitch
from p4lite.switch.fabric.values import (
    MAX_TIME_NS,
    CloneSession,
    FabricError,
    Lateness,
    LinkSettings,
    Notification,
    NotificationKind,
    PortSample,
)
from p4lite.switch.native.build import sanitized
from p4lite.switch.program.facts import DROP_PORT

Clock = Literal["real", "virtual"]
#: (time_ns, device_id, port, frame): a packet that left through an external port.
DeliveryTuple = tuple[int, int, int, bytes]

#: Entries are looked at for idleness this often, as in simple_switch (simple_switch.md, idle timeout).
IDLE_SWEEP_NS = 10**9


class Fabric:
    """A set of switches on one clock.

    `clock`: "real" (monotonic, a thread of its own between `start` and `stop`; ports may be interfaces) or "virtual"
    (time moves only in `advance` and `run_until`; the same seed and calls give the same bytes in the same order).
    `seed` feeds every random choice: impairments of links, `random()` and selectors of the programs.
    `busy_poll_us`: on the real clock, poll for this time before sleeping (costs CPU, reduces latency).
    `round_us`: on the real clock, wake up at most once in this many µs and handle all due events together: events are
    late by half of that on average, and many slow links cost a fraction of the CPU.
    `realtime`: the real clock's thread runs with SCHED_RR (needs root or CAP_SYS_NICE), which keeps it on time when
    other processes use all cores.
    `memory_limit_bytes`: the memory of packets inside; packets beyond it are dropped and counted as memory.
    `sanitize` loads the core built with the address and undefined-behaviour sanitizers (preload libasan).
    Usable as a context manager (stops and frees on exit). Raises FabricError when the core cannot be built.
    """

    def __init__(
        self,
        clock: Clock = "real",
        seed: int = 0,
        *,
        busy_poll_us: int = 0,
        round_us: int = 0,
        realtime: bool = False,
        memory_limit_bytes: int = 1 << 30,
        sanitize: bool | None = None,
    ) -> None:
        if clock not in ("real", "virtual"):
            raise FabricError(f"no clock '{clock}'; real or virtual")
        for what, value, high in (
            ("busy_poll_us", busy_poll_us, 10**9),
            ("round_us", round_us, 10**9),
            ("memory_limit_bytes", memory_limit_bytes, (1 << 63) - 1),
        ):
            if value > high or (value < 0 and what == "memory_limit_bytes"):
                raise FabricError(f"{what}={value}: not between 0 and {high}")
        if sanitize is None:
            sanitize = sanitized()
        self.clock = clock
        self.seed = seed % (1 << 64)
        self._core = FabricCore(
            seed=self.seed,
            sanitize=sanitize,
            real_clock=int(clock == "real"),
            busy_poll_ns=max(0, busy_poll_us) * 1000,
            round_ns=max(0, round_us) * 1000,
            realtime=int(realtime),
            memory_limit_bytes=memory_limit_bytes,
        )
        self._switches: dict[int, FabricSwitch] = {}
        self._links: list[Link] = []
        self._batch = self._core.new("pf_batch")
        self._free_at = ctypes.c_uint64()
        self._taking = threading.Lock()
        self._notify_buffer = (ctypes.c_uint8 * (1 << 20))()
        self._idle_swept_ns = 0

    # -- building -------------------------------------------------------------------------------------

    def add_switch(
        self,
        device_id: int,
        *,
        name: str | None = None,
        priority_queues: int = 1,
        drop_port: int = DROP_PORT,
        cpu_port: int | None = None,
        loop_limit: int = 64,
    ) -> FabricSwitch:
        """Return a new switch without program (it drops everything, counted as no_program) and without ports.

        `loop_limit`: how often one packet may be resubmitted, recirculated or cloned at egress before it is dropped.
        Raises FabricError when the device_id is in use or a number is out of range.
        """
        label = name or f"s{device_id}"
        if device_id in self._switches:
            raise FabricError(f"{label}: device_id {device_id} is in use by {self._switches[device_id].name}")
        for what, value, low, high in (
            ("device_id", device_id, 0, (1 << 32) - 1),
            ("priority_queues", priority_queues, 1, self._core.max_priorities),
            ("drop_port", drop_port, 0, 65535),
            ("cpu_port", 0 if cpu_port is None else cpu_port, 0, 65535),
            ("loop_limit", loop_limit, 0, 65535),
        ):
            if not low <= value <= high:
                raise FabricError(f"{label}: {what}={value}: not between {low} and {high}")
        if cpu_port == drop_port:
            raise FabricError(f"{label}: port {cpu_port} cannot be CPU port and drop port at once")
        switch = FabricSwitch(
            self._core, self._links, device_id, label, priority_queues, drop_port, cpu_port, loop_limit
        )
        self._switches[device_id] = switch
        return switch

    def open_interfaces(self, names: Iterable[str]) -> None:
        """Open interfaces all at once, before ports are bound to them one by one, which takes longer."""
        wanted = [os.fsencode(name) for name in names]
        self._core.c.pf_open_interfaces(self._core.pointer, (ctypes.c_char_p * len(wanted))(*wanted), len(wanted))

    def remove_switch(self, device_id: int) -> None:
        """Remove a switch with its ports; the other ends of its links become free."""
        switch = self.switch(device_id)
        for number in list(switch.ports):
            switch.remove_port(number)
        self._core.c.pf_switch_remove(switch._pointer)
        switch.detach()
        del self._switches[device_id]

    def switch(self, device_id: int) -> FabricSwitch:
        """Return the switch with this device_id. Raises FabricError, which names those that exist."""
        try:
            return self._switches[device_id]
        except KeyError:
            known = ", ".join(map(str, sorted(self._switches))) or "none"
            raise FabricError(f"no switch with device_id {device_id} (there are: {known})") from None

    @property
    def switches(self) -> dict[int, FabricSwitch]:
        """All switches by device_id, in the order of their creation."""
        return dict(self._switches)

    @property
    def links(self) -> tuple[Link, ...]:
        """All links between switches, in the order of their creation."""
        return tuple(self._links)

    def link(self, a: Port, b: Port, settings: LinkSettings = PLAIN, back: LinkSettings | None = None) -> Link:
        """Join two external ports by a cable; `back` (b to a) is like `settings` (a to b) unless given."""
        link = Link(self._core, a, b, settings, settings if back is None else back)
        self._links.append(link)
        return link

    def unlink(self, link: Link) -> None:
        """Remove a cable; packets on it are lost, and both ports are external again."""
        self._links.remove(link)
        link.remove()

    # -- time -----------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """The fabric's clock: ns since it was made (real) or since 0 (virtual)."""
        return self._core.now_ns

    def start(self) -> None:
        """Start the real clock's thread. Raises FabricError on the virtual clock, or if it runs already."""
        result = self._core.c.pf_start(self._core.pointer)
        if self._core.failure(result) == "system":
            raise FabricError(f"start: the loop's thread: {os.strerror(ctypes.get_errno())}")
        if result != 0:
            raise FabricError("start: only a fabric on the real clock that is not yet running can be started")

    def stop(self) -> None:
        """Stop the thread; the state stays, and `start` continues. Without effect when the thread is not running."""
        self._core.c.pf_stop(self._core.pointer)

    def close(self) -> None:
        """Stop, close sockets and captures, free everything. The fabric is unusable afterwards."""
        if not self._core.pointer:
            return
        self.stop()
        for switch in self._switches.values():
            switch.detach()
        with self._taking:
            self._core.close()

    def __enter__(self) -> Fabric:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def run_until(self, t_ns: int) -> list[DeliveryTuple]:
        """Do everything due up to and including t_ns (virtual clock); now_ns is t_ns afterwards.

        Returns every packet that left through an external port since the last call, in order.
        """
        return self._run(t_ns, 0)

    def advance(self, limit_ns: int) -> list[DeliveryTuple]:
        """Run as run_until(limit_ns) does (virtual clock), but stop early once something was delivered.

        The core runs on past the first delivery only for as long as no reaction to it can reach a switch (the
        smallest `to_switch` delay of any external port), so a host may answer each packet at the packet's own
        time: `inject(port, frame, at_ns=time_ns)` is allowed although now_ns is later.
        Empty result: limit_ns was reached, or lay before now_ns already (a host's timer set in answer to a packet:
        let it fire, then call again).
        """
        return self._run(limit_ns, 1)

    def _run(self, limit_ns: int, stop_on_delivery: int) -> list[DeliveryTuple]:
        batch = self._batch
        if not 0 <= limit_ns <= MAX_TIME_NS:
            raise FabricError(f"cannot run until {limit_ns} ns: a time is between 0 and {MAX_TIME_NS} ns")
        with self._core.lock():  # a change of state in another thread may deliver, too
            result = self._core.c.pf_run(self._core.pointer, limit_ns, stop_on_delivery, ctypes.byref(batch))
            if result != 0:
                raise not_run(self._core, result, limit_ns)
            return [
                (time_ns, device_id, port, data) for time_ns, device_id, port, data, _ in self._core.deliveries(batch)
            ]

    def outside(self, ports: Sequence[tuple[Port, bytes]]) -> ExternalHosts:
        """Put hosts at these external ports (virtual clock), each with the header that its frames begin with.

        A program that drives many hosts thus does what `advance` and `inject` do for many packets in one call.
        """
        return ExternalHosts(self._core, ports)

    def inject(self, port: Port, frame: bytes, at_ns: int | None = None) -> int:
        """Send `frame` from an outside host into an external port at at_ns (default: now).

        The host's side of the link (`to_switch`) has a first-in first-out queue.
        at_ns may lie before now_ns by less than the delay of that link, but not before an earlier frame's
        at_ns on this port. Returns the time when the link will be free again (for pacing), -1 when the
        frame was dropped at the host's queue.
        """
        at = self.now_ns if at_ns is None else at_ns
        if not 0 <= at <= MAX_TIME_NS:
            raise FabricError(f"inject into {port.name}: a time is between 0 and {MAX_TIME_NS} ns, not {at} ns")
        free_at = self._free_at
        result = self._core.c.pf_port_inject(port.pointer, frame, len(frame), at, ctypes.byref(free_at))
        if result != 0:
            raise not_sent(self._core, result, port, len(frame), at)
        return -1 if free_at.value == self._core.no_time else free_at.value

    def port_samples(self, ports: Sequence[Port], priority: int, reasons: Iterable[str] = ()) -> list[PortSample]:
        """Return a part of the statistics of many ports, at one instant; `reasons`: names of `PortStats.drops`."""
        core = self._core
        if not 0 <= priority < core.max_priorities:
            raise FabricError(f"no queue has priority {priority} (there are {core.max_priorities})")
        unknown = sorted(set(reasons := list(reasons)) - set(core.port_drops))
        if unknown:
            raise FabricError(f"no drops are counted as {unknown[0]!r}; known: {', '.join(core.port_drops)}")
        bits = sum(1 << core.port_drops.index(reason) for reason in set(reasons))
        found = core.array("pf_port_sample", len(ports))
        pointers = (ctypes.c_void_p * max(1, len(ports)))(*(port.pointer for port in ports))
        core.c.pf_port_samples(core.pointer, pointers, len(ports), priority, bits, found)
        octets = ctypes.string_at(found, len(ports) * core.port_sample.size)
        return [PortSample._make(each) for each in core.port_sample.iter_unpack(octets)]

    # -- control plane --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the event loop between two batches (re-entrant): several changes become one for packets."""
        with self._core.lock():
            yield

    @property
    def notify_fd(self) -> int:
        """An eventfd that is readable while notifications wait (except for idle time-outs, which are polled)."""
        return int(self._core.c.pf_notify_fd(self._core.pointer))

    def notifications(self, timeout_s: float = 0.0) -> list[Notification]:
        """Return all waiting notifications, waiting up to timeout_s for the first.

        Other threads run meanwhile. Entries are checked for idleness once a second of the fabric's clock, so on the
        real clock the caller must call this at least once a second.
        """
        if timeout_s > 0 and self._core.pointer:
            waiting = select.poll()
            waiting.register(self.notify_fd, select.POLLIN)
            waiting.poll(timeout_s * 1000)
        notes: list[Notification] = []
        with self._taking:
            if not self._core.pointer:
                return notes
            while True:
                used = self._core.c.pf_notify_take(self._core.pointer, self._notify_buffer, len(self._notify_buffer))
                if not used:
                    break
                notes += self._notes(ctypes.string_at(self._notify_buffer, used))
            notes += self._idle_entries()
        return notes

    def _notes(self, data: bytes) -> list[Notification]:
        notes, at, head = [], 0, self._core.notification
        kinds = self._core.notification_kinds
        while at < len(data):
            time_ns, kind, device_id, ident, up, length = head.unpack_from(data, at)
            payload = data[at + head.size : at + head.size + length]
            what = NotificationKind(kinds[kind])
            notes.append(Notification(what, device_id, time_ns, ident=ident, up=bool(up), data=payload))
            at += head.size + (length + 7) // 8 * 8
        return notes

    def _idle_entries(self) -> list[Notification]:
        now = self.now_ns
        if now - self._idle_swept_ns < IDLE_SWEEP_NS:
            return []
        self._idle_swept_ns = now
        notes = []
        for switch in list(self._switches.values()):
            program = switch.program
            for table in () if program is None else program.tables.values():
                if table.support_timeout:
                    notes += [
                        Notification(NotificationKind.IDLE_TIMEOUT, switch.device_id, now, table.id, handle)
                        for handle in switch.instance.idle_entries(table.name)
                    ]
        return notes

    def notifications_lost(self) -> int:
        """Return the number of notifications dropped because they were not taken (the queue holds 65 536 or 64 MiB)."""
        return int(self._core.c.pf_notify_lost(self._core.pointer))

    # -- observation ----------------------------------------------------------------------------------

    def set_files_room(self, octets: int) -> None:
        """Set the total number of bytes that limited captures and traces may write from now on (0 at first)."""
        if not 0 <= octets < 1 << 64:
            raise FabricError(f"{octets} bytes for captures and traces: not between 0 and {(1 << 64) - 1}")
        self._core.c.pf_files_room(self._core.pointer, octets)

    def trace(self, path: str | os.PathLike[str] | None, *, limited: bool = False) -> None:
        """Write one line per packet event (time_ns what device_id port length CRC-32) to path; None ends it.

        `limited`: its bytes count against `set_files_room`, and it ends when none are left.
        """
        if self._core.c.pf_trace(self._core.pointer, None if path is None else file_name(path), int(limited)) != 0:
            raise FabricError(f"{path}: cannot write the trace: {os.strerror(ctypes.get_errno())}")

    def lateness(self, *, reset: bool = False) -> Lateness:
        """Return how far the real clock's loop lags behind; all zero on the virtual clock."""
        c = self._core.new("pf_lateness")
        self._core.c.pf_lateness(self._core.pointer, ctypes.byref(c), int(reset))
        share = c.cpu_ns / c.wall_ns if c.wall_ns else 0.0
        return Lateness(lag(c.loop), lag(c.busy), share, c.events)

    def loop_cpu_ns(self) -> int:
        """Return the CPU time of the real clock's thread since it was started or lateness was reset."""
        c = self._core.new("pf_lateness")
        self._core.c.pf_lateness(self._core.pointer, ctypes.byref(c), 0)
        return int(c.cpu_ns)

    def events(self) -> int:
        """Return events executed since the fabric was made."""
        return int(self._core.c.pf_events(self._core.pointer))


__all__ = ["CloneSession", "Fabric", "FabricError", "FabricSwitch", "Link", "LinkSettings", "Port"]
