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

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Literal

from p4lite.switch.fabric_types import (
    CloneSession,
    FabricError,
    Lateness,
    LinkSettings,
    Notification,
    PortStats,
    QueueLimits,
    Replica,
    SwitchState,
    SwitchStats,
)

if TYPE_CHECKING:
    from p4lite.switch.program import Instance, Program

Clock = Literal["real", "virtual"]
Direction = Literal["both", "a_to_b", "b_to_a"]
#: (time_ns, device_id, port, frame): a packet that left through an external port.
DeliveryTuple = tuple[int, int, int, bytes]


class Fabric:
    """A set of switches on one clock.

    `clock`: "real" (monotonic, a thread of its own between `start` and `stop`; ports may be interfaces) or
    "virtual" (time moves only in `advance`/`run_until`; same seed and calls, same bytes, same order).
    `seed` feeds every random choice: impairments of links, `random()` and selectors of the programs.
    `busy_poll_us`: on the real clock, poll for so long before sleeping (costs CPU, wins latency).
    `sanitize` loads the core built with the address and undefined-behaviour sanitizers (needs libasan preloaded).
    Usable as a context manager (stops and frees on exit). Raises FabricError when the core cannot be built.
    """

    def __init__(
        self, clock: Clock = "real", seed: int = 0, *, busy_poll_us: int = 0, sanitize: bool = False
    ) -> None:
        raise NotImplementedError

    # -- building -------------------------------------------------------------------------------------

    def add_switch(
        self,
        device_id: int,
        *,
        name: str | None = None,
        priority_queues: int = 1,
        drop_port: int = 511,
        cpu_port: int | None = None,
        loop_limit: int = 64,
    ) -> Switch:
        """A new switch without program (drops everything, counted as no_program) and without ports.

        `loop_limit`: so often one packet may be resubmitted or recirculated before it is dropped.
        FabricError when the device_id is in use or a number is out of range.
        """
        raise NotImplementedError

    def switch(self, device_id: int) -> Switch:
        """The switch with this device_id; FabricError names those that exist."""
        raise NotImplementedError

    @property
    def switches(self) -> dict[int, Switch]:
        """All switches by device_id, in the order of their creation."""
        raise NotImplementedError

    def link(
        self, a: Port, b: Port, settings: LinkSettings = LinkSettings(), back: LinkSettings | None = None
    ) -> Link:
        """Join two external ports by a cable; `back` (b to a) is like `settings` (a to b) unless given."""
        raise NotImplementedError

    # -- time -----------------------------------------------------------------------------------------

    @property
    def now_ns(self) -> int:
        """The fabric's clock: ns since it was made (real) or since 0 (virtual)."""
        raise NotImplementedError

    def start(self) -> None:
        """Start the real clock's thread."""
        raise NotImplementedError

    def stop(self) -> None:
        """Stop the thread; state stays and `start` goes on. Without effect when it is not running."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop, close sockets and captures, free everything. The fabric is unusable afterwards."""
        raise NotImplementedError

    def __enter__(self) -> Fabric:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def next_event_ns(self) -> int | None:
        """Virtual clock: when something happens next by itself, None for never."""
        raise NotImplementedError

    def run_until(self, t_ns: int) -> list[DeliveryTuple]:
        """Virtual clock: do everything due up to and including t_ns; now_ns is t_ns afterwards.

        Returns every packet that left through an external port since the last call, in order.
        """
        raise NotImplementedError

    def advance(self, limit_ns: int) -> list[DeliveryTuple]:
        """Virtual clock: like run_until(limit_ns), but stop early once something was delivered.

        The core runs on past the first delivery only for as long as no reaction to it can reach a switch (the
        smallest host-to-switch delay of any external port), so a host may answer each packet
        at the packet's own time: `inject(port, frame, at_ns=time_ns)` is allowed although now_ns is later.
        Empty result: limit_ns was reached.
        """
        raise NotImplementedError

    def inject(self, port: Port, frame: bytes, at_ns: int | None = None) -> int:
        """Virtual clock: an outside host begins to send `frame` into an external port at at_ns (default: now).

        The host's side of the link (`to_switch`) has a first-in first-out queue with the port's limits.
        at_ns may lie before now_ns by less than the delay of that link, but not before an earlier frame's
        at_ns on this port. Returns the time when the link will be free again (for pacing), -1 when the
        frame was dropped at the host's queue.
        """
        raise NotImplementedError

    def inject_many(self, frames: Iterable[tuple[Port, bytes, int]]) -> None:
        """Virtual clock: many (port, frame, at_ns) at once, for each port in order of time."""
        raise NotImplementedError

    # -- control plane --------------------------------------------------------------------------------

    def lock(self) -> AbstractContextManager[None]:
        """Hold the event loop between two batches (re-entrant): several changes become one for packets."""
        raise NotImplementedError

    @property
    def notify_fd(self) -> int:
        """An eventfd that is readable while notifications wait."""
        raise NotImplementedError

    def notifications(self, timeout_s: float = 0.0) -> list[Notification]:
        """Take all waiting notifications, waiting up to timeout_s for the first (without holding the interpreter)."""
        raise NotImplementedError

    def notifications_lost(self) -> int:
        """Notifications dropped because nobody took them (the queue holds 65 536 or 64 MiB)."""
        raise NotImplementedError

    # -- observation ----------------------------------------------------------------------------------

    def trace(self, path: str | os.PathLike[str] | None) -> None:
        """Write one line per packet event (time, what, switch, port, length, CRC-32) to path; None ends it."""
        raise NotImplementedError

    def lateness(self, *, reset: bool = False) -> Lateness:
        """How far the real clock's loop lags behind; all zero on the virtual clock."""
        raise NotImplementedError

    def events(self) -> int:
        """Events executed since the fabric was made."""
        raise NotImplementedError


class Switch:
    """One v1model switch (made by `Fabric.add_switch`)."""

    fabric: Fabric
    device_id: int
    name: str
    drop_port: int
    cpu_port: int | None
    priority_queues: int

    @property
    def program(self) -> Program | None:
        """The loaded program."""
        raise NotImplementedError

    @property
    def instance(self) -> Instance:
        """The loaded program's tables, counters, registers … of this switch; FabricError without program."""
        raise NotImplementedError

    def load(self, program: Program) -> None:
        """Run `program` from now on, with empty tables; packets in the old program's queues are dropped."""
        raise NotImplementedError

    def unload(self) -> None:
        """Back to no program."""
        raise NotImplementedError

    def add_port(
        self,
        number: int,
        *,
        interface: str | None = None,
        name: str | None = None,
        to_host: LinkSettings = LinkSettings(),
        to_switch: LinkSettings = LinkSettings(),
        pcap: str | os.PathLike[str] | None = None,
    ) -> Port:
        """A port: on an interface (AF_PACKET, real clock), or external (`inject` and deliveries) until it is
        linked to another port. `to_host` and `to_switch` are the directions of the link outside.

        FabricError: number in use or beyond 65535 or the drop port, interface unknown or in use by another
        port, no permission.
        """
        raise NotImplementedError

    def remove_port(self, number: int) -> None:
        """Take a port away (its link becomes free, its queues are flushed)."""
        raise NotImplementedError

    def port(self, number: int) -> Port:
        """The port with this number; FabricError when there is none."""
        raise NotImplementedError

    @property
    def ports(self) -> dict[int, Port]:
        """All ports by number."""
        raise NotImplementedError

    @property
    def state(self) -> SwitchState:
        """What the switch does with packets."""
        raise NotImplementedError

    def set_state(self, state: SwitchState | Literal["running", "frozen", "stopped"]) -> None:
        """Run, freeze or stop; see SwitchState. Tables and registers stay."""
        raise NotImplementedError

    def restart(self) -> None:
        """As after a reboot: tables, registers, groups and sessions empty, queues flushed, then running."""
        raise NotImplementedError

    def packet_out(self, frame: bytes) -> None:
        """Receive a packet on the CPU port (its controller header first). FabricError without CPU port."""
        raise NotImplementedError

    def set_multicast_group(self, group: int, replicas: Sequence[Replica]) -> None:
        """Create or replace a group (1–65535); replicas are made in the given order."""
        raise NotImplementedError

    def delete_multicast_group(self, group: int) -> None:
        """FabricError when there is none."""
        raise NotImplementedError

    def multicast_groups(self) -> dict[int, tuple[Replica, ...]]:
        """All groups."""
        raise NotImplementedError

    def set_clone_session(self, session: int, config: CloneSession) -> None:
        """Create or replace a mirror session (0–32767)."""
        raise NotImplementedError

    def delete_clone_session(self, session: int) -> None:
        """FabricError when there is none."""
        raise NotImplementedError

    def clone_sessions(self) -> dict[int, CloneSession]:
        """All sessions."""
        raise NotImplementedError

    def stats(self) -> SwitchStats:
        """Counters of the target since the switch was made or `reset_stats`."""
        raise NotImplementedError

    def reset_stats(self) -> None:
        """Zero the switch's and its ports' counters and high-water marks."""
        raise NotImplementedError


class Port:
    """One port of a switch (made by `Switch.add_port`)."""

    switch: Switch
    number: int
    name: str
    interface: str | None

    @property
    def link(self) -> Link | None:
        """The link to another switch, if any."""
        raise NotImplementedError

    def set_link(self, *, outgoing: LinkSettings | None = None, incoming: LinkSettings | None = None) -> None:
        """Change the direction away from (outgoing) or towards (incoming) this switch, at run time.

        A change of rate holds from the next packet, of delay for packets sent from now on
        (packets of one direction never overtake each other unless `reorder` says so).
        """
        raise NotImplementedError

    def link_settings(self, direction: Literal["outgoing", "incoming"]) -> LinkSettings:
        """The settings in force."""
        raise NotImplementedError

    def set_up(self, up: bool, direction: Literal["both", "outgoing", "incoming"] = "both") -> None:
        """Cut or mend the link at this port, in both directions or one. What is on the wire is lost."""
        raise NotImplementedError

    def is_up(self, direction: Literal["outgoing", "incoming"]) -> bool:
        """Administrative state of a direction (and of the interface, if any)."""
        raise NotImplementedError

    def set_queue(self, limits: QueueLimits, priority: int | None = None) -> None:
        """Capacity of one priority's queue, or of each (None). Packets already waiting stay."""
        raise NotImplementedError

    def set_buffer(self, limits: QueueLimits) -> None:
        """Capacity of the whole port over all priorities (default: no limit beside the queues')."""
        raise NotImplementedError

    def capture(self, path: str | os.PathLike[str] | None, snaplen: int = 0) -> None:
        """Write both directions to a pcap-ng file with nanosecond stamps; None ends it."""
        raise NotImplementedError

    def stats(self) -> PortStats:
        """Counters, queues and high-water marks."""
        raise NotImplementedError


class Link:
    """A cable between two ports (made by `Fabric.link`)."""

    a: Port
    b: Port

    def set(self, settings: LinkSettings, direction: Direction = "both") -> None:
        """Change one direction or both at run time."""
        raise NotImplementedError

    def settings(self, direction: Literal["a_to_b", "b_to_a"]) -> LinkSettings:
        """The settings in force."""
        raise NotImplementedError

    def set_up(self, up: bool, direction: Direction = "both") -> None:
        """Cut or mend the link; what is on the wire is lost."""
        raise NotImplementedError

    def is_up(self, direction: Literal["a_to_b", "b_to_a"]) -> bool:
        """State of a direction."""
        raise NotImplementedError

    def ports(self) -> Iterator[Port]:
        """Both ends."""
        raise NotImplementedError


__all__ = ["CloneSession", "Fabric", "FabricError", "Link", "LinkSettings", "Port", "Switch"]
