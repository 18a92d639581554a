"""Order of senders: the requestors that have something to send, in turn, and those that wait for their window."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from mrc_host.proto.congestion.qpcc import Qpcc, Sender
from mrc_host.proto.timers import TimerKind, TimerQueue
from mrc_host.proto.wire.icrc import wire_length

# What `Sender.emit` returns when it sends nothing.
IDLE: Final = 0  # nothing that may go before a SACK, a post or a timer
WINDOW: Final = 1  # the congestion window is closed
PORT: Final = 2  # not on this port now; perhaps on another one
AHEAD: Final = 3  # this port has carried more to the peer than the others: let them catch up
BUDGET: Final = 4  # the packet does not fit the port's room


class SendRing:
    """A sender is in the ring, or waits for its window (`Qpcc.waiting`), or has nothing that may be sent now."""

    __slots__ = ("_timers", "failed", "length_only", "senders")

    def __init__(self, timers: TimerQueue, length_only: bool = False) -> None:
        self._timers = timers
        self.length_only = length_only  # packets lack their payload, which takes its room all the same
        self.senders: list[Sender] = []
        self.failed: tuple[Sender, Exception] | None = None

    def wake(self, sender: Sender) -> None:
        """Put a sender that may have something to send into the ring unless it is there."""
        if not sender.in_ring:
            sender.in_ring = True
            sender.qpcc.in_ring += 1
            self.senders.append(sender)

    def wake_waiting(self, qpcc: Qpcc) -> None:
        """Put those that wait for the window into the ring, in turn, as far as it has room for what they would send."""
        cc = qpcc.cc
        room = cc.cwnd - cc.inflight
        waiting = qpcc.waiting
        if waiting and cc.inflight <= 0 and room < waiting[0].needs:
            room = float(waiting[0].needs)  # with nothing in flight one packet may always leave, whatever its size
        while waiting and room >= waiting[0].needs:
            sender = waiting.pop(0)
            sender.waiting = False
            self.wake(sender)
            room -= sender.needs

    def withdraw(self, sender: Sender) -> None:
        """Remove a sender that sends no more."""
        if sender.in_ring:
            sender.in_ring = False
            sender.qpcc.in_ring -= 1
            self.senders.remove(sender)
        if sender.waiting:
            sender.waiting = False
            sender.qpcc.waiting.remove(sender)

    def fill(self, port: i64, now: i64, room: i64, packets: list[bytes]) -> int:
        """Append packets for `port`, at most `room` bytes together, in turn; return the room that is left.

        An exception of a sender ends this; it is then in `failed` with its sender, which is out of the ring.
        """
        ring = self.senders
        stuck = 0  # senders seen in a row that have nothing for this port
        blocked: tuple[Qpcc, ...] = ()  # window closed, or this port has run ahead of the others
        held = 0  # their senders in the ring
        while stuck + held < len(ring):
            sender = ring[0]
            qpcc = sender.qpcc
            if blocked and qpcc in blocked:
                ring.append(ring.pop(0))
                continue
            try:
                sent = sender.emit(port, now, room)
            except Exception as error:  # noqa: BLE001 - whose fault it is, and what to do, the endpoint knows
                self.failed = (sender, error)
                self.withdraw(sender)
                break
            if isinstance(sent, bytes):
                packets.append(sent)
                room -= wire_length(sent) if self.length_only else len(sent)
                if len(ring) > 1:
                    ring.append(ring.pop(0))
                stuck = 0
            elif sent == PORT:
                ring.append(ring.pop(0))
                stuck += 1
            elif sent == AHEAD:
                blocked += (qpcc,)
                held += qpcc.in_ring
                stuck = 0
            elif sent == BUDGET:
                break
            else:
                ring.pop(0)
                sender.in_ring = False
                qpcc.in_ring -= 1
                if qpcc.balance.waiting and (sent == WINDOW or not qpcc.in_ring):
                    qpcc.balance.pause()
                    self._timers.cancel(TimerKind.BALANCE, qpcc)
                if sent == WINDOW:
                    sender.waiting = True
                    qpcc.waiting.append(sender)
                    blocked += (qpcc,)
                    held += qpcc.in_ring
                    stuck = 0
                elif qpcc.waiting:
                    self.wake_waiting(qpcc)  # it leaves the room that it was woken for to another
        return room
