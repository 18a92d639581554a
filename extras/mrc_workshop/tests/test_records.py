"""The records of a run that learners are given: what they hold, and that those of mrclab are of this version."""

from __future__ import annotations

import csv
import io

import pytest

from mrc_workshop import exercise, recorded
from mrc_workshop.exercise import WorkshopError

EXERCISE = exercise.find("15")


def test_records_that_come_with_mrclab_are_what_its_hosts_log_today() -> None:
    """`mrclab workshop record 15` writes them after a change of the protocol."""
    tables = recorded.record(EXERCISE)
    for name, text in tables.items():
        assert (EXERCISE.starter / name).read_text(encoding="utf-8") == text, name
    failed = EXERCISE.content.runs[0].schedule[0].fail
    assert failed is not None
    assert failed not in "".join(tables.values())


def test_each_row_is_a_change_of_an_ev_on_a_path_from_host_to_peer() -> None:
    rows = list(csv.DictReader(io.StringIO((EXERCISE.starter / "events.csv").read_text(encoding="utf-8"))))
    assert [float(row["t_ms"]) for row in rows] == sorted(float(row["t_ms"]) for row in rows)
    for row in rows:
        first, *_, last = row["path"].split()
        plane = row["plane"]
        assert first == f"p{plane}-t0.{int(row['host'][1:]) // 2}"
        assert last == f"p{plane}-t0.{int(row['peer'][1:]) // 2}"
        assert {row["old"], row["new"]} == {"GOOD", "ASSUMED_BAD"}


def test_exercise_without_a_recorded_run_has_no_records() -> None:
    with pytest.raises(WorkshopError, match="no run has `recorded: true`"):
        recorded.record(exercise.find("6"))
