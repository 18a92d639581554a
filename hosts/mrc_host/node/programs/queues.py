"""Completion queues of a program and the channels by which they notify. Runs compiled where the protocol core does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from mrc_host.node.programs.shared import Memory, WakeupCounter
from mrc_host.proto.completion import CompletionQueue
from mrc_host.verbs.layout import COMPLETION, COMPLETION_BYTES, Producer, WcFlags, WcStatus

# Numbers: operations on members of enumerations make new members, which takes long.
_SUCCESS: Final = int(WcStatus.SUCCESS)
_SOLICITED: Final = int(WcFlags.SOLICITED)


@dataclass(eq=False)
class NotifyChannel:
    """Where completion queues notify of completions. `due`: notifications for which its bell has not been rung yet."""

    number: int
    bell: WakeupCounter
    queues: int = 0
    due: int = 0


class Queue:
    """A completion queue: the endpoint's, and the ring from which the program takes the completions.

    `armed`: of which next completion the program wants a notification: 0 (none), 1 (any), or 2 (solicited or failed).
    `events` counts the notifications.
    """

    __slots__ = (
        "armed", "channel", "events", "inner", "memory", "missed", "number", "overflowed", "ring", "told", "users",
        "watching",
    )  # fmt: skip

    def __init__(self, inner: CompletionQueue, memory: Memory, capacity: int, channel: NotifyChannel | None) -> None:
        self.inner = inner
        self.number = inner.number
        self.memory = memory
        self.ring = Producer(memory.buffer, capacity, COMPLETION_BYTES)
        self.channel = channel
        self.users: list[Any] = []
        self.armed = 0
        self.events = 0
        self.told = 0  # one more than the number of the newest completion that is solicited or failed
        self.overflowed = False
        #: Whether it takes changes of EVs instead of completions, and how many found no room since the last.
        self.watching = False
        self.missed = 0

    def push(
        self,
        wr_id: int,
        status: WcStatus,
        opcode: int,
        number: int,
        nbytes: int,
        immediate: int,
        flags: int,
        ended: int,
    ) -> bool:
        """Add a completion; False when there is no place for it.

        Raises:
            RingCorrupt: the program has written an impossible head into the ring.
        """
        ring = self.ring
        if self.overflowed or not ring.room():
            return False
        at = ring.at(ring.tail)
        COMPLETION.pack_into(
            ring.buffer, at, wr_id, status, opcode, number, nbytes, immediate, flags, ended & 0xFFFFFFFF
        )
        ring.tail += 1
        ring.publish()
        loud = status != _SUCCESS or flags & _SOLICITED != 0
        if loud:
            self.told = ring.tail
        if self.armed and (self.armed == 1 or loud):
            self.notify()
        return True

    def report(self, profile: int, state: int, ev: int, plane: int) -> None:
        """Add a change of an EV, or count it where there is no room; such a queue never overflows.

        Raises:
            RingCorrupt: as `push`.
        """
        if self.push(profile, WcStatus.SUCCESS, state, ev, plane, self.missed, _SOLICITED, 0):
            self.missed = 0
        else:
            self.missed += 1

    def arm(self, seen: int, solicited: bool) -> None:
        """Ask for a notification of the next completion after the first `seen`: at once, if it is there."""
        self.armed = 2 if solicited else 1
        # The program counts in 64 bits; what it says it has seen is only compared.
        if (self.told if solicited else self.ring.tail) > seen:
            self.notify()

    def notify(self) -> None:
        """Notify the channel, and disarm."""
        self.armed = 0
        if self.channel is not None:
            self.events += 1
            self.ring.note(self.events)
            self.channel.due += 1
