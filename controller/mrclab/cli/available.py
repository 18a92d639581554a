"""Lists of what comes with mrclab, one per kind, for `mrclab list`."""

from __future__ import annotations

import pathlib

from mrc_host.workloads import WORKLOADS
from mrc_topo.labfile import builtin_labs, load_lab
from mrclab.cli.listed import Available, ListedKind, Section
from mrclab.extras import contributions
from mrclab.runs.compare import known_comparisons, load_comparison
from mrclab.runs.experiment import known_experiments, load_experiment
from mrclab.studies.figures.catalogue import FIGURES
from mrclab.studies.sweeps.spec import known_sweeps, load_sweep


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


def _figures() -> list[Available]:
    return [Available(each.name, each.title, {}) for each in FIGURES.values()]


SECTIONS: dict[ListedKind, Section] = {
    ListedKind.LABS: Section("mrclab up NAME", builtin_labs, _labs),
    ListedKind.EXPERIMENTS: Section("mrclab run NAME", known_experiments, _experiments),
    ListedKind.COMPARISONS: Section("mrclab compare NAME", known_comparisons, _comparisons),
    ListedKind.SWEEPS: Section("mrclab sweep NAME", known_sweeps, _sweeps),
    ListedKind.WORKLOADS: Section("mrclab run NAME --lab LAB", lambda: sorted(WORKLOADS), _workloads),
    ListedKind.FIGURES: Section("mrclab figures NAME", lambda: FIGURES, _figures),
}
for _sections in contributions("mrclab.lists").values():
    SECTIONS |= _sections
