"""Queue pairs, what is posted to them, and hints about their traffic."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from mrc_host.verbs import layout, requests
from mrc_host.verbs.completion import CompletionQueue
from mrc_host.verbs.connection import VerbsError
from mrc_host.verbs.device import Context, ProtectionDomain, Sge
from mrc_host.verbs.layout import QpState, RingOpcode, SendFlags, WcOpcode
from mrc_host.verbs.requests import Ev, HintAttributes, HintChanges, RemoteQp, Wire

_MASK: Final = 0xFFFFFFFF


def receive_into(
    context: Context, opcode: RingOpcode, target: int, wr_id: int, local: Sge | Sequence[Sge], most: int
) -> None:
    """Write an entry of a receive with elements; under the context's lock, and followed by `submit`.

    Raises:
        VerbsError: more than `most` elements, or a number out of range.
    """
    pieces = [local] if isinstance(local, Sge) else list(local)
    if len(pieces) > most:
        raise VerbsError(errno.EINVAL, f"{len(pieces)} elements; at most {most}")
    at = context.place()
    where = at + layout.ELEMENTS_AT
    try:
        for each in pieces:
            layout.ELEMENT.pack_into(context.entries, where, each.addr, each.length, each.lkey)
            where += layout.ELEMENT.size
        layout.REQUEST.pack_into(context.entries, at, opcode, 0, len(pieces), target, wr_id, 0, 0, 0, 0)
    except struct.error as error:
        raise VerbsError(errno.EINVAL, f"a number of the receive is out of range: {error}") from None


class SharedReceiveQueue:
    """Receives that several queue pairs of RoCE take from (`ibv_srq`).

    Args:
        domain: whose memory the receives name.
        max_wr: how many receives it can hold.
        max_sge: elements of a receive.
        limit: an event SRQ_LIMIT_REACHED comes once when fewer receives are left; 0: never.
    """

    def __init__(
        self, domain: ProtectionDomain, max_wr: int = 128, max_sge: int = layout.MAX_SGE, limit: int = 0
    ) -> None:
        self.domain = domain
        self.context = domain.context
        self.max_wr = max_wr
        self.max_sge = max_sge
        self.number = self.context.ask(requests.CreateSrq(domain.number, max_wr, max_sge, limit)).srq
        self._posted = self._ended = 0

    def post_recv(self, local: Sge | Sequence[Sge] = (), *, wr_id: int = 0) -> None:
        """Post a receive into the memory that `local` names.

        Raises:
            VerbsError: the queue is full (ENOMEM), or the receive is not valid.
        """
        with self.context.lock:
            if (self._posted - self._ended) & _MASK >= self.max_wr:
                raise VerbsError(
                    errno.ENOMEM, f"shared receive queue {self.number}: no more than {self.max_wr} receives at once"
                )
            receive_into(self.context, RingOpcode.SRQ_RECV, self.number, wr_id, local, self.max_sge)
            self._posted += 1
            self.context.submit()

    def query(self) -> requests.SrqDocument:
        """Return its size, its limit, and how many receives wait in it."""
        return self.context.ask(requests.QuerySrq(self.number))

    def modify(self, limit: int) -> None:
        """Set the limit (`IBV_SRQ_LIMIT`)."""
        self.context.ask(requests.ModifySrq(self.number, limit))

    def ended(self, count: int) -> None:
        """Record how many receives have ended so far (modulo 2^32), at each completion of one."""
        self._ended = count

    def destroy(self) -> None:
        """Destroy the queue and the receives in it. Raises VerbsError while queue pairs use it."""
        self.context.ask(requests.DestroySrq(self.number))


_SIGNALED = SendFlags.SIGNALED
_RECEIVES = (int(WcOpcode.RECV), int(WcOpcode.RECV_RDMA_WITH_IMM))
_SENDS = frozenset(RingOpcode) - {RingOpcode.RECV, RingOpcode.NOTIFY, RingOpcode.RECV_INTO, RingOpcode.SRQ_RECV}
_ATOMICS = (RingOpcode.COMPARE_SWAP, RingOpcode.FETCH_ADD)
Local = Sge | Sequence[Sge] | bytes | bytearray | memoryview


@dataclass(frozen=True)
class QpCap:
    """How much a queue pair can hold (`ibv_qp_cap`): requests under way, elements of a list, bytes inline."""

    max_send_wr: int = 128
    max_recv_wr: int = 128
    max_send_sge: int = layout.MAX_SGE
    max_inline_data: int = layout.INLINE_BYTES
    max_recv_sge: int = layout.MAX_SGE


@dataclass(frozen=True)
class SendRequest:
    """A request to be posted (`ibv_send_wr`): `local` is one element, several, or, inline, bytes.

    Without `opcode` it is a write, with immediate if `imm_data` is not None. `compare_add` and `swap` are the numbers
    of an atomic operation.
    """

    local: Local
    remote_addr: int = 0
    rkey: int = 0
    wr_id: int = 0
    imm_data: int | None = None
    flags: SendFlags = SendFlags.SIGNALED
    opcode: RingOpcode | None = None
    compare_add: int = 0
    swap: int = 0


@dataclass(frozen=True)
class QpAttributes:
    """The answer of `query` about a queue pair (`mrc_qp_attr`, and what applies of `ibv_qp_attr`).

    `values` has all attributes by name: those that `modify` takes, `path_mtu`, `sq_psn`, `dest_qp_num`,
    `remote_address`, and `error`, the reason for which it is in ERR.
    """

    state: QpState
    ev_profile: str
    cc_profile: str
    hint: int | None
    sends_posted: int
    receives_posted: int
    why: str
    values: Mapping[str, Any] = field(default_factory=dict)


class QpHint:
    """The traffic that a program expects of some queue pairs (`mrc_qp_hint_attr`)."""

    def __init__(
        self, context: Context, *, num_qps_per_peer: int = 0, num_send_peers: int = 0, num_remote_recv_peers: int = 0
    ) -> None:
        self.context = context
        attributes = HintAttributes(num_qps_per_peer, num_send_peers, num_remote_recv_peers)
        self.number = context.ask(requests.CreateHint(attributes)).hint

    def modify(self, **attributes: int) -> None:
        """Change some of the hint's attributes."""
        try:
            changes = HintChanges(**attributes)
        except TypeError as error:
            raise VerbsError(errno.EINVAL, f"attributes of a hint: {error}") from None
        self.context.ask(requests.ModifyHint(self.number, changes))

    def query(self) -> dict[str, int]:
        """Return all attributes."""
        return dict(vars(self.context.ask(requests.QueryHint(self.number)).attributes))

    def destroy(self) -> None:
        """Destroy the hint. Raises VerbsError while queue pairs name it."""
        self.context.ask(requests.DestroyHint(self.number))


class QueuePair:
    """One end of a connection.

    It starts in RESET; `connect` takes it to RTS with the peer's `document`, or `modify` step by step.

    Args:
        domain: whose memory it works on, and its peer may write to.
        send_cq: where writes report.
        recv_cq: where receives report; by default the same.
        cap: how much it can hold.
        sq_sig_all: each send reports; else those with SendFlags.SIGNALED, and those that fail.
        wire: its transport, by default that of the lab. Its peer must have the same.
        srq: a shared receive queue, whose receives it takes; of RoCE only.
        user: whatever the program likes; `qp_context` of the C library.
    """

    def __init__(
        self,
        domain: ProtectionDomain,
        send_cq: CompletionQueue,
        recv_cq: CompletionQueue | None = None,
        *,
        cap: QpCap | None = None,
        sq_sig_all: bool = False,
        wire: Wire | None = None,
        srq: SharedReceiveQueue | None = None,
        user: Any = None,
    ) -> None:
        self.domain = domain
        self.context = domain.context
        self.send_cq = send_cq
        self.recv_cq = recv_cq or send_cq
        self.cap = cap or QpCap()
        self.sq_sig_all = sq_sig_all
        self.wire = Wire(self.context.transport) if wire is None else Wire(wire)
        self.srq = srq
        self.user = user
        wanted = requests.CreateQp(
            pd=domain.number,
            send_cq=send_cq.number,
            recv_cq=self.recv_cq.number,
            sq_sig_all=sq_sig_all,
            max_send_wr=self.cap.max_send_wr,
            max_recv_wr=self.cap.max_recv_wr,
            max_send_sge=self.cap.max_send_sge,
            max_inline_data=self.cap.max_inline_data,
            max_recv_sge=self.cap.max_recv_sge,
            wire=wire,
            srq=None if srq is None else srq.number,
        )
        self.qp_num = self.context.ask(wanted).qp_num
        self.state = QpState.RESET
        self._sent = self._sent_ended = 0
        self._received = self._received_ended = 0
        self.context.queue_pairs[self.qp_num] = self

    # -- states and attributes ----------------------------------------------------------------------------------

    def document(self) -> dict[str, Any]:
        """Return what the peer needs, to be sent to it out of band, as JSON. A queue pair in RESET goes to INIT."""
        found: dict[str, Any] = cast("Any", self.context.ask(requests.GetQpDocument(self.qp_num)).document)
        if self.state is QpState.RESET:
            self.state = QpState.INIT
        return found

    def connect(self, document: Mapping[str, Any]) -> None:
        """Go from INIT to RTS, with the peer's document."""
        self.modify(QpState.RTR, document=document)
        self.modify(QpState.RTS)

    def modify(
        self,
        state: QpState | None = None,
        *,
        document: Mapping[str, Any] | None = None,
        remote: RemoteQp | None = None,
        ev_profile: str | None = None,
        cc_profile: str | None = None,
        hint: QpHint | None = None,
        **attributes: Any,
    ) -> None:
        """Set attributes, and then take one step of the state (RESET, INIT, RTR, RTS; ERR from everywhere).

        Profiles, `hint`, `max_wimm_dest`, `mpr_dest`, `dynamic_mpr`, `trim_nack` and `service_time` are set before RTR,
        which takes the peer's `document`, or `remote`, which names the peer as `ibv_modify_qp` does. `max_wimm`, `mpr`,
        `timeout`, `linear_cnt`, `exp_cnt` and `sq_psn` are set before RTS. A queue pair of RoCE has the attributes of
        `ibv_modify_qp`: `path_mtu`, `rq_psn` and `max_dest_rd_atomic` are set before RTR, `sq_psn`, `timeout`,
        `retry_cnt`, `rnr_retry` and `max_rd_atomic` before RTS, `min_rnr_timer` and `qp_access_flags` at any time.
        Its local ACK timeout is 4.096 us * 2**`timeout`, and 0 waits for ever.

        Raises:
            VerbsError: an attribute or a step that is not allowed.
        """
        wanted = requests.ModifyQp(
            qp=self.qp_num,
            attributes=attributes,
            state=state,
            document=None if document is None else dict(document),
            remote=remote,
            ev_profile=ev_profile,
            cc_profile=cc_profile,
            hint=None if hint is None else hint.number,
        )
        self.state = self.context.ask(wanted).state
        if self.state is QpState.RESET:  # what was under way ends without a completion
            self._sent_ended, self._received_ended = self._sent & _MASK, self._received & _MASK

    def query(self) -> QpAttributes:
        """Return the state and attributes, as the device has them."""
        answer = self.context.ask(requests.QueryQp(self.qp_num))
        self.state = answer.state
        return QpAttributes(
            answer.state,
            answer.ev_profile,
            answer.cc_profile,
            answer.hint,
            answer.sends_posted,
            answer.receives_posted,
            answer.why,
            answer.attributes,
        )

    def query_evs(self) -> list[Ev]:
        """Return the EVs of the queue pair, with their states."""
        found: list[Ev] = []
        while True:
            answer = self.context.ask(requests.QueryPairEvs(self.qp_num, len(found)))
            found += answer.evs
            if len(found) >= answer.count or not answer.evs:
                return found

    # -- work requests --------------------------------------------------------------------------------------------

    def post_write(
        self,
        local: Local,
        remote_addr: int,
        rkey: int,
        *,
        wr_id: int = 0,
        flags: SendFlags = SendFlags.SIGNALED,
    ) -> None:
        """Write bytes to the peer's memory. `local` is not to be changed before the write has completed.

        Raises:
            VerbsError: the queue pair is not in RTS or ERR (where the request completes as flushed), its send queue is
                full (ENOMEM), or the request is not valid.
        """
        with self.context.lock:
            self._post(RingOpcode.WRITE, local, remote_addr, rkey, wr_id, 0, flags)

    def post_write_imm(
        self,
        local: Local,
        remote_addr: int,
        rkey: int,
        imm_data: int,
        *,
        wr_id: int = 0,
        flags: SendFlags = SendFlags.SIGNALED,
    ) -> None:
        """Do as `post_write`, and deliver 32 bits to a receive that the peer has posted, when all has arrived."""
        with self.context.lock:
            self._post(RingOpcode.WRITE_IMM, local, remote_addr, rkey, wr_id, imm_data, flags)

    def post_message(
        self,
        local: Local,
        *,
        imm_data: int | None = None,
        wr_id: int = 0,
        flags: SendFlags = SendFlags.SIGNALED,
    ) -> None:
        """Send bytes into the next receive of the peer (`IBV_WR_SEND`); of RoCE only. Raises as `post_write`."""
        with self.context.lock:
            opcode = RingOpcode.SEND if imm_data is None else RingOpcode.SEND_IMM
            self._post(opcode, local, 0, 0, wr_id, imm_data or 0, flags)

    def post_read(
        self,
        local: Local,
        remote_addr: int,
        rkey: int,
        *,
        wr_id: int = 0,
        flags: SendFlags = SendFlags.SIGNALED,
    ) -> None:
        """Read bytes of the peer's memory into `local`; of RoCE only. Raises as `post_write`.

        The peer's region needs REMOTE_READ. What is posted behind it with SendFlags.FENCE begins when it has completed.
        """
        with self.context.lock:
            self._post(RingOpcode.READ, local, remote_addr, rkey, wr_id, 0, flags)

    def post_atomic(
        self,
        opcode: RingOpcode,
        local: Local,
        remote_addr: int,
        rkey: int,
        compare_add: int,
        swap: int = 0,
        *,
        wr_id: int = 0,
        flags: SendFlags = SendFlags.SIGNALED,
    ) -> None:
        """Do COMPARE_SWAP or FETCH_ADD on the 64-bit number of the peer at an address that is a multiple of 8; of RoCE
        only. `local` gets the number that was there. Raises as `post_write`.

        Numbers are in the byte order of the machine. The peer's region needs REMOTE_ATOMIC.
        """
        if opcode not in _ATOMICS:
            raise VerbsError(errno.EINVAL, f"{RingOpcode(opcode).name} is no atomic operation")
        with self.context.lock:
            self._post(opcode, local, remote_addr, rkey, wr_id, 0, flags, compare_add, swap)

    def post_send(self, requests: Iterable[SendRequest]) -> None:
        """Post several requests, with one wake-up of the device.

        Raises:
            VerbsError: as `post_write`; the requests before the one that is refused are posted.
        """
        with self.context.batch():
            for each in requests:
                opcode = each.opcode
                if opcode is None:
                    opcode = RingOpcode.WRITE if each.imm_data is None else RingOpcode.WRITE_IMM
                elif opcode not in _SENDS:
                    raise VerbsError(errno.EINVAL, f"{RingOpcode(opcode).name} is not sent")
                self._post(
                    opcode, each.local, each.remote_addr, each.rkey, each.wr_id, each.imm_data or 0, each.flags,
                    each.compare_add, each.swap,
                )  # fmt: skip

    def _post(
        self,
        opcode: RingOpcode,
        local: Local,
        remote_addr: int,
        rkey: int,
        wr_id: int,
        imm_data: int,
        flags: SendFlags,
        compare_add: int = 0,
        swap: int = 0,
    ) -> None:
        if self.state not in (QpState.RTS, QpState.ERR):  # in ERR the device flushes what is posted
            raise VerbsError(errno.EINVAL, f"queue pair {self.qp_num} is in {self.state.name}; writes need RTS")
        if (self._sent - self._sent_ended) & _MASK >= self.cap.max_send_wr:
            raise VerbsError(
                errno.ENOMEM,
                f"queue pair {self.qp_num}: {self.cap.max_send_wr} sends under way; take completions first, and have "
                "some signaled",
            )
        context = self.context
        entries, at = context.entries, context.place()
        where = at + layout.ELEMENTS_AT
        inline = elements = 0
        try:
            if flags & SendFlags.INLINE:
                if not isinstance(local, bytes | bytearray | memoryview):
                    raise VerbsError(errno.EINVAL, "inline takes bytes, not elements")
                inline = len(local)
                if inline > self.cap.max_inline_data:
                    raise VerbsError(errno.EINVAL, f"{inline} bytes inline; at most {self.cap.max_inline_data}")
                entries[where : where + inline] = local
            elif isinstance(local, Sge):
                layout.ELEMENT.pack_into(entries, where, *local)
                elements = 1
            elif isinstance(local, bytes | bytearray | memoryview):
                raise VerbsError(errno.EINVAL, "bytes are sent with SendFlags.INLINE; else name a piece of a region")
            else:
                elements = len(local)
                if elements > self.cap.max_send_sge:
                    raise VerbsError(errno.EINVAL, f"{elements} elements; at most {self.cap.max_send_sge}")
                for each in local:
                    layout.ELEMENT.pack_into(entries, where, each.addr, each.length, each.lkey)
                    where += layout.ELEMENT.size
            layout.REQUEST.pack_into(
                entries, at, opcode, flags, elements, self.qp_num, wr_id, remote_addr, rkey, imm_data, inline
            )
            if opcode in _ATOMICS:
                layout.ATOMIC.pack_into(entries, at + layout.ATOMIC_AT, compare_add, swap)
        except (struct.error, TypeError, ValueError) as error:
            raise VerbsError(errno.EINVAL, f"a number of the work request is out of range: {error}") from None
        self._sent += 1
        context.submit()

    def post_recv(self, wr_id: int = 0, count: int = 1, local: Sge | Sequence[Sge] | None = None) -> None:
        """Post `count` receives, each for one immediate; or one for a message (RoCE), into the memory that `local`
        names.

        Raises:
            VerbsError: the queue pair is in RESET, or its receive queue is full (ENOMEM).
        """
        if self.state is QpState.RESET:
            raise VerbsError(errno.EINVAL, f"queue pair {self.qp_num} is in RESET; receives need INIT")
        if self.srq is not None:
            raise VerbsError(errno.EINVAL, f"queue pair {self.qp_num} takes receives of its shared receive queue")
        if not 1 <= count <= 0xFFFF:
            raise VerbsError(errno.EINVAL, f"{count} receives; 1 to 65535 at once")
        if local is not None and count != 1:
            raise VerbsError(errno.EINVAL, f"{count} receives into the same memory; post one at a time")
        with self.context.lock:
            if ((self._received - self._received_ended) & _MASK) + count > self.cap.max_recv_wr:
                raise VerbsError(
                    errno.ENOMEM, f"queue pair {self.qp_num}: no more than {self.cap.max_recv_wr} receives at once"
                )
            if local is not None:
                receive_into(self.context, RingOpcode.RECV_INTO, self.qp_num, wr_id, local, self.cap.max_recv_sge)
            else:
                at = self.context.place()
                try:
                    layout.REQUEST.pack_into(
                        self.context.entries, at, RingOpcode.RECV, 0, count, self.qp_num, wr_id, 0, 0, 0, 0
                    )
                except struct.error as error:
                    raise VerbsError(errno.EINVAL, f"wr_id is out of range: {error}") from None
            self._received += count
            self.context.submit()

    def ended(self, opcode: int, count: int) -> None:
        """Record how many requests of a kind have ended so far (modulo 2^32), at each completion."""
        if opcode not in _RECEIVES:
            self._sent_ended = count
        elif self.srq is not None:
            self.srq.ended(count)
        else:
            self._received_ended = count

    def destroy(self) -> None:
        """Destroy the queue pair; requests under way are lost. Raises VerbsError while events of it are not
        acknowledged.
        """
        self.context.check_acked(True, self.qp_num)
        self.context.ask(requests.DestroyQp(self.qp_num))
        del self.context.queue_pairs[self.qp_num]
