"""Queue pairs of programs, by transport: how they come about, and which of their attributes there are."""

from __future__ import annotations

import dataclasses
import errno
import ipaddress
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

from mrc_host.node.own_evs import HostEvs
from mrc_host.node.profiles import DEFAULT, ControlledProfiles
from mrc_host.node.stacks import RefusedError
from mrc_host.proto.completion import CompletionQueue
from mrc_host.proto.config import QP_ATTRIBUTES, EvConfig, EvMode, ReliabilityConfig
from mrc_host.proto.congestion.base import CcConfig
from mrc_host.proto.endpoint import Endpoint
from mrc_host.proto.events import QpError, QpState
from mrc_host.proto.memory import MemoryRegion, ProcessMemory
from mrc_host.proto.paths.ev_profile import EvUniverse
from mrc_host.proto.receive import Element, Scatter, SharedReceives
from mrc_host.proto.reliability.qp import QueuePair
from mrc_host.proto.roce.endpoint import RoceEndpoint
from mrc_host.proto.roce.qp import RoceQueuePair
from mrc_host.proto.statistics import EvRow
from mrc_host.proto.transport import Buffer, Pair, Transport, TransportEndpoint
from mrc_host.proto.wire.psn import PSN_MASK
from mrc_host.verbs.layout import DeviceCap, RingOpcode
from mrc_host.verbs.requests import RemoteQp

P = TypeVar("P", bound=Pair)
Attributes = Mapping[str, int | bool]
_WRITE: Final = int(RingOpcode.WRITE)
_WRITE_IMM: Final = int(RingOpcode.WRITE_IMM)
_STATES: Final = (QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS)
#: Attributes of a queue pair that a program may set, with the states in which it may.
ATTRIBUTES: Final = {
    name: _STATES[: _STATES.index(attribute.before)]
    for name, attribute in QP_ATTRIBUTES.items()
    if attribute.before is not None
}


def address_of(remote: RemoteQp) -> ipaddress.IPv6Address:
    """Return the address of a named peer. Raises RefusedError for what is none."""
    try:
        return ipaddress.IPv6Address(remote.gid)
    except ValueError as error:
        raise RefusedError(errno.EINVAL, f"the GID of the peer: {error}") from None


@dataclass(frozen=True, slots=True)
class Work:
    """A work request that is not a receive. `local`: what is sent, or where an answer goes; `operands`: of an atomic
    operation, the number to compare with or to add and the one to swap in."""

    opcode: int
    wr_id: int
    local: Buffer | Scatter
    address: int
    key: int
    immediate: int
    solicited: bool
    fence: bool
    operands: tuple[int, int]


class Pairs(Protocol[P]):
    """Queue pairs of a transport, as programs use them. Errors are QpError and ConfigError, and RefusedError."""

    transport: str

    @property
    def endpoint(self) -> Transport[P]:
        """Of which they are."""

    @property
    def driven(self) -> TransportEndpoint:
        """The same endpoint, as what needs no queue pair sees it."""

    def register(self, buffer: memoryview, domain: int, access: int) -> MemoryRegion:
        """Register memory for a protection domain."""

    def register_process(
        self,
        memory: ProcessMemory,
        address: int,
        length: int,
        va: int,
        domain: int,
        access: int,
        rkey: int | None = None,
    ) -> MemoryRegion:
        """Register memory of a program itself for a protection domain; `rkey` names a region whose place it takes."""

    def create(self, send: CompletionQueue, recv: CompletionQueue, domain: int, srq: SharedReceives | None) -> P:
        """Return a queue pair in RESET; with `srq` it takes the receives of that. Raises RefusedError."""

    def post(self, qp: P, work: Work) -> None:
        """Post a send, write, read or atomic operation. Raises QpError for what the queue pair cannot do."""

    def receive(self, qp: P, wr_id: int, count: int, elements: Sequence[Element]) -> None:
        """Post `count` receives, or one into the memory of its elements. Raises QpError."""

    def destroy_cq(self, cq: CompletionQueue) -> None:
        """Forget a completion queue."""

    def profiles(self, qp: P, ev: str, cc: str) -> None:
        """Check that both profiles can be used, and give them to a queue pair before it has a peer."""

    def accept(self, qp: P, ev: str, cc: str, document: object, now: int) -> None:
        """Go INIT -> RTR."""

    def ready(self, qp: P, document: object, now: int) -> None:
        """Go RTR -> RTS."""

    def accept_named(self, qp: P, ev: str, cc: str, remote: RemoteQp, now: int) -> None:
        """Go INIT -> RTR with a peer that is named instead of sending its document."""

    def ready_named(self, qp: P, now: int) -> None:
        """Go RTR -> RTS after `accept_named`."""

    def fail(self, qp: P, now: int) -> None:
        """Go to ERROR, from any state."""

    def reset(self, qp: P, now: int) -> None:
        """Go to RESET, from any state."""

    def set(self, qp: P, attributes: Attributes, now: int) -> None:
        """Set attributes of `ATTRIBUTES`."""

    def attributes(self, qp: P) -> dict[str, int | bool | str | None]:
        """Return all that can be asked of a queue pair."""

    def evs(self, qp: P) -> list[EvRow]:
        """Return the EVs of a queue pair."""

    def capabilities(self) -> DeviceCap:
        """Return the capabilities of the device."""


class MrcPairs:
    """See `Pairs`."""

    transport = "mrc"

    def __init__(self, endpoint: Endpoint, own_evs: HostEvs, controlled: ControlledProfiles) -> None:
        self.endpoint = self.driven = endpoint
        self.own_evs = own_evs
        self.controlled = controlled

    def register(self, buffer: memoryview, domain: int, access: int) -> MemoryRegion:
        """See `Pairs`."""
        return self.endpoint.register_memory(buffer, domain=domain, access=access)

    def register_process(
        self,
        memory: ProcessMemory,
        address: int,
        length: int,
        va: int,
        domain: int,
        access: int,
        rkey: int | None = None,
    ) -> MemoryRegion:
        """See `Pairs`."""
        return self.endpoint.register_process_memory(
            memory, address, length, va, access=access, domain=domain, rkey=rkey
        )

    def create(
        self, send: CompletionQueue, recv: CompletionQueue, domain: int, srq: SharedReceives | None
    ) -> QueuePair:
        """See `Pairs`."""
        if srq is not None:
            raise RefusedError(errno.EOPNOTSUPP, "a queue pair of mrc takes no receives of a shared receive queue")
        return self.endpoint.create_qp(send, recv, domain=domain)

    def post(self, qp: QueuePair, work: Work) -> None:
        """See `Pairs`."""
        opcode = work.opcode
        if isinstance(work.local, Scatter) or opcode not in (_WRITE, _WRITE_IMM):
            raise QpError(f"no operation {RingOpcode(opcode).name} of a queue pair of mrc")
        endpoint = self.endpoint
        if opcode == _WRITE:
            endpoint.post_write(qp, work.local, work.address, work.key, work.wr_id)
        else:
            endpoint.post_write_imm(
                qp, work.local, work.address, work.key, work.immediate, work.wr_id, solicited=work.solicited
            )

    def receive(self, qp: QueuePair, wr_id: int, count: int, elements: Sequence[Element]) -> None:
        """See `Pairs`. Immediates carry no data, so that the memory of a receive stays unused."""
        self.endpoint.post_recv(qp, wr_id, count)

    def destroy_cq(self, cq: CompletionQueue) -> None:
        """See `Pairs`."""
        self.endpoint.destroy_cq(cq)

    def _made(self, ev: str, cc: str, peer: str | None) -> tuple[EvConfig | None, CcConfig | None]:
        profiles = self.controlled.online(ev, cc)
        chosen = profiles.ev
        if peer is not None and profiles.per_peer and chosen is not None:
            chosen = self.own_evs.towards(chosen, peer)
        return chosen, profiles.cc

    def profiles(self, qp: QueuePair, ev: str, cc: str) -> None:
        """See `Pairs`."""
        self.endpoint.set_profiles(qp, *self._made(ev, cc, None))

    def accept(self, qp: QueuePair, ev: str, cc: str, document: object, now: int) -> None:
        """See `Pairs`."""
        try:
            peer = str(ipaddress.IPv6Address(document.get("address", "") if isinstance(document, dict) else ""))
        except ValueError as error:
            raise RefusedError(errno.EINVAL, f"the peer's document: address: {error}") from None
        self.endpoint.set_profiles(qp, *self._made(ev, cc, peer))
        self.endpoint.accept(qp, document, now)

    def ready(self, qp: QueuePair, document: object, now: int) -> None:
        """See `Pairs`."""
        self.endpoint.ready(qp, document, now)

    def accept_named(self, qp: QueuePair, ev: str, cc: str, remote: RemoteQp, now: int) -> None:
        """See `Pairs`."""
        address = address_of(remote)
        self.endpoint.set_profiles(qp, *self._made(ev, cc, str(address)))
        self.endpoint.accept_named(
            qp, remote.qp_num, address.packed, remote.rq_psn, remote.path_mtu, remote.trim_nack, now
        )

    def ready_named(self, qp: QueuePair, now: int) -> None:
        """See `Pairs`."""
        self.endpoint.ready_named(qp, now)

    def fail(self, qp: QueuePair, now: int) -> None:
        """See `Pairs`."""
        self.endpoint.modify(qp, QpState.ERROR, now)

    def reset(self, qp: QueuePair, now: int) -> None:
        """See `Pairs`."""
        self.endpoint.modify(qp, QpState.RESET, now)

    def set(self, qp: QueuePair, attributes: Attributes, now: int) -> None:
        """See `Pairs`."""
        if set(attributes) == {"mpr_dest"} and qp.state in (QpState.RTR, QpState.RTS):
            if type(attributes["mpr_dest"]) is not int:
                raise RefusedError(errno.EINVAL, f"mpr_dest is {attributes['mpr_dest']!r}; it is an integer")
            self.endpoint.set_mpr(qp, attributes["mpr_dest"])
            return
        if "sq_psn" in attributes:
            self._set_psn(qp, attributes["sq_psn"])
            attributes = {name: value for name, value in attributes.items() if name != "sq_psn"}
        for name, value in attributes.items():
            if name not in ATTRIBUTES:
                raise RefusedError(errno.EINVAL, f"no attribute '{name}'; known: {', '.join(ATTRIBUTES)}")
            if qp.state not in ATTRIBUTES[name]:
                states = ", ".join(state.value for state in ATTRIBUTES[name])
                raise RefusedError(errno.EINVAL, f"{name} is set in {states}; the queue pair is in {qp.state.value}")
            kind = type(getattr(qp.reliability, name))
            if type(value) is not kind:
                raise RefusedError(errno.EINVAL, f"{name} is {value!r}; it is of type {kind.__name__}")
        # Ranges are those of the configuration.
        checked: ReliabilityConfig = dataclasses.replace(qp.reliability, **cast("Any", attributes))
        for name in attributes:
            setattr(qp.attributes, name, getattr(checked, name))

    def _set_psn(self, qp: QueuePair, psn: int | bool) -> None:
        """Set the first PSN of the requestor, which a named peer expects (`RemoteQp.rq_psn` there)."""
        if type(psn) is not int or not 0 <= psn <= PSN_MASK:
            raise RefusedError(errno.EINVAL, f"sq_psn is {psn!r}; it is an integer from 0 to {PSN_MASK}")
        if qp.state is QpState.RTS or qp.state is QpState.ERROR:
            raise RefusedError(errno.EINVAL, f"sq_psn is set before RTS; the queue pair is in {qp.state.value}")
        qp.sq_psn = psn

    def attributes(self, qp: QueuePair) -> dict[str, int | bool | str | None]:
        """See `Pairs`."""
        own = {name: getattr(qp.attributes, name) for name in ATTRIBUTES}
        found: dict[str, int | bool | str | None] = {**own, "path_mtu": qp.attributes.mtu, "sq_psn": qp.sq_psn}
        if qp.connected:
            found["dest_qp_num"] = qp.association.remote_number
            found["remote_address"] = str(ipaddress.IPv6Address(qp.peer.address))
        return {**found, "error": qp.error.value if qp.error is not None else None}

    def evs(self, qp: QueuePair) -> list[EvRow]:
        """See `Pairs`."""
        return self.endpoint.query_evs(qp)

    def capabilities(self) -> DeviceCap:
        """See `Pairs`."""
        return DeviceCap.TRIM_NACK | DeviceCap.DYNAMIC_MPR | DeviceCap.SVC_TIME


#: Packets under way of one queue pair. On the real clock the peer's agent takes time for each, and a window that it
#: does not take within the timeout would be sent again and again.
_MOST_PACKETS: Final = 128


class RocePairs:
    """See `pairs.Pairs`. There are no profiles. A queue pair has one EV of the host's towards its peer: switches that
    read a hop field find one that names an uplink, and those that hash choose one path for it."""

    transport = "roce"

    def __init__(self, endpoint: RoceEndpoint, own_evs: HostEvs, ev: EvConfig) -> None:
        self.endpoint = self.driven = endpoint
        self.own_evs = own_evs
        self.ev = ev
        self._universes: dict[int, tuple[EvConfig, EvUniverse]] = {}

    def register(self, buffer: memoryview, domain: int, access: int) -> MemoryRegion:
        """See `Pairs`."""
        return self.endpoint.register_memory(buffer, domain=domain, access=access)

    def register_process(
        self,
        memory: ProcessMemory,
        address: int,
        length: int,
        va: int,
        domain: int,
        access: int,
        rkey: int | None = None,
    ) -> MemoryRegion:
        """See `Pairs`."""
        return self.endpoint.register_process_memory(
            memory, address, length, va, access=access, domain=domain, rkey=rkey
        )

    def create(
        self, send: CompletionQueue, recv: CompletionQueue, domain: int, srq: SharedReceives | None
    ) -> RoceQueuePair:
        """See `Pairs`."""
        qp = self.endpoint.create_qp(send, recv, domain=domain, srq=srq)
        qp.max_inflight = min(qp.max_inflight, _MOST_PACKETS)
        return qp

    def post(self, qp: RoceQueuePair, work: Work) -> None:
        """See `Pairs`."""
        endpoint, opcode, fence = self.endpoint, work.opcode, work.fence
        address, key, wr_id = work.address, work.key, work.wr_id
        if isinstance(work.local, Scatter):
            target = work.local
            if opcode == RingOpcode.READ:
                endpoint.post_read(qp, target, address, key, wr_id, fence=fence)
            elif opcode == RingOpcode.FETCH_ADD:
                endpoint.post_fetch_add(qp, target, address, key, work.operands[0], wr_id, fence=fence)
            else:
                endpoint.post_compare_swap(qp, target, address, key, *work.operands, wr_id, fence=fence)
            return
        local = work.local
        if opcode == RingOpcode.WRITE:
            endpoint.post_write(qp, local, address, key, wr_id, fence=fence)
        elif opcode == RingOpcode.WRITE_IMM:
            endpoint.post_write_imm(
                qp, local, address, key, work.immediate, wr_id, solicited=work.solicited, fence=fence
            )
        else:
            immediate = work.immediate if opcode == RingOpcode.SEND_IMM else None
            endpoint.post_send(qp, local, wr_id, immediate=immediate, solicited=work.solicited, fence=fence)

    def receive(self, qp: RoceQueuePair, wr_id: int, count: int, elements: Sequence[Element]) -> None:
        """See `Pairs`."""
        for _ in range(count):
            self.endpoint.post_receive(qp, wr_id, elements)

    def destroy_cq(self, cq: CompletionQueue) -> None:
        """See `Pairs`."""
        self.endpoint.destroy_cq(cq)

    def profiles(self, qp: RoceQueuePair, ev: str, cc: str) -> None:
        """See `Pairs`."""
        if (ev, cc) != (DEFAULT, DEFAULT):
            raise RefusedError(errno.EOPNOTSUPP, "profiles are of MRC; the transport of this queue pair is roce")

    def accept(self, qp: RoceQueuePair, ev: str, cc: str, document: object, now: int) -> None:
        """See `Pairs`."""
        self.endpoint.accept(qp, document, now)
        self._choose_path(qp)

    def ready(self, qp: RoceQueuePair, document: object, now: int) -> None:
        """See `Pairs`."""
        self.endpoint.ready(qp, now)

    def accept_named(self, qp: RoceQueuePair, ev: str, cc: str, remote: RemoteQp, now: int) -> None:
        """See `Pairs`. The MTU of the path is bounded by the lab's."""
        address = address_of(remote).packed
        mtu = min(remote.path_mtu, self.endpoint.config.wire.mtu)
        self.endpoint.accept_named(qp, remote.qp_num, address, remote.rq_psn, mtu)
        self._choose_path(qp)

    def ready_named(self, qp: RoceQueuePair, now: int) -> None:
        """See `Pairs`."""
        self.endpoint.ready(qp, now)

    def _choose_path(self, qp: RoceQueuePair) -> None:
        """Give the queue pair an EV of its plane towards its peer, always the same for its number."""
        config = self.own_evs.towards(self.ev, str(ipaddress.IPv6Address(qp.addresses[16:])))
        if config.mode is EvMode.AUTO:
            return  # random bits, which it has
        known = self._universes.get(id(config))
        if known is None:
            universe = EvUniverse(config, self.endpoint.config.ports.count, random.Random(0))
            known = self._universes[id(config)] = (config, universe)
        universe = known[1]
        own = [value for value, plane in zip(universe.values, universe.planes, strict=True) if plane == qp.home_port]
        if own:
            qp.entropy = random.Random(qp.number).choice(own)

    def fail(self, qp: RoceQueuePair, now: int) -> None:
        """See `Pairs`."""
        self.endpoint.fail_qp(qp)

    def reset(self, qp: RoceQueuePair, now: int) -> None:
        """See `Pairs`."""
        self.endpoint.reset_qp(qp)

    def set(self, qp: RoceQueuePair, attributes: Attributes, now: int) -> None:
        """See `Pairs`."""
        for name, value in attributes.items():
            if type(value) is not int:
                raise RefusedError(errno.EINVAL, f"{name} is {value!r}; it is an integer")
            self.endpoint.set_attribute(qp, name, value)

    def attributes(self, qp: RoceQueuePair) -> dict[str, int | bool | str | None]:
        """See `Pairs`."""
        found: dict[str, int | bool | str | None] = {**self.endpoint.attributes(qp), "error": None}
        if qp.addresses:
            found["remote_address"] = str(ipaddress.IPv6Address(qp.addresses[16:]))
        return found

    def evs(self, qp: RoceQueuePair) -> list[EvRow]:
        """See `Pairs`."""
        return []

    def capabilities(self) -> DeviceCap:
        """See `Pairs`."""
        return DeviceCap.NONE
