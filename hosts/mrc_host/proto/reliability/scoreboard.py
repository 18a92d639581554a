"""Scoreboard of the requestor: what is in flight, what the peer has, and what must be lost (`mrc-protocol.md §5`).

PSNs are unbounded integers here. A `Transmission` is one packet sent once; sending it again makes a new one, so
that the chains below always speak of the same flight:

* `orders` lists the transmissions of each plane by send time: rule (c), RACK, and rule (d), timeout, look at the heads;
* `previous` links a transmission to the one before it on the same EV: rule (b) walks it back.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from mypy_extensions import i64, mypyc_attr

from mrc_host.proto.work import WriteRequest

IN_FLIGHT: Final = 0
ACKED: Final = 1
LOST: Final = 2
REPLACED: Final = 3

_GUESSES: Final = 1024
_PLACES: Final = 16  # for transmissions, of a queue pair that has sent few
_LONGEST_TIMEOUT_NS: Final = 1024 << 24  # t = 24: a QP that retries for ever must not fall asleep


class LossReason(Enum):
    """Why a packet is taken for lost; the letters are those of `mrc-protocol.md §5`."""

    NACK = "nack"  # (a)
    SAME_EV = "same_ev"  # (b)
    RACK = "rack"  # (c)
    TIMEOUT = "timeout"  # (d)
    PORT_DOWN = "port_down"  # its plane is known to be down; no EV is blamed


@mypyc_attr(free_list_len=1)
class Transmission:
    """One packet on its way. `count`: how often it has been sent, this time included.

    `failures`: how much of its retry budget is used; `since_ns`: the time from which its local ACK timeout counts, that
    of the first transmission after the last such failure. `counted`: its bytes are in the account of bytes in flight.
    """

    __slots__ = (
        "count", "counted", "ev", "failures", "later", "offset", "plane", "previous", "psn", "request", "sent_ns",
        "since_ns", "size", "state",
    )  # fmt: skip
    # Machine words, where the core is compiled.
    psn: i64
    sent_ns: i64
    since_ns: i64
    ev: i64
    plane: i64
    size: i64
    offset: i64
    count: i64
    failures: i64
    state: i64

    def __init__(  # noqa: PLR0913 - made for each packet: one call
        self,
        psn: i64,
        sent_ns: i64,
        ev: i64,
        plane: i64,
        size: i64,
        request: WriteRequest,
        offset: i64,
        count: i64,
        failures: i64,
        previous: Transmission | None,
    ) -> None:
        self.psn = psn
        self.sent_ns = self.since_ns = sent_ns
        self.ev = ev
        self.plane = plane
        self.size = size
        self.request = request
        self.offset = offset
        self.count = count
        self.failures = failures
        self.previous = previous
        self.state = IN_FLIGHT
        self.counted = True
        self.later: Transmission | None = None


class SendOrder:
    """Transmissions of a plane by the time of sending, from `first` on, each linked to the next one by `later`."""

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first: Transmission | None = None
        self.last: Transmission | None = None

    def append(self, sent: Transmission) -> None:
        """Add what is sent now."""
        if self.last is None:
            self.first = sent
        else:
            self.last.later = sent
        self.last = sent

    def drop(self) -> None:
        """Remove the first one."""
        gone = self.first
        if gone is not None:
            self.first = gone.later
            gone.later = None
            if self.first is None:
                self.last = None

    def clear(self) -> None:
        """Remove all; none of them is linked to another one then."""
        while self.first is not None:
            self.drop()

    def all(self) -> list[Transmission]:
        """Return all, the first one first."""
        found = []
        sent = self.first
        while sent is not None:
            found.append(sent)
            sent = sent.later
        return found


def _by_psn(sent: Transmission) -> int:
    return sent.psn


class Outstanding:
    """Transmissions that are not acknowledged, at most one for a PSN. `len` says how many.

    A PSN has the place `psn` modulo the number of places, which grows when two would share one: so it is at most twice
    the distance of the PSNs.
    """

    __slots__ = ("_mask", "_places", "count")
    count: i64
    _mask: i64

    def __init__(self) -> None:
        self._places: list[Transmission | None] = [None] * _PLACES
        self._mask = _PLACES - 1
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def get(self, psn: i64) -> Transmission | None:
        """Return the one with this PSN, None when there is none."""
        sent = self._places[psn & self._mask]
        return sent if sent is not None and sent.psn == psn else None

    def put(self, sent: Transmission) -> None:
        """Add one, in the place of an earlier one with its PSN."""
        place = sent.psn & self._mask
        before = self._places[place]
        if before is None:
            self.count += 1
        elif before.psn != sent.psn:
            self._grow()
            self.put(sent)
            return
        self._places[place] = sent

    def take(self, psn: i64) -> Transmission | None:
        """Remove and return the one with this PSN, None when there is none."""
        place = psn & self._mask
        sent = self._places[place]
        if sent is None or sent.psn != psn:
            return None
        self._places[place] = None
        self.count -= 1
        return sent

    def _grow(self) -> None:
        held = self.values()
        self._mask = 2 * self._mask + 1
        self._places = [None] * (self._mask + 1)
        for sent in held:
            self._places[sent.psn & self._mask] = sent

    def values(self) -> list[Transmission]:
        """Return all, the lowest PSN first."""
        held = [sent for sent in self._places if sent is not None]
        held.sort(key=_by_psn)
        return held

    def clear(self) -> None:
        """Remove all."""
        self._places = [None] * (self._mask + 1)
        self.count = 0


class Scoreboard:
    """`una` is the lowest PSN not known to be received by cumulative acknowledgement, `nxt` the next new one."""

    __slots__ = (
        "guessed",
        "last_on_ev",
        "linear",
        "newest_ns",
        "nxt",
        "orders",
        "outstanding",
        "progress_ns",
        "sacked",
        "slow",
        "timeout_ns",
        "una",
    )
    # The other numbers bound shifts and sums of more than a machine word.
    newest_ns: i64
    progress_ns: i64

    def __init__(self, first_psn: int, timeout_ns: int, linear: int, planes: int, evs: int) -> None:
        self.una = first_psn
        self.nxt = first_psn
        self.timeout_ns = timeout_ns
        self.linear = linear
        self.outstanding = Outstanding()
        self.sacked = 0  # bit i: PSN una + i is known to be received
        self.orders = [SendOrder() for _ in range(planes)]
        self.slow: dict[int, Transmission] = {}  # in the exponential phase, by PSN
        self.last_on_ev: list[Transmission | None] = [None] * evs
        self.guessed: dict[int, tuple[int, int, int]] = {}  # recently lost by rule (c), by PSN: (sent_ns, plane, EV)
        self.newest_ns = -1  # send time of the newest packet known to have arrived
        self.progress_ns = 0  # when a packet was last acknowledged for the first time

    def proven(self) -> int:
        """Return the highest PSN up to which everything has been acknowledged, by SACK or transport ACK."""
        return self.una - 1 if self.outstanding.count else self.nxt - 1

    def problem(self) -> str | None:
        """Return what is wrong; None: the outstanding PSNs ascend from `una` to below `nxt`, none of them is known to
        be received, and each in flight has its place in an order that a timer looks at."""
        last = self.una - 1
        for sent in self.outstanding.values():
            psn: int = sent.psn
            if not last < psn < self.nxt or self.sacked >> psn - self.una & 1:
                return f"PSN {psn} is outstanding after {last}; una {self.una}, nxt {self.nxt}, sacked {self.sacked:b}"
            if sent.state == IN_FLIGHT and sent not in self.orders[sent.plane].all() and self.slow.get(psn) is not sent:
                return f"PSN {psn} is in flight, and no timer looks at it"
            last = psn
        return None

    def lost(self) -> int:
        """Return how many packets are inferred lost and not sent again yet."""
        return sum(sent.state == LOST for sent in self.outstanding.values())

    def oldest(self) -> Transmission | None:
        """Return the outstanding packet of the lowest PSN: first sent in order, and repeated in its place."""
        return min(self.outstanding.values(), key=_by_psn, default=None)

    def add(self, sent: Transmission) -> None:
        """Record a retransmission (new packets are recorded by the data path in place)."""
        self.outstanding.put(sent)
        self.last_on_ev[sent.ev] = sent
        if sent.failures > self.linear:
            self.slow[sent.psn] = sent
        else:
            self.orders[sent.plane].append(sent)

    def acknowledge(self, cack: int, trigger: int, base: int, bitmap: int) -> list[Transmission]:
        """Apply a SACK: everything up to `cack`, `trigger` (-1: none), and `bitmap` from PSN `base` on.

        Returns the transmissions that this acknowledges for the first time; their `state` is the one before.
        """
        una = self.una
        outstanding = self.outstanding
        acked: list[Transmission] = []
        if cack >= una:
            for psn in range(una, cack + 1):
                sent = outstanding.take(psn)
                if sent is not None:
                    acked.append(sent)
            self.sacked >>= cack + 1 - una
            self.una = una = cack + 1
        if not outstanding.count:
            return acked
        base -= una
        bits = bitmap << base if base >= 0 else bitmap >> -base
        if trigger >= una:
            bits |= 1 << (trigger - una)
        fresh = bits & ~self.sacked
        if fresh:
            fresh &= (1 << (self.nxt - una)) - 1
            self.sacked |= fresh
            while fresh:
                low = fresh & -fresh
                fresh ^= low
                sent = outstanding.take(una + low.bit_length() - 1)
                if sent is not None:
                    acked.append(sent)
        return acked

    def overtaken(self, acked: Transmission) -> list[Transmission]:
        """Return the transmissions in flight that were sent before `acked` on the same EV (rule (b))."""
        result = []
        ev = acked.ev
        if self.last_on_ev[ev] is acked:
            self.last_on_ev[ev] = None
        before = acked.previous
        acked.previous = None
        while before is not None:
            if before.state == IN_FLIGHT:
                result.append(before)
            further = before.previous
            before.previous = None
            before = further
        return result

    def sent_before(self, plane: int, threshold_ns: int, late: list[Transmission]) -> None:
        """Move those in flight on a plane that were sent before `threshold_ns` to `late`: rule (c)."""
        order = self.orders[plane]
        while (sent := order.first) is not None:
            if sent.state == IN_FLIGHT:
                if sent.sent_ns >= threshold_ns:
                    break
                late.append(sent)
            order.drop()

    def move_slow_packets(self, thresholds: list[int], late: list[Transmission]) -> None:
        """Move those in the exponential phase that were sent before `thresholds[plane]` (ns) to `late`: rule (c)."""
        for psn, sent in list(self.slow.items()):
            if sent.state != IN_FLIGHT:
                del self.slow[psn]
            elif sent.sent_ns < thresholds[sent.plane]:
                del self.slow[psn]
                late.append(sent)

    def guess(self, sent: Transmission) -> None:
        """Remember what rule (c) took for lost, a packet that had been sent once, though it may be acknowledged soon:
        it can still arrive."""
        guessed = self.guessed
        if len(guessed) >= _GUESSES:
            del guessed[next(iter(guessed))]
        guessed[sent.psn] = sent.sent_ns, sent.plane, sent.ev

    def timeout_of(self, sent: Transmission) -> int:
        """Return the local ACK timeout of a transmission, ns: fixed for the linear retries, then doubling (`§4`)."""
        exponent: int = sent.failures - self.linear  # no machine word, as the shift may leave one
        if exponent <= 0:
            return self.timeout_ns
        return max(self.timeout_ns, min(self.timeout_ns << min(exponent, 24), _LONGEST_TIMEOUT_NS))

    def timed_out(self, now: int) -> tuple[list[Transmission], int | None]:
        """Return the transmissions whose timeout has passed (rule (d)), and when the next is due (None: nothing is in
        flight).
        """
        result = []
        due: int | None = None
        for order in self.orders:
            while (sent := order.first) is not None:
                if sent.state == IN_FLIGHT:
                    deadline = sent.sent_ns + self.timeout_ns
                    if deadline > now:
                        if due is None or deadline < due:
                            due = deadline
                        break
                    result.append(sent)
                order.drop()
        result.sort(key=_by_psn)  # the oldest first, whichever plane it took
        for psn, sent in list(self.slow.items()):
            if sent.state != IN_FLIGHT:
                del self.slow[psn]
                continue
            deadline = sent.sent_ns + self.timeout_of(sent)
            if deadline <= now:
                del self.slow[psn]
                result.append(sent)
            elif due is None or deadline < due:
                due = deadline
        return result, due

    def on_plane(self, plane: int) -> list[Transmission]:
        """Return the transmissions in flight on one plane."""
        return [sent for sent in self.outstanding.values() if sent.plane == plane and sent.state == IN_FLIGHT]

    def clear_orders(self) -> None:
        """Forget the order of sending: nothing is in flight."""
        for order in self.orders:
            order.clear()

    def clear(self) -> None:
        """Forget everything in flight."""
        self.outstanding.clear()
        self.clear_orders()
        self.slow.clear()
        self.last_on_ev = [None] * len(self.last_on_ev)
        self.guessed.clear()
        self.sacked = 0
