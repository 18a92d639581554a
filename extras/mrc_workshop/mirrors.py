"""Mirrors for a learner's class in its own process: copies of what an endpoint shows to a policy, kept up to date.

The other half is `standins`: it says what changed with every call, and takes back what the policy changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from mrc_host.policy import (
    IN_FLIGHT,
    CcConfig,
    CongestionControl,
    EvInput,
    EvSet,
    EvUniverse,
    LossDetector,
    Rtt,
    Scoreboard,
    Transmission,
)
from mrc_host.proto.config import EvConfig, EvMode
from mrc_host.proto.congestion.base import algorithms
from mrc_host.proto.reliability.scoreboard import ACKED, REPLACED
from mrc_host.proto.work import WriteRequest

#: The type of a function that draws this many bits from the endpoint's generator.
Draw = Callable[[int], int]
INPUTS = list(EvInput)


class Generator(random.Random):
    """A stand-in for an endpoint's generator, which draws every number there, so that a policy draws the same numbers
    as in the endpoint's own process."""

    def __init__(self, draw: Draw) -> None:
        super().__init__(0)
        self._draw = draw

    def getrandbits(self, k: int) -> int:
        """See `random.Random`."""
        return self._draw(k)

    def random(self) -> float:
        """See `random.Random`."""
        return ((self._draw(32) >> 5) * 67108864 + (self._draw(32) >> 6)) * (1.0 / 9007199254740992.0)


class WindowMirror:
    """A congestion controller; its state is `[cwnd, max_wnd, base_rtt_ns, rtt_ns, srtt_ns, mtu]`."""

    def __init__(self, cls: Callable[..., Any], given: list[Any], draw: Draw) -> None:
        algorithm, settings, mtu = given
        config: CcConfig = algorithms()[algorithm](**settings)
        self.policy: CongestionControl = cls(config, mtu)

    def call(self, method: str, given: list[Any], state: Any) -> tuple[Any, Any]:
        """Call the policy; return its result and the state afterwards."""
        self.policy.inflight = state
        result = getattr(self.policy, method)(*given)
        return result, self.told()

    def told(self) -> list[Any]:
        """See the class."""
        of = self.policy
        return [of.cwnd, of.max_wnd, of.base_rtt_ns, of.rtt_ns, of.srtt_ns, of.mtu]


#: The state of a mirror by attribute, as it is sent on the wire.
Attributes = dict[str, Any]


class EvMirror:
    """The EVs of a queue pair. Its state consists of the attributes that changed, and of the changes of EV states by
    `move`."""

    def __init__(self, cls: Callable[..., Any], given: list[Any], draw: Draw) -> None:
        settings, values = given
        config = EvConfig(mode=EvMode.EXPLICIT, values=values, **settings)
        universe = EvUniverse(config, len(values), random.Random(0))
        self.moves: list[list[int]] = []
        self.policy: EvSet = cls(universe, Generator(draw), self._moved)
        self._last: Attributes = {}

    def _moved(self, ev: int, old: int, new: int, item: EvInput, losses: int) -> None:
        self.moves.append([ev, old, new, INPUTS.index(item), losses])

    def call(self, method: str, given: list[Any], state: Any) -> tuple[Any, Any]:
        """Call the policy; return its result and the state afterwards."""
        policy = self.policy
        cursor, policy.now_ns = state
        policy.cursor[:] = cursor
        self._last["cursor"] = list(cursor)
        if method == "apply":
            given = [given[0], INPUTS[given[1]]]
        elif method == "retune":
            given = [EvConfig(mode=EvMode.EXPLICIT, values=[[0]], **given[0])]
        elif method == "reset":
            ev, value = given
            if policy.universe.values[ev] != value:
                policy.universe.replace(policy.universe.values[ev], value)
            given = [ev]
        result = getattr(policy, method)(*given)
        return result, self.told()

    def told(self) -> Attributes:
        """See the class."""
        of, last = self.policy, self._last
        now: Attributes = {
            "state": bytes(of.state),
            "order": of.order,
            "backup": of.backup,
            "ready": None if of.ready is of.order else of.ready,
            "cursor": of.cursor,
            "streak": list(of.streak.items()),
            "losses": list(of.losses.items()),
            "numbers": [of.usable, of.floor, of.probes_to_revive, of.target, int(of.listens)],
        }
        changed: Attributes = {}
        for name, value in now.items():
            if name not in last or last[name] != value:
                last[name] = _copied(value)
                changed[name] = value.hex() if isinstance(value, bytes) else value
        if self.moves:
            changed["moves"], self.moves = self.moves, []
        return changed


def _copied(value: Any) -> Any:
    return [each[:] if isinstance(each, list) else each for each in value] if isinstance(value, list) else value


class LossMirror:
    """A loss detector, with its board and RTT. It has no state that the endpoint uses."""

    def __init__(self, cls: Callable[..., Any], given: list[Any], draw: Draw) -> None:
        timeout_ns, linear, planes, evs, same_ev, rack = given
        self.board = Scoreboard(0, timeout_ns, linear, planes, evs)
        self.rtt = Rtt(planes)
        self.sent: dict[int, Transmission] = {}
        self.numbers: dict[int, int] = {}  # by id
        self.policy: LossDetector = cls(self.board, self.rtt, same_ev, rack)
        self._request = WriteRequest(0, memoryview(b""), 0, 0, None)

    def call(self, method: str, given: list[Any], state: Any) -> tuple[Any, Any]:
        """Call the policy; return its result and the state afterwards."""
        self._take(*state)
        if method == "arrived_late":
            self.policy.arrived_late(*given)
            for number in state[1]:
                self._forget(number)
            return None, None
        acked, overtaken, base_rtt_ns, now = given
        arrived = [self.sent[number] for number in acked]
        before = None if overtaken is None else [self.sent[number] for number in overtaken]
        try:
            lost = self.policy.infer(arrived, before, base_rtt_ns, now)
        finally:
            for number in state[1]:
                self._forget(number)
        return (None if lost is None else [self.numbers[id(each)] for each in lost]), None

    def _forget(self, number: int) -> None:
        sent = self.sent.pop(number)
        del self.numbers[id(sent)]

    def _take(
        self,
        fresh: list[list[Any]],
        gone: list[int],
        states: list[list[int]],
        slow: list[int],
        numbers: list[Any],
        adaptive: bool,
    ) -> None:
        board = self.board
        outstanding = board.outstanding
        for number, waits, *fields in fresh:
            psn, sent_ns, ev, plane, size, offset, count, failures, state = fields
            made = Transmission(psn, sent_ns, ev, plane, size, self._request, offset, count, failures, None)
            made.state = state
            self.sent[number] = made
            self.numbers[id(made)] = number
            board.orders[plane].append(made)
            if waits:
                before = outstanding.get(psn)
                if before is not None:
                    before.state = REPLACED
                    self._forget(self.numbers[id(before)])
                outstanding.put(made)
        for number in gone:
            sent = self.sent[number]
            sent.state = ACKED
            if outstanding.get(sent.psn) is sent:
                outstanding.take(sent.psn)
        for number, state in states:
            self.sent[number].state = state
        board.slow = {sent.psn: sent for sent in map(self.sent.__getitem__, slow) if sent.state == IN_FLIGHT}
        if board.slow:
            late = set(map(id, board.slow.values()))
            for order in board.orders:
                kept = [each for each in order.all() if id(each) not in late]
                order.clear()
                for each in kept:
                    order.append(each)
        for order in board.orders:
            while order.first is not None and order.first.state != IN_FLIGHT:
                order.drop()
        board.una, board.nxt, board.newest_ns, board.progress_ns, sacked, *rtt = numbers
        board.sacked = int(sacked, 16)
        self.rtt.srtt_ns, self.rtt.var_ns, self.rtt.least_ns, windows = rtt
        for plane, window in zip(self.rtt.planes, windows, strict=True):
            plane.window_ns = window
        self.policy.adaptive = adaptive


MIRRORS: dict[str, type[WindowMirror | EvMirror | LossMirror]] = {
    "congestion": WindowMirror,
    "ev": EvMirror,
    "loss": LossMirror,
}
