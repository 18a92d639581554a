"""Schedules of chaos as data: read from YAML, written as YAML, made up from a seed.

Any part of a schedule is a schedule: a step that has nothing to do (a restore of what is not broken, a thaw of what
runs) is passed over. That is what lets `shrink` take steps away.
"""

from __future__ import annotations

import pathlib
import random
import signal
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, model_validator

from mrc_topo.base.document import Model
from mrc_topo.labfile import load_lab
from mrc_topo.topology import Link, Switch, Topology
from mrclab.lab.faults import kinds
from mrclab.lab.faults.action import Action, Direction
from mrclab.runs.experiment import Name, Seconds, Workload, read

EXAMPLE = (
    "a chaos schedule is a mapping with lab and steps, like those that `mrclab chaos` prints; "
    "see docs/reference/experiments.md"
)
DIRECTIONS: tuple[Direction, ...] = ("both", "up", "down")
VERBS = ("fail", "restore", "freeze", "thaw", "kill", "revive", "enter", "leave", "start", "stop", "end")

#: What ends a lab with it, and not merely a host.
PARTS = ("fabric", "labd")
#: Steps that concern one host's agent and no other.
OF_AGENTS = ("freeze", "thaw", "kill", "revive")
#: Ways to end a lab, and the signals.
ENDS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP}


class ChaosStep(Model):
    """A step `at` a time in seconds, on the target that its one verb names.

    `fail`, `restore`: an element, as experiments do. `freeze`, `thaw`, `kill`, `revive`: a host's agent. `enter`,
    `leave`: a second controller becomes primary of a switch, and goes. `start`, `stop`: a workload, by a name of its
    own; `workload` says what it is. `end`: the fabric's process (`fabric`) or the daemon (`labd`) of a lab of the
    schedule's own on the real clock is killed (`kind: kill`, if left out) or frozen; nothing comes after that.
    """

    at: Seconds
    fail: str | None = None
    restore: str | None = None
    freeze: str | None = None
    thaw: str | None = None
    kill: str | None = None
    revive: str | None = None
    enter: str | None = None
    leave: str | None = None
    start: Name | None = None
    stop: Name | None = None
    end: Literal["fabric", "labd"] | None = None
    kind: str = ""
    direction: Literal["both", "up", "down"] = "both"
    settings: dict[str, Any] = {}
    workload: Workload | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [verb for verb in VERBS if getattr(self, verb) is not None]
        if len(given) != 1:
            raise ValueError(f"a step has exactly one of {', '.join(VERBS)}")
        if given != ["fail"] and (self.settings or self.direction != "both"):
            raise ValueError("direction and settings belong to fail")
        if self.kind and given[0] not in ("fail", "restore", "end"):
            raise ValueError("kind belongs to fail, restore and end")
        if self.end is not None and self.kind not in ("", *ENDS):
            raise ValueError(f"an end is of kind {' or '.join(ENDS)}")
        if (self.workload is not None) != (given == ["start"]):
            raise ValueError("start, and nothing else, has a workload")
        return self

    @property
    def verb(self) -> str:
        """What is done."""
        return next(verb for verb in VERBS if getattr(self, verb) is not None)

    @property
    def target(self) -> str:
        """To what."""
        return str(getattr(self, self.verb))

    def action(self) -> Action:
        """Return the action of `fail` or `restore` for the ledger."""
        if self.restore is not None:
            return Action("restore", self.restore, self.kind)
        return Action("fail", self.target, self.kind, self.direction, self.settings)

    def describe(self) -> str:
        """Describe the step as a person says it."""
        if self.verb in ("fail", "restore"):
            return self.action().describe()
        if self.workload is not None:
            return f"start {self.target} ({self.workload.name} on {', '.join(self.workload.hosts or ['all hosts'])})"
        if self.end is not None:
            return f"{self.kind or 'kill'} the process of {self.end}, which ends the lab"
        words = {"enter": "controller enters", "leave": "controller leaves"}
        what = " agent of" if self.verb in OF_AGENTS else ""
        return f"{words.get(self.verb, self.verb)}{what} {self.target}"


class Schedule(Model):
    """What is done to a lab, in the order of time; `duration` seconds at least."""

    lab: Annotated[str, Field(min_length=1, max_length=4096)] = "tiny"
    transport: Literal["mrc", "roce"] = "mrc"
    seed: int | None = None
    duration: Seconds = 0.0
    steps: Annotated[list[ChaosStep], Field(max_length=10_000)] = []

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        times = [step.at for step in self.steps]
        if times != sorted(times):
            raise ValueError("steps stand in the order of time")
        return self

    def text(self) -> str:
        """Return the schedule as YAML that `load` reads."""
        document = self.model_dump(exclude_defaults=True, mode="json") | {"lab": self.lab}
        return yaml.safe_dump(document, sort_keys=False, width=110, default_flow_style=None)


def load(path: pathlib.Path) -> Schedule:
    """Read a schedule.

    Raises:
        ExperimentError: it is none; a line per problem.
    """
    return read(Schedule, path, EXAMPLE)


# --- made up ----------------------------------------------------------------------------------------------------------


#: Workloads that take tens of packets a rank and iteration: fractions of a second on links of tens of Mb/s.
def _vector(rng: random.Random, ranks: int) -> dict[str, int]:
    return {"size_bytes": 4 * ranks * rng.randint(1, 2000), "iterations": rng.randint(1, 6)}


def _messages(key: str, most: int, iterations: int) -> Callable[[random.Random, int], dict[str, int]]:
    return lambda rng, ranks: {key: rng.randint(1, most), "iterations": rng.randint(1, iterations)}


_LOADS: dict[str, Callable[[random.Random, int], dict[str, int]]] = {
    "ring_all_reduce": _vector,
    "tree_all_reduce": _vector,
    "reduce_scatter": _vector,
    "all_gather": _vector,
    "all_to_all": _messages("block_bytes", 20_000, 6),
    "permutation": _messages("message_bytes", 40_000, 8),
    "incast": _messages("message_bytes", 20_000, 6),
    "send_recv": _messages("message_bytes", 40_000, 8),
    "write_bw": _messages("message_bytes", 60_000, 10),
    "write_lat": _messages("message_bytes", 4000, 60),
}
#: Between the beginnings of two episodes, on average.
EPISODE_S = 1.5
#: In a workload; more cost time and tell little more.
MOST_RANKS = 8


def generate(
    lab: str,
    seed: int,
    duration: float,
    transport: Literal["mrc", "roce"] = "mrc",
    *,
    ends: bool = False,
    agents: bool = True,
) -> Schedule:
    """Return a schedule of this length in seconds.

    Episodes come at random; each has workloads, and failures while they run.

    Args:
        ends: in half of them the lab comes to an end by itself in the second half.
        agents: single hosts are frozen and killed.
    """
    topology = load_lab(lab)
    rng = random.Random(f"chaos {seed}")
    steps: list[ChaosStep] = []
    at = 0.1
    while at < duration:
        _episode(topology, rng, at, steps)
        at += rng.expovariate(1 / EPISODE_S)
    last = random.Random(f"end of chaos {seed}")
    if ends and last.random() < 0.5:
        when = round(last.uniform(duration / 2, duration), 6)
        steps.append(ChaosStep.model_validate({"at": when, "end": last.choice(PARTS), "kind": last.choice(list(ENDS))}))
    steps = [step for step in steps if step.at <= duration and (agents or step.verb not in OF_AGENTS)]
    steps.sort(key=lambda step: step.at)
    return Schedule(lab=lab, transport=transport, seed=seed, duration=duration, steps=steps)


def _episode(topology: Topology, rng: random.Random, at: float, steps: list[ChaosStep]) -> None:
    def add(later: float, **what: Any) -> float:
        when = round(at + later, 6)
        steps.append(ChaosStep(at=when, **what))
        return when - at

    hosts = [host.name for host in topology.hosts]
    switches = [switch.name for switch in topology.switches]
    for _ in range(rng.choice((0, 1, 1, 2))):
        later, name = rng.uniform(0, 0.05), f"w{len(steps)}"
        began = add(later, start=name, workload=_workload(rng, hosts))
        if rng.random() < 0.3:
            add(began + rng.uniform(0, 0.5), stop=name)
    for _ in range(rng.choice((0, 1, 1, 2, 3))):
        later, failure = rng.uniform(0, 0.3), _failure(topology, rng)
        settings = dict(failure.settings)
        began = add(later, fail=failure.target, kind=failure.kind, direction=failure.direction, settings=settings)
        if rng.random() < 0.95:
            kind = failure.kind if rng.random() < 0.7 else ""
            add(began + rng.expovariate(1.0), restore=failure.target, kind=kind)
    if rng.random() < 0.15:
        began = add(rng.uniform(0, 0.3), freeze=(host := rng.choice(hosts)))
        add(began + rng.choice((rng.uniform(0, 0.05), rng.uniform(0, 1), rng.uniform(0, 8))), thaw=host)
    if rng.random() < 0.1:
        began = add(rng.uniform(0, 0.3), kill=(host := rng.choice(hosts)))
        add(began + rng.choice((rng.uniform(0, 0.2), rng.uniform(0, 8))), revive=host)
    if rng.random() < 0.2:
        began = add(rng.uniform(0, 0.3), enter=(switch := rng.choice(switches)))
        add(began + rng.uniform(0, 3), leave=switch)


def _workload(rng: random.Random, hosts: list[str]) -> Workload:
    name = rng.choice(sorted(_LOADS))
    some = rng.sample(hosts, rng.randint(min(3 if name == "incast" else 2, len(hosts)), min(len(hosts), MOST_RANKS)))
    params = _LOADS[name](rng, len(some))
    return Workload(name=name, params=params, hosts=some, qps_per_peer=rng.choice((1, 1, 1, 2)))


def _failure(topology: Topology, rng: random.Random) -> Action:
    kind = kinds.KINDS[rng.choice([*kinds.KINDS, "impair", "link_down"])]
    elements: list[Switch | Link] = [*topology.switches, *(topology.links[name] for name in sorted(topology.links))]
    target = rng.choice([each for each in elements if kind.fits(each)])
    direction = rng.choice(DIRECTIONS) if kind.directed else "both"
    return Action("fail", target.name, kind.name, direction, kind.drawn(target, rng))
