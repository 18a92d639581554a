"""Requests of a program to the agent of its host: a class for each request, with the class of its answer.

On the socket a request is `{"op": ..., arguments}`. Sizes are in bytes. File descriptors travel beside an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, NamedTuple

from mrc_host.access import Access
from mrc_host.verbs import layout
from mrc_host.verbs.layout import DeviceCap, QpState
from mrc_topo.base.plain import Range
from mrc_topo.base.rpc import Done, Request

Number = Annotated[int, Range(0, layout.WORD)]
QpNumber = Annotated[int, Range(0, 0xFFFFFF)]
_Count = Annotated[int, Range(0, 1 << 30)]
_Positive = Annotated[int, Range(1, 1 << 30)]
_Hint = Annotated[int, Range(0, 1 << 31)]


@dataclass(frozen=True)
class Greeting:
    """The agent's answer to `ProgramHello`: its version, the capacity of the rings, and the host."""

    version: int
    submissions: int
    events: int
    transport: str
    address: str
    host: str


@dataclass(frozen=True)
class ProgramHello(Request[Greeting], verb="hello"):
    """The first request of a program."""

    version: int
    pid: int = 0


@dataclass(frozen=True)
class DeviceAttributes:
    """What a device can do (`mrc_device_attr`, and of `ibv_device_attr` what there is of it). MPR in units of 128 PSNs,
    sizes in bytes."""

    mrc_protocol_version: int
    max_wimm: int
    max_wimm_dest: int
    max_mpr: int
    mpr_resolution: int
    max_qp_hint: int
    cap: DeviceCap
    transport: str
    max_mr_size: int
    max_mr: int
    max_qp: int
    max_qp_wr: int
    max_sge: int
    max_inline_data: int
    max_cq: int
    max_cqe: int
    max_msg_sz: int
    phys_port_cnt: int
    gid: str
    memory_used: int


@dataclass(frozen=True)
class QueryDevice(Request[DeviceAttributes], verb="query_device"):
    """Ask what the device can do."""


@dataclass(frozen=True)
class PortAttributes:
    """A port: whether it is up, and sizes in bytes."""

    active: bool
    active_mtu: int
    max_msg_sz: int


@dataclass(frozen=True)
class QueryPort(Request[PortAttributes], verb="query_port"):
    """Ask for a port, numbered from 1."""

    port: int


# -- memory ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DomainNumber:
    """The number of a protection domain."""

    pd: int


@dataclass(frozen=True)
class AllocPd(Request[DomainNumber], verb="alloc_pd"):
    """Make a protection domain."""


@dataclass(frozen=True)
class DeallocPd(Request[Done], verb="dealloc_pd"):
    """Give a protection domain back."""

    pd: Number


@dataclass(frozen=True)
class RegionKey:
    """The key of a memory region (L_Key and R_Key) and where it is; `memory`: the number of its exchanged memory."""

    key: int
    addr: int
    memory: int | None = None


@dataclass(frozen=True)
class RegMr(Request[RegionKey], verb="reg_mr"):
    """Make and register memory; its file descriptor comes with the answer."""

    pd: Number
    length: Annotated[int, Range(1, 1 << 44)]
    access: Access


@dataclass(frozen=True)
class RegUserMr(Request[RegionKey], verb="reg_user_mr"):
    """Register memory of the program itself, which sent the descriptor of its /proc/self/mem beside `ProgramHello`.

    Peers address byte i as `iova + i`; without `iova` by its address in the program. With `key` the region takes the
    place of the one with that key.

    `pages` (from the first address to the one after the last) are those that the program is ready to exchange. Where
    the answer names the number of their memory, its file comes beside the answer, and the program copies the pages into
    it and maps it over them before it uses the region. `memory` is such a number, of pages that were exchanged before.
    """

    pd: Number
    address: Number
    length: Annotated[int, Range(1, 1 << 44)]
    access: Access
    #: As a signed number, too: C programs' JSON has none beyond 2^63 - 1.
    iova: Annotated[int, Range(-(1 << 63), layout.WORD)] | None = None
    key: Annotated[int, Range(0, 0xFFFFFFFF)] | None = None
    pages: tuple[Number, Number] | None = None
    memory: Number | None = None


@dataclass(frozen=True)
class DeregMr(Request[Done], verb="dereg_mr"):
    """Deregister memory."""

    key: Annotated[int, Range(0, 0xFFFFFFFF)]


# -- completion queues ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChannelNumber:
    """The number of a completion channel."""

    channel: int


@dataclass(frozen=True)
class CreateChannel(Request[ChannelNumber], verb="create_channel"):
    """Make a completion channel; its file descriptor comes with the answer."""


@dataclass(frozen=True)
class DestroyChannel(Request[Done], verb="destroy_channel"):
    """Give a completion channel back."""

    channel: Number


@dataclass(frozen=True)
class CqNumber:
    """The number of a completion queue and the capacity of its ring."""

    cq: int
    cqe: int


@dataclass(frozen=True)
class CreateCq(Request[CqNumber], verb="create_cq"):
    """Make a completion queue; the file descriptor of its ring comes with the answer."""

    cqe: _Positive
    channel: Number | None = None


@dataclass(frozen=True)
class WatchEvs(Request[Done], verb="watch_evs"):
    """Have changes of the host's EVs delivered into a completion queue, which then takes no completions.

    An entry has the number of the EV profile as its work request (of profile `c-N`; 0 for the default one), the new
    state as its opcode, and then EV, plane, and how many changes found no room before it. It concerns GOOD and
    ASSUMED_BAD, as far as the profile's `event_states` has them.
    """

    cq: Number


@dataclass(frozen=True)
class DestroyCq(Request[Done], verb="destroy_cq"):
    """Give a completion queue back."""

    cq: Number


# -- queue pairs ----------------------------------------------------------------------------------------------------


class Wire(StrEnum):
    """The transport of a queue pair."""

    MRC = "mrc"
    ROCE = "roce"


@dataclass(frozen=True)
class CreatedQp:
    """The number of a queue pair."""

    qp_num: int


@dataclass(frozen=True)
class CreateQp(Request[CreatedQp], verb="create_qp"):
    """Make a queue pair in RESET. `wire`: its transport; by default that of the lab. `srq`: a shared receive queue."""

    pd: Number
    send_cq: Number
    recv_cq: Number
    max_send_wr: _Positive
    max_recv_wr: _Count
    max_send_sge: Annotated[int, Range(0, layout.MAX_SGE)]
    max_inline_data: Annotated[int, Range(0, layout.INLINE_BYTES)]
    sq_sig_all: bool = False
    max_recv_sge: Annotated[int, Range(0, layout.MAX_SGE)] = 0
    wire: Wire | None = None
    srq: Number | None = None


@dataclass(frozen=True)
class DestroyQp(Request[Done], verb="destroy_qp"):
    """Give a queue pair back."""

    qp: QpNumber


@dataclass(frozen=True)
class QpDocumentAnswer:
    """The document that the peer of a queue pair needs; its contents depend on the transport."""

    document: object


@dataclass(frozen=True)
class GetQpDocument(Request[QpDocumentAnswer], verb="document"):
    """Ask for the document that the peer needs; a queue pair in RESET goes to INIT."""

    qp: QpNumber


@dataclass(frozen=True)
class QpStateAnswer:
    """The state of a queue pair."""

    state: QpState


@dataclass(frozen=True)
class RemoteQp:
    """The peer of a queue pair by what `ibv_modify_qp` says of it, where no document was exchanged.

    `gid`: its IPv6 address. `trim_nack`, `service_time`: what its responder can do, for MRC.
    """

    gid: str
    qp_num: QpNumber
    rq_psn: QpNumber
    path_mtu: Annotated[int, Range(64, 9000)]
    trim_nack: bool = True
    service_time: bool = False


@dataclass(frozen=True)
class ModifyQp(Request[QpStateAnswer], verb="modify_qp"):
    """Set attributes of a queue pair, and then take one step of its state.

    The step to RTR takes the peer's `document`, or `remote`; with `remote` the attribute `sq_psn` is set before RTS.
    """

    qp: QpNumber
    attributes: Mapping[str, int | bool]
    state: QpState | None = None
    document: object = None
    remote: RemoteQp | None = None
    ev_profile: str | None = None
    cc_profile: str | None = None
    hint: Number | None = None


@dataclass(frozen=True)
class QpStatus:
    """State and attributes of a queue pair, by name."""

    state: QpState
    ev_profile: str
    cc_profile: str
    hint: int | None
    sends_posted: int
    receives_posted: int
    why: str
    attributes: Mapping[str, int | bool | str | None]


# -- shared receive queues ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SrqNumber:
    """The number of a shared receive queue."""

    srq: int


@dataclass(frozen=True)
class CreateSrq(Request[SrqNumber], verb="create_srq"):
    """Make a shared receive queue. `limit`: notify once when fewer receives than that are left; 0: never."""

    pd: Number
    max_wr: _Positive
    max_sge: Annotated[int, Range(0, layout.MAX_SGE)]
    limit: _Count = 0


@dataclass(frozen=True)
class SrqDocument:
    """A shared receive queue; `posted` receives wait in it."""

    max_wr: int
    max_sge: int
    limit: int
    posted: int


@dataclass(frozen=True)
class QuerySrq(Request[SrqDocument], verb="query_srq"):
    """Ask for a shared receive queue."""

    srq: Number


@dataclass(frozen=True)
class ModifySrq(Request[Done], verb="modify_srq"):
    """Set the limit of a shared receive queue."""

    srq: Number
    limit: _Count


@dataclass(frozen=True)
class DestroySrq(Request[Done], verb="destroy_srq"):
    """Give a shared receive queue back."""

    srq: Number


@dataclass(frozen=True)
class QueryQp(Request[QpStatus], verb="query_qp"):
    """Ask for state and attributes of a queue pair."""

    qp: QpNumber


class Ev(NamedTuple):
    """An EV of a queue pair: its value, plane, state, whether it is in the active set, losses inferred on it."""

    ev: int
    plane: int
    state: str
    active: bool
    losses: int


@dataclass(frozen=True)
class SomeEvs:
    """A part of the EVs of a queue pair, and how many there are."""

    evs: Sequence[Ev]
    count: int


@dataclass(frozen=True)
class QueryPairEvs(Request[SomeEvs], verb="query_evs"):
    """Ask for EVs from number `first` on: a message on the socket is not large."""

    qp: QpNumber
    first: Annotated[int, Range(0, 1 << 20)] = 0


# -- hints ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HintAttributes:
    """The traffic that a program expects (`mrc_qp_hint_attr`)."""

    num_qps_per_peer: _Hint = 0
    num_send_peers: _Hint = 0
    num_remote_recv_peers: _Hint = 0


@dataclass(frozen=True)
class HintChanges:
    """Attributes of a hint that change; None: it stays."""

    num_qps_per_peer: _Hint | None = None
    num_send_peers: _Hint | None = None
    num_remote_recv_peers: _Hint | None = None


@dataclass(frozen=True)
class HintNumber:
    """The number of a hint."""

    hint: int


@dataclass(frozen=True)
class CreateHint(Request[HintNumber], verb="create_hint"):
    """Make a hint."""

    attributes: HintAttributes


@dataclass(frozen=True)
class ModifyHint(Request[Done], verb="modify_hint"):
    """Change a hint."""

    hint: Number
    attributes: HintChanges


@dataclass(frozen=True)
class HintDocument:
    """A hint, and how many queue pairs name it."""

    attributes: HintAttributes
    users: int


@dataclass(frozen=True)
class QueryHint(Request[HintDocument], verb="query_hint"):
    """Ask for a hint."""

    hint: Number


@dataclass(frozen=True)
class DestroyHint(Request[Done], verb="destroy_hint"):
    """Give a hint back."""

    hint: Number
