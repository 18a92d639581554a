"""EV states of one queue pair: the transition table, active and backup sets, rotation, revival (`mrc-protocol.md §7`).

Rules, once: the *state* of an EV follows `TRANSITIONS` and nothing else; *membership* (active or backup) follows
from it: an EV that becomes ASSUMED_BAD or DENIED leaves the active set and a backup of the same plane takes its
place; one that comes back joins the backup set, or the active set while that is short of its target. Only the
floor `ev_min_active` keeps an ASSUMED_BAD EV active, and then the least bad one.

EVs are handled by their index in the shared universe, and an idle queue pair with 256 EVs costs 15 kilobytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from typing import Final

from mypy_extensions import mypyc_attr

from mrc_host.proto.config import EvConfig
from mrc_host.proto.events import EvState
from mrc_host.proto.paths.ev_profile import EvUniverse
from mrc_host.proto.statistics import EvRow

GOOD: Final = EvState.GOOD.value
SKIP: Final = EvState.SKIP.value
ASSUMED_BAD: Final = EvState.ASSUMED_BAD.value
DENIED: Final = EvState.DENIED.value
STATES: Final = (EvState.GOOD, EvState.SKIP, EvState.ASSUMED_BAD, EvState.DENIED)
NAMES: Final = [state.name for state in STATES]  # asked for by each sample


class EvInput(Enum):
    """What can happen to an EV."""

    SKIP_ONCE = "SACK m = SKIP_ONCE"
    TRIMMED = "NACK TRIMMED"
    NOT_TO_BLAME = "NACK TRIMMED_LASTHOP or a resource code"
    TURN = "the cursor meets it"
    ALWAYS_SKIP = "SACK m = ALWAYS_SKIP"
    LOSS = "inferred loss"
    PROBE_TIMEOUT = "probe timeout"
    REVIVED = "enough probes answered, m = NONE"
    REVIVED_SKIP = "probe answered, m = SKIP_ONCE"
    DENY = "controller denies"
    ALLOW = "controller allows"

    # Enum's own is Python code, and these are keys on the data path.
    __hash__ = object.__hash__


# (state, input) -> state; what is not listed changes nothing.
TRANSITIONS: Final[dict[tuple[EvState, EvInput], EvState]] = {
    (EvState.GOOD, EvInput.SKIP_ONCE): EvState.SKIP,
    (EvState.GOOD, EvInput.TRIMMED): EvState.SKIP,
    (EvState.SKIP, EvInput.TURN): EvState.GOOD,
    (EvState.GOOD, EvInput.ALWAYS_SKIP): EvState.ASSUMED_BAD,
    (EvState.SKIP, EvInput.ALWAYS_SKIP): EvState.ASSUMED_BAD,
    (EvState.GOOD, EvInput.LOSS): EvState.ASSUMED_BAD,
    (EvState.SKIP, EvInput.LOSS): EvState.ASSUMED_BAD,
    (EvState.GOOD, EvInput.PROBE_TIMEOUT): EvState.ASSUMED_BAD,
    (EvState.SKIP, EvInput.PROBE_TIMEOUT): EvState.ASSUMED_BAD,
    (EvState.ASSUMED_BAD, EvInput.REVIVED): EvState.GOOD,
    (EvState.ASSUMED_BAD, EvInput.REVIVED_SKIP): EvState.SKIP,
    (EvState.GOOD, EvInput.DENY): EvState.DENIED,
    (EvState.SKIP, EvInput.DENY): EvState.DENIED,
    (EvState.ASSUMED_BAD, EvInput.DENY): EvState.DENIED,
    (EvState.DENIED, EvInput.ALLOW): EvState.GOOD,
    (EvState.ASSUMED_BAD, EvInput.ALLOW): EvState.GOOD,
}
# The table by numbers: row = state, column = input.
_COLUMN: Final = {item: column for column, item in enumerate(EvInput)}
_TABLE: Final = [[TRANSITIONS.get((state, item), state).value for item in EvInput] for state in STATES]

# Called as (index, old, new, input, losses) on every change of state.
Observer = Callable[[int, int, int, EvInput, int], None]


# A user's policy may be plain Python (`mrc_host.policy`).
@mypyc_attr(allow_interpreted_subclasses=True)
class EvSet:
    """The EVs of one queue pair, and the base class of other policies.

    EV i is `universe.values[i]` in plane `universe.planes[i]`. `state[i]` is GOOD, SKIP, ASSUMED_BAD or DENIED;
    `order[p]` the active set of plane p in scan order, `backup[p]` the rest that may be used; `streak` has the
    ASSUMED_BAD EVs, which are probed. `ready` is `order`; where it is not, `choose` is asked for every packet.

    Where a policy overrides `choose` or `answered`, `listens` is true: `answered` is called, `now_ns` is the time of
    the packet for which `choose` is asked, and `rtt_ns` the round trip of the packet that `answered` is told of (0: it
    has no sample).

    A policy overrides `choose`, `apply`, `answered`, `probe_answered`, `replacement` or `usable_planes`, and changes
    states by `move` alone.
    """

    __slots__ = (
        "_rng",
        "_rounds",
        "backup",
        "cursor",
        "floor",
        "listens",
        "losses",
        "now_ns",
        "observer",
        "order",
        "probes_to_revive",
        "ready",
        "rescan_rounds",
        "rtt_ns",
        "state",
        "streak",
        "target",
        "universe",
        "usable",
    )

    def __init__(self, universe: EvUniverse, rng: random.Random, observer: Observer) -> None:
        """Choose the active set pseudo-randomly, the same number in every plane."""
        config = universe.config
        planes = len(universe.by_plane)
        self.universe = universe
        self.observer = observer
        self.state = [GOOD] * len(universe.values)
        self.losses: dict[int, int] = {}
        self.streak: dict[int, int] = {}  # ASSUMED_BAD EVs: answered probes in a row
        self.retune(config)
        self.rescan_rounds = config.rescan_rounds
        self.usable = (1 << planes) - 1  # planes that data may be sent on
        self.order: list[list[int]] = []
        self.backup: list[list[int]] = []
        self.cursor = [0] * planes
        self._rounds = [0] * planes
        self._rng = rng
        self.target = max(1, config.active // planes)
        for members in universe.by_plane:
            shuffled = list(members)
            rng.shuffle(shuffled)
            self.order.append(shuffled[: self.target])
            self.backup.append(shuffled[self.target :])
        self.ready = self.order
        self.now_ns = 0
        self.listens = False
        self.rtt_ns = 0

    def retune(self, config: EvConfig) -> None:
        """Change the settings of the profile that may change while it is used."""
        self.floor = config.ev_min_active
        self.probes_to_revive = config.probes_to_revive

    # --- choosing ---

    def choose(self, plane: int, avoid: int = -1) -> int:
        """Return the next EV of `plane`, or -1 when it has none (or only `avoid`).

        A SKIP EV met on the way returns to GOOD but is passed over; at most one per packet. When all are
        SKIP the revived one is taken: sending never stops.
        """
        order = self.order[plane]
        state = self.state
        i = self.cursor[plane]
        revived = -1
        for _ in range(len(order)):
            if i >= len(order):
                i = 0
                self._rounds[plane] += 1
                if self._rounds[plane] >= self.rescan_rounds:
                    self._reshuffle(plane)
            ev = order[i]
            i += 1
            if state[ev] == SKIP:
                if revived < 0:
                    self.apply(ev, EvInput.TURN)
                    revived = ev
            elif ev != avoid:
                self.cursor[plane] = i
                return ev
        self.cursor[plane] = i
        return revived if revived != avoid else -1

    def _reshuffle(self, plane: int) -> None:
        """Redraw the scan order, so that queue pairs do not stay in step."""
        self._rounds[plane] = 0
        self._rng.shuffle(self.order[plane])

    def active_count(self) -> int:
        """Return the number of active EVs of the usable planes."""
        return sum(len(order) for plane, order in enumerate(self.order) if self.usable >> plane & 1)

    def planes(self) -> int:
        """Return the bit mask of the planes that have an active EV."""
        return sum(1 << plane for plane, order in enumerate(self.order) if order)

    def rows(self) -> list[EvRow]:
        """Return one row for each EV."""
        universe = self.universe
        active = {ev for order in self.order for ev in order}
        return [
            EvRow(value, universe.planes[ev], STATES[self.state[ev]], ev in active, self.losses.get(ev, 0))
            for ev, value in enumerate(universe.values)
        ]

    # --- state ---

    def problem(self) -> str | None:
        """Return what is wrong with the sets; None: an EV that is GOOD or SKIP is in one set of its plane, one that is
        ASSUMED_BAD has a streak and is no backup, one that is DENIED is in none."""
        for ev in range(len(self.state)):
            state, plane = self.state[ev], self.universe.planes[ev]
            active, backup = self.order[plane].count(ev), self.backup[plane].count(ev)
            right = active + backup == 1 if state in (GOOD, SKIP) else active <= (state == ASSUMED_BAD) and not backup
            if not right or (ev in self.streak) != (state == ASSUMED_BAD):
                return f"EV {ev} is {STATES[state].name}, {active} times active and {backup} times backup"
        return None

    def denies(self, value: int) -> bool:
        """Return whether an EV (its value) is DENIED here."""
        ev = self.universe.index.get(value)
        return ev is not None and self.state[ev] == DENIED

    def apply(self, ev: int, item: EvInput) -> bool:
        """Feed one input to an EV; True when its state changed. Membership follows."""
        old = self.state[ev]
        if item is EvInput.LOSS:
            self.losses[ev] = self.losses.get(ev, 0) + 1
        new = _TABLE[old][_COLUMN[item]]
        if new == old:
            if old == ASSUMED_BAD and item in (EvInput.LOSS, EvInput.PROBE_TIMEOUT, EvInput.ALWAYS_SKIP):
                self.streak[ev] = 0
                self._rotate_least_bad(ev)
            return False
        return self.move(ev, new, item)

    def move(self, ev: int, new: int, item: EvInput) -> bool:
        """Give an EV another state, because of `item`; True when it is another. Membership follows."""
        old = self.state[ev]
        if new == old:
            return False
        self.state[ev] = new
        if old == ASSUMED_BAD:
            del self.streak[ev]
        if new == ASSUMED_BAD:
            self.streak[ev] = 0
            self._leave(ev)
        elif new == DENIED:
            self._leave(ev)
        elif old in (ASSUMED_BAD, DENIED):
            self._join(ev)
        self.observer(ev, old, new, item, self.losses.get(ev, 0))
        return True

    def answered(self, ev: int, mark: int, now: int) -> None:
        """Handle a SACK: the EV of the packet that it answers, and its `m` (0: none), after `apply`. For policies that
        learn from what arrives; ours does not."""

    def probe_answered(self, ev: int, mark: int) -> bool:
        """Handle an answer to a probe of an EV, with the SACK's `m`; True when the state changed."""
        if self.state[ev] != ASSUMED_BAD:
            return False
        if mark == 1:
            return self.apply(ev, EvInput.REVIVED_SKIP)
        if mark >= 2:
            return self.apply(ev, EvInput.ALWAYS_SKIP)
        self.streak[ev] += 1
        if self.streak[ev] < self.probes_to_revive:
            return False
        return self.apply(ev, EvInput.REVIVED)

    def reset(self, ev: int) -> None:
        """Forget the state of an EV whose value was replaced."""
        if self.state[ev] == DENIED or self.state[ev] == ASSUMED_BAD:
            self.apply(ev, EvInput.ALLOW)
        elif self.state[ev] == SKIP:
            self.apply(ev, EvInput.TURN)
        self.losses.pop(ev, None)

    def usable_planes(self, ours: int, theirs: int) -> int:
        """Return the bit mask of the planes that data may be sent on.

        Called on connecting and whenever a NIC port goes down or comes up, ours or the peer's. Bit p of `ours`: our
        port in plane p is up; of `theirs`: the peer's port is up by its latest port status.
        """
        return ours & theirs

    def set_usable(self, mask: int) -> None:
        """Set which planes may be used now; make sure that some EV of them is active if any is not DENIED."""
        self.usable = mask
        if self.active_count() == 0:
            for plane in range(len(self.order)):
                if mask >> plane & 1:
                    self._fill_least_bad(plane)

    def _leave(self, ev: int) -> None:
        """Take an EV out of its set; a backup of the same plane replaces it in the active set."""
        plane = self.universe.planes[ev]
        order, backup = self.order[plane], self.backup[plane]
        if ev not in order:
            if ev in backup:
                backup.remove(ev)
            return
        place = order.index(ev)
        other = self.replacement(ev)
        if other >= 0:
            backup.remove(other)
            order[place] = other
            return
        if self.state[ev] == ASSUMED_BAD and self.active_count() <= self.floor:
            self._rotate_least_bad(ev)
            return
        del order[place]
        if place < self.cursor[plane]:
            self.cursor[plane] -= 1
        if self.active_count() < self.floor:
            for other in range(len(self.order)):
                if self.usable >> other & 1:
                    self._fill_least_bad(other)

    def replacement(self, ev: int) -> int:
        """Return the backup EV that takes an EV's place in the active set: of the same plane, a GOOD one if there is
        one; -1: there is none."""
        backup = self.backup[self.universe.planes[ev]]
        for other in backup:
            if self.state[other] == GOOD:
                return other
        return backup[0] if backup else -1

    def _join(self, ev: int) -> None:
        """Add a usable EV: active while the plane is short of EVs or uses a bad one, else backup."""
        plane = self.universe.planes[ev]
        order = self.order[plane]
        if ev in order:
            return
        for place, other in enumerate(order):
            if self.state[other] == ASSUMED_BAD:
                order[place] = ev
                return
        if len(order) < self.target:
            order.insert(self._rng.randrange(len(order) + 1), ev)
        else:
            self.backup[plane].append(ev)

    def _rotate_least_bad(self, ev: int) -> None:
        """Replace an ASSUMED_BAD EV that the floor keeps active and that failed again by the least bad one."""
        plane = self.universe.planes[ev]
        order = self.order[plane]
        if ev not in order:
            return
        others = [other for other in self.streak if self.universe.planes[other] == plane and other not in order]
        if others:
            best = min(others, key=self._badness)
            if self._badness(best) < self._badness(ev):
                order[order.index(ev)] = best

    def _fill_least_bad(self, plane: int) -> None:
        """Bring ASSUMED_BAD EVs of a plane back into use until the floor is reached."""
        order = self.order[plane]
        others = [ev for ev in self.streak if self.universe.planes[ev] == plane and ev not in order]
        others.sort(key=self._badness)
        for ev in others:
            if self.active_count() >= self.floor:
                return
            order.append(ev)

    def _badness(self, ev: int) -> tuple[int, int]:
        return (-self.streak.get(ev, 0), self.losses.get(ev, 0))
