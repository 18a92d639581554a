"""Queue pairs of RoCE, as programs use them."""

from __future__ import annotations

import errno
import ipaddress
import random
from collections.abc import Sequence
from typing import Final

from mrc_host.node.own_evs import HostEvs
from mrc_host.node.profiles import DEFAULT
from mrc_host.node.programs.pairs import Attributes, Work, address_of
from mrc_host.node.quota import RefusedError
from mrc_host.proto.completion import CompletionQueue
from mrc_host.proto.config import EvConfig, EvMode
from mrc_host.proto.memory import MemoryRegion, ProcessMemory
from mrc_host.proto.paths.ev_profile import EvUniverse
from mrc_host.proto.receive import Element, Scatter, SharedReceives
from mrc_host.proto.roce.endpoint import RoceEndpoint
from mrc_host.proto.roce.qp import RoceQueuePair
from mrc_host.proto.statistics import EvRow
from mrc_host.verbs.layout import DeviceCap, RingOpcode
from mrc_host.verbs.requests import RemoteQp

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
