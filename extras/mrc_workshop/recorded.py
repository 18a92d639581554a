"""Records of an exercise's run for learners who are to find out what happened in it."""

from __future__ import annotations

from mrc_topo.labfile import parse_lab
from mrc_workshop import judge, records, trusted
from mrc_workshop.exercise import FILE, Exercise, WorkshopError


def record(exercise: Exercise) -> dict[str, str]:
    """Simulate the recorded run of an exercise; return the tables that its learners are given, by file name.

    Raises:
        WorkshopError: the exercise has no recorded run.
    """
    recorded = next((run for run in exercise.content.runs if run.recorded), None)
    if recorded is None:
        raise WorkshopError(f"{exercise.folder / FILE}: no run has `recorded: true`, so there is nothing to record")
    order = judge.order(exercise, recorded, exercise.content.seeds.visible[0], {})
    return records.tables(trusted.simulate(order, order.lab), parse_lab(order.lab, order.name))
