"""Schema of a lab file: pydantic models, with units and ranges. Reading a file: `mrc_topo.labfile`."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from mrc_topo import addressing
from mrc_topo.base.document import (
    LAB_NAME,
    POLICY_CLASS,
    PROGRAM_FILE,
    SSH_NAME,
    Model,
    PlacedError,
    formerly,
    printable,
)
from mrc_topo.graph import GraphShape, shape_of
from mrc_topo.modes import MAX_ADAPTIVE, MODES, RoutingMode, RoutingSpec
from mrc_topo.tenants import Decapsulation, Segment, TenantSpec, segments
from mrc_topo.units import SIZES, TIMES, format_rate, format_size, parse_rate_bps, parse_size_bytes, parse_time_ns


def _one_machine(text: str) -> str:
    """Return the text of a numeric address of one machine. Raises ValueError for any other text."""
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(
            f"'{printable(text)}' is not an IP address; give a number such as 10.0.0.1, and no name"
        ) from None
    if found.is_unspecified or found.is_multicast or "%" in text:
        raise ValueError(f"{text} is not an address of one machine")
    return str(found)


class MachineSpec(Model):
    """A machine that runs a slice of a lab (docs/machines.md). The one without `ssh` is the machine on which `mrclab
    up` runs. Tunnels to the other machines end at `address`, on UDP ports from `port_base` on. `hosts` and `switches`
    are names, shell patterns (`p0-*`), or a range of hosts (`h0..h7`)."""

    ssh: Annotated[str, Field(max_length=255, pattern=SSH_NAME)] | None = None
    address: Annotated[str, Field(max_length=64), AfterValidator(_one_machine)]
    port_base: Annotated[int, Field(ge=1024, le=65535)] = 47000
    hosts: list[Annotated[str, Field(min_length=1, max_length=64)]] = []
    switches: list[Annotated[str, Field(min_length=1, max_length=64)]] = []


#: The unit of a threshold that is a multiple of the base RTT.
RTT = "rtt"
#: No queue holds more bytes.
MOST_BYTES = 2**31 - 1
_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "us"))
_NUMBER = re.compile(r"\s*(?P<number>\d+(?:\.\d{1,6})?)\s*(?P<unit>[A-Za-zµ]+)\s*\Z")


class MarkingError(ValueError):
    """A threshold that a port cannot have; `key` is the wrong key of `ecn`."""

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message)
        self.key = key


class DrainUnit(Enum):
    """In what the time is given in which a link sends what waits."""

    NS = "ns"
    RTT = RTT


@dataclass(frozen=True, slots=True)
class Drain:
    """What a link sends in a time: nanoseconds, or base RTTs of the lab."""

    value: Fraction
    unit: DrainUnit

    def __str__(self) -> str:
        """Return it as a lab file says it."""
        if self.unit is DrainUnit.RTT:
            return f"{Decimal(self.value.numerator) / Decimal(self.value.denominator):f}{RTT}"
        ns = int(self.value)
        factor, unit = next((each for each in _TIMES if ns % each[0] == 0 and ns >= each[0]), (1, "ns"))
        return f"{ns // factor}{unit}"

    def bytes_at(self, rate_bps: int, base_rtt_ns: int) -> int:
        """Return the bytes that a link of this rate (bits/s) sends meanwhile, rounded down."""
        ns = self.value if self.unit is DrainUnit.NS else self.value * base_rtt_ns
        return int(ns * rate_bps / (8 * 10**9))


def parse_depth(value: object) -> int | Drain:
    """Return bytes of `64KiB`, `9000B` or an integer, or what a link sends in `2ms` or `0.2rtt`.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(value, Drain):
        return value
    found = _NUMBER.match(value) if isinstance(value, str) else None
    unit = found["unit"].lower() if found else ""
    if found and unit == RTT:
        return Drain(Fraction(Decimal(found["number"])), DrainUnit.RTT)
    if unit in TIMES:
        return Drain(Fraction(parse_time_ns(value)), DrainUnit.NS)
    if isinstance(value, bool) or not (isinstance(value, int) or unit in SIZES):
        raise ValueError(
            f"'{printable(str(value))}' is no depth of a queue; write bytes such as 16KiB, a time such as 2ms, or a "
            "share of the base RTT such as 0.2rtt"
        )
    count = parse_size_bytes(value)
    if count < 0:
        raise ValueError(f"must be at least 0 bytes, not {count}")
    return count


def written(depth: int | Drain) -> int | str:
    """Return a depth as a lab file may say it."""
    return depth if isinstance(depth, int) else str(depth)


def described(depth: int | Drain) -> str:
    """Return a depth for a reader."""
    return format_size(depth) if isinstance(depth, int) else str(depth)


#: How much waits in a queue.
Depth = Annotated[
    int | Drain,
    BeforeValidator(parse_depth),
    PlainSerializer(written),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
]


@dataclass(frozen=True, slots=True)
class Marks:
    """Where a port marks, in bytes that wait: never up to `kmin`, always from `kmax` on."""

    kmin: int
    kmax: int


class EcnSpec(Model):
    """Marking probability rises from 0 at `kmin` to 1 at `kmax` in the egress data queue. A depth is bytes (`16KiB`),
    or what the port's link sends in a time (`2ms`) or in a share of the lab's base RTT (`0.2rtt`).

    Queues towards hosts mark only with `last_hop`: MRC's never do by default, DCQCN's always (`Lab.for_transport`).
    `last_hop_kmin` and `last_hop_kmax` are their own thresholds; null: those of the other queues.
    """

    kmin: Depth = 16_384
    kmax: Depth = 65_536
    last_hop: Annotated[bool, Field(json_schema_extra=formerly("host_ports"))] = False
    last_hop_kmin: Depth | None = None
    last_hop_kmax: Depth | None = None

    def thresholds(self, last_hop: bool) -> tuple[int | Drain, int | Drain]:
        """Return kmin and kmax of the queues towards hosts, or of the others."""
        if not last_hop:
            return self.kmin, self.kmax
        return (
            self.kmin if self.last_hop_kmin is None else self.last_hop_kmin,
            self.kmax if self.last_hop_kmax is None else self.last_hop_kmax,
        )

    @property
    def depths(self) -> dict[str, int | Drain]:
        """The thresholds that are given, by key."""
        keys = ("kmin", "kmax", "last_hop_kmin", "last_hop_kmax")
        return {key: depth for key in keys if (depth := getattr(self, key)) is not None}

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        for last_hop in (False, True):
            low, high = self.thresholds(last_hop)
            if isinstance(low, int) and isinstance(high, int):
                ordered = low < high
            elif isinstance(low, Drain) and isinstance(high, Drain) and low.unit is high.unit:
                ordered = low.value < high.value
            else:
                continue  # Which one is larger depends on the port (`marks`).
            if not ordered:
                prefix = "last_hop_" if last_hop else ""
                raise ValueError(f"{prefix}kmax ({written(high)}) must be above {prefix}kmin ({written(low)})")
        return self


def marks(ecn: EcnSpec, last_hop: bool, port: str, rate_bps: int, base_rtt_ns: int, limit: int) -> Marks:
    """Return the thresholds of a port in bytes.

    Args:
        port: its name, for errors.
        rate_bps: of its link, bits/s.
        base_rtt_ns: of the lab, the same on both clocks, ns.
        limit: bytes that the queue holds.

    Raises:
        MarkingError: they are not in order there, or no queue reaches them.
    """
    found = [
        each if isinstance(each, int) else each.bytes_at(rate_bps, base_rtt_ns) for each in ecn.thresholds(last_hop)
    ]
    low, high = found
    names = ["kmin", "kmax"]
    if last_hop:
        own = (ecn.last_hop_kmin is not None, ecn.last_hop_kmax is not None)
        names = [f"last_hop_{name}" if given else name for name, given in zip(names, own, strict=True)]
    said = [f"{name} ({described(depth)})" for name, depth in zip(names, ecn.thresholds(last_hop), strict=True)]
    where = f"on {port} at {format_rate(rate_bps)}"
    if high <= low:
        raise MarkingError(
            f"{said[1]} is {high} bytes {where}, not above {said[0]}, which is {low}; raise {names[1]}", names[1]
        )
    if low > limit:
        raise MarkingError(
            f"{said[0]} is {low} bytes {where}, but the queue holds {limit}; lower {names[0]} or raise limit", names[0]
        )
    if high > MOST_BYTES:
        raise MarkingError(
            f"{said[1]} is {high} bytes {where}, more than any queue holds ({MOST_BYTES}); lower it", names[1]
        )
    return Marks(low, high)


Rate = Annotated[int, BeforeValidator(parse_rate_bps), Field(ge=1_000, le=10**13)]
Time = Annotated[int, BeforeValidator(parse_time_ns), Field(ge=0, le=10**12)]
Size = Annotated[int, BeforeValidator(parse_size_bytes), Field(ge=0, le=2**31 - 1)]
SomeTime = Annotated[int, BeforeValidator(parse_time_ns), Field(ge=1, le=10**12)]
SomeSize = Annotated[int, BeforeValidator(parse_size_bytes), Field(ge=1, le=2**31 - 1)]
Probability = Annotated[float, Field(ge=0.0, le=1.0)]

#: The sum of Ethernet, outer IPv6 with an SRH of one segment, IPv6, UDP, BTH, METH, TSETH, RETH and ICRC; the frame's
#: preamble, gap and FCS are counted elsewhere (`link_overhead`).
HEADER_BYTES = 14 + 40 + 24 + 40 + 8 + 12 + 4 + 4 + 16 + 4

IMMEDIATE_BYTES = 4

#: The priority of data in every queue of the switches (`rules.py`); 7, the highest, is control.
DATA_PRIORITY = 0
#: Credits count blocks of this many bytes.
CREDIT_BLOCK = 64

#: The backends that forward packets (docs/reference-parts.md), and the compilers of the program that they run.
Forwarder = Literal["p4lite", "bmv2", "kernel"]
Compiler = Literal["p4lite", "p4c"]

#: What packets carry: their payload, or in simulated time only its length (docs/reference.md).
Payload = Literal["bytes", "length"]

#: A P4 program of the lab's own; relative paths start at the lab file.
ProgramFile = Annotated[str, Field(min_length=4, max_length=4096, pattern=PROGRAM_FILE)]

#: `module:Class`, `FILE.py:Class`, or `@NAME`, which an installed package offers.
PolicyClass = Annotated[str, Field(max_length=4096, pattern=POLICY_CLASS)]

#: A larger number of hosts is a mistake in the file, as no single machine can run it; the real clock allows fewer.
MAX_HOSTS = 2048
MAX_SWITCHES = 256
MAX_LINKS = 8192


class EvMode(Enum):
    """How the EV universe of a QP is made (`mrc-protocol.md §7`)."""

    EXPLICIT = "explicit"
    GENERATED = "generated"
    AUTO = "auto"


class LinkSpec(Model):
    """Rate and delay of one direction of a link; the switch at its sending end has the queue."""

    rate: Rate = 20_000_000
    delay: Time = 100_000


class LinkRates(Model):
    """The rates and delays of host-T0 links and of T0-T1 links."""

    host: LinkSpec = LinkSpec()
    fabric: LinkSpec = LinkSpec()


class TrimSpec(Model):
    """A trimmable packet that finds more than `threshold` bytes in its data queue is cut to its headers."""

    threshold: Size = 98_304


class WatchdogSpec(Model):
    """The watchdog of priority flow control. It works like SONiC's with action drop, which has these times by
    default."""

    detection: SomeTime = 200_000_000
    restoration: SomeTime = 200_000_000


class PfcSpec(Model):
    """Priority flow control (IEEE 802.1Qbb) of every port, for transports that need it (`Lab.for_transport`).

    Sizes count the bytes that came in through one port and wait in the switch. `xon` null: half of `xoff`; `headroom`
    null: what the port's link needs.
    """

    xoff: SomeSize = 32_768
    xon: Size | None = None
    headroom: Size | None = None
    priorities: Annotated[list[Annotated[int, Field(ge=0, le=7)]], Field(min_length=1, max_length=8)] = [0]
    quanta: Annotated[int, Field(ge=1, le=0xFFFF)] = 0xFFFF
    watchdog: WatchdogSpec | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.xon is not None and self.xon > self.xoff:
            raise ValueError(
                f"xon ({self.xon}) must not be above xoff ({self.xoff}): a pause would end before it begins"
            )
        return self


class CreditSpec(Model):
    """Link-level credits of every port, after InfiniBand's, for transports that need it (`Lab.for_transport`). A port
    sends data only while the `buffer` of the port at the other end of its link has room."""

    buffer: SomeSize = 65_536


class QueueSpec(Model):
    """The queues of an egress port. Null for `ecn`, `trim`, `pfc` or `credits` switches that function off."""

    limit: Size = 131_072
    control_limit: Size = 262_144
    ecn: EcnSpec | None = EcnSpec()
    trim: TrimSpec | None = TrimSpec()
    pfc: PfcSpec | None = None
    credits: CreditSpec | None = None

    @property
    def lossless(self) -> list[int]:
        """The priorities whose packets wait for room instead of being dropped for lack of it."""
        if self.credits is not None:
            return [DATA_PRIORITY]
        return [] if self.pfc is None else self.pfc.priorities

    def for_transport(self, transport: str) -> QueueSpec:
        """See `Lab.for_transport`."""
        if transport == "mrc":
            return self.model_copy(update={"pfc": None, "credits": None}) if self.lossless else self
        changes: dict[str, object] = {}
        if self.ecn is not None and not self.ecn.last_hop:
            changes["ecn"] = self.ecn.model_copy(update={"last_hop": True})
        if self.lossless and self.trim is not None:
            changes["trim"] = None
        return self.model_copy(update=changes) if changes else self

    def at_rate(self, rate_bps: int, own_bps: int, packet_bytes: int) -> QueueSpec:
        """Return queues that hold as much time on a link of `rate_bps` as these do on one of `own_bps`.

        They keep room for whole packets: at least 8, 5 before trimming, 1 and 4 before ECN. Thresholds of ECN that are
        times or shares of the base RTT stay as they are.
        """

        def size(value: int, packets: int) -> int:
            return max(value * rate_bps // own_bps, packets * packet_bytes)

        changes: dict[str, object] = {"limit": size(self.limit, 8)}
        if self.trim is not None:
            changes["trim"] = TrimSpec(threshold=size(self.trim.threshold, 5))
        if self.ecn is not None:
            bytes_of = {key: depth for key, depth in self.ecn.depths.items() if isinstance(depth, int)}
            sizes = {key: size(depth, 4 if key.endswith("kmax") else 1) for key, depth in bytes_of.items()}
            changes["ecn"] = self.ecn.model_copy(update=sizes)
        if self.pfc is not None:
            optional = {"xon": self.pfc.xon, "headroom": self.pfc.headroom}
            kept = {name: None if value is None else size(value, 1) for name, value in optional.items()}
            changes["pfc"] = self.pfc.model_copy(update={"xoff": size(self.pfc.xoff, 2), **kept})
        if self.credits is not None:
            changes["credits"] = CreditSpec(buffer=size(self.credits.buffer, 4))
        return self.model_copy(update=changes)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.pfc is not None and self.credits is not None:
            raise ValueError(
                "pfc and credits both say when a port may send; leave one of them out (Ethernet has pfc, InfiniBand "
                "credits)"
            )
        if self.limit == 0 or self.control_limit == 0:
            raise ValueError("a queue of 0 bytes forwards nothing; give limit and control_limit a size")
        if self.trim is not None and self.trim.threshold > self.limit:
            raise ValueError(f"trim.threshold ({self.trim.threshold}) must not be above limit ({self.limit})")
        for key, depth in ({} if self.ecn is None else self.ecn.depths).items():
            if key.endswith("kmin") and isinstance(depth, int) and depth > self.limit:
                raise ValueError(f"ecn.{key} ({depth}) must not be above limit ({self.limit})")
        return self


class EvSpec(Model):
    """The EV profile of every QP. `size` and `active` are totals over all planes (`mrc-protocol.md §7`); a lab rounds
    their defaults up to a multiple of its planes."""

    mode: EvMode = EvMode.EXPLICIT
    size: Annotated[int, Field(ge=1, le=4096)] = 128
    active: Annotated[int, Field(ge=1, le=4096)] = 64
    min_active: Annotated[int, Field(ge=1, le=4096)] = 4
    probe_interval: Time = 20_000_000
    probe_timeout: Time = 40_000_000
    probes_to_revive: Annotated[int, Field(ge=1, le=100)] = 2

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min_active <= self.active <= self.size:
            raise ValueError(
                f"min_active ({self.min_active}) <= active ({self.active}) <= size ({self.size}) must hold"
            )
        return self


class CcSpec(Model):
    """The congestion control profile (`mrc-protocol.md §8`); null: derived from rate and base RTT of the lab.

    `qa_gate` is UET's 3 plus two, because windows of a lab are a few packets: the share of each of seven senders to one
    receiver is within one packet of an eighth of such a window.
    """

    algorithm: Literal["nscc", "fixed"] = "nscc"
    base_rtt: SomeTime | None = None
    target_qdelay: SomeTime | None = None
    max_wnd: SomeSize | None = None
    initial_cwnd: SomeSize | None = None
    fixed_window: SomeSize = 1_000_000
    gamma: Probability = 0.8
    max_md_jump: Probability = 0.5
    disable_qa: bool = False
    qa_gate: Annotated[int, Field(ge=0, le=16)] = 5
    qa_threshold: Time | None = None
    fi: Annotated[float, Field(ge=0)] | None = None
    fi_scale: Annotated[float, Field(ge=0)] | None = None
    eta: Annotated[float, Field(ge=0)] | None = None
    adjust_bytes: Size | None = None
    adjust_period: SomeTime | None = None


class RoceSpec(Model):
    """Settings of the RoCE baseline: DCQCN's profile, scaled to the rate of host links, and whether it is used at all;
    and how early packets are treated: `reorder` keeps them without a message, for fabrics that lose nothing."""

    dcqcn: Literal["paper", "nvidia", "hpcc"] = "paper"
    congestion_control: bool = True
    repair: Literal["go_back_n", "selective_repeat", "reorder"] = "go_back_n"


class ReliabilitySpec(Model):
    """QP attributes (`mrc-protocol.md §4`). The ACK timeout is 1.024 us * 2**timeout. With `adaptive_reordering`, loss
    rule (c) waits longer for a while after it took a late packet for lost (§5)."""

    timeout: Annotated[int, Field(ge=0, le=24)] = 17
    linear_cnt: Annotated[int, Field(ge=0, le=7)] = 7
    exp_cnt: Annotated[int, Field(ge=0, le=25)] = 4
    mpr: Annotated[int, Field(ge=1, le=255)] = 64
    dynamic_mpr: bool = False
    sack_every: Annotated[int, Field(ge=1, le=1024)] = 1
    adaptive_reordering: bool = False


class NicSpec(Model):
    """How the hosts' agents behave as NICs on the real clock: they process what has arrived once in `rx_usecs`."""

    rx_usecs: Annotated[int, Field(ge=0, le=100_000)] = 1000


class VerbsSpec(Model):
    """The limits of programs on a host (docs/reference/verbs.md). `programs` is per host, the others are per program;
    `completions` and `work_requests` are per queue."""

    programs: Annotated[int, Field(ge=0, le=1024)] = 16
    memory: Annotated[int, BeforeValidator(parse_size_bytes), Field(ge=1 << 20, le=1 << 44)] = 1 << 30
    regions: Annotated[int, Field(ge=1, le=1 << 20)] = 1024
    queue_pairs: Annotated[int, Field(ge=1, le=1 << 16)] = 1024
    completion_queues: Annotated[int, Field(ge=1, le=1 << 16)] = 256
    completions: Annotated[int, Field(ge=1, le=1 << 22)] = 1 << 16
    work_requests: Annotated[int, Field(ge=1, le=1 << 16)] = 4096


class AgentsSpec(Model):
    """The agents of the real clock, which are the processes that run the hosts. `auto`: one per core; `per-host`; or a
    number."""

    processes: Annotated[int, Field(ge=1)] | Literal["auto", "per-host"] = "auto"
    verbs: VerbsSpec = VerbsSpec()

    def groups(self, hosts: int, cores: int) -> int:
        """Return the number of agent processes."""
        wanted = {"auto": cores, "per-host": hosts}.get(str(self.processes), self.processes)
        return max(1, min(int(wanted), hosts))


class PoliciesSpec(Model):
    """Python classes that replace the built-in ones (docs/extending.md), as `module:Class` or `FILE.py:Class`; the file
    is beside the lab file or below. `congestion`, `ev` and `loss` run in the hosts, `localiser` in the controller."""

    congestion: PolicyClass | None = None
    ev: PolicyClass | None = None
    loss: PolicyClass | None = None
    localiser: PolicyClass | None = None

    @property
    def named(self) -> dict[str, str]:
        """The policies that are given, by kind."""
        return {kind: str(given) for kind, given in self if given is not None}


class Override(Model):
    """The settings that differ on one link, in both directions. Its loss and corruption are in force from the start of
    a run."""

    rate: Rate | None = None
    delay: Time | None = None
    loss: Probability = 0.0
    corrupt: Probability = 0.0
    queue: QueueSpec | None = None

    def with_queue(self, change: Callable[[QueueSpec], QueueSpec]) -> Self:
        """Return the same with its queue, if it has one of its own, as `change` makes it."""
        changed = self.queue and change(self.queue)
        return self if changed is self.queue else self.model_copy(update={"queue": changed})


class GraphLink(Override):
    """A link of a graph, of which `[h0, s1]` is the short form: its two ends, each a node or `NODE:PORT`, and what it
    has otherwise than `links` and `queues` say."""

    ends: Annotated[list[Annotated[str, Field(max_length=64)]], Field(min_length=2, max_length=2)]

    @model_validator(mode="before")
    @classmethod
    def _short(cls, value: object) -> object:
        return {"ends": value} if isinstance(value, list) else value


class GraphPaths(Model):
    """The paths between two hosts in a plane that EVs name: the shortest ones, and those that are longer by up to
    `extra_hops` links; `limit` at most, the shortest first."""

    limit: Annotated[int, Field(ge=1, le=64)] = 16
    extra_hops: Annotated[int, Field(ge=0, le=9)] = 0


class NodeRole(Enum):
    """What a node of an imported file is in a lab."""

    HOST = "host"
    SWITCH = "switch"


class Parallel(Enum):
    """Treatment of several links between two switches of an imported file."""

    REFUSE = "refuse"
    MERGE = "merge"


class GraphSource(Model):
    """A file beside the lab file that has a graph, `from`: DOT, a containerlab topology, or JSON of P4 tutorials or
    p4-utils. Nodes whose kind is one of `host_kinds` are hosts; `roles` by name or shell pattern come before that.
    `parallel: merge` makes one link of several between two switches, with the rate of all."""

    source: Annotated[str, Field(max_length=255)] | None = Field(default=None, alias="from")
    host_kinds: list[Annotated[str, Field(max_length=64)]] = ["host", "linux"]
    roles: dict[Annotated[str, Field(max_length=64)], NodeRole] = {}
    parallel: Parallel = Parallel.REFUSE


class GraphSpec(GraphSource):
    """A fabric of any shape, in the place of a Clos: named `switches` and `hosts`, and the links between them; or a
    file that has them (`from`)."""

    kind: Literal["graph"] = "graph"
    switches: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=MAX_SWITCHES)] = []
    hosts: Annotated[list[Annotated[str, Field(max_length=64)]], Field(max_length=MAX_HOSTS)] = []
    links: Annotated[list[GraphLink], Field(max_length=MAX_LINKS)] = []
    paths: GraphPaths = GraphPaths()

    @cached_property
    def shape(self) -> GraphShape:
        """What the names and links make. Raises PlacedError."""
        return shape_of(self.switches, self.hosts, [(each.ends[0], each.ends[1]) for each in self.links])

    def with_queues(self, change: Callable[[QueueSpec], QueueSpec]) -> Self:
        """See `Lab.with_queues`."""
        links = [each.with_queue(change) for each in self.links]
        same = all(new is old for new, old in zip(links, self.links, strict=True))
        return self if same else self.model_copy(update={"links": links})

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.source is not None:
            raise PlacedError("a file is read only for a lab that comes from a file itself; give the links", ("from",))
        for key in {"host_kinds", "roles", "parallel"} & self.model_fields_set:
            raise PlacedError("is about the nodes of a file; give from, or leave it out", (key,))
        assert self.shape
        return self

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        # What was read from the file is written out, so that the lab needs the file no more.
        data: dict[str, Any] = write(self)
        return {key: value for key, value in data.items() if key not in ("source", "host_kinds", "roles", "parallel")}


#: The keys that a Clos has and a graph has not.
CLOS_KEYS = ("t0_per_plane", "t1_per_plane", "hosts_per_t0", "max_oversubscription")


class Lab(Model):
    """A whole laboratory. `clock`, `switch` and `compiler` are defaults that options override. All switches run
    `program` instead of `fabric.p4` (docs/extending.md). `machines` divide it on the real clock (docs/machines.md);
    without them this machine runs all of it. `topology` is a graph in the place of the Clos that the numbers make.
    Hosts of different `tenants`, and those in none, do not reach each other (docs/howto/tenants.md)."""

    name: Annotated[str, Field(pattern=LAB_NAME)]
    description: str = ""
    planes: Annotated[int, Field(ge=1, le=addressing.MAX_PLANES)] = 4
    t0_per_plane: Annotated[int, Field(ge=1, le=addressing.MAX_INDEX)] = 4
    t1_per_plane: Annotated[int, Field(ge=0, le=addressing.MAX_INDEX)] = 2
    hosts: Annotated[int, Field(ge=1, le=MAX_HOSTS)] = 8
    hosts_per_t0: Annotated[int, Field(ge=1, le=addressing.MAX_INDEX)] = 2
    topology: GraphSpec | None = None
    radix: Annotated[int, Field(ge=2, le=addressing.MAX_PORT)] | None = None
    max_oversubscription: Annotated[float, Field(gt=0)] | None = None
    links: LinkRates = LinkRates()
    link_overhead: Annotated[int, Field(ge=0, le=64)] = 0
    queues: QueueSpec = QueueSpec()
    path_mtu: Annotated[int, Field(ge=64, le=8192, multiple_of=4)] = 4096
    routing: RoutingSpec = RoutingSpec()
    ev: EvSpec = EvSpec()
    cc: CcSpec = CcSpec()
    reliability: ReliabilitySpec = ReliabilitySpec()
    roce: RoceSpec = RoceSpec()
    nic: NicSpec = NicSpec()
    agents: AgentsSpec = AgentsSpec()
    overrides: dict[str, Override] = {}
    clock: Literal["real", "virtual"] = "real"
    payload: Payload = "bytes"
    switch: Forwarder = "p4lite"
    compiler: Compiler = "p4lite"
    program: ProgramFile | None = None
    policies: PoliciesSpec = PoliciesSpec()
    machines: dict[str, MachineSpec] = {}
    tenants: dict[str, TenantSpec] = {}
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 1

    def for_transport(self, transport: str) -> Lab:
        """Return the lab as a transport needs it.

        MRC's traffic class is lossy, so its switches have neither priority flow control nor credits, and MRC chooses
        its paths itself. RoCE's class has what the file says, and ECN at the last hop, too, as DCQCN expects. A
        lossless class is never trimmed.
        """
        made = self.with_queues(lambda queue: queue.for_transport(transport))
        if self.routing.adaptive is None or transport != "mrc":
            return made
        return made.model_copy(update={"routing": self.routing.model_copy(update={"adaptive": None})})

    def with_queues(self, change: Callable[[QueueSpec], QueueSpec]) -> Lab:
        """Return the lab with all its queues as `change` makes them; the same lab if that changes none."""
        queues, topology = change(self.queues), self.topology and self.topology.with_queues(change)
        overrides = {name: each.with_queue(change) for name, each in self.overrides.items()}
        if queues is self.queues and overrides == self.overrides and topology is self.topology:
            return self
        return self.model_copy(update={"queues": queues, "overrides": overrides, "topology": topology})

    @property
    def all_queues(self) -> dict[str, QueueSpec]:
        """The queues that the file gives, by their place in it."""
        places: dict[str, QueueSpec | None] = {"queues": self.queues}
        places |= {f"overrides.{name}.queue": each.queue for name, each in self.overrides.items()}
        links = [] if self.topology is None else self.topology.links
        places |= {f"topology.links.{at}.queue": each.queue for at, each in enumerate(links)}
        return {place: queue for place, queue in places.items() if queue is not None}

    @property
    def host_names(self) -> list[str]:
        """The names of all hosts, by number."""
        return (
            [addressing.host_name(host) for host in range(self.hosts)] if self.topology is None else self.topology.hosts
        )

    @cached_property
    def segments(self) -> dict[str, Segment]:
        """The tenant of each host, by name. Raises PlacedError."""
        return segments(self.tenants, self.host_names)

    @property
    def interface_mtu(self) -> int:
        """The MTU that the interfaces need: a full packet with all headers, without Ethernet's 14 bytes."""
        # A last packet may have immediate data, too, which is shorter than the SRH that other modes leave room for.
        behind = IMMEDIATE_BYTES if self.routing.mode is RoutingMode.SRV6_SRH else 0
        return self.path_mtu + HEADER_BYTES + behind - 14

    @property
    def host_rate_bps(self) -> int:
        """The rate of all ports of one host together, without overrides."""
        return self.planes * self.links.host.rate

    @property
    def oversubscription(self) -> float:
        """The downlink capacity of a full T0 relative to its uplink capacity; 0 with a single T0, whose traffic never
        goes up, and of a graph, which has no uplinks."""
        if self.topology is not None or self.t1_per_plane == 0:
            return 0.0
        down = self.hosts_per_t0 * self.links.host.rate
        return down / (self.t1_per_plane * self.links.fabric.rate)

    @model_validator(mode="after")
    def _graph(self) -> Self:
        if self.topology is None:
            return self
        for key in CLOS_KEYS:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise PlacedError("is of a Clos; leave it out beside topology, which has the links", (key,))
        shape = self.topology.shape
        for key, value in (("planes", shape.planes), ("hosts", len(self.topology.hosts))):
            if key in self.model_fields_set and getattr(self, key) != value:
                raise PlacedError(f"topology makes it {value}; leave it out", (key,))
            self.__dict__[key] = value
        if self.routing.mode not in (RoutingMode.SRV6_USID, RoutingMode.SRV6_SRH) or self.routing.adaptive is not None:
            raise PlacedError(
                "only source routes lead through a graph, because its switches have no uplinks to choose from; use "
                "mode srv6_usid or srv6_srh without adaptive",
                ("routing",),
            )
        if self.radix is not None:
            shape.check_radix(self.topology.switches, self.radix)
        return self

    @model_validator(mode="after")
    def _shape(self) -> Self:
        if self.topology is not None:
            return self
        places = self.t0_per_plane * self.hosts_per_t0
        if self.hosts > places:
            raise ValueError(
                f"{self.hosts} hosts do not fit {self.t0_per_plane} T0 x {self.hosts_per_t0} hosts_per_t0 = "
                f"{places} ports; raise t0_per_plane or hosts_per_t0, or lower hosts"
            )
        if self.hosts <= places - self.hosts_per_t0:
            raise ValueError(
                f"{self.hosts} hosts leave a T0 of {self.t0_per_plane} empty; lower t0_per_plane or raise hosts"
            )
        if self.t0_per_plane > 1 and self.t1_per_plane == 0:
            raise ValueError("t1_per_plane is 0, so the T0s are not connected; give at least 1")
        switches = self.planes * (self.t0_per_plane + self.t1_per_plane)
        if switches > MAX_SWITCHES:
            raise ValueError(
                f"{switches} switches are more than the {MAX_SWITCHES} one machine is asked to run; "
                "`mrclab topo plan` computes large fabrics without building them"
            )
        return self

    @model_validator(mode="after")
    def _credits(self) -> Self:
        frame = -(-(self.path_mtu + HEADER_BYTES) // CREDIT_BLOCK) * CREDIT_BLOCK
        for place, queue in self.all_queues.items():
            if queue.credits is not None and queue.credits.buffer < frame:
                raise ValueError(
                    f"{place}.credits.buffer ({queue.credits.buffer}) has no room for a full packet; give it at least "
                    f"{frame} bytes, or lower path_mtu"
                )
        # Both ends of a link have the same buffer; a lossy link beside lossless ones would break that rule.
        if len({queue.credits is None for queue in self.all_queues.values()}) > 1:
            raise ValueError("queues.credits are of all links or of none; give them in queues and in every other queue")
        return self

    @model_validator(mode="after")
    def _adaptive(self) -> Self:
        if self.topology is None and self.routing.adaptive is not None and self.t1_per_plane > MAX_ADAPTIVE:
            raise ValueError(
                f"routing.adaptive compares {MAX_ADAPTIVE} uplinks at most, t1_per_plane is {self.t1_per_plane}; "
                "lower it"
            )
        return self

    @model_validator(mode="after")
    def _tenants(self) -> Self:
        for name, spec in self.tenants.items():
            if spec.decapsulation is Decapsulation.T0 and not MODES[self.routing.mode].carriers:
                raise PlacedError(
                    f"packets of routing.mode {self.routing.mode.value} have no outer header to take off; leave it "
                    "out, or use srv6_usid or srv6_srh",
                    ("tenants", name, "decapsulation"),
                )
        try:
            assert self.segments
        except PlacedError as error:
            raise PlacedError(str(error), ("tenants", *error.key)) from None
        return self

    @model_validator(mode="after")
    def _radix(self) -> Self:
        if self.topology is not None:
            return self
        limit = self.radix or addressing.MAX_PORT
        for tier, ports in (("T0", self.hosts_per_t0 + self.t1_per_plane), ("T1", self.t0_per_plane)):
            if ports > limit:
                raise ValueError(f"a {tier} needs {ports} ports, the radix is {limit}; use fewer or raise radix")
        return self

    @model_validator(mode="after")
    def _subscription(self) -> Self:
        if self.max_oversubscription is not None and self.oversubscription > self.max_oversubscription:
            raise ValueError(
                f"T0s are oversubscribed {self.oversubscription:.3g}:1, max_oversubscription allows "
                f"{self.max_oversubscription:.3g}; add T1s or raise links.fabric.rate"
            )
        return self

    @model_validator(mode="after")
    def _profile(self) -> Self:
        # Counts that the file does not give are the defaults, rounded up so that all planes have equal shares.
        defaults = {
            key: -(-getattr(self.ev, key) // self.planes) * self.planes
            for key in ("size", "active")
            if key not in self.ev.model_fields_set
        }
        if any(getattr(self.ev, key) != value for key, value in defaults.items()):
            self.__dict__["ev"] = self.ev.model_copy(update=defaults)
        if self.ev.size % self.planes or self.ev.active % self.planes:
            raise ValueError(
                f"ev.size ({self.ev.size}) and ev.active ({self.ev.active}) must be multiples of the "
                f"{self.planes} planes, which are loaded equally"
            )
        return self
