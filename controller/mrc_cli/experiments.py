"""`mrclab experiments`: what comes with mrclab."""

from __future__ import annotations

import pathlib

from rich.console import Console
from rich.table import Table

from mrc_runs.compare import known_comparisons, load_comparison
from mrc_runs.experiment import known_experiments, load_experiment
from mrc_studies.sweeps.spec import known_sweeps, load_sweep


def verb() -> None:
    """List the experiments, comparisons and sweeps that come with mrclab."""
    table = Table(box=None)
    for column in ("experiment", "what it shows", "lab", "clock"):
        table.add_column(column)
    for name in known_experiments():
        experiment = load_experiment(name)
        table.add_row(name, experiment.title, experiment.lab, experiment.clock)
    for name in known_comparisons():
        comparison = load_comparison(name)
        table.add_row(f"{name} (compare)", comparison.title, pathlib.Path(comparison.lab).stem, comparison.clock)
    for name in known_sweeps():
        sweep = load_sweep(name).sweep
        table.add_row(f"{name} (sweep)", sweep.title, sweep.lab if isinstance(sweep.lab, str) else "", "virtual")
    Console().print(table)
