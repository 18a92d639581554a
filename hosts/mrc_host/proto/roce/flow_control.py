"""Flow control of a RoCE port by a switch: to pause (IEEE 802.1Qbb), or to send by credits only, after InfiniBand's."""

from __future__ import annotations

import zlib
from typing import Final

from mrc_host.proto.timers import Timed, TimerKind, TimerQueue

_QUANTUM_BITS: Final = 512
_HALF, _WHOLE = 1 << 31, 1 << 32


def _blocks(length: int) -> int:
    """Return the credits, in units of 64 bytes, that a packet with its Ethernet header takes."""
    return (length + 14 + 63) // 64


class FlowControl(Timed):
    """Pauses and credits of one port. They concern the priority of data only.

    Data waits until `paused_until` (ns; 0: not paused), and with credits until it fits: blocks used are at most the
    limit, which is unknown (None) until the switch has sent it.
    """

    __slots__ = (
        "_credits", "_limit", "_paused_since", "_priority", "_rate_bps", "_stalled_since", "_timers", "_used",
        "paused_ns", "paused_until", "pauses", "stall_ns",
    )  # fmt: skip

    def __init__(self, timers: TimerQueue, priority: int, rate_bps: int, *, credits: bool) -> None:
        """Create the flow control of a port; `rate_bps`: the port's, by which pauses are measured; `credits`: data
        waits for them.
        """
        self._timers = timers
        self._priority = priority
        self._rate_bps = rate_bps
        self._credits = credits
        self.pauses = self.paused_until = self.paused_ns = self._paused_since = 0
        self._limit: int | None = None
        self._used = self.stall_ns = 0
        self._stalled_since: int | None = None

    def on_frame(self, frame: bytes, now: int) -> None:
        """Handle a MAC control frame without Ethernet header.

        Updates of credits (`p4lite/switch/core/fabric/flow.c` has their form) are obeyed where the configuration
        says so.
        """
        if frame[:2] == b"\x01\xc0":
            self._take_credits(frame)
        elif len(frame) >= 20 and frame[:2] == b"\x01\x01" and frame[3] >> self._priority & 1:
            at = 4 + 2 * self._priority
            self._pause(frame[at] << 8 | frame[at + 1], now)

    def _pause(self, quanta: int, now: int) -> None:
        self._timers.cancel(TimerKind.RESUME, self)
        self.on_timer(TimerKind.RESUME, now)
        if quanta:
            self.pauses += 1
            self._paused_since = now
            self.paused_until = now + quanta * _QUANTUM_BITS * 1_000_000_000 // self._rate_bps
            self._timers.arm(TimerKind.RESUME, self, self.paused_until)

    def on_timer(self, kind: TimerKind, now: int) -> None:
        """End the pause, if there is one."""
        if self.paused_until:
            self.paused_ns += min(now, self.paused_until) - self._paused_since
            self.paused_until = 0

    def _take_credits(self, frame: bytes) -> None:
        crc = int.from_bytes(frame[68:72], "big")
        if not self._credits or len(frame) < 72 or not frame[3] >> self._priority & 1 or zlib.crc32(frame[:68]) != crc:
            return
        at = 4 + 4 * self._priority
        told = int.from_bytes(frame[at : at + 4], "big")
        if self._limit is None:
            # The switch has this much of the port, from all senders; nothing is in flight.
            self._used = int.from_bytes(frame[at + 32 : at + 36], "big")
            self._limit = self._used
        # Modulo 2^32; an update that a later one has overtaken is ignored.
        ahead = (told - self._limit + _HALF) % _WHOLE - _HALF
        if ahead > 0:
            self._limit += ahead

    def link_changed(self) -> None:
        """Forget the credits: the switch counts them from the start again."""
        self._limit = None

    def allows(self, length: int, now: int) -> bool:
        """Return whether there are credits for an IP packet of that length; counts the time in which there are none."""
        if not self._credits:
            return True
        if self._limit is None or self._used + _blocks(length) > self._limit:
            if self._stalled_since is None:
                self._stalled_since = now
            return False
        if self._stalled_since is not None:
            self.stall_ns += now - self._stalled_since
            self._stalled_since = None
        return True

    def sent(self, length: int) -> None:
        """Use the credits of an IP packet of that length."""
        if self._credits:
            self._used += _blocks(length)
