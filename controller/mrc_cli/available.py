"""Lists of what comes with mrclab, one per kind, for `mrclab list`."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from mrc_cli.listed import Kind
from mrc_host.workloads import WORKLOADS
from mrc_runs.compare import known_comparisons, load_comparison
from mrc_runs.experiment import known_experiments, load_experiment
from mrc_scale.clusterfile import builtin_clusters, load_cluster
from mrc_studies.figures.catalogue import FIGURES
from mrc_studies.sweeps.spec import known_sweeps, load_sweep
from mrc_topo.labfile import builtin_labs, load_lab
from mrc_workshop import exercise


@dataclass(frozen=True)
class Available:
    """Something that comes with mrclab: its name, what it is, and more by column."""

    name: str
    title: str
    more: Mapping[str, str]

    def document(self) -> dict[str, str]:
        """Return it as plain JSON values."""
        return {"name": self.name, "title": self.title, **self.more}


@dataclass(frozen=True)
class Section:
    """How one kind is listed: the command that uses it, what finds its names, and what reads all of it."""

    use: str
    names: Callable[[], Iterable[object]]
    found: Callable[[], list[Available]]


def _labs() -> list[Available]:
    rows = []
    for name in builtin_labs():
        topology = load_lab(name)
        lab = topology.lab
        size = f"{lab.planes} x ({lab.t0_per_plane} T0, {lab.t1_per_plane} T1)"
        if lab.topology is not None:
            size = f"graph of {len(topology.switches)} switches"
        rows.append(Available(name, lab.description, {"hosts": str(lab.hosts), "planes": size}))
    return rows


def _experiments() -> list[Available]:
    found = {name: load_experiment(name) for name in known_experiments()}
    return [Available(name, each.title, {"lab": each.lab, "clock": each.clock}) for name, each in found.items()]


def _comparisons() -> list[Available]:
    found = {name: load_comparison(name) for name in known_comparisons()}
    return [
        Available(name, each.title, {"lab": pathlib.Path(each.lab).stem, "clock": each.clock})
        for name, each in found.items()
    ]


def _sweeps() -> list[Available]:
    found = {name: load_sweep(name).sweep for name in known_sweeps()}
    return [
        Available(name, each.title, {"lab": each.lab if isinstance(each.lab, str) else "several"})
        for name, each in found.items()
    ]


def _workloads() -> list[Available]:
    return [Available(name, each.title, {}) for name, each in sorted(WORKLOADS.items())]


def _clusters() -> list[Available]:
    found = {name: load_cluster(name) for name in builtin_clusters()}
    return [
        Available(name, each.cluster.description, {"NICs": str(each.shape.nics), "planes": str(each.shape.planes)})
        for name, each in found.items()
    ]


def _exercises() -> list[Available]:
    return [
        Available(str(number), exercise.load(folder).content.title, {}) for number, folder in exercise.known().items()
    ]


def _figures() -> list[Available]:
    return [Available(each.name, each.title, {}) for each in FIGURES.values()]


SECTIONS = {
    Kind.LABS: Section("mrclab up NAME", builtin_labs, _labs),
    Kind.EXPERIMENTS: Section("mrclab run NAME", known_experiments, _experiments),
    Kind.COMPARISONS: Section("mrclab compare NAME", known_comparisons, _comparisons),
    Kind.SWEEPS: Section("mrclab sweep NAME", known_sweeps, _sweeps),
    Kind.WORKLOADS: Section("mrclab run NAME --lab LAB", lambda: sorted(WORKLOADS), _workloads),
    Kind.CLUSTERS: Section("mrclab scale NAME", builtin_clusters, _clusters),
    Kind.EXERCISES: Section("mrclab workshop start NAME", exercise.known, _exercises),
    Kind.FIGURES: Section("mrclab figures NAME", lambda: FIGURES, _figures),
}
