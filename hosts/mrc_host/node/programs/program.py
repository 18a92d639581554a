"""One program: its objects by number, and the requests that come by its socket (`mrc_host.verbs.connection`).

Nothing that a program says or writes is believed: every number is looked up among its own objects, every range checked.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar, cast

from mrc_host.node.profiles import DEFAULT
from mrc_host.node.programs.objects import Hint, QueuePairOf, SharedQueue
from mrc_host.node.programs.pairs import Pairs
from mrc_host.node.programs.queues import NotifyChannel, Queue
from mrc_host.node.programs.regions import ProgramMemory
from mrc_host.node.programs.shared import Resources, Wires
from mrc_host.node.stacks import MAX_MESSAGE_BYTES, Limits, RefusedError, sized, wanted
from mrc_host.proto.events import QpState as ProtoState
from mrc_host.proto.receive import SharedReceives
from mrc_host.proto.transport import Pair
from mrc_host.verbs import layout, requests
from mrc_host.verbs.layout import Consumer, EventType, Producer, QpState
from mrc_topo.base.rpc import Done, Verbs

P = TypeVar("P", bound=Pair)
#: With the file descriptors that go beside it.
Answer = tuple[object, list[int]]
EVENTS: Final = 1024
MAX_HINTS: Final = 1 << 16
STATES: Final = {
    ProtoState.RESET: QpState.RESET,
    ProtoState.INIT: QpState.INIT,
    ProtoState.RTR: QpState.RTR,
    ProtoState.RTS: QpState.RTS,
    ProtoState.ERROR: QpState.ERR,
}


class Program(Generic[P]):
    """See the module's docstring.

    Args:
        number: of the program on this host.
        wires: the transports.
        limits: what it may have.
        resources: what makes memory and bells.
        ports: whether each port of the host is up.
        address: of the host, as text.
        domains: gives protection domains and shared receive queues numbers that no other program has.

    Raises:
        OSError: there is no memory for its rings.
    """

    def __init__(
        self,
        number: int,
        wires: Wires,
        limits: Limits,
        resources: Resources,
        *,
        ports: Callable[[], list[bool]],
        address: str,
        domains: Callable[[], int],
        mtu: int,
    ) -> None:
        self.number = number
        self.wires = wires
        self.of: Pairs[P] = wires.first
        self.limits = limits
        self.resources = resources
        self.ports = ports
        self.address = address
        self.mtu = mtu
        self._new_domain = domains
        self.memory: ProgramMemory[P] = ProgramMemory(wires, limits, resources, domains)
        self.regions = self.memory.regions
        self.domains = self.memory.domains
        self.channels: dict[int, NotifyChannel] = {}
        self.queues: dict[int, Queue] = {}
        self.pairs: dict[int, QueuePairOf[P]] = {}
        self.hints: dict[int, Hint] = {}
        self.shared: dict[int, SharedQueue] = {}
        self._next = 1
        self.events_lost = 0
        capacity = layout.power_of_two(limits.submissions)
        self._memories = [self.memory.allocate(layout.ring_bytes(capacity, layout.REQUEST_BYTES))]
        self._memories.append(self.memory.allocate(layout.ring_bytes(EVENTS, layout.EVENT_BYTES)))
        self.submissions = Consumer(self._memories[0].buffer, capacity, layout.REQUEST_BYTES)
        self.events = Producer(self._memories[1].buffer, EVENTS, layout.EVENT_BYTES)
        self.doorbell = resources.doorbell()
        self.event_bell = resources.bell()
        self._verbs = Verbs()
        add = self._verbs.add
        add(requests.QueryDevice, self._query_device)
        add(requests.QueryPort, self._query_port)
        self.memory.add_verbs(self._verbs)
        add(requests.CreateChannel, self._create_channel)
        add(requests.DestroyChannel, self._destroy_channel)
        add(requests.CreateCq, self._create_cq)
        add(requests.WatchEvs, self._watch_evs)
        add(requests.DestroyCq, self._destroy_cq)
        add(requests.CreateQp, self._create_qp)
        add(requests.DestroyQp, self._destroy_qp)
        add(requests.CreateSrq, self._create_srq)
        add(requests.QuerySrq, self._query_srq)
        add(requests.ModifySrq, self._modify_srq)
        add(requests.DestroySrq, self._destroy_srq)
        add(requests.ModifyQp, self._modify_qp)
        add(requests.QueryQp, self._query_qp)
        add(requests.QueryPairEvs, self._query_evs)
        add(requests.GetQpDocument, self._document)
        add(requests.CreateHint, self._create_hint)
        add(requests.ModifyHint, self._modify_hint)
        add(requests.QueryHint, self._query_hint)
        add(requests.DestroyHint, self._destroy_hint)

    def greeting(self, host: str) -> Answer:
        """Return the first message to a program.

        It carries the file descriptors of ring of submissions, ring of events, doorbell and the bell of events.
        """
        answer = requests.Greeting(
            version=layout.VERSION,
            submissions=self.submissions.capacity,
            events=self.events.capacity,
            transport=self.of.transport,
            address=self.address,
            host=host,
        )
        return answer, [self._memories[0].fd, self._memories[1].fd, self.doorbell.fd, self.event_bell.fd]

    def request(self, op: object, arguments: Mapping[str, object], now: int) -> Answer:
        """Carry out a request.

        Raises:
            RefusedError: it cannot be. QpError and ConfigError of the endpoint mean the same.
        """
        request, handler = self._verbs.parse(op, arguments)
        return cast("Answer", handler(request, now))

    def tell(self, kind: EventType, element: int, a: int = 0, b: int = 0, c: int = 0, text: str = "") -> None:
        """Send an asynchronous event; count one that finds no room.

        Raises:
            RingCorrupt: the program has spoilt the ring.
        """
        ring = self.events
        if not ring.room():
            self.events_lost += 1
            ring.note(self.events_lost)
            return
        at = ring.at(ring.tail)
        said = text.encode()[: layout.EVENT_TEXT_BYTES]
        layout.EVENT.pack_into(ring.buffer, at, kind, element, a & 0xFFFFFFFF, b, c, said)
        ring.tail += 1
        ring.publish()
        self.event_bell.ring(1)

    def close(self, now: int) -> None:
        """Release all resources of the program, whatever its state."""
        for pair in list(self.pairs.values()):
            self._drop_pair(pair)
            pair.of.endpoint.close_qp(pair.qp, now)  # their peers may wait for a program that is gone
        for queue in self.queues.values():
            self.of.destroy_cq(queue.inner)
            queue.memory.close()
        self.memory.close()
        for channel in self.channels.values():
            channel.bell.close()
        for memory in self._memories:
            memory.close()
        self.doorbell.close()
        self.event_bell.close()
        for objects in (self.queues, self.channels, self.hints, self.shared):
            objects.clear()
        self._verbs.clear()  # which refer to this: with them gone the memory goes at once

    # -- completion queues --------------------------------------------------------------------------------------

    def _create_channel(self, request: requests.CreateChannel, now: int) -> Answer:
        wanted("completion channels", len(self.channels) + 1, self.limits.completion_queues, "completion_queues")
        try:
            bell = self.resources.bell()
        except OSError as error:
            raise RefusedError(error.errno or errno.EMFILE, f"a completion channel: {error.strerror}") from error
        channel = NotifyChannel(self._number(), bell)
        self.channels[channel.number] = channel
        return requests.ChannelNumber(channel.number), [bell.fd]

    def _destroy_channel(self, request: requests.DestroyChannel, now: int) -> Answer:
        channel = self.channels.get(request.channel)
        if channel is None:
            raise RefusedError(errno.EINVAL, "no such completion channel of this program")
        if channel.queues:
            raise RefusedError(errno.EBUSY, f"{channel.queues} completion queues use the channel; destroy them first")
        del self.channels[channel.number]
        channel.bell.close()
        return Done(), []

    def _create_cq(self, request: requests.CreateCq, now: int) -> Answer:
        entries = request.cqe
        sized("entries of a completion queue", entries, self.limits.completions, "completions")
        wanted("completion queues", len(self.queues) + 1, self.limits.completion_queues, "completion_queues")
        channel = None
        if request.channel is not None:
            channel = self.channels.get(request.channel)
            if channel is None:
                raise RefusedError(errno.EINVAL, "no such completion channel of this program")
        capacity = layout.power_of_two(entries)
        memory = self.memory.allocate(layout.ring_bytes(capacity, layout.COMPLETION_BYTES))
        queue = Queue(self.of.driven.create_cq(1 << 20), memory, capacity, channel)
        self.queues[queue.number] = queue
        if channel is not None:
            channel.queues += 1
        return requests.CqNumber(queue.number, capacity), [memory.fd]

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _queue(self, number: int) -> Queue:
        if number not in self.queues:
            raise RefusedError(errno.EINVAL, f"no completion queue {number} of this program")
        return self.queues[number]

    def _watch_evs(self, request: requests.WatchEvs, now: int) -> Answer:
        queue = self._queue(request.cq)
        if queue.users:
            raise RefusedError(errno.EBUSY, f"{len(queue.users)} queue pairs use the completion queue")
        queue.watching = True
        return Done(), []

    def _destroy_cq(self, request: requests.DestroyCq, now: int) -> Answer:
        queue = self._queue(request.cq)
        if queue.users:
            raise RefusedError(
                errno.EBUSY, f"{len(queue.users)} queue pairs use the completion queue; destroy them first"
            )
        self.of.destroy_cq(queue.inner)
        del self.queues[queue.number]
        if queue.channel is not None:
            queue.channel.queues -= 1
        self.memory.free(queue.memory)
        return Done(), []

    # -- queue pairs --------------------------------------------------------------------------------------------

    def _create_qp(self, request: requests.CreateQp, now: int) -> Answer:
        domain = self.memory.domain(request.pd)
        send, recv = self._queue(request.send_cq), self._queue(request.recv_cq)
        max_send, max_recv = request.max_send_wr, request.max_recv_wr
        sized("work requests of a send queue", max_send, self.limits.work_requests, "work_requests")
        sized("work requests of a receive queue", max_recv, self.limits.work_requests, "work_requests")
        wanted("queue pairs", len(self.pairs) + 1, self.limits.queue_pairs, "queue_pairs")
        for queue in (send, recv):
            if queue.overflowed:
                raise RefusedError(errno.EINVAL, f"completion queue {queue.number} has overflowed; create another one")
        srq = None if request.srq is None else self._srq(request.srq)
        of: Pairs[P] = self.wires.of(request.wire)
        made = of.create(send.inner, recv.inner, domain, None if srq is None else srq.inner)
        pair = QueuePairOf(
            of, made, made.number, domain, send, recv, request.sq_sig_all, max_send, max_recv,
            request.max_send_sge, request.max_recv_sge, request.max_inline_data, DEFAULT, DEFAULT, srq=srq,
        )  # fmt: skip
        self.pairs[pair.number] = pair
        self.domains[domain] += 1
        for queue in {send, recv}:
            queue.users.append(pair)
        return requests.CreatedQp(pair.number), []

    def pair(self, number: int) -> QueuePairOf[P]:
        """Return the queue pair of this number."""
        if number not in self.pairs:
            raise RefusedError(errno.EINVAL, f"no queue pair {number} of this program")
        return self.pairs[number]

    def _drop_pair(self, pair: QueuePairOf[P]) -> None:
        del self.pairs[pair.number]
        self.domains[pair.domain] -= 1
        for queue in {pair.send, pair.recv}:
            queue.users.remove(pair)
        pair.forget_requests()
        if pair.hint is not None:
            self.hints[pair.hint].users -= 1

    def _destroy_qp(self, request: requests.DestroyQp, now: int) -> Answer:
        pair = self.pair(request.qp)
        self._drop_pair(pair)
        pair.of.endpoint.destroy_qp(pair.qp, now)
        return Done(), []

    def _document(self, request: requests.GetQpDocument, now: int) -> Answer:
        pair = self.pair(request.qp)
        return requests.QpDocumentAnswer(pair.of.endpoint.local_attributes(pair.qp)), []

    def _modify_qp(self, request: requests.ModifyQp, now: int) -> Answer:
        """Set the attributes first, then take at most one step of the state."""
        pair = self.pair(request.qp)
        ev, cc = request.ev_profile or pair.ev_profile, request.cc_profile or pair.cc_profile
        if (ev, cc) != (pair.ev_profile, pair.cc_profile):
            pair.of.profiles(pair.qp, ev, cc)
            pair.ev_profile, pair.cc_profile = ev, cc
        if request.hint is not None:
            self._assign_hint(pair, request.hint)
        if request.attributes:
            pair.of.set(pair.qp, request.attributes, now)
        if request.state is not None:
            self._step(pair, request, now)
        return requests.QpStateAnswer(STATES[pair.qp.state]), []

    def _step(self, pair: QueuePairOf[P], request: requests.ModifyQp, now: int) -> None:
        state, document = request.state, request.document
        if state is QpState.ERR:
            pair.of.fail(pair.qp, now)
        elif state is QpState.RESET:
            pair.of.reset(pair.qp, now)
            pair.forget_requests()
            pair.document = pair.remote = None
        elif state is QpState.INIT:
            if pair.qp.state is not ProtoState.RESET:
                raise RefusedError(
                    errno.EINVAL, f"queue pair {pair.number} is in {pair.qp.state.value}; INIT follows RESET"
                )
            pair.of.endpoint.local_attributes(pair.qp)
        elif state is QpState.RTR and request.remote is not None:
            pair.of.accept_named(pair.qp, pair.ev_profile, pair.cc_profile, request.remote, now)
            pair.remote = request.remote
        elif state is QpState.RTR:
            if not isinstance(document, dict):
                raise RefusedError(errno.EINVAL, "the way to RTR needs the peer's document")
            pair.of.accept(pair.qp, pair.ev_profile, pair.cc_profile, document, now)
            pair.document = document
        elif pair.remote is not None:
            pair.of.ready_named(pair.qp, now)
        elif pair.document is None:
            raise RefusedError(errno.EINVAL, f"queue pair {pair.number} is in {pair.qp.state.value}; RTS follows RTR")
        else:
            pair.of.ready(pair.qp, pair.document, now)

    def _query_qp(self, request: requests.QueryQp, now: int) -> Answer:
        pair = self.pair(request.qp)
        answer = requests.QpStatus(
            state=STATES[pair.qp.state],
            ev_profile=pair.ev_profile,
            cc_profile=pair.cc_profile,
            hint=pair.hint,
            sends_posted=len(pair.posted),
            receives_posted=pair.receiving,
            why=pair.why,
            attributes=pair.of.attributes(pair.qp),
        )
        return answer, []

    def _query_evs(self, request: requests.QueryPairEvs, now: int) -> Answer:
        """Return a part of the EVs at a time: a message on the socket is not large."""
        pair = self.pair(request.qp)
        rows = pair.of.evs(pair.qp)
        part = rows[request.first : request.first + 512]
        evs = [requests.Ev(row.ev, row.plane, row.state.name, row.active, row.losses) for row in part]
        return requests.SomeEvs(evs, len(rows)), []

    # -- shared receive queues ----------------------------------------------------------------------------------

    def _srq(self, number: int) -> SharedQueue:
        if number not in self.shared:
            raise RefusedError(errno.EINVAL, f"no shared receive queue {number} of this program")
        return self.shared[number]

    def _create_srq(self, request: requests.CreateSrq, now: int) -> Answer:
        domain = self.memory.domain(request.pd)
        sized("work requests of a shared receive queue", request.max_wr, self.limits.work_requests, "work_requests")
        wanted("shared receive queues", len(self.shared) + 1, self.limits.queue_pairs, "queue_pairs")
        number = self._new_domain()
        self.shared[number] = SharedQueue(
            SharedReceives(number, domain, request.limit), domain, request.max_wr, request.max_sge
        )
        self.domains[domain] += 1
        return requests.SrqNumber(number), []

    def _query_srq(self, request: requests.QuerySrq, now: int) -> Answer:
        srq = self._srq(request.srq)
        inner = srq.inner
        return requests.SrqDocument(srq.max_wr, srq.max_sge, inner.limit, len(inner.receives)), []

    def _modify_srq(self, request: requests.ModifySrq, now: int) -> Answer:
        srq = self._srq(request.srq)
        if request.limit > srq.max_wr:
            raise RefusedError(errno.EINVAL, f"limit is {request.limit}; the queue holds {srq.max_wr} receives")
        srq.inner.limit = request.limit
        return Done(), []

    def _destroy_srq(self, request: requests.DestroySrq, now: int) -> Answer:
        srq = self._srq(request.srq)
        if srq.inner.users:
            raise RefusedError(
                errno.EBUSY, f"{srq.inner.users} queue pairs use the shared receive queue; destroy them first"
            )
        del self.shared[request.srq]
        self.domains[srq.domain] -= 1
        return Done(), []

    # -- the device ---------------------------------------------------------------------------------------------

    def _query_device(self, request: requests.QueryDevice, now: int) -> Answer:
        limits = self.limits
        answer = requests.DeviceAttributes(
            mrc_protocol_version=layout.PROTOCOL_VERSION,
            max_wimm=32767,
            max_wimm_dest=32767,
            max_mpr=255,
            mpr_resolution=1,
            max_qp_hint=MAX_HINTS,
            cap=self.of.capabilities(),
            transport=self.of.transport,
            max_mr_size=limits.memory,
            max_mr=limits.regions,
            max_qp=limits.queue_pairs,
            max_qp_wr=limits.work_requests,
            max_sge=layout.MAX_SGE,
            max_inline_data=layout.INLINE_BYTES,
            max_cq=limits.completion_queues,
            max_cqe=limits.completions,
            max_msg_sz=MAX_MESSAGE_BYTES,
            phys_port_cnt=len(self.ports()),
            gid=self.address,
            memory_used=self.memory.used,
        )
        return answer, []

    def _query_port(self, request: requests.QueryPort, now: int) -> Answer:
        ports = self.ports()
        if not 1 <= request.port <= len(ports):
            raise RefusedError(errno.EINVAL, f"port is {request.port}; it is from 1 to {len(ports)}")
        return requests.PortAttributes(ports[request.port - 1], self.mtu, MAX_MESSAGE_BYTES), []

    # -- hints --------------------------------------------------------------------------------------------------

    def _hint(self, number: int) -> Hint:
        if number not in self.hints:
            raise RefusedError(errno.EINVAL, f"no queue pair hint {number} of this program")
        return self.hints[number]

    def _create_hint(self, request: requests.CreateHint, now: int) -> Answer:
        if len(self.hints) >= MAX_HINTS:
            raise RefusedError(errno.ENOMEM, f"{MAX_HINTS} queue pair hints are all there are")
        number = self._number()
        self.hints[number] = Hint(request.attributes)
        return requests.HintNumber(number), []

    def _modify_hint(self, request: requests.ModifyHint, now: int) -> Answer:
        hint = self._hint(request.hint)
        changes = {name: value for name, value in vars(request.attributes).items() if value is not None}
        hint.attributes = dataclasses.replace(hint.attributes, **changes)
        return Done(), []

    def _query_hint(self, request: requests.QueryHint, now: int) -> Answer:
        hint = self._hint(request.hint)
        return requests.HintDocument(hint.attributes, hint.users), []

    def _destroy_hint(self, request: requests.DestroyHint, now: int) -> Answer:
        hint = self._hint(request.hint)
        if hint.users:
            raise RefusedError(errno.EBUSY, f"{hint.users} queue pairs name the hint")
        del self.hints[request.hint]
        return Done(), []

    def _assign_hint(self, pair: QueuePairOf[P], number: int) -> None:
        new = self._hint(number)
        if pair.qp.state not in (ProtoState.RESET, ProtoState.INIT):
            raise RefusedError(errno.EINVAL, f"a hint is given in RESET or INIT, not in {pair.qp.state.value}")
        if pair.hint is not None:
            self.hints[pair.hint].users -= 1
        pair.hint = number
        new.users += 1
