"""What a user may expect of a queue pair, judged by memory and completions alone."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

from mrc_host.proto.completion import Completion, CompletionKind, CompletionStatus
from mrc_host.proto.events import QpState

GUARD: Final = 64
_BLANK: Final = 0xA5
_USED: Final = 0xEE

#: Classes of failures that were known before this campaign, by the item of the issue that has them.
KNOWN: Final = {"hang": "1", "storm": "2", "error-sends": "3", "flush-order": "8"}


class Violation(Exception):
    """An expectation that was not met; `kind` is its class, the text says where and what."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass
class Posted:
    """One posted write, as the model knows it."""

    wr_id: int
    data: bytes
    source: bytearray
    slot: int
    offset: int  # in the peer's memory
    immediate: int | None
    at: int
    packets: int
    status: CompletionStatus | None = None
    abandoned: bool = False  # its queue pair was destroyed or reset, or its host restarted: nothing need come

    @property
    def open(self) -> bool:
        """Return whether its completion is still due."""
        return self.status is None and not self.abandoned


@dataclass
class Target:
    """The memory of one end that its peer writes to: slots of equal size between guards that must stay as they are."""

    slots: int
    slot_bytes: int
    memory: bytearray = field(default_factory=bytearray)
    sure: bytearray = field(default_factory=bytearray)
    free: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        size = 2 * GUARD + self.slots * self.slot_bytes
        self.memory = bytearray([_BLANK]) * size
        self.sure = bytearray(self.memory)
        self.free = deque(range(self.slots))

    def region(self) -> memoryview:
        """Return what is registered."""
        return memoryview(self.memory)[GUARD : len(self.memory) - GUARD]

    def holds(self, posted: Posted) -> bool:
        """Return whether a write has been placed completely."""
        start = GUARD + posted.offset
        return self.memory[start : start + len(posted.data)] == posted.data

    def settle(self, posted: Posted) -> None:
        """Record that a write has completed with success: its bytes must be there, and its slot may be used again."""
        if not self.holds(posted):
            start = GUARD + posted.offset
            got = self.memory[start : start + len(posted.data)]
            wrong = [n for n, (have, want) in enumerate(zip(got, posted.data, strict=True)) if have != want]
            raise Violation(
                "memory",
                f"write {posted.wr_id} succeeded, but {len(wrong)} of {len(got)} bytes differ, from {wrong[0]} on",
            )
        start = GUARD + posted.offset
        self.sure[start : start + len(posted.data)] = posted.data
        self.free.append(posted.slot)

    def check(self, maybe: list[Posted]) -> None:
        """Everything is what completed writes wrote; of those in `maybe` each byte may be there or not."""
        seen = bytearray(self.memory)
        for posted in maybe:
            place = slice(GUARD + posted.offset, GUARD + posted.offset + len(posted.data))
            was = self.sure[place]
            if seen[place] == was:
                continue
            for have, before, after in zip(seen[place], was, posted.data, strict=True):
                if have not in (before, after):
                    raise Violation("memory", f"write {posted.wr_id} left a byte that is neither old nor new")
            seen[place] = was
        if seen != self.sure:
            first = next(n for n, (have, want) in enumerate(zip(seen, self.sure, strict=True)) if have != want)
            raise Violation("memory", f"byte {first - GUARD} of a region changed though no write was to touch it")


@dataclass
class End:
    """One side of a connection: its queue pair, what it posted, what its peer may write."""

    pair: int
    side: int
    epoch: int
    host: int
    qp: Any
    target: Target
    region: Any
    peer: End | None = None
    posted: list[Posted] = field(default_factory=list)
    done: int = 0  # of `posted`, in order
    failed: bool = False
    receives: deque[int] = field(default_factory=deque)
    delivered: int = 0  # immediates
    verified: int = 0  # of the peer's `posted`: known to be placed
    alive: bool = True  # neither destroyed nor of an earlier life of the host
    lost_at: int | None = None  # since when it is not in RTS
    reused: bool = False  # the queue pair was one of an earlier epoch, and so are its counters
    spoiled: bool = False  # its memory is registered no longer
    drained: bool = False  # in ERROR, and all that was queued before has left
    closing: bool = False
    sent: dict[str, int] = field(default_factory=dict)  # packets since healing, by class
    owed: int = 0  # packets of writes that were open at healing, or posted since

    @property
    def name(self) -> str:
        """For messages."""
        return f"pair {self.pair}.{self.epoch} side {self.side} (host {self.host}, QP {self.qp.number})"

    @property
    def in_rts(self) -> bool:
        """Return whether it can still do something."""
        return self.alive and self.qp.state is QpState.RTS

    def pending(self) -> list[Posted]:
        """Return writes whose completion is due."""
        return [posted for posted in self.posted[self.done :] if posted.open]

    def abandon(self) -> None:
        """Nothing more is expected of what was posted here."""
        for posted in self.posted[self.done :]:
            posted.abandoned = True
        self.done = len(self.posted)
        self.receives.clear()

    # --- completions ---

    def on_send(self, completion: Completion) -> Posted:
        """Record that a write has completed."""
        while self.done < len(self.posted) and self.posted[self.done].abandoned:
            self.done += 1
        if self.done >= len(self.posted):
            raise Violation("completion", f"{self.name}: {completion} completes what is not open")
        posted = self.posted[self.done]
        kind = CompletionKind.WRITE if posted.immediate is None else CompletionKind.WRITE_IMM
        if completion.wr_id != posted.wr_id:
            raise Violation("completion", f"{self.name}: {completion} came where write {posted.wr_id} is the next")
        if completion.kind is not kind or completion.byte_len != len(posted.data):
            raise Violation("completion", f"{self.name}: {completion} does not describe write {posted}")
        self.done += 1
        posted.status = completion.status
        target = self.peer.target if self.peer is not None else None
        if completion.status is CompletionStatus.SUCCESS:
            if self.failed:
                raise Violation("completion", f"{self.name}: {completion} succeeded after one that failed")
            if target is not None:
                target.settle(posted)
            if posted.immediate is not None and self.peer is not None:
                sent = sum(1 for each in self.posted[: self.done] if each.immediate is not None)
                if self.peer.delivered < sent:
                    raise Violation(
                        "immediate", f"{self.name}: {sent} immediates succeeded, the peer has had {self.peer.delivered}"
                    )
        else:
            if self.failed and completion.status is not CompletionStatus.WR_FLUSH_ERR:
                raise Violation("flush-order", f"{self.name}: {completion} failed after another one had failed")
            self.failed = True
        posted.source[:] = bytes([_USED]) * len(posted.source)  # the buffer is the user's again
        return posted

    def on_receive(self, completion: Completion) -> None:
        """Record that a receive has completed."""
        if not self.receives or completion.wr_id != self.receives[0]:
            raise Violation("immediate", f"{self.name}: {completion} came where {list(self.receives)[:1]} is the next")
        self.receives.popleft()
        if completion.status is not CompletionStatus.SUCCESS:
            if completion.status is not CompletionStatus.WR_FLUSH_ERR:
                raise Violation("immediate", f"{self.name}: a receive ended with {completion.status}")
            return
        peer = self.peer
        if peer is None:
            raise Violation("immediate", f"{self.name}: {completion} before there was a peer")
        wanted = [n for n, posted in enumerate(peer.posted) if posted.immediate is not None]
        if self.delivered >= len(wanted):
            raise Violation("immediate", f"{self.name}: {completion} is one more than were posted")
        place = wanted[self.delivered]
        posted = peer.posted[place]
        if completion.immediate != posted.immediate or completion.byte_len != len(posted.data):
            raise Violation("immediate", f"{self.name}: {completion} came where {posted.immediate} is the next")
        self.delivered += 1
        for each in peer.posted[self.verified : place + 1]:
            if each.status is not CompletionStatus.SUCCESS and not self.target.holds(each):
                raise Violation(
                    "immediate", f"{self.name}: {completion} was delivered before write {each.wr_id} had been placed"
                )
        self.verified = place + 1

    def check_memory(self) -> None:
        """All of the memory that the peer writes to."""
        writer = self.peer
        maybe = (
            [] if writer is None else [each for each in writer.posted if each.status is not CompletionStatus.SUCCESS]
        )
        self.target.check(maybe)


def content(rng: random.Random, size: int) -> bytes:
    """Bytes of a message."""
    return rng.randbytes(size)
