"""The balance of planes towards one peer (`mrc-protocol.md §7`)."""

from __future__ import annotations


class PlaneBalance:
    """Keeps the planes towards one peer equally loaded (`mrc-protocol.md §7`).

    A plane may be ahead of the least loaded one by `slack` bytes. A plane that makes no progress for
    `patience_ns` while others wait for it (no room, no EV) is no longer waited for. Only time in which it could
    have sent counts (`pause`): behind a closed window nothing is sent, and the planes that happen to be behind then
    are not to blame.

    `sent[p]` is a level, not a counter: it is raised when a plane joins or is no longer waited for.
    """

    __slots__ = ("_all", "_last_block", "_since", "_snapshot", "limit", "mask", "patience_ns", "sent", "slack")

    def __init__(self, planes: int, slack: int, patience_ns: int) -> None:
        self.sent = [0] * planes
        self.mask = self._all = (1 << planes) - 1
        self.slack = slack
        self.patience_ns = patience_ns
        self.limit = slack
        self._since = 0
        self._last_block = -1
        self._snapshot: list[int] = []

    def set_mask(self, mask: int) -> None:
        """Set which planes take part; a plane that (re)joins starts level with the others."""
        joined = mask & ~self.mask
        self.mask = mask
        others = [n for plane, n in enumerate(self.sent) if mask & ~joined & 1 << plane]
        level = min(others) if others else max(self.sent)
        for plane in range(len(self.sent)):
            if joined >> plane & 1:
                self.sent[plane] = max(self.sent[plane], level)
        self._level()

    def _level(self) -> None:
        if self.mask == self._all:
            floor = min(self.sent)
        else:
            floor = min((n for plane, n in enumerate(self.sent) if self.mask >> plane & 1), default=0)
        self.limit = floor + self.slack

    def retry(self, plane: int, now: int) -> bool:
        """Recompute the limit that stopped `plane`; True when the plane may send after all."""
        self._level()
        if self.sent[plane] <= self.limit:
            return True
        if self._last_block < 0 or now - self._last_block > 2 * self.patience_ns:
            self._since = now
            self._snapshot = list(self.sent)
        self._last_block = now
        if now - self._since >= self.patience_ns:
            self.level_planes(now)
            return self.sent[plane] <= self.limit
        return False

    @property
    def waiting(self) -> bool:
        """Return whether a plane has been held back since the last `pause`."""
        return self._last_block >= 0

    def pause(self) -> None:
        """Record that nothing may be sent on any plane now: senders that wait do not wait for the planes behind."""
        self._last_block = -1
        self._snapshot = []

    def deadline(self) -> int:
        """Return when waiting for the planes behind ends (ns)."""
        return self._since + self.patience_ns

    def level_planes(self, now: int) -> None:
        """Raise the planes that have not moved since the wait began to the level of the leading one."""
        top = max((n for plane, n in enumerate(self.sent) if self.mask >> plane & 1), default=0)
        for plane, before in enumerate(self._snapshot):
            if self.mask >> plane & 1 and self.sent[plane] == before and before + self.slack < top:
                self.sent[plane] = top
        self._since = now
        self._snapshot = list(self.sent)
        self._level()
