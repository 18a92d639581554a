"""Value types of the fabric core's Python API: settings, limits, statistics, notifications.

Units are in the names: `_ns` nanoseconds of the fabric's clock, `_bps` bits per second, `_bytes`, `_packets`.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from p4lite.errors import P4liteError

#: A pause frame, without preamble, FCS and gap, as all frames here.
PFC_FRAME_BYTES: Final = 60
TUNNEL_KEY_BYTES: Final = 16
#: The latest time of a fabric's clock (292 years); C adds delays to it in 64 bits without a sign.
MAX_TIME_NS: Final = (1 << 63) - 1


class FabricError(P4liteError):
    """A refused request: the message is one line naming the object and the remedy."""

    code = "refused"


class SwitchState(enum.Enum):
    """What a switch does with packets."""

    RUNNING = "running"
    #: Accepts packets from its links and forwards none; queues do not move, but the control plane works.
    FROZEN = "frozen"
    #: All links of the switch are down, its queues are flushed.
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class BurstLoss:
    """Gilbert-Elliott loss: a two-state chain that moves once per packet.

    All four are probabilities in [0, 1]: of going from good to bad, of going back, and of losing a packet
    in either state.
    """

    to_bad: float
    to_good: float
    loss_bad: float = 1.0
    loss_good: float = 0.0


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """One direction of a link. Times are in ns, probabilities per packet in [0, 1]. `check` raises FabricError.

    `rate_bps` is 0 for "no limit" (a packet leaves its queue at once). `overhead_bytes` are added to every packet's
    time on the wire (24 = preamble, gap and FCS of Ethernet). `reorder` is the probability that a packet takes
    `reorder_extra_ns` longer than `delay_ns`, so that later ones overtake it. `corrupt` flips one random bit of the
    packet. `duplicate` delivers a second copy right after the first. A `blackhole` accepts every packet and delivers
    none, while the link appears up. `host_queue_bytes` (direction towards the switch of a port to the outside) limits
    the bytes that wait for the host's transmitter; 0: no limit. With `pause_storm_mac` (the same direction) the host
    sends pause frames for all priorities without end, as a stuck NIC does, from this source address, and resumes when
    the setting ends; 0: no storm.
    """

    rate_bps: int = 0
    delay_ns: int = 0
    overhead_bytes: int = 0
    loss: float = 0.0
    burst_loss: BurstLoss | None = None
    corrupt: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    reorder_extra_ns: int = 0
    blackhole: bool = False
    host_queue_bytes: int = 0
    pause_storm_mac: int = 0

    def check(self) -> None:
        """Raise FabricError for a value out of range."""
        burst = self.burst_loss
        chances = {name: getattr(self, name) for name in ("loss", "corrupt", "duplicate", "reorder")}
        if burst is not None:
            chances |= {f"burst_loss.{n}": getattr(burst, n) for n in ("to_bad", "to_good", "loss_bad", "loss_good")}
        for name, value in chances.items():
            if not 0.0 <= value <= 1.0:
                raise FabricError(f"link setting {name}={value}: a probability lies between 0 and 1")
        limits = {
            "rate_bps": 10**15,
            "delay_ns": 10**15,
            "reorder_extra_ns": 10**15,
            "host_queue_bytes": 1 << 48,
            "overhead_bytes": 1 << 16,
            "pause_storm_mac": (1 << 48) - 1,
        }
        for name, limit in limits.items():
            value = getattr(self, name)
            if not 0 <= value <= limit:
                raise FabricError(f"link setting {name}={value}: not between 0 and {limit}")


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Capacity of one queue; a packet that would exceed either limit is dropped at the tail. 0 = no limit."""

    packets: int = 64
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class PfcSettings:
    """Priority flow control (IEEE 802.1Qbb) of one priority at one port; sizes in bytes, times in ns.

    When more than `xoff_bytes` that came in at the port wait in the switch, it sends the other end of the link a pause
    of `quanta` of 512 bit times, and repeats it after half of that, until at most `xon_bytes` wait. Packets that are on
    the way meanwhile use `headroom_bytes`; beyond them packets are dropped (`headroom_full`).

    `detection_ns` (0: none) is the watchdog's: a queue that is paused for this time while packets wait in it loses
    these and all further packets, and its port loses those that come in, until no pause was requested for
    `restoration_ns`. SONiC's watchdog with action drop does the same.
    """

    xoff_bytes: int
    xon_bytes: int
    headroom_bytes: int
    quanta: int = 0xFFFF
    detection_ns: int = 0
    restoration_ns: int = 0

    def check(self) -> None:
        """Raise FabricError for a value out of range."""
        for name, low, high in (
            ("xoff_bytes", 1, 1 << 48),
            ("xon_bytes", 0, 1 << 48),
            ("headroom_bytes", 0, 1 << 48),
            ("quanta", 1, 0xFFFF),
            ("detection_ns", 0, 10**15),
            ("restoration_ns", 0, 10**15),
        ):
            if not low <= getattr(self, name) <= high:
                raise FabricError(f"flow control {name}={getattr(self, name)}: not between {low} and {high}")
        if self.xon_bytes > self.xoff_bytes:
            raise FabricError(
                f"flow control xon_bytes={self.xon_bytes} is above xoff_bytes={self.xoff_bytes}; a pause would end "
                "before it begins"
            )


@dataclass(frozen=True, slots=True)
class CreditSettings:
    """Credits of one priority at one port, after InfiniBand's. The other end of the link sends only packets that fit
    into the `buffer_bytes` (whole blocks of 64) of this port's receiver, and this port only packets that fit into the
    other's; a host's buffer is as large as its port's. A host's packets with one of `dscps` belong to this priority."""

    buffer_bytes: int
    dscps: tuple[int, ...] = ()

    def check(self) -> None:
        """Raise FabricError for a value out of range."""
        if not 64 <= self.buffer_bytes <= 1 << 32:
            raise FabricError(f"credits buffer_bytes={self.buffer_bytes}: not between 64 and {1 << 32}")
        for dscp in self.dscps:
            if not 0 <= dscp <= 63:
                raise FabricError(f"credits dscps={self.dscps}: {dscp} is not a DSCP (0 to 63)")


def pfc_headroom_bytes(rate_bps: int, delay_ns: int, packet_bytes: int, overhead_bytes: int = 0) -> int:
    """Return the headroom that a priority needs at one end of a link to lose nothing (IEEE 802.1Qbb, Annex O).

    After the packet that crosses xoff, a packet in transmission delays the pause frame, which then takes its own time
    and the link's delay. Until the other end obeys, it continues to send and completes the packet that it has begun.
    All of this takes the link's delay again to arrive.
    """
    frame = PFC_FRAME_BYTES + overhead_bytes
    return 3 * packet_bytes + frame + -(-2 * delay_ns * rate_bps // (8 * 10**9))


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy that a multicast group or clone session makes (`egress_rid` = `rid`)."""

    port: int
    rid: int = 0


@dataclass(frozen=True, slots=True)
class CloneSession:
    """A mirror session: copies to `mcast_group` (its replicas), to `replicas`, to `port`, in this order.

    `truncate_bytes` cuts every copy when it is transmitted (0: not at all).
    """

    port: int | None = None
    mcast_group: int | None = None
    replicas: tuple[Replica, ...] = ()
    truncate_bytes: int = 0


def check_multicast_group(where: str, group: int, replicas: Sequence[Replica]) -> None:
    """Raise FabricError for a group's number or a replica that is out of range; `where` begins the message."""
    place = f"{where}multicast group {group}"
    if not 1 <= group <= 65535:
        raise FabricError(f"{place}: the number must be 1-65535")
    _check_replicas(place, replicas)


def check_clone_session(where: str, session: int, config: CloneSession) -> None:
    """Raise FabricError for a session's number, or a number in it, that is out of range; `where` begins the message."""
    place = f"{where}clone session {session}"
    if not 0 <= session <= 32767:
        raise FabricError(f"{place}: the number must be 0-32767")
    _check_replicas(place, config.replicas)
    port, group = config.port or 0, config.mcast_group or 0
    if not (0 <= port < 1 << 32 and 0 <= group < 1 << 16 and 0 <= config.truncate_bytes < 1 << 32):
        raise FabricError(f"{place}: {config}: a number is out of range")


def _check_replicas(place: str, replicas: Sequence[Replica]) -> None:
    for replica in replicas:
        if not (0 <= replica.port < 1 << 32 and 0 <= replica.rid < 1 << 16):
            raise FabricError(f"{place}: replica {replica}: port or rid out of range")


@dataclass(frozen=True, slots=True)
class QueueStats:
    """One priority queue of a port. High-water marks count from the last reset."""

    priority: int
    depth_packets: int
    depth_bytes: int
    max_packets: int
    max_bytes: int
    enqueued_packets: int
    enqueued_bytes: int
    dropped_packets: int
    dropped_bytes: int


@dataclass(frozen=True, slots=True)
class PfcStats:
    """Flow control of one priority at one port, since the last reset.

    `held_bytes` came in here and wait in the switch. Pauses and resumes count frames, repeated ones included.
    `pausing_ns`: how long this port paused the other end; `paused_ns`: how long it was paused itself. `storms`: how
    often the watchdog acted; `watchdog_drops`: what it dropped. `enabled`, `pausing`, `paused`, `storm`: the present
    state.
    """

    priority: int
    held_bytes: int
    max_held_bytes: int
    pauses_sent: int
    resumes_sent: int
    pauses_received: int
    resumes_received: int
    pausing_ns: int
    paused_ns: int
    storms: int
    watchdog_drops: int
    headroom_drops: int
    enabled: bool
    pausing: bool
    paused: bool
    storm: bool


@dataclass(frozen=True, slots=True)
class CreditStats:
    """Credits of one priority at one port, since the last reset; bytes are whole blocks of 64.

    `credit_bytes` may be sent now; `least_credit_bytes` is the smallest value since the reset. `held_bytes` came in
    here and wait in the switch. `stall_ns`: how long the transmitter was idle while packets waited without credit;
    `stalls`: how often that happened.
    """

    priority: int
    buffer_bytes: int
    credit_bytes: int
    least_credit_bytes: int
    held_bytes: int
    max_held_bytes: int
    updates_sent: int
    updates_received: int
    stalls: int
    stall_ns: int
    stalled: bool


@dataclass(frozen=True, slots=True)
class Lag:
    """A histogram of delays in ns, logarithmic buckets (each at most 12.5 % wide): count and quantiles."""

    count: int = 0
    p50_ns: int = 0
    p90_ns: int = 0
    p99_ns: int = 0
    max_ns: int = 0


@dataclass(frozen=True, slots=True)
class TunnelSettings:
    """One end of a link whose other end is on another machine, carried in UDP datagrams.

    `local` and `peer` are numeric addresses with a port (`10.0.0.1:7000`, `[fd00::1]:7000`); only datagrams from `peer`
    are read. `key` (16 bytes) is the lab's secret, which authenticates each datagram by a tag. `end` and `peer_end`
    number the two ends in the lab, so that a datagram of another link, or of the other direction, is refused.
    `descriptor`: a socket between the two (`port.tunnel_socket`) that the parent of this process has opened, where this
    process is in another network namespace; it belongs to the port from then on.
    """

    local: str
    peer: str
    key: bytes = field(repr=False)
    end: int
    peer_end: int
    descriptor: int | None = None

    def check(self) -> None:
        """Raise FabricError for a value out of range."""
        if len(self.key) != TUNNEL_KEY_BYTES:
            raise FabricError(f"tunnel key: {TUNNEL_KEY_BYTES} bytes are wanted, not {len(self.key)}")
        for name in ("end", "peer_end"):
            if not 0 <= getattr(self, name) < 1 << 32:
                raise FabricError(f"tunnel {name}={getattr(self, name)}: not between 0 and {(1 << 32) - 1}")
        if self.end == self.peer_end:
            raise FabricError(f"tunnel end={self.end} is peer_end, too; the two ends have different numbers")


@dataclass(frozen=True, slots=True)
class TunnelStats:
    """Datagrams of a port that is a tunnel.

    `sent`: those that the kernel took (others are drops of the port, `device`); `received`; `lost`: datagrams of the
    peer that have not arrived (yet); `late`: those that arrived after a later one. `refused`: not from the peer,
    without the right tag, or cut short; `repeated`: arrived before, or too old to decide.
    """

    sent: int
    received: int
    lost: int
    late: int
    refused: int
    repeated: int


@dataclass(frozen=True, slots=True)
class PortStats:
    """A port: what it received and sent, and every packet lost there by reason.

    Reasons: queue_full, buffer_full (of the whole port), link_down, loss, burst_loss, blackhole, not_running (this
    switch is frozen or stopped), host_queue_full, device (the interface refused or is gone), rx_ring (the kernel's
    ring overflowed), no_peer (the port leads nowhere), memory, headroom_full and pfc_watchdog (flow control),
    over_buffer (longer than the buffer that credits speak of). What a link loses counts at its sender. Pause frames
    count in `pfc` only, which has the priorities with flow control; `storm_frames` are those that a stuck host sent
    (`LinkSettings.pause_storm_mac`).
    """

    rx_packets: int
    rx_bytes: int
    tx_packets: int
    tx_bytes: int
    drops: dict[str, int]
    corrupted: int
    duplicated: int
    reordered: int
    queues: tuple[QueueStats, ...]
    #: Time from when a queue was due for service to when it was served (real clock), ns.
    service_lag: Lag
    storm_frames: int = 0
    pfc: tuple[PfcStats, ...] = ()
    credits: tuple[CreditStats, ...] = ()
    #: Of a link to another machine.
    tunnel: TunnelStats | None = None
    #: Packets on the link now: those that the port has sent, and those that its host has.
    on_wire: int = 0


class PortSample(NamedTuple):
    """A part of `PortStats`, for many ports. Depths are of one priority's queue; `some_drops` are those of the
    requested reasons; `controls` are flow control (1) and credits (2) at the port; `up` are the directions that are up:
    outgoing (1), incoming (2)."""

    tx_bytes: int
    depth_bytes: int
    max_bytes: int
    drops: int
    some_drops: int
    storm_frames: int
    controls: int
    rx_bytes: int
    up: int


@dataclass(frozen=True, slots=True)
class SwitchStats:
    """A switch's target. `drops` by reason: ingress, egress (the program dropped it), priority (no
    such queue), mcast_group and clone_session (unknown), loop_limit (resubmitted, recirculated or cloned at
    egress too often), no_program, no_port (number beyond 65535), too_long (beyond 65536 bytes), flushed (waited
    in a queue when the switch stopped or got another program), memory (the fabric's limit).

    `absorbed`: packets that ended here because copies went on in their place; `copies_missed`: copies that were asked
    for and not made, which count in `drops` too; `other_queued`, `other_drops`: packets that wait, and what was lost
    (reasons of `PortStats`), at ports that were not added: the CPU port and numbers that only a program names. So over
    a fabric, what came in, duplicates, clones, replicas and missed copies are as many as what went out, was dropped or
    absorbed, or still waits.
    """

    received: int
    ingress: int
    egress: int
    transmitted: int
    drops: dict[str, int]
    ingress_clones: int
    egress_clones: int
    resubmits: int
    recirculations: int
    replicas: int
    digests: int
    parser_errors: int
    absorbed: int
    copies_missed: int
    other_queued: int
    other_drops: dict[str, int]


@dataclass(frozen=True, slots=True)
class Lateness:
    """How late the real clock's event loop was (`loop`: due time of an event to its execution), how long one round of
    work took (`busy`), and the CPU time of the loop's thread over wall time since the last reset."""

    loop: Lag
    busy: Lag
    cpu_share: float
    events: int


class NotificationKind(enum.Enum):
    """The kind of a notification from the fabric to its control plane."""

    PACKET_IN = "packet_in"
    DIGEST = "digest"
    IDLE_TIMEOUT = "idle_timeout"
    #: An interface went away, came back, or changed its state to `up`.
    PORT_STATUS = "port_status"


@dataclass(frozen=True, slots=True)
class Notification:
    """One message to the control plane of switch `device_id`, in the order in which they arose.

    PACKET_IN: `data` is the packet as it left the CPU port (its controller header first, as deparsed).
    DIGEST: `ident` is the learn list's id, `data` the fields as the program lays them out.
    IDLE_TIMEOUT: `ident` is the table's id, `handle` the entry's handle.
    PORT_STATUS: `ident` is the port, `up` its new state.
    """

    kind: NotificationKind
    device_id: int
    time_ns: int
    ident: int = 0
    handle: int = 0
    up: bool = False
    data: bytes = field(default=b"", repr=False)
