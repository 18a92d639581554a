"""Sweeps on Dask: two workers, dead ones, a dead scheduler, one that is not there; and who else may talk to ours."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from mrc_topo.shipped import install
from mrclab.cli.app import main
from mrclab.runs.experiment import ExperimentError
from mrclab.studies import engine
from mrclab.studies.cells.pages import has_parquet
from mrclab.studies.sweeps import cluster, measure, page, plan, work
from mrclab.studies.sweeps.spec import load_sweep

COMMAND = [sys.executable, "-c", "from mrclab.cli.app import main; main()"]
#: Of the test of kills; 500 of them are a few minutes.
RUNS = int(os.environ.get("MRCLAB_SWEEP_RUNS", "24"))
#: Seconds that a busy machine may take for them.
PATIENCE = 600 + 4 * RUNS

needs_dask = pytest.mark.skipif(
    not cluster.have_dask() or not has_parquet(), reason="Dask is not installed (extra `cluster`)"
)
needs_parquet = pytest.mark.skipif(not has_parquet(), reason="pyarrow is not installed (extra `cluster`)")


def results(folder: pathlib.Path) -> dict[str, bytes]:
    """All that must be the same for the same plan."""
    files = [folder / name for name in ("sweep.json", work.CSV, page.PAGE)]
    files += sorted((folder / work.DATASET).glob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def sweep(*arguments: object, cwd: pathlib.Path) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, "sweep", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a sweep of `RUNS` small runs, and what it leaves undisturbed, one run after another."""
    folder = tmp_path_factory.mktemp("many")
    content = dict(load_sweep("pinned").file.data)
    content |= {"name": "many", "grid": {"experiment.workload.params.message_bytes": [2048, 8192]}, "seeds": RUNS // 2}
    (folder / "many.yaml").write_text(json.dumps(content))
    done = sweep("many.yaml", "--workers", 0, "-o", "whole", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert f"{RUNS // 2 * 2} runs, 0 not good" in done.stdout
    return folder


@contextlib.contextmanager
def going(*arguments: object, cwd: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    """Run the command meanwhile, and remove everything it has started at the end."""
    command = [*COMMAND, "sweep", *map(str, arguments)]
    process = subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    mine = psutil.Process(process.pid)
    try:
        yield process
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in [*mine.children(recursive=True), mine]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    each.kill()
        process.communicate()


def wait_for(number: int, folder: pathlib.Path, process: subprocess.Popen[str]) -> None:
    """Until so many runs are kept."""
    until = time.monotonic() + PATIENCE
    while len(list((folder / engine.RUNS).glob("*.json"))) < number:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.01)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the processes of workers without the one that cleans shared memory up."""
    return [
        each for each in psutil.Process(process.pid).children() if "resource_tracker" not in " ".join(each.cmdline())
    ]


def used(process: psutil.Process) -> float:
    """CPU seconds of a process, less than none of one that is gone."""
    try:
        return float(process.cpu_times().user)
    except psutil.NoSuchProcess:  # a zombie, too
        return -1.0


def kept(folder: pathlib.Path) -> dict[str, int]:
    """When each run was kept, but for those whose process was killed."""
    paths = (folder / engine.RUNS).glob("*.json")
    return {path.name: path.stat().st_mtime_ns for path in paths if '"died"' not in path.read_text()}


@needs_parquet
@pytest.mark.slow
def test_kills_of_workers_and_of_the_command_change_no_byte(many: pathlib.Path) -> None:
    folder = many / "killed"
    with going("many.yaml", "--workers", 2, "-o", folder, cwd=many) as process:
        wait_for(RUNS // 6, folder, process)
        workers_of(process)[0].kill()  # another one takes its place
        wait_for(RUNS // 3, folder, process)
        there = workers_of(process)
        process.send_signal(signal.SIGKILL)
        process.wait()
        # Workers do not outlive it.
        assert psutil.wait_procs(there, timeout=300)[1] == []
    first = kept(folder)
    assert RUNS // 3 - 1 <= len(first) < RUNS
    done = sweep("many.yaml", "--workers", 2, "-o", folder, cwd=many)
    assert done.returncode == 0, done.stderr
    after = kept(folder)
    assert {name: after[name] for name in first} == first  # nothing twice
    assert results(folder) == results(many / "whole")


@needs_parquet
@pytest.mark.slow
@pytest.mark.parametrize("when", ["while workers start", "while they import", "while they work"])
def test_ctrl_c_is_one_line_and_leaves_nothing(
    many: pathlib.Path, tmp_path: pathlib.Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The terminal tells all processes of the command at once."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    folder = tmp_path / "out"
    command = [*COMMAND, "sweep", str(many / "many.yaml"), "--workers", "2", "-o", str(folder)]
    process = subprocess.Popen(
        command, cwd=many, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    mine = psutil.Process(process.pid)
    try:
        if when == "while they work":
            wait_for(2, folder, process)
        else:
            # One worker's process is there, or imports what it needs; what is half begun is ended, too.
            until = time.monotonic() + PATIENCE
            begun = 0.0 if when == "while workers start" else 0.4
            while not any(used(each) >= begun for each in workers_of(process)):
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until
                time.sleep(0.002)
        there = mine.children(recursive=True)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "KeyboardInterrupt" not in said
    assert [line for line in said.splitlines() if "SIGINT" in line] == [said.splitlines()[-1]]
    assert "are kept, the same command goes on" in said.splitlines()[-1]
    assert psutil.wait_procs(there, timeout=300)[1] == []
    # The user's scratch folder stays, with its lock.
    assert [path for path in tmp_path.rglob("*") if folder not in (path, *path.parents) and path.is_file()] in (
        [],
        [tmp_path / f"mrclab-scratch-{os.geteuid()}" / ".lock"],
    )


@pytest.fixture
def port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextlib.contextmanager
def dask(*arguments: object, cwd: pathlib.Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "distributed.cli." + str(arguments[0]), *map(str, arguments[1:])]
    quiet = {**os.environ, "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]"}
    with (cwd / "dask.log").open("a") as log:
        process = subprocess.Popen(command, cwd=cwd, stdout=log, stderr=log, text=True, env=quiet)
        try:
            yield process
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                mine = psutil.Process(process.pid)
                for each in [*mine.children(recursive=True), mine]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.kill()
            process.wait()


@contextlib.contextmanager
def scheduler_with_workers(port: int, workers: int, cwd: pathlib.Path) -> Iterator[list[subprocess.Popen[str]]]:
    at = ["--host", "127.0.0.1", "--port", port, "--dashboard-address", "127.0.0.1:0", "--no-dashboard"]
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(dask("dask_scheduler", *at, cwd=cwd))]
        options = ["--nthreads", 1, "--no-nanny", "--no-dashboard"]
        for _ in range(workers):
            made.append(stack.enter_context(dask("dask_worker", f"tcp://127.0.0.1:{port}", *options, cwd=cwd)))
        yield made


@needs_dask
@pytest.mark.slow
def test_a_scheduler_elsewhere_may_die_with_its_workers(many: pathlib.Path, port: int) -> None:
    folder, address = many / "elsewhere", f"tcp://127.0.0.1:{port}"
    with scheduler_with_workers(port, 2, many) as (scheduler, worker, _):
        with going("many.yaml", "--scheduler", address, "-o", "elsewhere", cwd=many) as process:
            wait_for(RUNS // 6, folder, process)
            worker.kill()
            wait_for(RUNS // 3, folder, process)
            scheduler.kill()
            _, said = process.communicate(timeout=120)
        assert process.returncode == 1, said
        assert "the scheduler is gone" in said
        assert "the same command goes on" in said
        assert "Traceback" not in said
    first = kept(folder)
    assert RUNS // 3 <= len(first) < RUNS
    with scheduler_with_workers(port, 1, many):
        done = sweep("many.yaml", "--scheduler", address, "-o", "elsewhere", cwd=many)
    assert done.returncode == 0, done.stderr
    after = kept(folder)
    assert {name: after[name] for name in first} == first
    assert results(folder) == results(many / "whole")


@needs_parquet
@pytest.mark.slow
def test_the_pinned_sweep_is_the_same_with_two_workers(tmp_path: pathlib.Path) -> None:
    done = sweep("pinned", "--workers", 2, "-o", "two", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = plan.make(load_sweep("pinned"))
    (tmp_path / "one").mkdir()
    alone = work.SweepStore(tmp_path / "one", made)
    work.carry_out(alone, alone.study(), work.here(made))
    page.write(tmp_path / "one", made, list(work.rows(made, alone.answers())))
    alone.close()
    assert results(tmp_path / "two") == results(tmp_path / "one")


def kill_me(task: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


@needs_dask
@pytest.mark.slow
def test_a_run_that_kills_each_worker_is_told_and_done_again_next_time(
    tmp_path: pathlib.Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = plan.make(load_sweep("pinned"))
    made = plan.SweepPlan(made.source, made.base, made.keys, made.runs[:1], made.software)
    kept_in = work.SweepStore(tmp_path, made)
    monkeypatch.setattr(kill_me, "__module__", "__main__")  # workers cannot import this file: they get its function
    with (
        monkeypatch.context() as patch,
        scheduler_with_workers(port, 4, tmp_path),
        cluster.at_scheduler(f"tcp://127.0.0.1:{port}") as client,
    ):
        patch.setattr(measure, "run_in_worker", kill_me)
        ((run, answer),) = work.carry_out(kept_in, kept_in.study(), work.on_dask(client, made))
    assert (answer.status, answer.failure) == (engine.RunStatus.DIED, "each worker died that took it")
    assert "KilledWorker" in (tmp_path / work.LOGS / f"{run.digest}.log").read_text() or answer
    assert work.carry_out(kept_in, kept_in.study(), work.here(made)) == []
    kept_in.close()


@needs_dask
def test_scheduler_that_does_not_answer_is_an_error_with_its_address(
    tmp_path: pathlib.Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "REACHED_S", 0.5)
    with pytest.raises(
        ExperimentError, match=rf"--scheduler tcp://127.0.0.1:{port}: no scheduler answers: .*start one"
    ):
        cluster.at_scheduler(f"tcp://127.0.0.1:{port}").__enter__()
    with pytest.raises(ExperimentError, match="an address as Dask has them"):
        cluster.at_scheduler("localhost:8786").__enter__()


@needs_dask
@pytest.mark.slow
def test_sweep_without_its_scheduler_ends_in_one_line_and_leaves_no_file(tmp_path: pathlib.Path, port: int) -> None:
    done = sweep("pinned", "--scheduler", f"tcp://127.0.0.1:{port}", "-o", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"mrclab: error: --scheduler tcp://127.0.0.1:{port}: no scheduler")
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


WRONG = [
    ("workers: 3\n", "kind: is required"),
    ("kind: dask_jobqueue.SLURMCluster\n", "kind: input should be 'ssh'"),
    ("kind: slurm\noptions: {quue: short}\n", "options.quue: nothing that a file may say of a cluster of kind slurm"),
    ("kind: slurm\noptions: {job_cls: os.system}\n", "options.job_cls"),
    ("kind: ssh\noptions: {worker_class: os.system, hosts: [a, b]}\n", "options.worker_class"),
    ("kind: ssh\noptions: {worker_options: {preload: evil.py}}\n", "options.worker_options.preload"),
    ("kind: ssh\noptions: {connect_options: {proxy_command: evil}}\n", "options.connect_options.proxy_command"),
    ("kind: ssh\noptions: {connect_options: evil}\n", "options.connect_options: a mapping"),
    ("kind: kubernetes\noptions: {custom_cluster_spec: evil.yaml}\n", "options.custom_cluster_spec"),
    ("kind: slurm\nworkers: 0\n", "workers: input should be greater than or equal to 1"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[str(number) for number in range(len(WRONG))])
def test_load_of_a_wrong_cluster_file_names_file_and_key(text: str, said: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(ExperimentError) as error:
        cluster.load_cluster(path)
    assert said in str(error.value)
    assert str(error.value).startswith(f"{path}:")


@pytest.mark.parametrize("kind", sorted(cluster.OFFERS))
def test_cluster_without_what_it_needs_names_the_remedy(kind: str, tmp_path: pathlib.Path) -> None:
    offer = cluster.OFFERS[kind]
    if not cluster.have_dask() or importlib.util.find_spec(offer.module.partition(".")[0]) is not None:
        pytest.skip("Dask is missing, or what would be missed is there")
    path = tmp_path / "cluster.yaml"
    path.write_text(f"kind: {kind}\n")
    with pytest.raises(ExperimentError, match=offer.install), cluster.from_file(path):
        pass


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workers", "-1"], "--workers is a number of processes"),
        (["--workers", "1", "--scheduler", "tcp://x:1"], "--workers and --scheduler exclude each other"),
        (["--cluster", "none.yaml"], "none.yaml: cannot be read"),
    ],
)
def test_sweep_with_options_that_cannot_be_names_them(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["mrclab", "sweep", "pinned", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_without_dask_its_scheduler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "have_dask", lambda: False)
    with pytest.raises(ExperimentError, match=f"needs Dask: {re.escape(install('cluster'))}"):
        cluster.at_scheduler("tcp://127.0.0.1:8786").__enter__()
