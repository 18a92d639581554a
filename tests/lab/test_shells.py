"""Which lab a command means that names none: one of its own shell, or that of MRCLAB_LAB; never another shell's."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

from mrc_topo.labfile import LabError, load_lab, read_lab
from mrclab.cli import common
from mrclab.cli.app import app
from mrclab.cli.run import experiment_of
from mrclab.lab.records import rundir
from mrclab.lab.records.record import LabState
from mrclab.lab.records.rundir import RunDir, RunError, base
from mrclab.runs.experiment import Experiment
from p4lite.files import make_private

ELSEWHERE = ["session 1 0.00", "shell 1 0.00"]
Up = Callable[..., None]


@pytest.fixture
def up(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Up:
    """Make records of labs, as `mrclab up` leaves them."""
    monkeypatch.setenv("MRCLAB_RUN", str(make_private(tmp_path / "run")))
    monkeypatch.delenv(rundir.VARIABLE, raising=False)

    def make(name: str, shell: list[str]) -> None:
        run = RunDir(name)
        run.path.mkdir(mode=0o700)
        run.write(LabState(name, shell=shell, lab_file=str(run.lab_file)))

    assert base().is_dir()
    return make


def test_a_lab_of_another_shell_is_never_meant(up: Up) -> None:
    with pytest.raises(RunError, match="no lab is up"):
        common.the_lab(None)
    up("theirs", ELSEWHERE)
    assert common.own_lab() is None
    with pytest.raises(RunError, match=r"theirs from elsewhere; name it, or `export MRCLAB_LAB=theirs`"):
        common.the_lab(None)
    assert common.the_lab("theirs") == "theirs"
    up("ours", rundir.here())
    assert common.the_lab(None) == "ours"
    up("ours-too", rundir.here())
    with pytest.raises(RunError, match=r"several labs are up \(ours, ours-too\)"):
        common.the_lab(None)


def test_the_variable_names_the_lab(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    up("theirs", ELSEWHERE)
    up("ours", rundir.here())
    monkeypatch.setenv(rundir.VARIABLE, "theirs")
    assert common.the_lab(None) == "theirs"
    assert common.the_lab("ours") == "ours"
    monkeypatch.setenv(rundir.VARIABLE, "gone")
    with pytest.raises(RunError, match="MRCLAB_LAB: lab 'gone' is not up; up: ours, theirs"):
        common.the_lab(None)


def test_commands_of_one_shell_know_each_other_and_those_of_another_do_not() -> None:
    def said(*, new_session: bool) -> list[str]:
        words = [sys.executable, "-P", "-c", "from mrclab.lab.records import rundir; print(*rundir.here(), sep='\\n')"]
        # The shell stays between us and the command.
        line = ["sh", "-c", '"$@"; true', "sh", *words]
        done = subprocess.run(line, capture_output=True, text=True, check=True, start_new_session=new_session)
        return done.stdout.splitlines()

    assert rundir.is_here(said(new_session=False))
    assert not rundir.is_here(said(new_session=True))


def test_run_and_capture_do_not_take_what_another_shell_brought_up(up: Up, tmp_path: pathlib.Path) -> None:
    up("theirs", ELSEWHERE)
    mrclab = [sys.executable, "-P", "-c", "from mrclab.cli.app import main; main()"]
    words = ["run", "write_bw", "--duration", "0.01", "-o", str(tmp_path / "r")]
    done = subprocess.run([*mrclab, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "default" in (tmp_path / "r" / "result.json").read_text()[:4000]
    for verb in (["capture", "h0:0"], ["down"], ["fail", "h0:0"]):
        done = subprocess.run([*mrclab, *verb], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "theirs from elsewhere" in done.stderr, (verb, done.stderr)


@pytest.fixture
def recorded(up: Up) -> Callable[..., RunDir]:
    """Make records of labs with their files, as `mrclab up` leaves them."""

    def make(name: str, text: str) -> RunDir:
        up(name, ELSEWHERE)
        run = RunDir(name)
        run.lab_file.write_text(text, encoding="utf-8")
        return run

    return make


OWN = "name: own\nplanes: 2\nt0_per_plane: 2\nt1_per_plane: 2\nhosts: 4\nhosts_per_t0: 2\n"


def experiment(lab: str | None, clock: str | None) -> Experiment:
    """Return the experiment of a workload with these options."""
    options = ("--set", "--hosts", "--qps", "--transport", "--duration", "--switch", "--compiler", "--payload")
    return experiment_of("write_bw", {**dict.fromkeys(options), "--lab": lab}, clock)


@pytest.mark.parametrize("clock", [None, "virtual", "real"])
def test_the_name_of_a_lab_that_is_up_means_its_recorded_file(
    recorded: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch, clock: str | None
) -> None:
    with pytest.raises(LabError, match="own: no lab of that name"):
        load_lab(common.lab_file("own", clock))
    run = recorded("own", OWN)
    assert common.lab_file("own", clock) == str(run.lab_file)
    assert load_lab(common.lab_file("own", clock)).lab.hosts == 4
    assert experiment("own", clock).lab == str(run.lab_file)
    assert experiment("own", clock).clock == ("virtual" if clock == "virtual" else "real")
    monkeypatch.setenv(rundir.VARIABLE, "own")
    assert experiment(None, clock).lab == str(run.lab_file)


def test_verbs_that_only_read_a_lab_take_the_name_of_one_that_is_up(recorded: Callable[..., RunDir]) -> None:
    recorded("own", OWN)
    for words in (["topo", "show", "own"], ["topo", "validate", "own"], ["export", "json", "own"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, (words, done.output)


def test_a_name_that_comes_with_the_project_means_another_lab_only_where_that_is_up(
    recorded: Callable[..., RunDir], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recorded("tiny", read_lab("tiny")[0])
    assert [common.lab_file("tiny", clock) for clock in (None, "real", "virtual")] == ["tiny"] * 3
    run.lab_file.write_text(OWN.replace("own", "tiny"), encoding="utf-8")
    assert [common.lab_file("tiny", clock) for clock in (None, "real")] == [str(run.lab_file)] * 2
    assert common.lab_file("tiny", "virtual") == "tiny"
    assert common.lab_file("./tiny.yaml") == "./tiny.yaml"
    monkeypatch.setenv(rundir.VARIABLE, "ring")
    assert common.own_file("virtual") == "ring"
    monkeypatch.setenv(rundir.VARIABLE, "gone")
    with pytest.raises(RunError, match="MRCLAB_LAB: lab 'gone' is not up"):
        common.own_file("virtual")
    monkeypatch.delenv(rundir.VARIABLE)
    assert common.own_file("virtual") is None
