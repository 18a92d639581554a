"""The verbs of a RoCE endpoint: queue pairs, their states and attributes, work requests, shared receive queues.

States and attributes are those that `ibv_modify_qp` documents; a queue pair in RTR receives, one in RTS sends, too.
"""

from __future__ import annotations

import random
from collections.abc import Container, Sequence
from typing import Final

from mrc_host.access import Access
from mrc_host.proto.common import CommonEndpoint
from mrc_host.proto.completion import Completion, CompletionKind, CompletionQueue, CompletionStatus
from mrc_host.proto.congestion.dcqcn import Dcqcn
from mrc_host.proto.events import ErrorReason, LastReceiveTaken, QpError, QpState, QpStateChanged, SrqLimitReached
from mrc_host.proto.limits import check_range
from mrc_host.proto.memory import REMOTE_ATOMIC, REMOTE_READ, REMOTE_WRITE
from mrc_host.proto.qp_document import RoceQpDocument
from mrc_host.proto.receive import Element, PostedReceive, Scatter, SharedReceives
from mrc_host.proto.roce.codec import RoceCodec
from mrc_host.proto.roce.config import MAX_RD_ATOMIC, RoceConfig
from mrc_host.proto.roce.qp import ATOMIC_BYTES, NAK_STATUS, RoceQueuePair, RoceRequest
from mrc_host.proto.transport import Buffer
from mrc_host.proto.wire.psn import PSN_MASK
from mrc_host.proto.work import bytes_of

FLUSHED: Final = CompletionStatus.WR_FLUSH_ERR
_REMOTE: Final = REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC
#: Of the attribute `timeout`: local ACK timeout = 4.096 us * 2**timeout, as IBTA has it; 0: for ever.
TIMEOUT_UNIT_NS: Final = 4096
#: Of one READ, with what may be under way beside it: more would be ambiguous in 24 bits.
_MOST_PSNS: Final = (1 << 23) - (1 << 16)
_MAX_BYTES: Final = (1 << 32) - 1
REASONS: Final = {
    CompletionStatus.RETRY_EXC_ERR: ErrorReason.RETRY_EXCEEDED,
    CompletionStatus.RNR_RETRY_EXC_ERR: ErrorReason.RNR_RETRY_EXCEEDED,
    CompletionStatus.REM_ACCESS_ERR: ErrorReason.REMOTE_ACCESS,
    CompletionStatus.REM_INV_REQ_ERR: ErrorReason.REMOTE_INVALID_REQUEST,
    CompletionStatus.REM_OP_ERR: ErrorReason.REMOTE_OPERATION,
    CompletionStatus.LOC_LEN_ERR: ErrorReason.LOCAL_LENGTH,
    CompletionStatus.LOC_PROT_ERR: ErrorReason.LOCAL_PROTECTION,
}
_NOT_YET: Final = (QpState.RESET, QpState.INIT)
_NOT_RTS: Final = (QpState.RESET, QpState.INIT, QpState.RTR)
_ALIVE: Final = (QpState.RESET, QpState.INIT, QpState.RTR, QpState.RTS)
#: Attributes of a queue pair, with the states in which each is set, and the range.
ATTRIBUTES: Final[dict[str, tuple[tuple[QpState, ...], int, int]]] = {
    "path_mtu": (_NOT_YET, 64, 9000),
    "rq_psn": (_NOT_YET, 0, PSN_MASK),
    "max_dest_rd_atomic": (_NOT_YET, 0, MAX_RD_ATOMIC),
    "min_rnr_timer": (_ALIVE, 0, 31),
    "qp_access_flags": (_ALIVE, 0, int(Access.LOCAL_WRITE) | _REMOTE),
    "sq_psn": (_NOT_RTS, 0, PSN_MASK),
    "timeout": (_NOT_RTS, 0, 31),
    "retry_cnt": (_NOT_RTS, 0, 7),
    "rnr_retry": (_NOT_RTS, 0, 7),
    "max_rd_atomic": (_NOT_RTS, 0, MAX_RD_ATOMIC),
}


class RocePairsEndpoint(CommonEndpoint):
    """See the module's docstring. `endpoint.RoceEndpoint` adds what happens to packets."""

    config: RoceConfig
    _rng: random.Random
    _codec: RoceCodec
    _tc_data: int
    _qps: dict[int, RoceQueuePair]
    _now: int
    _next_qpn: int

    # --- what the endpoint does with packets ---

    def _due(self, qp: RoceQueuePair, now: int) -> None:
        raise NotImplementedError

    def _wake(self, qp: RoceQueuePair, now: int) -> None:
        raise NotImplementedError

    def _schedule(self, qp: RoceQueuePair) -> None:
        raise NotImplementedError

    def _silence(self, qp: RoceQueuePair) -> None:
        """Send nothing more of a queue pair."""
        raise NotImplementedError

    def _forget(self, qp: RoceQueuePair) -> None:
        """Keep the counts of a queue pair that goes."""
        raise NotImplementedError

    # --- queue pairs ---

    def create_qp(
        self,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        *,
        domain: int = 0,
        srq: SharedReceives | None = None,
    ) -> RoceQueuePair:
        """Return a queue pair in RESET, on the next port in turn and a random UDP source port, which it keeps.

        Its peer reaches memory of the protection domain `domain`; it takes receives of `srq`, if that is given.
        """
        recv_cq = recv_cq or send_cq
        self._check_queues(send_cq, recv_cq)
        c, rng = self.config, self._rng
        self._next_qpn = self._next_qpn % ((1 << 24) - 1) + 1
        while self._next_qpn in self._qps or self._next_qpn in self.taken or self._next_qpn < 3:
            self._next_qpn = self._next_qpn % ((1 << 24) - 1) + 1
        start = self._first_psn()
        qp = RoceQueuePair(
            self._next_qpn,
            send_cq,
            recv_cq,
            self._codec,
            Dcqcn(c.dcqcn, c.line_rate_bps // c.ports.count),
            mtu=c.wire.mtu,
            start_psn=start,
            port=len(self._qps) % c.ports.count,
            entropy=0xC000 | rng.getrandbits(14) | rng.getrandbits(16) << 16,
            timeout=c.timeout,
            ack_every=c.ack_every,
            max_inflight=c.max_inflight_packets,
            traffic_class=self._tc_data,
            timed=self._due,
            overflowed=self._on_overflow,
            selective=c.selective_repeat,
            reorders=c.reorders,
            domain=domain,
            srq=srq,
            min_rnr_timer=c.min_rnr_timer,
            retry_cnt=c.retry_cnt,
            rnr_retry=c.rnr_retry,
            max_rd_atomic=c.max_rd_atomic,
            max_dest_rd_atomic=c.max_dest_rd_atomic,
        )
        self._qps[qp.number] = qp
        self._join_queues(qp, send_cq, recv_cq)
        if srq is not None:
            srq.users += 1
        return qp

    def numbers(self) -> Container[int]:
        """Return the numbers of all queue pairs, as they come and go."""
        return self._qps

    def _first_psn(self) -> int:
        return self._rng.getrandbits(24) if self.config.initial_psn is None else self.config.initial_psn

    def destroy_qp(self, qp: RoceQueuePair, now: int) -> None:
        """Forget a queue pair: its requests and receives end without a completion."""
        self.reset_qp(qp)
        self._forget(qp)
        del self._qps[qp.number]
        self._leave_queues(qp, qp.send_cq, qp.recv_cq)
        if qp.srq is not None:
            qp.srq.users -= 1

    def fail_qp(self, qp: RoceQueuePair) -> None:
        """Go to ERROR at the user's request: flush all requests and receives."""
        self._to_error(qp, FLUSHED, ErrorReason.REQUESTED)

    def reset_qp(self, qp: RoceQueuePair) -> None:
        """Go to RESET: requests and receives end without a completion, and another first PSN is drawn. Attributes
        stay until they are set again."""
        self._silence(qp)
        self._give_up_receive(qp)
        qp.reset_responder()
        qp.start(self._first_psn())
        if qp.state is not QpState.RESET:
            self._set_state(qp, QpState.RESET, None)

    def _give_up_receive(self, qp: RoceQueuePair) -> None:
        """Count the shared receive of a message that will not be complete as ended: it has no completion."""
        if qp.srq is not None and qp.receive is not None:
            qp.receive = None
            qp.srq.ended += 1

    def set_attribute(self, qp: RoceQueuePair, name: str, value: int) -> None:
        """Set an attribute of `ATTRIBUTES`. Raises QpError for a state in which it is not set, ConfigError for a value
        out of range.
        """
        if name not in ATTRIBUTES:
            raise QpError(f"no attribute '{name}'; known: {', '.join(ATTRIBUTES)}")
        states, least, most = ATTRIBUTES[name]
        if qp.state not in states:
            allowed = ", ".join(state.value for state in states)
            raise QpError(f"{name} is set in {allowed}; the queue pair is in {qp.state.value}")
        check_range(name, value, least, most)
        if name == "sq_psn":
            qp.start(value)
        elif name == "rq_psn":
            qp.epsn = value
        elif name == "path_mtu":
            self._set_mtu(qp, value)
        elif name == "qp_access_flags":
            qp.access = value & _REMOTE
        elif name == "timeout":
            qp.timeout = value
            qp.timeout_ns = TIMEOUT_UNIT_NS << value if value else None
        else:
            setattr(qp, name, value)

    def _set_mtu(self, qp: RoceQueuePair, mtu: int) -> None:
        check_range("path_mtu", mtu, 64, self.config.wire.mtu)
        qp.mtu = mtu
        qp.start(qp.start_psn)

    def attributes(self, qp: RoceQueuePair) -> dict[str, int]:
        """Return the values of all `ATTRIBUTES`, and the number of the peer."""
        return {
            "path_mtu": qp.mtu,
            "rq_psn": qp.epsn & PSN_MASK,
            "max_dest_rd_atomic": qp.max_dest_rd_atomic,
            "min_rnr_timer": qp.min_rnr_timer,
            "qp_access_flags": qp.access,
            "sq_psn": qp.start_psn & PSN_MASK,
            "timeout": qp.timeout if qp.timeout_ns is not None else 0,
            "retry_cnt": qp.retry_cnt,
            "rnr_retry": qp.rnr_retry,
            "max_rd_atomic": qp.max_rd_atomic,
            "dest_qp_num": qp.peer_qp,
        }

    def local_attributes(self, qp: RoceQueuePair) -> RoceQpDocument:
        """Return what the peer needs, as one JSON-serialisable document. Moves a QP in RESET to INIT."""
        if qp.state is QpState.RESET:
            self._set_state(qp, QpState.INIT, None)
        return {
            "transport": "roce",
            "qpn": qp.number,
            "address": self.config.address.hex(),
            "initial_psn": qp.start_psn & PSN_MASK,
            "mtu": qp.mtu,
        }

    def connect(self, qp: RoceQueuePair, remote: object, now: int) -> None:
        """Go INIT -> RTR -> RTS with the peer's attributes. Raises QpError."""
        self.accept(qp, remote, now)
        self.ready(qp, now)

    def accept(self, qp: RoceQueuePair, remote: object, now: int) -> None:
        """Go INIT -> RTR with the peer's attributes. Raises QpError."""
        if qp.state is not QpState.INIT:
            raise QpError(f"connect needs INIT, queue pair {qp.number} is in {qp.state.name}")
        if not isinstance(remote, dict):
            raise QpError(f"the peer's attributes are {remote!r:.60}, not an object")
        missing = {"qpn", "address", "initial_psn", "mtu"} - remote.keys()
        if missing:
            raise QpError(f"the peer's attributes lack {', '.join(sorted(missing))}")
        if remote.get("transport", "roce") != "roce":
            raise QpError(f"the peer speaks {remote['transport']}, not RoCE")
        if int(remote["mtu"]) != qp.mtu:
            raise QpError(f"the peer's MTU is {remote['mtu']}, ours {qp.mtu}; they must be equal")
        address = bytes.fromhex(str(remote["address"]))
        self.accept_named(qp, int(remote["qpn"]), address, int(remote["initial_psn"]), qp.mtu)

    def accept_named(self, qp: RoceQueuePair, number: int, address: bytes, rq_psn: int, mtu: int) -> None:
        """Go INIT -> RTR with what `ibv_modify_qp` says of the peer. Raises QpError and ConfigError."""
        if qp.state is not QpState.INIT:
            raise QpError(f"connect needs INIT, queue pair {qp.number} is in {qp.state.name}")
        check_range("the peer's queue pair number", number, 0, PSN_MASK)
        check_range("the peer's first PSN", rq_psn, 0, PSN_MASK)
        if mtu != qp.mtu:
            self._set_mtu(qp, mtu)
        qp.peer_qp = number
        qp.addresses = self.config.address + address
        if address == self.config.address:
            self._ports.looping = True
        qp.epsn = rq_psn
        self._set_state(qp, QpState.RTR, None)

    def ready(self, qp: RoceQueuePair, now: int) -> None:
        """Go RTR -> RTS. Raises QpError."""
        if qp.state is not QpState.RTR:
            raise QpError(f"RTS follows RTR, queue pair {qp.number} is in {qp.state.name}")
        self._set_state(qp, QpState.RTS, None)

    # --- work requests ---

    def post_write(
        self,
        qp: RoceQueuePair,
        local: Buffer,
        remote_va: int,
        rkey: int,
        wr_id: int,
        *,
        local_offset: int = 0,
        length: int | None = None,
        fence: bool = False,
    ) -> None:
        """Write `local[local_offset:][:length]` to the peer's memory. Raises QpError in a state before RTS."""
        view = bytes_of(local, local_offset, length)
        self._post(
            qp,
            RoceRequest(CompletionKind.WRITE, wr_id, len(view), view=view, va=remote_va, rkey=rkey, fence=fence),
        )

    def post_write_imm(  # noqa: PLR0913 - the fields of a work request
        self,
        qp: RoceQueuePair,
        local: Buffer,
        remote_va: int,
        rkey: int,
        immediate: int,
        wr_id: int,
        *,
        local_offset: int = 0,
        length: int | None = None,
        solicited: bool = False,
        fence: bool = False,
    ) -> None:
        """Do as `post_write`, and deliver a 32-bit immediate to one posted receive of the peer."""
        view = bytes_of(local, local_offset, length)
        self._post(
            qp,
            RoceRequest(
                CompletionKind.WRITE_IMM, wr_id, len(view), view=view, va=remote_va, rkey=rkey, immediate=immediate,
                solicited=solicited, fence=fence,
            ),
        )  # fmt: skip

    def post_send(
        self,
        qp: RoceQueuePair,
        local: Buffer,
        wr_id: int,
        *,
        immediate: int | None = None,
        solicited: bool = False,
        fence: bool = False,
    ) -> None:
        """Send bytes into one posted receive of the peer. Raises QpError in a state before RTS."""
        view = bytes_of(local, 0, None)
        self._post(
            qp,
            RoceRequest(
                CompletionKind.SEND, wr_id, len(view), view=view, immediate=immediate, solicited=solicited, fence=fence
            ),
        )

    def post_read(
        self, qp: RoceQueuePair, target: Scatter, remote_va: int, rkey: int, wr_id: int, *, fence: bool = False
    ) -> None:
        """Read as many bytes of the peer's memory as `target` has. Raises QpError in a state before RTS."""
        if target.length > _MAX_BYTES:
            raise ValueError(f"{target.length} bytes are more than one request can carry ({_MAX_BYTES})")
        if target.length // qp.mtu >= _MOST_PSNS:
            raise QpError(f"a READ of {target.length} bytes takes too many PSNs for a path MTU of {qp.mtu}")
        request = RoceRequest(
            CompletionKind.READ, wr_id, target.length, target=target, va=remote_va, rkey=rkey, fence=fence
        )
        self._post(qp, request)

    def post_compare_swap(
        self,
        qp: RoceQueuePair,
        target: Scatter,
        remote_va: int,
        rkey: int,
        compare: int,
        swap: int,
        wr_id: int,
        *,
        fence: bool = False,
    ) -> None:
        """Put `swap` in the place of a 64-bit number of the peer that equals `compare`; `target` gets what it was."""
        request = RoceRequest(
            CompletionKind.COMPARE_SWAP, wr_id, ATOMIC_BYTES, target=target, va=remote_va, rkey=rkey, fence=fence,
            swap_or_add=swap, compare=compare,
        )  # fmt: skip
        self._post(qp, request)

    def post_fetch_add(
        self,
        qp: RoceQueuePair,
        target: Scatter,
        remote_va: int,
        rkey: int,
        add: int,
        wr_id: int,
        *,
        fence: bool = False,
    ) -> None:
        """Add to a 64-bit number of the peer; `target` gets what it was."""
        request = RoceRequest(
            CompletionKind.FETCH_ADD, wr_id, ATOMIC_BYTES, target=target, va=remote_va, rkey=rkey, fence=fence,
            swap_or_add=add,
        )  # fmt: skip
        self._post(qp, request)

    def _post(self, qp: RoceQueuePair, request: RoceRequest) -> None:
        if qp.state is QpState.ERROR:
            self._finish(qp, request, FLUSHED)
            return
        if qp.state is not QpState.RTS:
            raise QpError(f"posting needs RTS, queue pair {qp.number} is in {qp.state.name}; connect it first")
        if request.answers and not qp.max_rd_atomic:
            raise QpError(f"max_rd_atomic of queue pair {qp.number} is 0: neither READ nor atomics")
        if request.answers and request.target is not None and request.target.length != request.length:
            raise ValueError(f"the answer has {request.length} bytes, its place {request.target.length}")
        qp.work.post(request)
        self._wake(qp, self._now)
        if not qp.in_ring:
            self._schedule(qp)

    def post_recv(self, qp: RoceQueuePair, wr_id: int, count: int = 1) -> None:
        """Post `count` receives without memory, each for one immediate."""
        for _ in range(count):
            self.post_receive(qp, wr_id, ())

    def post_receive(self, qp: RoceQueuePair, wr_id: int, elements: Sequence[Element]) -> None:
        """Post a receive into the memory of its elements, which are looked up when a message takes it."""
        if qp.srq is not None:
            raise QpError(f"queue pair {qp.number} takes receives of shared receive queue {qp.srq.number}")
        if qp.state is QpState.ERROR:
            self._flush_receive(qp, wr_id)
        else:
            qp.receives.append(PostedReceive(wr_id, tuple(elements)))

    def _flush_receive(self, qp: RoceQueuePair, wr_id: int) -> None:
        self._complete(qp.recv_cq, Completion(wr_id, qp.number, CompletionKind.RECV_IMM, FLUSHED, 0, None))

    # --- shared receive queues ---

    def create_srq(self, number: int, domain: int, limit: int = 0) -> SharedReceives:
        """Return a queue of receives that queue pairs of the protection domain can share."""
        return SharedReceives(number, domain, limit)

    def post_shared(self, srq: SharedReceives, wr_id: int, elements: Sequence[Element]) -> None:
        """Post a receive for any of the queue pairs that share the queue."""
        srq.receives.append(PostedReceive(wr_id, tuple(elements)))

    def _taken_from(self, srq: SharedReceives) -> None:
        """Report that receives run out, once."""
        if srq.limit and len(srq.receives) < srq.limit:
            srq.limit = 0
            self._events.append(SrqLimitReached(srq.number))

    # --- ends ---

    def _to_error(
        self, qp: RoceQueuePair, status: CompletionStatus, reason: ErrorReason, culprit: RoceRequest | None = None
    ) -> None:
        """End the oldest request, or `culprit`, with `status` and flush the others."""
        if qp.state is QpState.ERROR:
            return
        self._set_state(qp, QpState.ERROR, reason)
        qp.deadline = qp.dcqcn.deadline = None
        qp.responses.clear()
        for request in qp.work.flush():
            guilty = culprit is None or request is culprit
            self._finish(qp, request, status if guilty else FLUSHED)
            if guilty:
                status = FLUSHED
        for receive in qp.flush_receives():
            self._flush_receive(qp, receive.wr_id)
        if qp.srq is not None:
            self._events.append(LastReceiveTaken(qp.number))

    def _refused(self, qp: RoceQueuePair, syndrome: int) -> None:
        status = NAK_STATUS[syndrome]
        self._to_error(qp, status, REASONS[status])

    def _finish(self, qp: RoceQueuePair, request: RoceRequest, status: CompletionStatus) -> None:
        self._complete(qp.send_cq, Completion(request.wr_id, qp.number, request.kind, status, request.length, None))

    def _complete(self, cq: CompletionQueue, completion: Completion) -> None:
        cq.deliver(completion, self._events, self._now)

    def _on_overflow(self, qp: RoceQueuePair) -> None:
        self._to_error(qp, FLUSHED, ErrorReason.CQ_OVERFLOW)

    def _set_state(self, qp: RoceQueuePair, state: QpState, reason: ErrorReason | None) -> None:
        self._events.append(QpStateChanged(qp.number, qp.state, state, reason))
        qp.state = state
