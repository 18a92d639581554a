"""Runs of a sweep, done and kept: nothing twice, nothing lost, the same bytes however it was disturbed."""

from __future__ import annotations

import csv
import errno
import json
import pathlib
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from mrc_topo.base.files import WriteError
from mrc_topo.base.plain import decode, encode
from mrclab.cli.app import main
from mrclab.lab.requested import LimitError
from mrclab.runs.experiment import ExperimentError
from mrclab.studies import engine
from mrclab.studies.cells.pages import has_parquet
from mrclab.studies.engine import RUNS, Answers, RunStatus, StudyCut, Task
from mrclab.studies.sweeps import measure, page, plan, work
from mrclab.studies.sweeps.measure import Row, RunAnswer, RunTask
from mrclab.studies.sweeps.plan import SweepRun
from mrclab.studies.sweeps.spec import load_sweep, parse_sweep
from p4lite.switch.errors import BuildError

DATED = {"sweep.json", work.CSV, page.PAGE}


@pytest.fixture(scope="module")
def pinned() -> plan.SweepPlan:
    return plan.make(load_sweep("pinned"))


def carry_out(
    made: plan.SweepPlan,
    folder: pathlib.Path,
    executor: Callable[[plan.SweepPlan], work.SweepExecutor] = work.here,
    *,
    again: bool = False,
) -> list[Any]:
    folder.mkdir(exist_ok=True)
    kept = work.SweepStore(folder, made)
    try:
        bad = work.carry_out(kept, kept.study(again=again), executor(made))
        page.write(folder, made, list(work.rows(made, kept.answers())))
    finally:
        kept.close()
    return bad


def results(folder: pathlib.Path) -> dict[str, bytes]:
    """All that must be the same for the same plan."""
    files = [folder / name for name in DATED] + sorted((folder / work.DATASET).iterdir())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a command in a folder: exit code, and what was printed."""

    def run(*arguments: object, cwd: pathlib.Path) -> tuple[int, str, str]:
        monkeypatch.chdir(cwd)
        monkeypatch.setattr(sys, "argv", ["mrclab", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return int(end.value.code or 0), said.out, said.err

    return run


@pytest.fixture(scope="module")
def undisturbed(pinned: plan.SweepPlan, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    assert carry_out(pinned, folder) == []
    return folder


def invented(task: RunTask) -> RunAnswer:
    """Return what a run leaves, of which nothing was run."""
    number = int(task.digest[:4], 16)
    rows: list[Row] = [{**dict.fromkeys(measure.EXPERIMENT), "goodput_bps": float(number), "jain": 0.5}]
    return RunAnswer(RunStatus.GOOD, "", rows, 0.1, "")


def without_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []

    def perform(task: RunTask) -> RunAnswer:
        done.append(task.digest)
        return invented(task)

    monkeypatch.setattr(measure, "perform", perform)
    return done


def test_rows_of_a_sweep_hold_the_numbers_of_their_runs(undisturbed: pathlib.Path) -> None:
    with (undisturbed / work.CSV).open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12
    for row in rows:
        size = int(row["experiment.workload.params.message_bytes"])
        assert (row["status"], row["failure"]) == ("good", "")
        assert float(row["bytes_verified"]) == 2 * size
        assert float(row["packets_sent"]) >= 2 * -(-size // int(row["lab.path_mtu"]))
        assert float(row["goodput_bps"]) * float(row["simulated_s"]) == pytest.approx(8 * 2 * size)
        assert 0 < float(row["goodput_share"]) < 0.5
        assert (row["lost"], row["qp_errors"], row["checks_missed"]) == ("0.0", "0.0", "0.0")
        assert row["command"] == f"mrclab sweep repeat . {row['run'][:12]}"


def test_sweep_whose_runs_are_kept_does_none_again(
    pinned: plan.SweepPlan, undisturbed: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = results(undisturbed)
    done = without_runs(monkeypatch)
    assert carry_out(pinned, undisturbed) == []
    assert done == []
    assert results(undisturbed) == before


def test_sweep_with_more_seeds_runs_only_the_new_ones(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = without_runs(monkeypatch)
    text = load_sweep("pinned").file
    content = dict(text.data)
    for seeds, fresh in ((1, 6), (3, 12), (2, 0)):
        done.clear()
        carry_out(plan.make(parse_sweep(json.dumps({**content, "seeds": seeds}), "x.yaml")), tmp_path)
        assert len(set(done)) == len(done) == fresh
        assert len((tmp_path / work.CSV).read_text().splitlines()) == 1 + 6 * seeds


POLICIES = """\
from mrc_host.policy import LossDetector
class Fine(LossDetector):
    pass
class Other(Fine):
    pass
class Wrong(LossDetector):
    def infer(self, acked, overtaken, base_rtt_ns, now):
        print("what it printed")
        raise KeyError("mine")
"""


def test_a_policys_mistake_is_an_error_of_its_run_alone(tmp_path: pathlib.Path, command: Command) -> None:
    (tmp_path / "own.py").write_text(POLICIES)
    names = [f"{tmp_path}/own.py:{name}" for name in ("Fine", "Wrong", "Other")]
    cases = [{"name": str(at), "experiment.policies.loss": name} for at, name in enumerate(names)]
    workload = {"name": "write_bw", "params": {"message_bytes": 20_000, "iterations": 2}}
    content = {"name": "own", "title": "policies", "lab": "tiny", "experiment": {"workload": workload}, "cases": cases}
    (tmp_path / "own.yaml").write_text(json.dumps(content))
    code, out, err = command("sweep", "./own.yaml", "--workers", "0", "-o", "out", cwd=tmp_path)
    assert code == 1, (out, err)
    with (tmp_path / "out" / work.CSV).open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["good", "error", "good"]
    assert "own.py:9: Wrong.infer: " in rows[1]["failure"]
    (log,) = (tmp_path / "out").rglob("*.log")
    assert "what it printed" in log.read_text()
    assert "PolicyError" in log.read_text()


def test_workers_elsewhere_get_and_give_plain_data(pinned: plan.SweepPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[RunTask] = []

    def perform(task: RunTask) -> RunAnswer:
        seen.append(task)
        return invented(task)

    monkeypatch.setattr(measure, "perform", perform)
    task = pinned.task(pinned.runs[0])
    told = json.loads(json.dumps(measure.run_in_worker(json.loads(json.dumps(encode(task))))))
    assert seen == [task]
    assert decode(RunAnswer, told, lenient=True) == invented(task)


class Cut(Exception):
    pass


def cut_after(count: int) -> Callable[[plan.SweepPlan], work.SweepExecutor]:
    def executor(made: plan.SweepPlan) -> work.SweepExecutor:
        def execute(tasks: Sequence[Task[SweepRun]]) -> Answers[SweepRun, RunAnswer]:
            yield from work.here(made)(tasks[:count])
            raise Cut

        return execute

    return executor


def backwards(made: plan.SweepPlan) -> work.SweepExecutor:
    return lambda tasks: work.here(made)(tasks[::-1])


def test_cut_anywhere_and_done_in_any_order_it_is_the_same(
    pinned: plan.SweepPlan, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = without_runs(monkeypatch)
    monkeypatch.setattr(work, "PART", 5)
    carry_out(pinned, tmp_path / "whole")
    for count in (0, 1, 4, 5):
        done.clear()
        folder = tmp_path / str(count)
        for _ in range(2):
            with pytest.raises(Cut):
                carry_out(pinned, folder, cut_after(count))
        if has_parquet():
            complete = [path.name for path in sorted((folder / work.DATASET).iterdir())]
            assert complete == [f"part-{number:05}.parquet" for number in range(2 * count // 5)]
        carry_out(pinned, folder, backwards)
        assert results(folder) == results(tmp_path / "whole")
        assert sorted(done) == sorted(run.digest for run in pinned.runs)


def test_a_damaged_file_of_a_run_counts_for_nothing(
    pinned: plan.SweepPlan, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = without_runs(monkeypatch)
    carry_out(pinned, tmp_path)
    first, second = (tmp_path / RUNS / f"{run.digest}.json" for run in pinned.runs[:2])
    before = results(tmp_path)
    first.write_text(first.read_text()[:40])
    second.write_bytes((tmp_path / RUNS / f"{pinned.runs[3].digest}.json").read_bytes())
    done.clear()
    carry_out(pinned, tmp_path)
    assert done == [run.digest for run in pinned.runs[:2]]
    assert results(tmp_path) == before


def test_a_full_disk_loses_nothing(
    pinned: plan.SweepPlan, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = without_runs(monkeypatch)
    carry_out(pinned, tmp_path / "whole")
    write, left = vars(work)["write_whole"], [9]

    def full(path: Any, data: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise WriteError(path, OSError(28, "No space left on device"))
        write(path, data)

    done.clear()
    folder = tmp_path / "full"
    for module in (work, engine):
        monkeypatch.setattr(module, "write_whole", full)
    with pytest.raises(WriteError, match="No space left"):
        carry_out(pinned, folder)
    lost = done.pop()
    for module in (work, engine):
        monkeypatch.setattr(module, "write_whole", write)
    carry_out(pinned, folder)
    assert results(folder) == results(tmp_path / "whole")
    assert done.count(lost) == 1
    assert sorted(done) == sorted(run.digest for run in pinned.runs)


def test_folder_in_use_refuses_a_second_command(pinned: plan.SweepPlan, tmp_path: pathlib.Path) -> None:
    first = work.SweepStore(tmp_path, pinned)
    with pytest.raises(ExperimentError, match="another command is running a sweep in this folder"):
        work.SweepStore(tmp_path, pinned)
    first.close()
    work.SweepStore(tmp_path, pinned).close()


def test_folder_of_one_sweep_refuses_another(pinned: plan.SweepPlan, tmp_path: pathlib.Path) -> None:
    kept = work.SweepStore(tmp_path, pinned)
    kept.begin()
    kept.close()
    text = json.dumps({**pinned.source.file.data, "name": "another"})
    other = plan.make(parse_sweep(text, "another.yaml"))
    with pytest.raises(ExperimentError, match=r"it holds the sweep 'pinned', .* choose another for 'another' with -o"):
        work.SweepStore(tmp_path, other)
    # More seeds of the same are welcome.
    more = plan.make(parse_sweep(json.dumps({**pinned.source.file.data, "seeds": 3}), "pinned.yaml"))
    work.SweepStore(tmp_path, more).close()


def test_runs_of_other_sources_are_not_mixed_in(pinned: plan.SweepPlan, tmp_path: pathlib.Path) -> None:
    kept = work.SweepStore(tmp_path, pinned)
    kept.begin()
    kept.close()
    other = plan.make(pinned.source, software="other")
    with pytest.raises(ExperimentError, match="made by other sources of mrclab"):
        work.SweepStore(tmp_path, other)
    answer = measure.perform(other.task(other.runs[0]))
    assert answer.status is RunStatus.STRANGER
    with pytest.raises(StudyCut, match="a worker cannot take part: it has other sources"):
        carry_out(other, tmp_path / "elsewhere")


FAILING = """\
name: failing
title: Some runs fail
lab: {planes: 1, t0_per_plane: 1, t1_per_plane: 0, hosts: 2, hosts_per_t0: 2, ev: {size: 4, active: 4}}
experiment:
  workload: {name: write_bw, params: {message_bytes: 1024}, limit: 2}
cases:
  - {name: goes}
  - name: stands still
    experiment.schedule: [{at: 0, fail: p0-t0.0, kind: freeze, evidence: {dropped: 1}}]
grid: {experiment.workload.params.iterations: [1, 100000]}
"""


def test_a_run_that_fails_keeps_its_log_and_is_listed(tmp_path: pathlib.Path) -> None:
    made = plan.make(parse_sweep(FAILING.replace("100000", "2"), "failing.yaml"))
    bad = carry_out(made, tmp_path)
    assert [(run.point.case, answer.status) for run, answer in bad] == [("stands still", "failed")] * 2
    text = (tmp_path / page.PAGE).read_text()
    for run, _ in bad:
        log = (tmp_path / work.LOGS / f"{run.digest}.log").read_text()
        assert f"mrclab sweep repeat . {run.digest[:12]}" in log
        assert '"freeze"' in log
        assert f"logs/{run.digest}.log" in text
    with (tmp_path / work.CSV).open() as file:
        rows = list(csv.DictReader(file))
    assert [row["status"] for row in rows] == ["good", "failed", "good", "failed"]
    assert rows[1]["iteration_s"] == ""


def test_run_that_cannot_be_done_is_an_error_with_its_reason(
    pinned: plan.SweepPlan, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        print("about to break")
        raise ZeroDivisionError("no luck\nat all")

    with monkeypatch.context() as patch:
        patch.setattr(measure, "_experiment", broken)
        bad = carry_out(pinned, tmp_path)
    assert len(bad) == 12
    run, answer = bad[0]
    assert (answer.status, answer.failure) == ("error", "ZeroDivisionError: no luck")
    log = (tmp_path / work.LOGS / f"{run.digest}.log").read_text()
    assert "about to break" in log
    assert "Traceback" in log
    done = without_runs(monkeypatch)
    assert len(carry_out(pinned, tmp_path)) == 12  # they stay what they are
    assert done == []
    assert carry_out(pinned, tmp_path, again=True) == []
    assert not list((tmp_path / work.LOGS).iterdir())


@pytest.mark.parametrize(
    "lack", [OSError(errno.ENOSPC, "full"), MemoryError(), BuildError("no compiler"), LimitError("16 files")]
)
def test_run_for_which_the_machine_lacked_something_is_done_next_time(
    lack: Exception, pinned: plan.SweepPlan, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        try:
            raise lack
        except type(lack):
            raise RuntimeError("the lab did not come up") from None

    with monkeypatch.context() as patch:
        patch.setattr(measure, "_experiment", broken)
        assert {answer.status for _, answer in carry_out(pinned, tmp_path)} == {RunStatus.DIED}
    done = without_runs(monkeypatch)
    assert carry_out(pinned, tmp_path) == []
    assert len(done) == 12


def test_page_of_a_sweep_is_small_and_loads_nothing_from_elsewhere(
    undisturbed: pathlib.Path, pinned: plan.SweepPlan
) -> None:
    text = (undisturbed / page.PAGE).read_text()
    assert len(text) < 150_000
    assert not re.findall(r"""(?:src|href)=["'](?!#)[^"']*["']""", text)
    links = set(re.findall(r'<tr id="([0-9a-f]{12})"', text))
    assert links == {run.digest[:12] for run in pinned.runs}
    for run in pinned.runs:  # each dot leads to a row with its seed
        row = re.search(rf'<tr id="{run.digest[:12]}">(.*)</tr>', text)
        assert row is not None
        assert f"<td>{run.seed}</td>" in row[1]


def test_report_and_repeat_need_the_folder_alone(
    undisturbed: pathlib.Path, tmp_path: pathlib.Path, command: Command
) -> None:
    before = (undisturbed / page.PAGE).read_bytes()
    (undisturbed / page.PAGE).unlink()
    code, _, said = command("sweep", "report", undisturbed, cwd=tmp_path)
    assert code == 0, said
    assert (undisturbed / page.PAGE).read_bytes() == before
    run = next((undisturbed / RUNS).iterdir()).stem
    code, told, said = command("sweep", "repeat", ".", run[:12], cwd=undisturbed)
    assert code == 0, said
    document = json.loads(told)
    assert (document["run"], document["kept"], document["same"]) == (run, True, True)
    code, _, said = command("sweep", "repeat", ".", "f00", cwd=undisturbed)
    assert (code, said.count("\n")) == (2, 1)
    code, _, said = command("sweep", "report", tmp_path, cwd=tmp_path)
    assert (code, said.count("\n")) == (2, 1)


def test_a_run_s_files_are_those_of_an_experiment(
    undisturbed: pathlib.Path, tmp_path: pathlib.Path, command: Command
) -> None:
    run = next((undisturbed / RUNS).iterdir()).stem
    code, told, said = command("sweep", "repeat", undisturbed, run, "-o", "one", cwd=tmp_path)
    assert (code, told) == (0, "mrclab run one/experiment.yaml\n"), said
    code, told, said = command("run", "one/experiment.yaml", "--json", cwd=tmp_path)
    assert code == 0, said
    assert json.loads(told)["passed"]


@pytest.mark.skipif(not has_parquet(), reason="pyarrow is not installed (extra `cluster`)")
def test_parts_of_the_dataset_read_as_one_with_the_rows_of_the_csv(
    undisturbed: pathlib.Path, pinned: plan.SweepPlan
) -> None:
    import pyarrow.dataset

    table = pyarrow.dataset.dataset(undisturbed / work.DATASET).to_table()
    assert table.column("run").to_pylist() == [run.digest for run in pinned.runs]
    assert str(table.schema.field("lab.path_mtu").type) == "int64"
    with (undisturbed / work.CSV).open() as file:
        for row, other in zip(table.to_pylist(), csv.DictReader(file), strict=True):
            assert {key: "" if value is None else str(value) for key, value in row.items()} == other


def test_help_of_sweep_names_its_verbs(tmp_path: pathlib.Path, command: Command) -> None:
    code, told, _ = command("sweep", "--help", cwd=tmp_path)
    assert code == 0
    assert all(verb in told for verb in ("run", "report", "repeat", "list"))
