"""Counterexamples: written to a file, run again without any snapshot, and made shorter."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from support.checker.packets import label
from support.checker.scenario import Scenario
from support.checker.search import Result
from support.checker.world import Event, EventKind, Model, World

FORMAT: Final = "mrclab-counterexample/1"
_MOST_STEPS: Final = 2_000


@dataclass(frozen=True)
class Step:
    """One event as a file has it: the packet by its name, `copy` among those of one name."""

    kind: EventKind
    to: int
    port: int
    packet: str
    copy: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it, without what says nothing."""
        found: dict[str, Any] = {"event": self.kind.value}
        if self.to >= 0:
            found["to"] = self.to
        if self.port >= 0:
            found["port"] = self.port
        if self.packet:
            found["packet"] = self.packet
        if self.copy:
            found["copy"] = self.copy
        return found

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Step:
        """Read what `to_dict` made. Raises ValueError or KeyError for something else."""
        return cls(
            EventKind(document["event"]), int(document.get("to", -1)), int(document.get("port", -1)),
            str(document.get("packet", "")), int(document.get("copy", 0)),
        )  # fmt: skip


@dataclass(frozen=True)
class Counterexample:
    """A scenario, the events, and what goes wrong with the last of them."""

    scenario: Scenario
    problem: str
    steps: tuple[Step, ...]

    def write(self, path: Path) -> None:
        """Write it to a file."""
        document = {
            "format": FORMAT,
            "problem": self.problem,
            "scenario": self.scenario.to_dict(),
            "events": [step.to_dict() for step in self.steps],
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Counterexample:
        """Read a file. Raises ValueError for one that `write` did not make."""
        document = json.loads(path.read_text())
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise ValueError(f"{path} is no file of format {FORMAT}")
        steps = tuple(Step.from_dict(each) for each in document["events"])
        return cls(Scenario.from_dict(document["scenario"]), str(document["problem"]), steps)


@dataclass(frozen=True)
class Replayed:
    """What a run led to: the problem, if any, and each event with its time in ns after the beginning."""

    problem: str | None
    events: tuple[tuple[int, Event], ...]

    def lines(self) -> list[str]:
        """Return one line for each event."""
        return [f"{number:3} {time / 1000:10.2f} us  {event}" for number, (time, event) in enumerate(self.events, 1)]


def _named(events: list[Event]) -> dict[Step, Event]:
    """Return the events by what a file calls them."""
    found: dict[Step, Event] = {}
    for event in events:
        name = label(event.packet) if event.packet else ""
        copy = 0
        while (step := Step(event.kind, event.to, event.port, name, copy)) in found:
            copy += 1
        found[step] = event
    return found


def _ended(model: Model, world: World) -> str | None:
    return model.stuck(world, model.events(world))


def replay(scenario: Scenario, steps: tuple[Step, ...], *, strict: bool = True) -> Replayed:
    """Run events on new endpoints, each in the state that the one before left.

    An event that cannot happen is left out, or with `strict` is an error: ValueError.
    """
    model = Model(scenario)
    world, problem = model.first()
    began = world.now
    events: list[tuple[int, Event]] = []
    seen = {model.key(world)}
    for step in steps:
        if problem is not None:
            break
        event = _named(model.events(world)).get(step)
        if event is None:
            if strict:
                raise ValueError(f"event {len(events) + 1} cannot happen: {step}")
            continue
        world, problem = model.apply(world, event)
        events.append((world.now - began, event))
        key = model.key(world)
        if problem is None and key in seen:
            problem = "the run has no end: it comes back to an earlier state"
        seen.add(key)
    return Replayed(problem or _ended(model, world), tuple(events))


def steps_of(scenario: Scenario, trace: list[Event]) -> tuple[Step, ...]:
    """Return the steps of a trace. Raises ValueError when a run without snapshots does not have its events."""
    model = Model(scenario)
    world, _ = model.first()
    steps = []
    for number, event in enumerate(trace, 1):
        named = {found: step for step, found in _named(model.events(world)).items()}
        if event not in named:
            raise ValueError(f"event {number} of the trace, '{event}', does not happen in a run without snapshots")
        steps.append(named[event])
        world, _ = model.apply(world, event)
    return tuple(steps)


def kind_of(problem: str | None) -> str | None:
    """Return a problem without its numbers."""
    return None if problem is None else re.sub(r"\d+(\.\d+)?", "N", problem)


def shorten(found: Counterexample) -> Counterexample:
    """Leave out events as long as the same kind of problem comes; the events of the result can all happen."""
    wanted = kind_of(found.problem)
    steps = found.steps
    at = len(steps) - 1
    while at >= 0:
        tried = steps[:at] + steps[at + 1 :]
        run = replay(found.scenario, tried, strict=False)
        if kind_of(run.problem) == wanted and len(run.events) < len(steps):
            steps = steps_of(found.scenario, [event for _, event in run.events])
            at = min(at, len(steps))
        at -= 1
    problem = replay(found.scenario, steps).problem
    assert problem is not None
    return Counterexample(found.scenario, problem, steps)


def counterexample(result: Result) -> Counterexample:
    """Return the counterexample that an exploration found, confirmed by a run without snapshots, and shortened.

    Raises ValueError when that run has another outcome: then `state.py` does not save all that has an effect.
    """
    assert result.problem is not None
    steps = steps_of(result.scenario, result.trace)
    run = replay(result.scenario, steps)
    if kind_of(run.problem) != kind_of(result.problem):
        raise ValueError(f"the exploration found '{result.problem}', a run without snapshots '{run.problem}'")
    return shorten(Counterexample(result.scenario, result.problem, steps))
