"""Interface to a device under test: its queue pairs, its clock, and the packets on its ports."""

from __future__ import annotations

import abc
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mrc_topo.base.errors import MrclabError

#: The exponent of exp_cnt that means: for ever.
FOR_EVER: Final = 25


class DeviceError(MrclabError):
    """A device that cannot be used, or that refused a request; the text says what and why."""


class Need(Enum):
    """Abilities that a case needs and not every device offers. Cases that need more than a device offers do not run."""

    EXACT_TIME = "a clock that the kit advances"
    MEMORY = "a look at the device's memory"
    POST = "requests posted on demand"
    SETTINGS = "settings of the transport chosen for each case"
    EVS = "a look at the states of EVs"
    PORTS = "ports that go down and up on demand"
    PRESSURE = "a receiver that reports pressure, refuses packets or changes its window on demand"
    DENY = "EVs denied on demand"
    REPLACE = "EVs replaced by others on demand"
    STALL = "ports that take no packet for a while, on demand"
    SECOND_QP = "more than one queue pair"
    SECOND_PEER = "packets to a second address of the kit"
    STATES = "state changes of queue pairs on demand"


class Outcome(Enum):
    """How a work request ended; the names are those of ibv_wc_status."""

    SUCCESS = "SUCCESS"
    RETRY_EXC_ERR = "RETRY_EXC_ERR"
    REM_ACCESS_ERR = "REM_ACCESS_ERR"
    REM_INV_REQ_ERR = "REM_INV_REQ_ERR"
    REM_OP_ERR = "REM_OP_ERR"
    LOC_LEN_ERR = "LOC_LEN_ERR"
    LOC_PROT_ERR = "LOC_PROT_ERR"
    LOC_QP_OP_ERR = "LOC_QP_OP_ERR"
    WR_FLUSH_ERR = "WR_FLUSH_ERR"


class Control(Enum):
    """The congestion control of a queue pair."""

    FIXED = "fixed"
    NSCC = "nscc"


class PathState(Enum):
    """States of an EV (`mrc-protocol.md §7`)."""

    GOOD = 0
    SKIP = 1
    ASSUMED_BAD = 2
    DENIED = 3


class PairState(Enum):
    """States of a queue pair (`mrc-protocol.md §4`)."""

    RESET = "RESET"
    INIT = "INIT"
    RTR = "RTR"
    RTS = "RTS"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a case asks of the device. Times are ns, sizes bytes, `mpr` units of 128 PSNs.

    `timeout`: None takes the device's own, which is longer where its clock is the real one. `program_memory`: what is
    posted lies in the memory of a program, which the device reads in pieces.
    """

    mtu: int = 1024
    planes: int = 2
    timeout: int | None = None
    linear_cnt: int = 3
    exp_cnt: int = 2
    mpr: int = 64
    mpr_dest: int = 64
    dynamic_mpr: bool = False
    max_wimm: int = 64
    max_wimm_dest: int = 64
    trim_nack: bool = True
    service_time: bool = False
    sack_every: int = 1
    sack_delay_ns: int = 20_000
    hole_cycle: int = 4
    always_skip_after: int = 0
    same_ev_inference: bool = True
    rack_inference: bool = True
    adaptive_reordering: bool = False
    tail_probe: bool = True
    fabric_trims: bool = True
    timestamps: bool = True
    control: Control = Control.FIXED
    window: int = 1_000_000
    line_rate_bps: int = 10_000_000_000
    base_rtt_ns: int = 20_000
    nscc: Mapping[str, float] = field(default_factory=dict)
    ev_count: int = 16
    ev_active: int = 8
    ev_min_active: int = 2
    probe_interval_ns: int = 1_000_000
    probe_timeout_ns: int = 2_000_000
    probes_to_revive: int = 2
    probe_burst: int = 16
    reverse_probes: bool = False
    rescan_rounds: int = 64
    status_repeat_ns: int = 100_000
    balance_slack: int = 4
    balance_patience_ns: int = 50_000
    program_memory: bool = False
    p_key: int = 0xFFFF
    first_psn: int | None = None


@dataclass(frozen=True, slots=True)
class Remote:
    """The kit as the device's peer: what a queue pair learns when it connects (`mrc-protocol.md §4`)."""

    address: bytes
    number: int
    psn: int
    mtu: int
    ports: int
    ports_up: int
    port_status: int
    instance: int
    mpr_dest: int = 64
    max_wimm_dest: int = 64
    dynamic_mpr: bool = False
    trim_nack: bool = True
    service_time: bool = False
    p_key: int = 0xFFFF


@dataclass(frozen=True, slots=True)
class Local:
    """A queue pair of the device: its number, the PSN that it sends first, and its address."""

    address: bytes
    number: int
    psn: int


@dataclass(frozen=True, slots=True)
class Region:
    """Memory of the device that the kit may write to."""

    va: int
    rkey: int
    length: int


@dataclass(frozen=True, slots=True)
class Done:
    """A completion of the device."""

    wr_id: int
    outcome: Outcome
    receive: bool
    length: int
    immediate: int | None


@dataclass(frozen=True, slots=True)
class EvEntry:
    """One EV of a queue pair."""

    value: int
    plane: int
    state: PathState
    active: bool


@dataclass(frozen=True, slots=True)
class Arrival:
    """A packet that the device sent."""

    at_ns: int
    port: int
    data: bytes


class Device(abc.ABC):
    """A device under test. Time is ns from any start; requests that it does not offer raise DeviceError."""

    name: str
    offers: frozenset[Need] = frozenset()
    #: The address of the kit's packets.
    kit_address: bytes = ipaddress.IPv6Address("fd00:c0::2").packed
    #: The UDP port of MRC's packets; None: the usual one.
    udp_port: int | None = None
    #: Whether a wrong ICRC of the device's packets breaks every rule.
    check_icrc: bool = True
    #: How much earlier or later than the rule says a packet may come (ns); how long an answer may take; and how long
    #: the kit waits for what must not come.
    tolerance_ns: int = 0
    answer_ns: int = 0
    quiet_ns: int = 0
    #: The exponent of the local ACK timeout that the device's clock allows.
    timeout: int = 10

    @abc.abstractmethod
    def now(self) -> int:
        """Return the time in ns."""

    @abc.abstractmethod
    def start(self, settings: Settings, seed: int) -> None:
        """Begin a case with nothing left of the one before."""

    @abc.abstractmethod
    def create(self) -> Local:
        """Return a new queue pair of the device."""

    @abc.abstractmethod
    def connect(self, local: Local, remote: Remote) -> None:
        """Connect a queue pair to the kit, up to RTS. Raises DeviceError when the device refuses."""

    @abc.abstractmethod
    def send(self, port: int, packet: bytes) -> None:
        """Deliver an IPv6 packet to the device's port."""

    @abc.abstractmethod
    def receive(self, until_ns: int) -> Arrival | None:
        """Return the next packet that the device sends until then, None when there is none; the clock is there then."""

    @abc.abstractmethod
    def completions(self, local: Local) -> list[Done]:
        """Return the completions of a queue pair that were not returned before."""

    @abc.abstractmethod
    def close(self) -> None:
        """Give everything back."""

    def region(self, length: int, *, writable: bool = True) -> Region:
        """Register memory of the device, all zeros."""
        raise DeviceError(f"{self.name} registers no memory on demand")

    def deregister(self, region: Region) -> None:
        """Withdraw a region."""
        raise DeviceError(f"{self.name} withdraws no memory on demand")

    def read(self, region: Region) -> bytes:
        """Return what is in a region."""
        raise DeviceError(f"{self.name} does not show its memory")

    def post_write(
        self,
        local: Local,
        wr_id: int,
        data: bytes,
        va: int,
        rkey: int,
        immediate: int | None = None,
        solicited: bool = False,
    ) -> None:
        """Post a WRITE of `data`, or a WRITE with immediate."""
        raise DeviceError(f"{self.name} posts nothing on demand")

    def post_recv(self, local: Local, wr_id: int) -> None:
        """Post a receive for one immediate."""
        raise DeviceError(f"{self.name} posts nothing on demand")

    def state(self, local: Local) -> PairState:
        """Return the state of a queue pair."""
        raise DeviceError(f"{self.name} does not show the states of its queue pairs")

    def modify(self, local: Local, state: PairState) -> None:
        """Move a queue pair to INIT, ERROR or RESET."""
        raise DeviceError(f"{self.name} changes no state on demand")

    def close_pair(self, local: Local) -> None:
        """Do what happens when the user of a queue pair is gone."""
        raise DeviceError(f"{self.name} ends no user on demand")

    def evs(self, local: Local) -> Sequence[EvEntry]:
        """Return the EVs of a queue pair."""
        raise DeviceError(f"{self.name} does not show its EVs")

    def deny(self, local: Local, ev: int, denied: bool) -> None:
        """Deny an EV, or allow it again."""
        raise DeviceError(f"{self.name} denies no EV on demand")

    def replace_ev(self, local: Local, old: int, new: int) -> None:
        """Replace an EV by another value."""
        raise DeviceError(f"{self.name} replaces no EV on demand")

    def stall_port(self, port: int, stalled: bool) -> None:
        """Have a port that is up take no packet, or take packets again."""
        raise DeviceError(f"{self.name} stalls no port on demand")

    def set_port(self, port: int, up: bool) -> None:
        """Take the link of a port down or up."""
        raise DeviceError(f"{self.name} changes no port on demand")

    def set_pressure(self, penalty: int, *, restore: bool = False, refuse: int | None = None) -> None:
        """Report a penalty in SACKs, or refuse new packets with a NACK of this reason."""
        raise DeviceError(f"{self.name} reports no pressure on demand")

    def set_mpr(self, local: Local, units: int) -> None:
        """Change the responder's window (dynamic MPR)."""
        raise DeviceError(f"{self.name} changes no window on demand")
