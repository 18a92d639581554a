"""A handful of signals at random moments; `python -m support.lab.signals` is the campaign."""

from __future__ import annotations

import json
import pathlib
import random
import signal

import pytest

from mrc_common.interruption import Interrupted, interruptible
from mrc_results.record import RunResult
from mrc_runs.runner import WorkloadRun
from mrc_studies.cells.store import RUNS
from mrc_studies.sweeps import plan, work
from mrc_studies.sweeps.spec import load_sweep
from mrc_studies.sweeps.store import SweepStore
from support.lab.signals import VERBS, campaign


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "sweep", "conform"])
def test_signals_at_random_moments(verb: str) -> None:
    assert verb in VERBS
    shots = campaign(verb, 3, random.Random(verb))
    assert [shot.wrong for shot in shots if shot.wrong] == []


def test_an_interrupted_run_of_a_sweep_is_not_kept_and_done_again(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan.make(load_sweep("evs-failures"))
    store = SweepStore(tmp_path, made)
    go = WorkloadRun.go

    def interrupted(run: WorkloadRun) -> RunResult:
        signal.raise_signal(signal.SIGTERM)
        return go(run)

    monkeypatch.setattr(WorkloadRun, "go", interrupted)

    def command() -> None:
        with interruptible():
            work.carry_out(store, work.here)

    with pytest.raises(Interrupted):
        command()
    assert [json.loads(each.read_text()) for each in (tmp_path / RUNS).iterdir()] == []
    assert len(work.missing(store)[0]) == len(made.runs)
    store.close()
