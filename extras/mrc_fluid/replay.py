"""A graph of operations over time on the fluid model: computations, messages that share the fabric, and failures.

Between two events nothing changes. Events within `resolution_ns` of each other count as one for the shares of messages:
each still has its own time, and a message that begins meanwhile gets its share from its own beginning on. A message
arrives some time after its last byte, and its sender knows later (`Latency`). Messages of a queue pair, and
computations of a unit, follow each other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mrc_fluid.carrier import Carrier
from mrc_fluid.fabric import Bools, Floats, Ints
from mrc_fluid.timeline import Event, next_repair
from mrc_host.graph.graph import Op
from mrc_host.graph.schedule import Schedule
from mrc_topo.base import interruption
from mrc_topo.base.errors import MrclabError

WAITING, RUNNING = 0, 1


class ReplayError(MrclabError):
    """A graph that cannot go on: messages have no path, now and later."""


@dataclass(frozen=True)
class Latency:
    """How long after its last byte has left a message arrives, and how long after that its sender knows, by flow.

    `out`: ns of the links alone; `store`: ns for each byte of the last packet, which every switch receives as a whole;
    `back`: ns of an answer; `mtu`: bytes of payload in a full packet; `header`: bytes around it; `planes`: over which
    packets are spread, one at a time each; `port`: ns of a byte at one port.
    """

    out: Floats
    store: Floats
    back: Floats
    mtu: int
    header: int
    planes: int
    port: float

    def filled(self, size: Floats) -> Floats:
        """Return the payload of full packets that take as long on a link as messages of this many bytes with their own
        packets, the last of which may be small."""
        found: Floats = (size + np.ceil(size / self.mtu) * self.header) * self.mtu / (self.mtu + self.header)
        return found

    def arrival(self, flows: Ints, size: Floats) -> Floats:
        """Return the time from the last byte to the arrival of messages."""
        packets = np.maximum(np.ceil(size / self.mtu), 1.0)
        last = np.minimum(size, self.mtu) + self.header
        # A round of packets takes its time, also where it leaves planes without one.
        rounds = (np.ceil(packets / self.planes) - packets / self.planes) * last * self.port
        found: Floats = self.out[flows] + self.store[flows] * last + rounds
        return found


@dataclass(frozen=True)
class StepTimes:
    """When each operation could begin, began and ended (ns), and each rank's beginning and end."""

    ready: Floats
    start: Floats
    end: Floats
    begin: Floats
    over: Floats


class Replay:
    """Runs a schedule, step after step.

    Args:
        schedule: what runs.
        carrier: the fabric; flows are those of the schedule.
        latency: of messages, beside what their share of the fabric takes.
        resolution_ns: see the module.
        events: failures and repairs in the order of time, ns from the beginning of the first step.
        progress: told how many operations are done.
    """

    def __init__(
        self, schedule: Schedule, carrier: Carrier, latency: Latency, resolution_ns: float, events: Sequence[Event],
        progress: Callable[[int], None] = lambda count: None,
    ) -> None:  # fmt: skip
        self.schedule, self.carrier = schedule, carrier
        self.latency, self.resolution_ns = latency, resolution_ns
        self.events = deque(events)
        self.progress = progress
        #: What has been given shares until now, ns.
        self.rated = 0.0

    def step(self, begin: Floats) -> StepTimes:
        """Run the schedule once, each rank from its own beginning on.

        Raises:
            ReplayError: it cannot end.
        """
        run = _Step(self, begin)
        run.go()
        over = begin.copy()
        owned = self.schedule.rank >= 0
        np.maximum.at(over, self.schedule.rank[owned], run.end[owned])
        return StepTimes(run.ready, run.start, run.end, begin, over)


class _Step:
    """One pass through a schedule."""

    def __init__(self, replay: Replay, begin: Floats) -> None:
        self.replay = replay
        schedule = self.schedule = replay.schedule
        count = len(schedule)
        self.needs = schedule.needs.copy()
        self.ready = np.where(schedule.rank >= 0, begin[schedule.rank], 0.0)
        self.start, self.end = np.full(count, np.nan), np.full(count, np.nan)
        self.state = np.zeros(count, np.uint8)
        self.left, self.since = (
            np.where(schedule.kind == Op.SEND, replay.latency.filled(schedule.work), 0.0),
            np.zeros(count),
        )
        self.rate, self.not_before = np.zeros(count), np.zeros(count)
        self.stalled = np.zeros(count, bool)
        #: Of computations their unit, of messages their flow behind all units; and what waits there.
        self.place = np.where(schedule.kind == Op.SEND, schedule.units + schedule.unit, schedule.unit).astype(np.int64)
        places = schedule.units + len(schedule.flow_src)
        self.busy, self.queued = np.zeros(places, bool), np.zeros(places, bool)
        self.queues: dict[int, deque[int]] = {}
        self.ops: Ints = np.zeros(0, np.int64)
        self.finish: Floats = np.zeros(0)
        self.new: list[tuple[Ints, Floats]] = []
        self.dirty = False
        self.done = 0

    def go(self) -> None:
        """Run until everything has ended."""
        self._admit(np.flatnonzero(self.needs == 0), -math.inf)
        self._merge()
        resolution, events = self.replay.resolution_ns, self.replay.events
        while len(self.ops):
            interruption.check()
            now = float(self.finish.min())
            if events and events[0].at <= now:
                self._happen()
                continue
            if now == math.inf:
                stuck = int(self.ops[0])
                src, dst = int(self.schedule.rank[stuck]), int(self.schedule.peer[stuck])
                raise ReplayError(f"rank {src} has no path to rank {dst}, and no repair follows; give failures an end")
            horizon = now + resolution
            if events:
                horizon = min(horizon, float(events[0].at))
            self._until(horizon)
            if self.dirty:
                self._share(horizon)
        if self.done < len(self.schedule):
            raise ReplayError(f"{len(self.schedule) - self.done} operations wait for what never comes")

    def _until(self, horizon: float) -> None:
        """Let everything happen up to a time."""
        while True:
            due = self.finish <= horizon
            if not due.any():
                return
            ops, times = self.ops[due], self.finish[due]
            self.ops, self.finish = self.ops[~due], self.finish[~due]
            waiting = self.state[ops] == WAITING
            if waiting.any():
                self._begin(ops[waiting])
            if not waiting.all():
                self._complete(ops[~waiting], times[~waiting], horizon)
            self._merge()

    def _merge(self) -> None:
        if self.new:
            self.ops = np.concatenate([self.ops, *(each[0] for each in self.new)])
            self.finish = np.concatenate([self.finish, *(each[1] for each in self.new)])
            self.new = []

    def _admit(self, ops: Ints, horizon: float) -> None:
        """Take operations whose predecessors have ended: at once, or when their time comes."""
        soon = self.ready[ops] <= horizon
        if not soon.all():
            later = ops[~soon]
            self.new.append((later, self.ready[later]))
        if soon.any():
            self._begin(ops[soon])

    def _begin(self, ops: Ints) -> None:
        """Begin operations; those whose unit or queue pair is taken wait for it."""
        schedule = self.schedule
        self.state[ops] = RUNNING
        kind = schedule.kind[ops]
        free = (kind == Op.JOIN) | (kind == Op.RECEIVE)
        if free.any():
            passing = ops[free]
            self.start[passing] = self.ready[passing]
            self.new.append((passing, self.ready[passing] + schedule.work[passing]))
        carried = ops[~free]
        if not len(carried):
            return
        carried = carried[np.lexsort((carried, self.ready[carried]))]
        place = self.place[carried]
        first = np.zeros(len(carried), bool)
        first[np.unique(place, return_index=True)[1]] = True
        first &= ~self.busy[place]
        for op, where in zip(carried[~first].tolist(), place[~first].tolist(), strict=True):
            self.queues.setdefault(where, deque()).append(op)
            self.queued[where] = True
        chosen = carried[first]
        self._run(chosen, self.ready[chosen])

    def _run(self, ops: Ints, at: Floats) -> None:
        """Run computations and messages from these times on."""
        schedule = self.schedule
        self.busy[self.place[ops]] = True
        self.start[ops] = at
        sends = (schedule.kind[ops] == Op.SEND) & (schedule.work[ops] > 0)
        # What is no message with data takes its time alone; a message without data takes none.
        self.new.append((ops[~sends], at[~sends] + schedule.work[ops[~sends]]))
        if sends.any():
            self.since[ops[sends]] = at[sends]
            for flow in schedule.unit[ops[sends]].tolist():
                self.replay.carrier.dead.begin(flow)
            self.new.append((ops[sends], np.full(int(sends.sum()), np.inf)))
            self.dirty = True

    def _complete(self, ops: Ints, times: Floats, horizon: float) -> None:
        """End operations, and begin what waits for them."""
        schedule, latency = self.schedule, self.replay.latency
        sends = schedule.kind[ops] == Op.SEND
        arrival, known = np.zeros(len(ops)), np.zeros(len(ops))
        if sends.any():
            flows = schedule.unit[ops[sends]]
            arrival[sends] = latency.arrival(flows, schedule.work[ops[sends]])
            known[sends] = arrival[sends] + latency.back[flows]
        self.end[ops] = times + known
        self.done += len(ops)
        self.replay.progress(len(ops))
        taking = self.place[ops]
        holds = (schedule.kind[ops] == Op.COMPUTE) | sends
        self.busy[taking[holds]] = False
        self.dirty |= bool((sends & (schedule.work[ops] > 0)).any())
        next_ones = holds & self.queued[np.maximum(taking, 0)]
        for where, at in zip(taking[next_ones].tolist(), times[next_ones].tolist(), strict=True):
            queue = self.queues[where]
            op = queue.popleft()
            self.queued[where] = bool(queue)
            self._run(np.array([op]), np.array([max(at, float(self.ready[op]))]))
        origin, heads = schedule.after(ops)
        if not len(heads):
            return
        tails = ops[origin]
        arrives = (schedule.sent[heads] == tails) | (schedule.rank[heads] < 0)
        np.maximum.at(self.ready, heads, times[origin] + np.where(arrives, arrival[origin], known[origin]))
        np.subtract.at(self.needs, heads, 1)
        self._admit(np.unique(heads[self.needs[heads] == 0]), horizon)

    def _messages(self) -> Bools:
        """Return which of the operations under way are messages with data."""
        found: Bools = (
            (self.schedule.kind[self.ops] == Op.SEND)
            & (self.state[self.ops] == RUNNING)
            & (self.schedule.work[self.ops] > 0)
        )
        return found

    def _share(self, now: float) -> None:
        """Give messages their shares from a time on; one that began before gets its share from its beginning."""
        now = self.replay.rated = max(self.replay.rated, now)
        self.dirty = False
        carrier = self.replay.carrier
        where = np.flatnonzero(self._messages())
        if not len(where):
            return
        where = where[np.argsort(self.schedule.unit[self.ops[where]], kind="stable")]
        ops = self.ops[where]
        going = self.rate[ops] > 0
        spent = np.where(going, np.maximum(now - self.since[ops], 0.0), 0.0)
        self.left[ops] = np.maximum(self.left[ops] - self.rate[ops] * spent, 0.0)
        # A message that had no path until now goes on from now.
        self.since[ops] = np.where(going | self.stalled[ops], np.maximum(now, self.since[ops]), self.since[ops])
        flows = self.schedule.unit[ops].astype(np.int64)
        rates = carrier.rates(flows)
        struck = np.flatnonzero(carrier.dead.due[flows] & (rates > 0))
        if len(struck):
            until = next_repair(self.replay.events) - now
            again, delay = carrier.price(flows, struck, self.left[ops[struck]], until)
            self.left[ops[struck]] += again
            self.not_before[ops[struck]] = self.since[ops[struck]] + delay[0]
        self.rate[ops], self.stalled[ops] = rates, rates <= 0
        with np.errstate(divide="ignore"):
            finish = self.since[ops] + np.where(rates > 0, self.left[ops] / rates, np.inf)
        self.finish[where] = np.maximum(finish, self.not_before[ops])

    def _happen(self) -> None:
        """Let the next failure or repair happen, with all of the same time."""
        events = self.replay.events
        at = events[0].at
        same = []
        while events and events[0].at == at:
            same.append(events.popleft())
        self._until(float(at))
        self._share(float(at))
        self.replay.carrier.change(same)
        self._share(float(at))
