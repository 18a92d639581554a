"""Work completions and the queues they wait in (`mrc-protocol.md §4, §5`)."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple, Protocol

from mrc_host.proto.events import CompletionsReady, Event


class CompletionStatus(Enum):
    """How a work request ended; the names follow the verbs API."""

    SUCCESS = "success"
    RETRY_EXC_ERR = "retry counter exceeded"
    REM_ACCESS_ERR = "remote access error"
    REM_INV_REQ_ERR = "remote invalid request"
    REM_OP_ERR = "remote operation error"
    RNR_RETRY_EXC_ERR = "the peer had no receive posted"
    LOC_LEN_ERR = "local length error"
    LOC_PROT_ERR = "local protection error"
    LOC_QP_OP_ERR = "local queue pair error"
    WR_FLUSH_ERR = "flushed"


class CompletionKind(Enum):
    """What kind of work request completed."""

    WRITE = "write"
    WRITE_IMM = "write_imm"
    SEND = "send"
    READ = "read"
    COMPARE_SWAP = "compare_swap"
    FETCH_ADD = "fetch_add"
    RECV = "recv"
    RECV_IMM = "recv_imm"


class Completion(NamedTuple):
    """One entry of a completion queue. `immediate` is set for RECV_IMM, and where a SEND had one; `byte_len` is the
    message's length, and `solicited` is its requestor's wish that a waiting program be notified."""

    wr_id: int
    qpn: int
    kind: CompletionKind
    status: CompletionStatus
    byte_len: int
    immediate: int | None
    solicited: bool = False


class CqUser(Protocol):
    """A queue pair, as its completion queue sees it."""

    def overflow(self, now: int) -> None:
        """Record that the queue lost a completion and can no longer be relied on."""


class CompletionQueue:
    """A bounded FIFO of completions. A completion beyond `depth` is lost and sets `overflowed`; `lost` counts them.

    `users` are the queue pairs that complete into it: an overflow ends all of them.
    """

    __slots__ = ("depth", "entries", "lost", "number", "overflowed", "users")

    def __init__(self, number: int, depth: int) -> None:
        self.number = number
        self.depth = depth
        self.entries: deque[Completion] = deque()
        self.overflowed = False
        self.lost = 0
        self.users: list[CqUser] = []

    def push(self, completion: Completion) -> bool:
        """Append; return True when the queue was empty before. Set `overflowed` instead when it is full."""
        entries = self.entries
        if len(entries) >= self.depth:
            self.overflowed = True
            self.lost += 1
            return False
        entries.append(completion)
        return len(entries) == 1

    def deliver(self, completion: Completion, events: deque[Event], now: int) -> None:
        """Push a completion, with an event when the queue was empty; at the first one lost end all users."""
        before = self.overflowed
        if self.push(completion):
            events.append(CompletionsReady(self.number))
        if self.overflowed and not before:
            for user in list(self.users):
                user.overflow(now)

    def poll(self, limit: int) -> list[Completion]:
        """Remove and return up to `limit` completions, oldest first."""
        entries = self.entries
        return [entries.popleft() for _ in range(min(limit, len(entries)))]
