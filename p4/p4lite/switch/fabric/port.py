"""Ports of a switch and the cables between them, as the fabric hands them out (see `fabric.py`)."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import ipaddress
import os
import socket
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from typing import Any, Literal

from p4lite.switch.fabric.core import FabricCore
from p4lite.switch.fabric.values import (
    MAX_TIME_NS,
    BurstLoss,
    CreditSettings,
    CreditStats,
    FabricError,
    Lag,
    LinkSettings,
    PfcSettings,
    PfcStats,
    PortStats,
    QueueLimits,
    QueueStats,
    TunnelSettings,
    TunnelStats,
)

PLAIN = LinkSettings()
#: Of <linux/in.h> and <asm-generic/socket.h>, which `socket` does not have.
IP_MTU_DISCOVER, IP_PMTUDISC_DONT = 10, 0
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
#: Bytes that a burst may take in the kernel; without rights it grants what its limits allow.
TUNNEL_BUFFER = 4 << 20
#: What C counts under the same names.
_QUEUE_COUNTS = tuple(each.name for each in fields(QueueStats) if each.name != "priority")
_CREDIT_COUNTS = tuple(each.name for each in fields(CreditStats) if each.name not in ("priority", "stalled"))
_PFC_STATES = tuple(each.name for each in fields(PfcStats) if each.type == "bool")
_PFC_COUNTS = tuple(each.name for each in fields(PfcStats) if each.name not in ("priority", *_PFC_STATES))
_TUNNEL_COUNTS = tuple(each.name for each in fields(TunnelStats))
PortDirection = Literal["outgoing", "incoming"]
Direction = Literal["both", "a_to_b", "b_to_a"]


def file_name(path: str | os.PathLike[str]) -> bytes:
    """Return a path as bytes for C."""
    return os.fsencode(path)


def tunnel_end(address: str) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Return a numeric address with a port, as `10.0.0.1:7000` or `[fd00::1]:7000`. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    wanted = f"'{address}' is not an address with a port, like 10.0.0.1:7000 or [fd00::1]:7000"
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ValueError(wanted)
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        found = ipaddress.ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        raise ValueError(wanted) from None
    if (found.version == 6) is not bracketed:
        raise ValueError(wanted)
    if found.is_unspecified or found.is_multicast:
        raise ValueError(f"'{address}' is not an address of one machine")
    return (socket.AF_INET6 if bracketed else socket.AF_INET), (str(found), int(port))


def tunnel_socket(local: str, peer: str) -> socket.socket:
    """Return a UDP socket for a tunnel: it sends to the peer alone, and the kernel drops datagrams from others.

    Raises:
        ValueError: a text is not an address.
        OSError: the kernel refuses.
    """
    (family, ours), (other, theirs) = tunnel_end(local), tunnel_end(peer)
    if family != other:
        raise ValueError(f"{local} and {peer} are not of one family")
    made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        for option, beyond_limits in ((socket.SO_RCVBUF, SO_RCVBUFFORCE), (socket.SO_SNDBUF, SO_SNDBUFFORCE)):
            made.setsockopt(socket.SOL_SOCKET, option, TUNNEL_BUFFER)
            with contextlib.suppress(PermissionError):
                made.setsockopt(socket.SOL_SOCKET, beyond_limits, TUNNEL_BUFFER)
        if family == socket.AF_INET:
            # Frames are longer than what many networks carry: fragments are right, a black hole is not.
            made.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
        made.bind(ours)
        made.connect(theirs)
    except OSError:
        made.close()
        raise
    return made


def given_socket(descriptor: int, local: str, peer: str) -> socket.socket:
    """Return the socket of a descriptor, which must be one that `tunnel_socket` opened for these two addresses.

    Raises:
        ValueError: it is another socket.
        OSError: there is no such descriptor.
    """
    (family, ours), (_, theirs) = tunnel_end(local), tunnel_end(peer)
    found = socket.socket(fileno=descriptor)
    try:
        if found.family != family or found.type != socket.SOCK_DGRAM:
            raise ValueError(f"descriptor {descriptor} is not a UDP socket of the family of {local}")
        if found.getsockname()[:2] != ours or found.getpeername()[:2] != theirs:
            raise ValueError(f"descriptor {descriptor} is not a socket from {local} to {peer}")
        found.setblocking(False)
        found.set_inheritable(False)
    except (OSError, ValueError):
        found.detach()
        raise
    return found


def lag(c: Any) -> Lag:
    """Return the quantiles in a `struct pf_lag`."""
    return Lag(c.count, c.p50_ns, c.p90_ns, c.p99_ns, c.max_ns)


def c_settings(core: FabricCore, settings: LinkSettings) -> Any:
    """Return the settings as a structure for C. Raises FabricError for a value out of range."""
    settings.check()
    burst = settings.burst_loss or BurstLoss(0.0, 0.0, 0.0, 0.0)
    alike = {each.name: getattr(settings, each.name) for each in fields(settings) if each.name != "burst_loss"}
    chain = {f"ge_{each.name}": getattr(burst, each.name) for each in fields(burst)}
    return core.new("pf_link_settings", **alike, **chain)


def _counts(c: Any, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(c, name) for name in names}


class Port:
    """One port of a switch (made by `FabricSwitch.add_port`)."""

    def __init__(
        self, core: FabricCore, device_id: int, number: int, name: str, pointer: int, priority_queues: int
    ) -> None:
        self.device_id = device_id
        self.number = number
        self.name = name
        self.interface: str | None = None
        self.tunnelled = False
        self._address: int | None = pointer
        self._core = core
        self._priority_queues = priority_queues
        self.link: Link | None = None
        self.outgoing = PLAIN
        self.incoming = PLAIN

    @property
    def _lib(self) -> Any:
        return self._core.c

    @property
    def pointer(self) -> int:
        """The `struct port *`. Raises FabricError once the port is removed, so that nothing reaches freed memory."""
        if self._address is None:
            raise FabricError(f"{self.name}: the port was removed, or its fabric is closed")
        return self._address

    def freed(self) -> None:
        """Note that C has freed the port."""
        self._address = None
        self._core.ports_freed += 1

    def __repr__(self) -> str:
        return f"<Port {self.name}>"

    def attach(self, interface: str) -> None:
        """Bind an external port to an interface (real clock).

        Raises FabricError: unknown, in use, or no permission.
        """
        result = self._lib.pf_port_interface(self.pointer, os.fsencode(interface))
        if result == 0:
            self.interface = interface
            return
        failure, code = self._core.failure(result), ctypes.get_errno()
        reason = {
            "clock": "interfaces need the real clock",
            "exists": "another port uses this interface",
            "busy": "the port has a link or an interface already",
            "range": "not an interface name",
        }.get(failure, "out of memory")
        if failure == "system":
            reason = {
                errno.ENODEV: "no such interface (ip link shows those there are)",
                errno.EPERM: "no permission for raw sockets; run as root or with CAP_NET_RAW",
            }.get(code, os.strerror(code))
        raise FabricError(f"{self.name}: interface {interface}: {reason}")

    def tunnel(self, settings: TunnelSettings) -> None:
        """Make an external port one end of a link to another machine (real clock).

        Raises FabricError for a value out of range, or an address that is not this machine's or is in use.
        """
        settings.check()
        place = f"{self.name}: tunnel from {settings.local} to {settings.peer}"
        try:
            if settings.descriptor is None:
                bound = tunnel_socket(settings.local, settings.peer)
            else:
                bound = given_socket(settings.descriptor, settings.local, settings.peer)
        except ValueError as error:
            raise FabricError(f"{self.name}: tunnel: {error}") from None
        except OSError as error:
            reason = {
                errno.EADDRNOTAVAIL: "this machine does not have the first address (ip address shows those it has)",
                errno.EADDRINUSE: "another process has the first port",
                errno.ENETUNREACH: "no route there",
            }.get(error.errno or 0, error.strerror or str(error))
            raise FabricError(f"{place}: {reason}") from None
        descriptor = bound.detach()
        ends = settings.end, settings.peer_end
        result = self._lib.pf_port_tunnel(self.pointer, descriptor, settings.key, *ends)
        if result != 0:
            code = ctypes.get_errno()
            os.close(descriptor)
            reason = {
                "clock": "tunnels need the real clock",
                "busy": "the port has a link, an interface or a tunnel already",
                "system": os.strerror(code),
            }.get(self._core.failure(result), "out of memory")
            raise FabricError(f"{place}: {reason}")
        self.tunnelled = True

    def tunnel_stats(self, *, reset: bool = False) -> TunnelStats | None:
        """Return the tunnel's counts of datagrams; None if the port is not a tunnel."""
        c = self._core.new("pf_tunnel_stats")
        if self._lib.pf_port_tunnel_stats(self.pointer, ctypes.byref(c), int(reset)) != 0:
            return None
        return TunnelStats(**_counts(c, _TUNNEL_COUNTS))

    def set_link(self, *, outgoing: LinkSettings | None = None, incoming: LinkSettings | None = None) -> None:
        """Change the direction away from (outgoing) or towards (incoming) this switch, at run time.

        A change of rate holds from the next packet (a faster link also finishes sooner what it is sending), of
        delay for packets sent from now on (those of one direction never overtake each other unless `reorder`
        says so).
        """
        for flag, settings in ((1, outgoing), (0, incoming)):
            if settings is None:
                continue
            self._lib.pf_port_settings(self.pointer, flag, ctypes.byref(c_settings(self._core, settings)))
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
        """Return the settings in force."""
        return self.outgoing if direction == "outgoing" else self.incoming

    def set_up(self, up: bool, direction: Literal["both", "outgoing", "incoming"] = "both") -> None:
        """Cut or restore the link at this port, in both directions or one. Packets on the wire are lost."""
        if direction in ("both", "outgoing"):
            self._lib.pf_port_up(self.pointer, 1, int(up))
        if direction in ("both", "incoming"):
            self._lib.pf_port_up(self.pointer, 0, int(up))

    def is_up(self, direction: PortDirection) -> bool:
        """Return whether a direction is up (and the interface, if any)."""
        return bool(self._lib.pf_port_is_up(self.pointer, int(direction == "outgoing")))

    def set_queue(self, limits: QueueLimits, priority: int | None = None) -> None:
        """Set the capacity of one priority's queue, or of each (None). Packets already waiting stay."""
        which = self._core.queue_each if priority is None else priority
        if priority is not None:
            self._check_priority(priority)
        self._set_limits(which, limits)

    def set_buffer(self, limits: QueueLimits) -> None:
        """Set the capacity of the whole port over all priorities (default: no limit beside the queues')."""
        self._set_limits(self._core.queue_buffer, limits)

    def _check_priority(self, priority: int) -> None:
        if not 0 <= priority < self._priority_queues:
            raise FabricError(f"{self.name}: no queue of priority {priority} (there are {self._priority_queues})")

    def _set_limits(self, which: int, limits: QueueLimits) -> None:
        if not (0 <= limits.packets < 1 << 64 and 0 <= limits.bytes < 1 << 64):
            raise FabricError(f"{self.name}: {limits}: a capacity has 64 bits and no sign (0: no limit)")
        self._lib.pf_port_queue(self.pointer, which, limits.packets, limits.bytes)

    def set_pfc(self, priority: int, settings: PfcSettings | None, source_mac: int = 0) -> None:
        """Set the flow control of a priority at this port, None: off; packets already waiting count.

        `source_mac` is the port's own address, in its pause frames. FabricError for values out of range.
        """
        self._check_priority(priority)
        if not 0 <= source_mac < 1 << 48:
            raise FabricError(f"{self.name}: source_mac={source_mac}: an address has 48 bits")
        c = None
        if settings is not None:
            settings.check()
            c = self._core.new("pf_pfc_settings", source_mac=source_mac, **asdict(settings))
        result = self._lib.pf_port_pfc(self.pointer, priority, None if c is None else ctypes.byref(c))
        if result != 0:
            busy = self._core.failure(result) == "busy"
            raise FabricError(
                f"{self.name}: {'the port has credits; take them away first' if busy else 'out of memory'}"
            )

    def pfc_stats(self) -> tuple[PfcStats, ...]:
        """Return the counters of the priorities with flow control."""
        c = self._core.array("pf_pfc_stats", self._core.max_priorities)
        enabled = self._lib.pf_port_pfc_stats(self.pointer, c)
        return tuple(
            PfcStats(
                priority, **_counts(each, _PFC_COUNTS), **{name: bool(getattr(each, name)) for name in _PFC_STATES}
            )
            for priority, each in enumerate(c)
            if enabled >> priority & 1
        )

    def set_credits(self, priority: int, settings: CreditSettings | None, source_mac: int = 0) -> None:
        """Set the credits of a priority at this port, None: off. Nothing is sent on a link unless both ends have them.

        `source_mac` is the port's own address, in its updates. FabricError for values out of range, on a port with
        priority flow control, and for a buffer of another size than it had.
        """
        self._check_priority(priority)
        if not 0 <= source_mac < 1 << 48:
            raise FabricError(f"{self.name}: source_mac={source_mac}: an address has 48 bits")
        c = None
        if settings is not None:
            settings.check()
            dscps = sum(1 << dscp for dscp in set(settings.dscps))
            c = self._core.new(
                "pf_credit_settings", buffer_bytes=settings.buffer_bytes, dscps=dscps, source_mac=source_mac
            )
        result = self._lib.pf_port_credits(self.pointer, priority, None if c is None else ctypes.byref(c))
        if result != 0:
            reason = {
                "busy": "the port has priority flow control; take it away first",
                "exists": "its peer has been promised a buffer of another size, for good",
            }.get(self._core.failure(result), "out of memory")
            raise FabricError(f"{self.name}: credits: {reason}")

    def credit_stats(self) -> tuple[CreditStats, ...]:
        """Return the counters of the priorities with credits."""
        c = self._core.array("pf_credit_stats", self._core.max_priorities)
        enabled = self._lib.pf_port_credit_stats(self.pointer, c)
        return tuple(
            CreditStats(priority=priority, stalled=bool(each.stalled), **_counts(each, _CREDIT_COUNTS))
            for priority, each in enumerate(c)
            if enabled >> priority & 1
        )

    def capture(
        self,
        path: str | os.PathLike[str] | None,
        snaplen: int = 0,
        *,
        limited: bool = False,
        label: str = "",
        outside: bool = False,
    ) -> None:
        """Write both directions to a pcap-ng file with nanosecond stamps; None ends it.

        `limited`: its bytes count against `Fabric.set_files_room`, and it ends when none are left. `label` names the
        interface in the file, by default as the port is called. `outside`: it is that of the other end of the cable,
        so what the switch sends comes in.
        """
        if not 0 <= snaplen < 1 << 32:
            raise FabricError(f"{self.name}: snaplen={snaplen}: not between 0 (whole packets) and {(1 << 32) - 1}")
        name = None if path is None else file_name(path)
        shown = (label or self.interface or self.name).encode()
        if self._lib.pf_port_capture(self.pointer, name, shown, snaplen, int(limited) | int(outside) << 1) != 0:
            raise FabricError(f"{path}: cannot write the capture: {os.strerror(ctypes.get_errno())}")

    def collect(self, wanted: bool) -> None:
        """Set whether packets that leave this external port are delivered to Python (default) or only counted."""
        self._lib.pf_port_collect(self.pointer, int(wanted))

    def generate(self, frames: Sequence[bytes], count: int, *, interval_ns: int, start_ns: int | None = None) -> None:
        """Start an outside source in the core: `count` frames, cycling through `frames`, one every interval_ns.

        For background traffic and measurements; ends with the port. FabricError: not an external port, no
        frames, a start in the past.
        """
        start = self._core.now_ns if start_ns is None else start_ns
        for what, value in (("count", count), ("interval_ns", interval_ns), ("start_ns", start)):
            if not 0 <= value <= MAX_TIME_NS:
                raise FabricError(f"{self.name}: generate: {what}={value}: not between 0 and {MAX_TIME_NS}")
        lengths = (ctypes.c_uint32 * max(1, len(frames)))(*(len(frame) for frame in frames))
        result = self._lib.pf_port_generate(
            self.pointer, b"".join(frames), lengths, len(frames), count, start, interval_ns
        )
        if result != 0:
            reason = {
                "range": "nothing to send",
                "busy": "not an external port",
                "past": f"{start} ns is past",
            }.get(self._core.failure(result), "a frame is longer than 65536 bytes, or out of memory")
            raise FabricError(f"{self.name}: generate: {reason}")

    def stats(self, *, reset: bool = False) -> PortStats:
        """Return counters, queues and high-water marks; `reset` zeroes them in the same instant."""
        pfc, credits = self.pfc_stats(), self.credit_stats()
        c = self._core.new("pf_port_stats")
        self._lib.pf_port_stats(self.pointer, ctypes.byref(c), int(reset))
        queues = tuple(
            QueueStats(priority, **_counts(q, _QUEUE_COUNTS))
            for priority, q in enumerate(c.queues[: self._priority_queues])
        )
        return PortStats(
            rx_packets=c.rx_packets,
            rx_bytes=c.rx_bytes,
            tx_packets=c.tx_packets,
            tx_bytes=c.tx_bytes,
            drops=dict(zip(self._core.port_drops, c.drops, strict=True)),
            corrupted=c.corrupted,
            duplicated=c.duplicated,
            reordered=c.reordered,
            queues=queues,
            service_lag=lag(c.service_lag),
            storm_frames=c.storm_frames,
            pfc=pfc,
            credits=credits,
            tunnel=self.tunnel_stats(reset=reset) if self.tunnelled else None,
            on_wire=c.on_wire,
        )


class Link:
    """A cable between two ports (made by `Fabric.link`)."""

    def __init__(self, core: FabricCore, a: Port, b: Port, settings: LinkSettings, back: LinkSettings) -> None:
        """Join two ports; `settings` from a to b, `back` from b to a. Raises FabricError if they cannot be joined."""
        self.a = a
        self.b = b
        self._core = core
        forth, reverse = c_settings(core, settings), c_settings(core, back)
        result = core.c.pf_port_link(a.pointer, b.pointer)
        if result != 0:
            reason = "a port cannot be linked to itself" if core.failure(result) == "range" else "a port is in use"
            raise FabricError(f"link {a.name} - {b.name}: {reason}")
        core.c.pf_port_settings(a.pointer, 1, ctypes.byref(forth))
        core.c.pf_port_settings(b.pointer, 1, ctypes.byref(reverse))
        a.outgoing = b.incoming = settings
        b.outgoing = a.incoming = back
        a.link = b.link = self

    def remove(self) -> None:
        """Remove the cable (see `Fabric.unlink`): both ports are external again."""
        self._core.c.pf_port_unlink(self.a.pointer)
        for port in self.ports():
            port.link = None
            self._core.c.pf_port_settings(port.pointer, 1, ctypes.byref(c_settings(self._core, PLAIN)))
            self._core.c.pf_port_up(port.pointer, 1, 1)
            port.outgoing = port.incoming = PLAIN

    def __repr__(self) -> str:
        return f"<Link {self.a.name} - {self.b.name}>"

    def _senders(self, direction: Direction) -> list[Port]:
        return [p for p, way in ((self.a, "a_to_b"), (self.b, "b_to_a")) if direction in ("both", way)]

    def set(self, settings: LinkSettings, direction: Direction = "both") -> None:
        """Change one direction or both at run time."""
        for port in self._senders(direction):
            port.set_link(outgoing=settings)

    def settings(self, direction: Literal["a_to_b", "b_to_a"]) -> LinkSettings:
        """Return the settings in force."""
        return self._senders(direction)[0].outgoing

    def set_up(self, up: bool, direction: Direction = "both") -> None:
        """Cut or restore the link; packets on the wire are lost."""
        for port in self._senders(direction):
            port.set_up(up, "outgoing")

    def is_up(self, direction: Literal["a_to_b", "b_to_a"]) -> bool:
        """Return whether a direction is up."""
        return self._senders(direction)[0].is_up("outgoing")

    def other(self, port: Port) -> Port:
        """Return the opposite end."""
        return self.b if port is self.a else self.a

    def ports(self) -> Iterator[Port]:
        """Yield both ends."""
        yield self.a
        yield self.b
