"""One rank's end of the way to another rank: messages, cut into chunks, through slots in the receiver's memory.

A chunk is a write with immediate into the next slot of the peer; the slot is free again when the peer's credit says so.
Messages of one key arrive in the order in which they were sent. A message that was not asked for yet is kept aside,
up to `KEPT_BYTES`; beyond that its slots stay taken, and the sender waits.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from mrc_host import verbs
from mrc_host.verbs import SendFlags
from mrc_torch.errors import MismatchError
from mrc_torch.work import Work

SLOTS: Final = 4
SLOT_BYTES: Final = 1 << 17
HEAD_BYTES: Final = 64  # keeps elements of all sizes whole
PAYLOAD_BYTES: Final = SLOT_BYTES - HEAD_BYTES
AREA_BYTES: Final = SLOTS * SLOT_BYTES
#: key, bytes of the message, offset of the chunk in it.
CHUNK: Final = struct.Struct("=QQQ")
KEPT_BYTES: Final = 64 << 20

#: Writes under way at once: chunks, credits, and the last words.
WRITES: Final = 2 * SLOTS + 4
RECEIVES: Final = 2 * WRITES
CAP: Final = verbs.QpCap(max_send_wr=WRITES + 4, max_recv_wr=RECEIVES, max_send_sge=1, max_inline_data=0)

PING: Final = 1  # wr_id
_CREDITS: Final = 0xFFFF
_RANKS: Final = 0xFFF
MAX_RANKS: Final = _RANKS + 1

Sink = Callable[[int, memoryview], None]


class ControlWord(IntEnum):
    """The meaning of an immediate, in its upper four bits; below are a rank (12 bits) and all credits so far (16
    bits).
    """

    CHUNK = 0
    CREDIT = 1
    DEAD = 2  # the sender knows that the rank is dead
    GAVE_UP = 3  # the sender has given up on the group because of the rank
    BYE = 4  # the sender sends nothing any more
    WHOM = 5  # asks whom the receiver of this word waits for
    WAITS = 6  # the answer: the sender waits for the rank, or for none if that is its own


class LinkTransfer:
    """A message to be sent or received. `done`: the caller may use its buffer again; its `work`, if it has one, ends
    with it.
    """

    __slots__ = ("done", "key", "link", "size", "work")

    def __init__(self, link: Link | None, key: int, size: int, work: Work | None) -> None:
        self.link = link  # None: of a receive from any rank, until one sends
        self.key = key
        self.size = size
        self.work = work
        self.done = False


class Send(LinkTransfer):
    """`view`: the bytes; `at`: how many of them are on their way."""

    __slots__ = ("at", "view")

    def __init__(self, link: Link, key: int, view: memoryview, work: Work | None = None) -> None:
        super().__init__(link, key, len(view), work)
        self.view = view
        self.at = 0


class Receive(LinkTransfer):
    """`sink` takes the bytes at an offset, in order."""

    __slots__ = ("sink",)

    def __init__(self, link: Link | None, key: int, size: int, sink: Sink, work: Work | None = None) -> None:
        super().__init__(link, key, size, work)
        self.sink = sink


class _Message:
    """A message that is arriving: for a receive, or kept until there is one."""

    __slots__ = ("got", "kept", "key", "receive", "total")

    def __init__(self, key: int, total: int) -> None:
        self.key = key
        self.total = total
        self.got = 0
        self.receive: Receive | None = None
        self.kept = bytearray()


class Link:
    """See the module's docstring. Not thread-safe: the caller holds the group's lock.

    Args:
        rank: of the peer.
        qp: to it.
        region: holds both areas of slots.
        send_at, receive_at: where they begin in it.
        ended: called with each transfer that is done.
        anyone: finds a receive from any rank for a key.
    """

    def __init__(
        self,
        rank: int,
        qp: verbs.QueuePair,
        region: verbs.MemoryRegion,
        send_at: int,
        receive_at: int,
        ended: Callable[[LinkTransfer], None],
        anyone: Callable[[int], Receive | None],
    ) -> None:
        self.rank = rank
        self.host = ""
        self.qp = qp
        self.region = region
        self.send_at = send_at
        self.receive_at = receive_at
        self._ended = ended
        self._anyone = anyone
        self.remote_addr = 0
        self.rkey = 0
        self.dead = False
        self.left = False  # said bye
        self.heard = 0.0  # when something arrived last, on the group's clock
        self.pinging = False
        self.writes = 0  # under way
        self.outgoing: deque[Send] = deque()
        self._words: deque[tuple[ControlWord, int]] = deque()
        self._sent = 0  # slots ever used
        self._credited = 0  # of these, free again
        self._taken = 0  # of our own slots, ever emptied
        self._told = 0  # of these, returned to the peer as credits
        self._arrived: deque[int] = deque()  # bytes in slots that wait to be emptied
        self._message: _Message | None = None
        self._kept: dict[int, deque[_Message]] = {}
        self._kept_bytes = 0
        self.posted: dict[int, deque[Receive]] = {}

    # -- out -----------------------------------------------------------------------------------------------------

    def send(self, transfer: Send) -> None:
        """Send a message after those before it."""
        self.outgoing.append(transfer)
        self.pump()

    def say(self, word: ControlWord, rank: int = 0) -> None:
        """Send a word before all chunks that wait, but for BYE, which comes after them."""
        self._words.append((word, rank))
        self.pump()

    @property
    def idle(self) -> bool:
        """Return whether everything has arrived at the peer's host."""
        return not (self.outgoing or self._words or self.writes)

    def pump(self) -> None:
        """Post as many writes as possible."""
        while not self.dead and self.writes < WRITES:
            if self._words and not (self._words[0][0] is ControlWord.BYE and self.outgoing):
                self._post(*self._words.popleft())
            elif self.outgoing and self._sent - self._credited < SLOTS:
                self._chunk(self.outgoing[0])
            elif self._taken - self._told >= SLOTS // 2 and not self.left:
                self._post(ControlWord.CREDIT)
            else:
                return

    def _immediate(self, word: ControlWord, rank: int) -> int:
        self._told = self._taken
        return word << 28 | rank << 16 | self._taken & _CREDITS

    def _post(self, word: ControlWord, rank: int = 0) -> None:
        self.writes += 1
        self.qp.post_write_imm((), self.remote_addr, self.rkey, self._immediate(word, rank))

    def _chunk(self, transfer: Send) -> None:
        slot = self._sent % SLOTS * SLOT_BYTES
        at = self.send_at + slot
        buffer = self.region.buffer
        size = min(PAYLOAD_BYTES, transfer.size - transfer.at)
        CHUNK.pack_into(buffer, at, transfer.key, transfer.size, transfer.at)
        buffer[at + HEAD_BYTES : at + HEAD_BYTES + size] = transfer.view[transfer.at : transfer.at + size]
        self.qp.post_write_imm(
            self.region.sge(at, HEAD_BYTES + size),
            self.remote_addr + slot,
            self.rkey,
            self._immediate(ControlWord.CHUNK, 0),
        )
        self.writes += 1
        self._sent += 1
        transfer.at += size
        if transfer.at >= transfer.size:
            self.outgoing.popleft()
            self._ended(transfer)

    def ping(self) -> None:
        """Write zero bytes: the write completes if the peer's host still has the queue pair."""
        if not self.pinging and not self.dead:
            self.pinging = True
            self.writes += 1
            self.qp.post_write((), self.remote_addr, self.rkey, wr_id=PING, flags=SendFlags.SIGNALED)

    def written(self, wr_id: int) -> None:
        """Handle a write that has arrived."""
        self.writes -= 1
        if wr_id == PING:
            self.pinging = False
        self.pump()

    # -- in ------------------------------------------------------------------------------------------------------

    def heard_word(self, immediate: int, nbytes: int) -> tuple[ControlWord, int]:
        """Handle an immediate with this many bytes; return its word and rank. Raises MismatchError, ValueError."""
        self.qp.post_recv()
        word, rank = ControlWord(immediate >> 28), immediate >> 16 & _RANKS
        more = (immediate - self._credited) & _CREDITS
        if more > self._sent - self._credited:
            raise ValueError(f"rank {self.rank} gives back {more} slots that it was not given")
        self._credited += more
        if word is ControlWord.CHUNK:
            if len(self._arrived) >= SLOTS or not HEAD_BYTES <= nbytes <= SLOT_BYTES:
                raise ValueError(f"rank {self.rank} writes {nbytes} bytes into a slot that is not free for them")
            self._arrived.append(nbytes)
            self.empty()
        self.pump()
        return word, rank

    def receive(self, transfer: Receive) -> None:
        """Ask for a message. Raises MismatchError when the one that came has another length."""
        if not self.claim(transfer):
            self.posted.setdefault(transfer.key, deque()).append(transfer)
        self.empty()
        self.pump()

    def claim(self, transfer: Receive) -> bool:
        """Take the oldest message of that key that was kept; False when there is none."""
        kept = self._kept.get(transfer.key)
        if not kept:
            return False
        message = kept.popleft()
        if not kept:
            del self._kept[transfer.key]
        self._assign(message, transfer)
        if message.kept:
            with memoryview(message.kept) as view:
                transfer.sink(0, view[: message.got])
            self._kept_bytes -= len(message.kept)
            message.kept = bytearray()
        if message.got >= message.total:
            self._ended(transfer)
        return True

    def _assign(self, message: _Message, transfer: Receive) -> None:
        transfer.link = self
        message.receive = transfer
        if message.total != transfer.size:
            raise MismatchError(
                f"rank {self.rank} sends {message.total} bytes, {transfer.size} are expected: the ranks do not call "
                "the same operation with the same sizes"
            )

    def empty(self) -> None:
        """Take the chunks that have arrived out of their slots, as far as there is a place for them."""
        buffer = self.region.buffer
        while self._arrived:
            at = self.receive_at + self._taken % SLOTS * SLOT_BYTES
            key, total, offset = CHUNK.unpack_from(buffer, at)
            payload = buffer[at + HEAD_BYTES : at + self._arrived[0]]
            message = self._message
            if message is None:
                message = self._begin(key, total)
                if message is None:
                    return
            if key != message.key or offset != message.got or offset + len(payload) > message.total:
                raise ValueError(f"rank {self.rank} sends chunks that do not follow each other")
            if message.receive is not None:
                message.receive.sink(offset, payload)
            else:
                message.kept[offset : offset + len(payload)] = payload
            message.got += len(payload)
            self._arrived.popleft()
            self._taken += 1
            if message.got >= message.total:
                self._message = None
                if message.receive is not None:
                    self._ended(message.receive)

    def _begin(self, key: int, total: int) -> _Message | None:
        """Return the message of a first chunk; None when it must wait in its slot."""
        posted = self.posted.get(key)
        receive = posted.popleft() if posted else self._anyone(key)
        if posted is not None and not posted:
            del self.posted[key]
        message = _Message(key, total)
        if receive is not None:
            self._assign(message, receive)
        elif self._kept_bytes and self._kept_bytes + total > KEPT_BYTES:
            return None
        else:
            message.kept = bytearray(total)
            self._kept_bytes += total
            self._kept.setdefault(key, deque()).append(message)
        self._message = message
        return message

    def give_up(self) -> None:
        """Forget all receives: their memory is the caller's again, so what still arrives goes nowhere."""
        self.posted.clear()
        if self._message is not None:
            self._message.receive = None

    @property
    def awaited(self) -> bool:
        """Return whether an operation waits for this peer: for a message of it, or to send it one."""
        return bool(self.posted or self.outgoing or (self._message is not None and self._message.receive is not None))
