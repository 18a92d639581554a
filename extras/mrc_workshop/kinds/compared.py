"""Checks of a run by a learner's experiment: the workload of the other runs, and evidence that holds."""

from __future__ import annotations

from mrc_workshop.job import Document, Run
from mrc_workshop.kinds.registry import Finding


def other_workload(run: Run, wanted: Document) -> Finding | None:
    """Return a finding if the learner's workload differs from that of the other runs: its name and parameters."""
    workload = (run.order.experiment or {}).get("workload", {})
    given = {"name": workload.get("name"), **workload.get("params", {})}
    changed = [key for key, value in wanted.items() if given.get(key) != value]
    if not changed:
        return None
    text = f"workload: {', '.join(changed)} is not what the other runs have; then nothing can be compared"
    return Finding(False, "another workload", text, run=run)


def missed_check(run: Run, measured: str) -> Finding | None:
    """Return a finding with what was `measured` if a check of the run itself does not hold."""
    missed = next((each for each in run.facts.checks if not each.passed), None)
    if missed is None:
        return None
    text = f"{missed.what}: expected {missed.expected}, measured {missed.measured}"
    return Finding(False, measured, text, run=run)
