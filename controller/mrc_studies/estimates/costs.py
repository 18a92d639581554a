"""What each quantity of a run costs on this machine: measured by `mrclab plan --calibrate`, or shipped."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mrc_common.errors import UsageError
from mrc_common.files import write_whole
from mrc_common.plain import DecodeError, decode, encode
from mrc_host import native
from mrc_studies.estimates import cases
from mrc_studies.estimates.child import Spent, command_seconds, spent
from mrc_studies.estimates.traffic import Traffic, expected
from mrc_studies.estimates.work import MEMORY, TIME, Work, work_of
from p4lite.folders import is_private_file, make_private
from p4lite.switch.native.build import cache_dir

#: The layout of the stored file, and the meaning of its quantities.
FORMAT = 1
FOLDER = "plan"
#: The default costs that come with mrclab.
SHIPPED = pathlib.Path(__file__).with_name("costs.json")
#: How much more time simulated time takes with an interpreted core, where only costs of the compiled one are known.
INTERPRETED = 3.3
#: A remedy for stored costs that cannot be used.
AGAIN = "`mrclab plan --calibrate` writes it again"
#: Below this share of the largest measurement, a measurement's error counts in absolute terms.
SMALL = 0.02
_ROUNDS = 4000
#: How often each case is run, and how many commands that do next to nothing; the fastest counts.
TURNS, COMMANDS = 2, 3


class CostsError(UsageError):
    """Stored costs that cannot be used; the text names the file and the remedy."""


@dataclass(frozen=True)
class Costs:
    """What quantities of `Work` cost.

    Attributes:
        cpu: CPU seconds of each, by phase and quantity, on a machine whose slowness is 1.
        memory: resident bytes of each.
        source: where the costs come from, in words.
    """

    cpu: Mapping[str, Mapping[str, float]]
    memory: Mapping[str, float]
    source: str = ""

    def seconds(self, phase: str, work: Work) -> dict[str, float]:
        """Return the CPU seconds of a phase by quantity."""
        return {name: cost * getattr(work, name) for name, cost in self.cpu[phase].items()}

    def resident_bytes(self, work: Work) -> dict[str, float]:
        """Return the peak of the resident memory by quantity."""
        return {name: cost * getattr(work, name) for name, cost in self.memory.items()}


@dataclass(frozen=True)
class _Stored:
    """The file of measured costs; `made_by` says with which code and on which kind of machine."""

    format: int
    made_by: str
    cpu: dict[str, dict[str, float]]
    memory: dict[str, float]


def made_by() -> str:
    """Return what costs depend on: the compiled protocol core or its absence, Python, and the processor."""
    core = native.key() if native.COMPILED else "interpreted"
    return f"{core} {platform.python_version()} {_processor()}"


def _processor() -> str:
    try:
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def place() -> pathlib.Path:
    """Return the file of this user's measured costs; its folder is made.

    Raises:
        BuildError, FolderError: the cache cannot be made, or others can change it.
    """
    return make_private(cache_dir() / FOLDER) / "costs.json"


def known() -> Costs:
    """Return the costs that were measured with this code on this machine, else the shipped ones.

    Raises:
        CostsError: there is a file of measured costs, and its content is none.
    """
    path = place()
    stored = _read(path) if path.exists() else None
    if stored is not None and stored.format == FORMAT and stored.made_by == made_by():
        return Costs(stored.cpu, stored.memory, "measured on this machine (mrclab plan --calibrate)")
    why = "of another machine or version" if stored is not None else "never measured here"
    return shipped(f"shipped with mrclab ({why}; mrclab plan --calibrate measures)")


def shipped(source: str = "shipped with mrclab") -> Costs:
    """Return the costs that come with mrclab; with an interpreted core, simulated time takes longer than by those."""
    stored = _read(SHIPPED, trusted=True)
    cpu = {phase: dict(rows) for phase, rows in stored.cpu.items()}
    if not native.COMPILED:
        cpu["simulate"] = {name: INTERPRETED * value for name, value in cpu["simulate"].items()}
    return Costs(cpu, stored.memory, source)


def _read(path: pathlib.Path, *, trusted: bool = False) -> _Stored:
    """Return the costs in a file; `trusted`: it belongs to the installation, not to this user."""
    try:
        with path.open("rb") as file:
            if not trusted and not is_private_file(os.fstat(file.fileno())):
                raise CostsError(f"{path}: others can change this file; remove it, and {AGAIN}")
            document = json.load(file)
        stored = decode(_Stored, document, str(path))
    except OSError as error:
        raise CostsError(f"{path}: cannot be read: {error.strerror}; {AGAIN}") from error
    except (ValueError, DecodeError) as error:
        raise CostsError(f"{path}: no costs: {error}; {AGAIN}") from error
    if stored.format != FORMAT:
        return stored
    expected_cpu = {phase: set(names) for phase, names in TIME.items()}
    if {phase: set(rows) for phase, rows in stored.cpu.items()} != expected_cpu or set(stored.memory) != set(MEMORY):
        raise CostsError(f"{path}: it has other quantities than this version of mrclab; {AGAIN}")
    for name, value in [*stored.memory.items(), *(row for rows in stored.cpu.values() for row in rows.items())]:
        if not (math.isfinite(value) and value >= 0):
            raise CostsError(f"{path}: {name} is {value}; a cost is a number of at least 0; {AGAIN}")
    return stored


def save(costs: Costs, path: pathlib.Path, mode: int = 0o600) -> None:
    """Write costs to a file that only this user can read, if `mode` is left out.

    Raises:
        WriteError: it cannot be written.
    """
    cpu = {phase: dict(rows) for phase, rows in costs.cpu.items()}
    stored = _Stored(FORMAT, made_by(), cpu, dict(costs.memory))
    write_whole(path, json.dumps(encode(stored), indent=1) + "\n", mode=mode)


def measure(progress: Callable[[str, float], None] = lambda name, share: None) -> Costs:
    """Measure the costs of this machine by the short runs of `cases`, each in a process of its own.

    Raises:
        MeasureError: a run failed.
    """
    found: dict[str, Spent] = {}
    for number, name in enumerate(list(cases.CASES) * TURNS):
        progress(name, number / (TURNS * len(cases.CASES)))
        run = spent(cases.order_of(name))
        # Of several runs the one counts that other load has disturbed least.
        if name not in found or sum(run.cpu.values()) < sum(found[name].cpu.values()):
            found[name] = run
    costs = fitted(found)
    # The runs above import less than a command does, and end without what Python does at its end.
    least = min(command_seconds() for _ in range(COMMANDS))
    rest = sum(each["run"] for phase, each in costs.cpu.items() if phase != "imports" and "run" in each)
    return replaced(costs, cpu={**costs.cpu, "imports": {"run": max(least - rest, 0.0)}})


def fitted(runs: Mapping[str, Spent]) -> Costs:
    """Return the costs, none below 0, by which the quantities of these cases took what they did, as well as may be."""
    works = [_work(name, each) for name, each in runs.items()]
    cpu = {}
    for phase, names in TIME.items():
        rows = np.array([work.of(names) for work in works])
        seconds = np.array([each.cpu[phase] / each.slowness for each in runs.values()])
        cpu[phase] = dict(zip(names, _solved(rows, seconds), strict=True))
    rows = np.array([work.of(MEMORY) for work in works])
    sizes = np.array([float(each.memory_bytes) for each in runs.values()])
    return Costs(cpu, dict(zip(MEMORY, _solved(rows, sizes), strict=True)), "measured on this machine")


def _work(name: str, run: Spent) -> Work:
    """Return what a case had to do, by what was counted in it."""
    experiment, topology = cases.built(name)
    traffic = expected(topology, experiment.workload.spec(), experiment.transport, experiment.actions())
    hops = traffic.hops / max(traffic.packets, 1) * run.packets
    counted = Traffic(run.seconds, run.messages, run.payload_bytes, run.packets, hops, run.iterations, 0.0)
    return work_of(experiment, topology, counted)


def _solved(rows: npt.NDArray[np.float64], wanted: npt.NDArray[np.float64]) -> Sequence[float]:
    """Return x, none below 0, with the smallest relative squared error of `rows` times x to `wanted`, by coordinate
    descent."""
    weight = 1 / np.maximum(wanted, wanted.max() * SMALL)
    scaled, target = rows * weight[:, None], wanted * weight
    size = np.maximum(np.linalg.norm(scaled, axis=0), 1e-300)
    scaled = scaled / size
    products, aim = scaled.T @ scaled, scaled.T @ target
    found = np.zeros(len(size))
    for _ in range(_ROUNDS):
        for at in range(len(found)):
            if products[at, at] > 0:
                found[at] = max(0.0, found[at] + (aim[at] - products[at] @ found) / products[at, at])
    made: list[float] = [float(f"{value:.4g}") for value in found / size]
    return made


def described(costs: Costs) -> list[tuple[str, str, float]]:
    """Return (phase or `memory`, quantity, cost) of everything that costs something."""
    rows: list[tuple[str, str, float]] = [
        (phase, name, value) for phase, each in costs.cpu.items() for name, value in each.items() if value
    ]
    return rows + [("memory", name, value) for name, value in costs.memory.items() if value]


def replaced(costs: Costs, **changes: Any) -> Costs:
    """Return the costs with other fields."""
    return dataclasses.replace(costs, **changes)
