"""Ranks of a training job that do as a test says, in the place of processes; a session whose clock is the test's."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from mrc_topo.base.plain import decode
from mrclab.lab.faults.action import Action
from mrclab.lab.faults.ledger import LedgerChange
from mrclab.lab.processes.process import ProcessExit

if TYPE_CHECKING:
    from mrc_torch.training.ranks import RankMessage


class Failures:
    """A ledger of failures without a lab: one failure per target."""

    def __init__(self) -> None:
        self.by_target: dict[str, Action] = {}
        self.changes: list[LedgerChange] = []

    @property
    def causes(self) -> list[Action]:
        return list(self.by_target.values())

    @property
    def latest(self) -> int:
        return len(self.changes)

    @property
    def broken(self) -> set[str]:
        return set(self.by_target)

    def check(self, action: Action) -> Action:
        return action

    def reload(self) -> None:
        pass

    def restore_own(self, session: object) -> None:
        self.by_target.clear()

    def expected_loss(self, causes: Sequence[Action]) -> float:
        return 0.0

    def perform(self, session: Clock, action: Action) -> list[LedgerChange]:
        return [self.change(action, session.now_ns(), session.now_ns())]

    def change(self, action: Action, began_ns: int, done_ns: int) -> LedgerChange:
        """Change what is broken, and return the change."""
        if action.verb == "fail":
            self.by_target[action.target] = action
        else:
            action = Action("restore", action.target, self.by_target.pop(action.target).kind)
        self.changes.append(LedgerChange(action, began_ns, done_ns, self.latest + 1))
        return self.changes[-1]


class Clock:
    """A session: time passes when ranks are asked for their events."""

    clock = "virtual"

    def __init__(self) -> None:
        self.now = 1_000_000_000
        self.failures = Failures()
        self.state = SimpleNamespace(uid=0, gid=0)
        self.hosts = {"h0", "h1", "h2", "h3"}
        self.dead: list[ProcessExit] = []

    def now_ns(self) -> int:
        return self.now

    def deaths(self) -> list[ProcessExit]:
        return self.dead


class Scripted:
    """All ranks of an attempt: a step takes `STEP_NS`, three times that while something is broken; with the backend
    `roce` they die of it. `made` has every attempt's settings."""

    STEP_NS = 100_000_000
    made: list[dict[str, Any]] = []
    reached = 0

    def __init__(
        self, session: Clock, names: Sequence[str], backend: str, store: pathlib.Path, settings: Mapping[str, Any]
    ) -> None:
        self.session, self.names, self.backend, self.settings = session, list(names), backend, dict(settings)
        Scripted.made.append(self.settings)
        kept = Scripted.reached // settings["checkpoint_every"] * settings["checkpoint_every"]
        self.step = kept if settings["resume"] else 0
        self.phase = "ready"
        self.limit = settings["steps"]
        self.held = False
        self.orders = 0
        self.ended = False

    def tell(self, rank: int, **document: Any) -> None:
        if "hold" in document:
            self.held = True
        if "stop_after" in document:
            self.limit, self.held = document["stop_after"], False
        if not document and rank == 0:
            self.phase = {"ready": "connect", "waits": "go"}[self.phase]

    def tell_all(self, **document: Any) -> None:
        for rank in reversed(range(len(self.names))):
            self.tell(rank, **document)

    def _all(self, **event: Any) -> list[tuple[int, dict[str, Any]]]:
        return [(rank, dict(event)) for rank in range(len(self.names))]

    def events(self, timeout_s: float) -> list[tuple[int, RankMessage]]:
        from mrc_torch.training.ranks import RankMessage

        return [(rank, decode(RankMessage, event)) for rank, event in self._events()]

    def _events(self) -> list[tuple[int, dict[str, Any]]]:
        self.session.now += 10_000_000
        if self.phase == "ready":
            return [] if self.orders else self._once(self._all(event="ready"))
        if self.phase == "connect":
            self.phase = "waits"
            return self._all(event="connected", step=self.step, unit="samples", per_step=64)
        if self.phase != "go" or self.ended:
            return []
        if self.held:
            self.held = False
            return [(0, {"event": "held", "step": self.step})]
        if self.limit is not None and self.step >= self.limit:
            self.ended = True
            return self._all(event="done", step=self.step, accuracy=0.9)
        broken = bool(self.session.failures.broken)
        if broken and self.backend == "roce":
            self.ended = True
            return [
                (1, {"event": "error", "text": "RuntimeError: retry exceeded"}),
                (2, {"event": "gone", "text": "9"}),
            ]
        begin = self.session.now
        self.session.now += self.STEP_NS * (3 if broken else 1)
        self.step += 1
        Scripted.reached = max(Scripted.reached, self.step)
        told = {"event": "step", "step": self.step, "begin_ns": begin, "loss": 2.0 / self.step}
        return [
            (rank, told | {"end_ns": self.session.now - rank, "all_reduce_ns": [5_000_000] if rank == 0 else []})
            for rank in range(len(self.names))
        ]

    def _once(self, events: list[tuple[int, dict[str, Any]]]) -> list[tuple[int, dict[str, Any]]]:
        self.orders = 1
        return events

    def end(self) -> None:
        self.ended = True
