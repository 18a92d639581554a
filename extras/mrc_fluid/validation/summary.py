"""`validation.json`: what the suite ran, with what, and every value, for programs and for `mrclab validate --check`."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import pathlib
import platform
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from mrc_fluid.validation.closed import ClosedForm
from mrc_fluid.validation.differences import Difference, Value
from mrc_fluid.validation.scenario import Backend, Quantity
from mrc_fluid.validation.suite import SuiteResult
from mrc_topo.base.document import DocumentError, Model
from mrc_topo.base.errors import UsageError
from mrc_topo.base.files import read_plain
from mrclab.results.provenance import checkout
from mrclab.studies.cells.measure import software

SUMMARY = "validation.json"
#: The version of this format; a reader refuses another one.
FORMAT: Literal[2] = 2
#: Packages whose versions may change a number, where they are installed.
PACKAGES = ("numpy", "numba", "pyarrow", "matplotlib")
#: More bytes than a summary of 1000 seeds has.
MOST_BYTES = 256 << 20


class SummaryError(UsageError):
    """A folder whose summary cannot be used; the text says why."""


class RunValues(Model):
    """The quantities of one run, by name with unit."""

    scenario: str
    backend: Backend
    seed: int
    values: dict[Quantity, float]


class VariantMean(Model):
    """A published algorithm in the place of MRC's own; over the seeds mean, smallest and largest."""

    variant: str
    part: str
    scenario: str
    quantity: Quantity
    mean: float
    low: float
    high: float
    half: float | None
    seeds: int


class Software(Model):
    """What the numbers were made by. `sources`: SHA-256 of the files of mrclab that a result depends on."""

    mrclab: str
    commit: str | None
    changed: bool | None
    sources: str
    python: str
    system: str
    processor: str
    cpus: int
    packages: dict[str, str]


class SuiteSummary(Model):
    """All of a run of the suite. `policies` by kind are what endpoints ran instead of MRC's own."""

    format: Literal[2] = FORMAT
    command: str
    software: Software
    scenarios: Annotated[dict[str, str], Field(min_length=1)]
    seeds: Annotated[list[int], Field(min_length=1)]
    policies: dict[str, str]
    passed: bool
    runs: list[RunValues]
    means: list[Value]
    differences: list[Difference]
    closed_forms: list[ClosedForm]
    variants: list[VariantMean]
    problems: list[str]


def versions() -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    return {name: importlib.metadata.version(name) for name in PACKAGES if importlib.util.find_spec(name)}


def current() -> Software:
    """Return what this process runs."""
    commit, changed = checkout()
    return Software(
        mrclab=importlib.metadata.version("mrclab"), commit=commit, changed=changed, sources=software(),
        python=platform.python_version(), system=platform.platform(), processor=platform.machine(),
        cpus=os.cpu_count() or 0, packages=versions(),
    )  # fmt: skip


def summary(made: SuiteResult, command: str) -> SuiteSummary:
    """Return the summary of a run of the suite; `command` repeats it."""
    return SuiteSummary(
        command=command,
        software=current(),
        scenarios={each.name: each.title for each in made.plan.scenarios},
        seeds=list(made.plan.seeds),
        policies=dict(made.plan.algorithm.policies),
        passed=made.passed,
        runs=[
            RunValues(scenario=each.scenario, backend=each.backend, seed=each.seed, values=each.values)
            for each in made.outcomes
        ],
        means=made.values,
        differences=made.differences,
        closed_forms=made.forms,
        variants=[
            VariantMean(
                variant=each.variant.name, part=each.variant.part.name.lower(), scenario=each.scenario,
                quantity=each.quantity, mean=each.mean, low=each.low, high=each.high, half=each.half, seeds=each.seeds,
            )
            for each in made.variant_values
        ],
        problems=made.problems,
    )  # fmt: skip


def read(folder: pathlib.Path) -> SuiteSummary:
    """Return the summary of a folder that the suite wrote.

    Raises:
        SummaryError: there is none, or it cannot be used.
    """
    path = folder / SUMMARY
    try:
        return SuiteSummary.model_validate_json(read_plain(path, MOST_BYTES))
    except OSError as error:
        raise SummaryError(
            f"{path}: cannot be read: {error.strerror}; give a folder that `mrclab validate -o FOLDER` wrote"
        ) from error
    except (ValidationError, DocumentError) as error:
        first = str(error).splitlines()[:3]
        raise SummaryError(f"{path}: no summary of this version: {' '.join(first)[:300]}") from error
