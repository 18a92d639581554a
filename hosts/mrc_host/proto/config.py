"""The endpoint's configuration: one tree of frozen dataclasses, checked when it is built.

Durations are integer nanoseconds, sizes bytes, rates bits per second. Defaults are those of
`mrc-protocol.md`; a value out of range raises `ConfigError` with the field, the value and the range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.congestion.nscc import NsccConfig
from mrc_host.proto.events import QpState
from mrc_host.proto.limits import ConfigError, check_range

PAYLOADS = ("bytes", "length")
NO_IPV4 = "the endpoint speaks IPv6 only: IPv4 is read and written by the codec alone (mrc-protocol.md §2)"


def check_address(address: bytes) -> None:
    """Raise ConfigError unless `address` is an IPv6 address."""
    if len(address) == 4:
        raise ConfigError(f"address {'.'.join(map(str, address))} is one of IPv4; {NO_IPV4}")
    if len(address) != 16:
        raise ConfigError(f"address has {len(address)} bytes; an IPv6 address has 16")


class EvFormat(Enum):
    """Width and meaning of an EV (`mrc-protocol.md §7`). All travel as 32-bit entropy on the wire."""

    UDP16 = 16  # ECMP: the UDP source port alone
    STEV32 = 32  # structured EV: each switch reads its hop field
    SRV6_USID128 = 128  # the outer destination address is a uSID carrier
    SRV6_SRH256 = 256  # outer address and one more segment in a routing header


class EvMode(Enum):
    """How the EV universe of a profile comes about (`mrc-protocol.md §7`)."""

    EXPLICIT = "explicit"  # a controller lists the values per plane
    GENERATED = "generated"  # fields with masks, filled from EV bits
    AUTO = "auto"  # random values of the format's width


class Srv6Path(NamedTuple):
    """Outer addresses of one EV towards one destination: `segments` non-empty adds an SRH.

    All are 16 bytes. `source` empty: the endpoint's own address. `segments` are in travel order,
    *after* `destination`; the last one is the final destination of the outer packet.
    """

    destination: bytes
    segments: tuple[bytes, ...] = ()
    source: bytes = b""


class EvResolver(Protocol):
    """Maps (32-bit EV, inner destination address) to the SRv6 path; the topology package has one."""

    def __call__(self, ev: int, destination: bytes) -> Srv6Path: ...


@dataclass(frozen=True, slots=True)
class WireConfig:
    """Encapsulation (`mrc-protocol.md §2`). `mtu` is the path MTU: payload bytes of a full packet."""

    mtu: int = 4096
    udp_port: int = 4791
    p_key: int = 0xFFFF
    check_icrc: bool = True  # drop what fails the check; sending always computes it
    payload: str = "bytes"  # "length": packets have no payload, only its length, and nothing is placed
    timestamps: bool = True  # data carries a TSETH
    fabric_trims: bool = True  # data is sent DSCP_TRIMMABLE, else DSCP_NO_TRIM
    dscp_no_trim: int = 0
    dscp_trimmable: int = 4
    dscp_trimmable_retx: int = 8
    dscp_trimmed: int = 12
    dscp_trimmed_lasthop: int = 16
    dscp_control: int = 46

    def __post_init__(self) -> None:
        check_range("wire.mtu", self.mtu, 64, 9000)
        if self.mtu % 4:
            raise ConfigError(f"wire.mtu is {self.mtu}; it must be a multiple of 4")
        if self.payload not in PAYLOADS:
            raise ConfigError(f"wire.payload is '{self.payload}'; known: {', '.join(PAYLOADS)}")
        check_range("wire.udp_port", self.udp_port, 1, 0xFFFF)
        check_range("wire.p_key", self.p_key, 0, 0xFFFF)
        for name in ("no_trim", "trimmable", "trimmable_retx", "trimmed", "trimmed_lasthop", "control"):
            check_range(f"wire.dscp_{name}", getattr(self, f"dscp_{name}"), 0, 63)

    @property
    def length_only(self) -> bool:
        """Whether packets have only the length of their payload."""
        return self.payload == "length"


class QpAttribute(NamedTuple):
    """An attribute of a queue pair: its range, and what queue pairs and programs do with it.

    `before`: the transition before which a program may set it; None: it is set in the configuration only. An integer
    is then an argument of that transition. `offered`: it is part of the document for the peer.
    """

    low: int
    high: int
    before: QpState | None = None
    offered: bool = False


#: Attributes of queue pairs by their names in `ReliabilityConfig` (`mrc-protocol.md §4`). Checks, documents for the
#: peer, arguments of transitions, and what programs may set follow from here.
QP_ATTRIBUTES: Final[Mapping[str, QpAttribute]] = {
    "max_wimm_dest": QpAttribute(1, 32767, QpState.RTR, offered=True),
    "mpr_dest": QpAttribute(1, 255, QpState.RTR, offered=True),
    "dynamic_mpr": QpAttribute(0, 1, QpState.RTR, offered=True),
    "trim_nack": QpAttribute(0, 1, QpState.RTR, offered=True),
    "service_time": QpAttribute(0, 1, QpState.RTR, offered=True),
    "max_wimm": QpAttribute(1, 32767, QpState.RTS),
    "mpr": QpAttribute(1, 255, QpState.RTS),
    "timeout": QpAttribute(0, 24, QpState.RTS),
    "linear_cnt": QpAttribute(0, 7, QpState.RTS),
    "exp_cnt": QpAttribute(0, 25, QpState.RTS),
    "sack_every": QpAttribute(1, 1024),
    "sack_delay_ns": QpAttribute(1, 10**9),
    "hole_cycle": QpAttribute(2, 1024),
    "always_skip_after": QpAttribute(0, 1 << 20),
}


@dataclass(frozen=True, slots=True)
class ReliabilityConfig:
    """QP attributes and policies of requestor and responder (`mrc-protocol.md §4-§6`)."""

    timeout: int = 14  # local ACK timeout = 1.024 us * 2**timeout
    linear_cnt: int = 7  # retries with the fixed timeout
    exp_cnt: int = 8  # then retries that double it; 25: for ever
    mpr: int = 64  # what our requestor asks for, in units of 128 PSNs
    mpr_dest: int = 64  # the window our responder keeps, in units of 128 PSNs
    dynamic_mpr: bool = False
    max_wimm: int = 1024  # WriteIMM our requestor may have in flight
    max_wimm_dest: int = 1024  # WriteIMM our responder stashes
    trim_nack: bool = True  # our responder answers trimmed packets with a NACK
    service_time: bool = False  # timestamps are echoed advanced by the responder's hold time
    sack_every: int = 1  # new data packets per SACK
    sack_delay_ns: int = 20_000  # a SACK held back by sack_every leaves after this at the latest
    hole_cycle: int = 4  # with more than 64 PSNs to show, every n-th SACK shows older holes
    always_skip_after: int = 0  # CE marks in a row on one EV after which the SACK says ALWAYS_SKIP; 0: never
    same_ev_inference: bool = True  # loss rule (b)
    rack_inference: bool = True  # loss rule (c)
    adaptive_reordering: bool = False  # rule (c) waits longer for a while after what it took for lost has arrived
    tail_probe: bool = True  # a reliability probe after two RTTs of silence, before the timeout

    def __post_init__(self) -> None:
        for name, attribute in QP_ATTRIBUTES.items():
            check_range(f"reliability.{name}", getattr(self, name), attribute.low, attribute.high)

    @property
    def ack_timeout_ns(self) -> int:
        """Local ACK timeout of a first transmission (`mrc-protocol.md §4`)."""
        return 1024 << self.timeout


@dataclass(frozen=True, slots=True)
class EvField:
    """One field of a GENERATED EV, most significant field first (`mrc-protocol.md §7`).

    Bits set in `mask` are filled, MSB first, with the next most significant EV bit (or, with
    `plane=True`, with the plane's number); the others come from `init`. `minimum..maximum` bound the
    number that the generated bits of the mask make, not the whole field; None or both 0: no bounds.
    """

    width: int
    init: int = 0
    minimum: int = 0
    maximum: int | None = None
    mask: int = 0
    plane: bool = False

    def __post_init__(self) -> None:
        check_range("ev field width", self.width, 1, 128)
        top = (1 << self.width) - 1
        check_range("ev field init", self.init, 0, top)
        check_range("ev field mask", self.mask, 0, top)
        if self.mask:
            most = (1 << self.mask.bit_count()) - 1
            check_range("ev field minimum", self.minimum, 0, most)
            if self.maximum is not None:
                check_range("ev field maximum", self.maximum, self.minimum, most)

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest number that may be generated for the bits of the mask."""
        most = (1 << self.mask.bit_count()) - 1
        if self.maximum is None or self.minimum == self.maximum == 0:
            return self.minimum, most
        return self.minimum, self.maximum


@dataclass(frozen=True, slots=True)
class EvConfig:
    """EV profile (`mrc-protocol.md §7`).

    `values[p]` lists the EVs of plane p (EXPLICIT). `fields` describe GENERATED values, and `format_widths` how wide
    each is in the format (empty: as wide as it is); what they leave is 0 on the right. `count` and `active` are totals
    over all planes. `resolver` gives the SRv6 path of an EV, for SRv6 formats: the fields are then those of the EV.
    """

    mode: EvMode = EvMode.AUTO
    fmt: EvFormat = EvFormat.STEV32
    count: int = 256
    active: int = 128
    values: Sequence[Sequence[int]] = ()
    fields: Sequence[EvField] = ()
    format_widths: Sequence[int] = ()
    ev_bits: int = 32
    resolver: EvResolver | Callable[[int, bytes], Srv6Path] | None = None
    ev_min_active: int = 4
    probe_interval_ns: int = 1_000_000  # each ASSUMED_BAD EV is probed about once per interval
    probe_jitter: float = 0.25  # each interval varies by up to this fraction
    probe_timeout_ns: int = 2_000_000
    probe_burst: int = 16  # probes per QP and interval at most
    probes_to_revive: int = 2
    reverse_probe_ns: int = 0  # interval of reverse EV probes while inbound; 0: one per smoothed RTT
    reverse_probes: bool = True
    rescan_rounds: int = 64  # the scan order of a plane is redrawn after this many rounds

    def __post_init__(self) -> None:
        check_range("ev.count", self.count, 1, 4096)
        check_range("ev.active", self.active, 1, 4096)
        check_range("ev.ev_min_active", self.ev_min_active, 1, 4096)
        check_range("ev.ev_bits", self.ev_bits, 1, 32)
        check_range("ev.probe_interval_ns", self.probe_interval_ns, 1, 10**12)
        check_range("ev.probe_timeout_ns", self.probe_timeout_ns, 1, 10**12)
        check_range("ev.probe_jitter", self.probe_jitter, 0.0, 0.9)
        check_range("ev.probe_burst", self.probe_burst, 1, 4096)
        check_range("ev.probes_to_revive", self.probes_to_revive, 1, 100)
        check_range("ev.rescan_rounds", self.rescan_rounds, 1, 10**6)
        if self.mode is EvMode.EXPLICIT and not any(self.values):
            raise ConfigError("ev.values is empty; EXPLICIT mode needs a list of EVs per plane")
        if self.mode is EvMode.GENERATED and not self.fields:
            raise ConfigError("ev.fields is empty; GENERATED mode needs at least one field")
        if self.mode is EvMode.GENERATED:
            self._check_fields()
        srv6 = self.fmt in (EvFormat.SRV6_USID128, EvFormat.SRV6_SRH256)
        if srv6 and self.resolver is None and self.mode is not EvMode.GENERATED:
            raise ConfigError(f"ev.fmt {self.fmt.name} needs ev.resolver or GENERATED fields")

    @property
    def formatted_bits(self) -> int:
        """How many bits the fields make: those of the format, or of the EV when a resolver makes the path from it."""
        return min(self.fmt.value, 32) if self.resolver is not None else self.fmt.value

    def _check_fields(self) -> None:
        widths = list(self.format_widths) or [field.width for field in self.fields]
        if len(widths) < len(self.fields):
            raise ConfigError(f"ev.format_widths lists {len(widths)} fields; ev.fields has {len(self.fields)}")
        for number, (each, width) in enumerate(zip(self.fields, widths, strict=False)):
            if each.width > width:
                raise ConfigError(f"ev.fields[{number}] is {each.width} bits wide; ev.format_widths gives it {width}")
        if sum(widths) > self.formatted_bits:
            raise ConfigError(f"ev.fields take {sum(widths)} bits; {self.fmt.name} has {self.formatted_bits}")
        taken = sum(field.mask.bit_count() for field in self.fields if not field.plane)
        if taken > self.ev_bits:
            raise ConfigError(f"the masks of ev.fields take {taken} EV bits; ev.ev_bits is {self.ev_bits}")


@dataclass(frozen=True, slots=True)
class PortsConfig:
    """NIC ports; port p is in plane p (`mrc-protocol.md §7, §9`)."""

    count: int = 1
    status_repeat_ns: int = 100_000  # a port status update is repeated until answered, doubling
    status_repeat_max_ns: int = 10_000_000
    balance_slack_packets: int = 4  # how far one plane may run ahead of the least loaded one
    balance_patience_ns: int = 50_000  # a port without room for this long is not waited for

    def __post_init__(self) -> None:
        check_range("ports.count", self.count, 1, 32)
        check_range("ports.status_repeat_ns", self.status_repeat_ns, 1, 10**12)
        check_range("ports.status_repeat_max_ns", self.status_repeat_max_ns, self.status_repeat_ns, 10**12)
        check_range("ports.balance_slack_packets", self.balance_slack_packets, 1, 4096)
        check_range("ports.balance_patience_ns", self.balance_patience_ns, 1, 10**12)


@dataclass(frozen=True, slots=True)
class Policies:
    """A user's code in place of the built-in one (`mrc_host.policy`); None: built-in.

    `congestion(profile, mtu)` makes the controller of a destination and CC profile, `ev(universe, rng, observer)` the
    EVs of a queue pair, and `loss(board, rtt, same_ev, rack)` its loss detector. They are subclasses of
    `CongestionControl`, `EvSet` and `LossDetector`.
    """

    congestion: Callable[[CcConfig, int], Any] | None = None
    ev: Callable[..., Any] | None = None
    loss: Callable[..., Any] | None = None


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """The configuration of an endpoint. `address` is its 16-byte IPv6 address.

    It holds no randomness: the caller passes a seeded `random.Random` to `Endpoint`.
    """

    address: bytes
    wire: WireConfig = field(default_factory=WireConfig)
    reliability: ReliabilityConfig = field(default_factory=ReliabilityConfig)
    ev: EvConfig = field(default_factory=EvConfig)
    cc: CcConfig = field(default_factory=NsccConfig)
    ports: PortsConfig = field(default_factory=PortsConfig)
    policies: Policies = field(default_factory=Policies)
    initial_psn: int | None = None  # None: drawn from the generator, as a NIC would
    control_queue_frames: int = 65536  # per port; beyond it control frames are dropped and counted

    def __post_init__(self) -> None:
        check_address(self.address)
        if self.initial_psn is not None:
            check_range("initial_psn", self.initial_psn, 0, 0xFFFFFF)
        check_range("control_queue_frames", self.control_queue_frames, 16, 1 << 24)
