"""The exploration: breadth first, each state once, so that the first counterexample has the fewest events."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from typing import Final

from support.checker.scenario import Scenario
from support.checker.world import Event, Model, World

_CHECK_EVERY: Final = 256


class Ending(Enum):
    """Why an exploration ended."""

    EXHAUSTED = "all states explored"
    FOUND = "counterexample found"
    OUT_OF_TIME = "out of time"
    OUT_OF_ROOM = "too many states"


@dataclass
class Result:
    """What an exploration did. `trace` leads to `problem`, if there is one."""

    scenario: Scenario
    ending: Ending
    states: int
    transitions: int
    depth: int
    ends: int  # runs that ended
    seconds: float  # of CPU time
    steps: int  # different steps of single ends that were computed
    locals: int  # different states of single ends
    problem: str | None = None
    trace: list[Event] = field(default_factory=list)

    def __str__(self) -> str:
        rate = self.states / self.seconds if self.seconds else 0.0
        text = (
            f"{self.ending.value}: {self.states} states, {self.transitions} transitions, depth {self.depth}, "
            f"{self.ends} ends, {self.seconds:.1f} s of CPU, {rate:.0f} states/s; "
            f"{self.locals} states of single ends, {self.steps} steps"
        )
        return text if self.problem is None else f"{text}\n  {self.problem}"


class Search:
    """One exploration of a scenario."""

    def __init__(self, scenario: Scenario, *, seconds: float = 1e9, most_states: int = 3_000_000) -> None:
        """Explore until `seconds` of CPU time or `most_states` states are reached, whichever comes first."""
        self.scenario = scenario
        self.model = Model(scenario)
        self._seconds = seconds
        self._most = most_states
        self._numbers: dict[bytes, int] = {}
        self._parents: list[int] = []
        self._events: list[Event | None] = []
        self._after: list[list[int]] = []
        self._frontier: deque[tuple[int, int, World]] = deque()
        self._transitions = self._depth = self._ends = 0

    def run(self) -> Result:
        """Explore until everything was seen, something wrong is found, or time or room is used up."""
        began = time.process_time()
        first, problem = self.model.first()
        self._add(first, -1, None, 0)
        if problem is not None:
            return self._result(began, Ending.FOUND, problem, [])
        count = 0
        while self._frontier:
            number, depth, world = self._frontier.popleft()
            count += 1
            if count % _CHECK_EVERY == 0:
                if time.process_time() - began > self._seconds:
                    return self._result(began, Ending.OUT_OF_TIME)
                if len(self._numbers) > self._most:
                    return self._result(began, Ending.OUT_OF_ROOM)
            found = self._expand(number, depth, world)
            if found is not None:
                problem, last = found
                return self._result(began, Ending.FOUND, problem, self._trace(number) + last)
        loop = self._loop()
        if loop is not None:
            return self._result(began, Ending.FOUND, "the run has no end: it comes back to an earlier state", loop)
        return self._result(began, Ending.EXHAUSTED)

    def _expand(self, number: int, depth: int, world: World) -> tuple[str, list[Event]] | None:
        model = self.model
        events = model.events(world)
        if not events:
            self._ends += 1
            problem = model.stuck(world, events)
            return None if problem is None else (problem, [])
        if model.over(world):
            self._ends += 1
        after = self._after[number]
        for event in events:
            self._transitions += 1
            reached, problem = model.apply(world, event)
            if problem is not None:
                return problem, [event]
            after.append(self._add(reached, number, event, depth + 1))
        return None

    def _add(self, world: World, parent: int, event: Event | None, depth: int) -> int:
        digest = blake2b(repr(self.model.key(world)).encode(), digest_size=16).digest()
        number = self._numbers.get(digest)
        if number is None:
            number = self._numbers[digest] = len(self._parents)
            self._parents.append(parent)
            self._events.append(event)
            self._after.append([])
            self._frontier.append((number, depth, world))
            self._depth = max(self._depth, depth)
        return number

    def _trace(self, number: int) -> list[Event]:
        trace: list[Event] = []
        while self._parents[number] >= 0:
            event = self._events[number]
            assert event is not None
            trace.append(event)
            number = self._parents[number]
        return trace[::-1]

    def _loop(self) -> list[Event] | None:
        """Return a way into a circle of states, None if there is none: then every run ends."""
        done = bytearray(len(self._parents))  # 1: on the way, 2: finished
        for start in range(len(self._parents)):
            if done[start]:
                continue
            done[start] = 1
            way = [(start, iter(self._after[start]))]
            while way:
                number, rest = way[-1]
                following = next(rest, None)
                if following is None:
                    done[number] = 2
                    way.pop()
                elif done[following] == 0:
                    done[following] = 1
                    way.append((following, iter(self._after[following])))
                elif done[following] == 1:
                    circle = [each for each, _ in way]
                    return self._way_around(circle[circle.index(following) :])
        return None

    def _way_around(self, circle: list[int]) -> list[Event]:
        """Return the events that lead to a circle, and once around it."""
        entry = min(circle)
        at = circle.index(entry)
        order = [*circle[at:], *circle[:at], entry]
        trace = self._trace(entry)
        world, _ = self.model.first()
        for event in trace:
            world, _ = self.model.apply(world, event)
        for following in order[1:]:
            for event in self.model.events(world):
                reached, _ = self.model.apply(world, event)
                digest = blake2b(repr(self.model.key(reached)).encode(), digest_size=16).digest()
                if self._numbers.get(digest) == following:
                    world = reached
                    trace.append(event)
                    break
        return trace

    def _result(
        self, began: float, ending: Ending, problem: str | None = None, trace: list[Event] | None = None
    ) -> Result:
        ends = self.model.ends
        return Result(
            self.scenario, ending, len(self._numbers), self._transitions, self._depth, self._ends,
            time.process_time() - began, sum(end.computed for end in ends), sum(end.states for end in ends), problem,
            trace or [],
        )  # fmt: skip


def explore(scenario: Scenario, *, seconds: float = 1e9, most_states: int = 3_000_000) -> Result:
    """Explore a scenario."""
    return Search(scenario, seconds=seconds, most_states=most_states).run()
