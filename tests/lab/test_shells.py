"""Which lab a command means that names none: one of its own shell, or that of MRCLAB_LAB; never another shell's."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Callable

import pytest

from mrc_cli import common
from mrc_lab.records import shells
from mrc_lab.records.record import State
from mrc_lab.records.rundir import RunDir, RunError, base
from p4lite.folders import make_private

ELSEWHERE = ["session 1 0.00", "shell 1 0.00"]
Up = Callable[..., None]


@pytest.fixture
def up(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Up:
    """Make records of labs, as `mrclab up` leaves them."""
    monkeypatch.setenv("MRCLAB_RUN", str(make_private(tmp_path / "run")))
    monkeypatch.delenv(shells.VARIABLE, raising=False)

    def make(name: str, shell: list[str]) -> None:
        run = RunDir(name)
        run.path.mkdir(mode=0o700)
        run.write(State(name, shell=shell))

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
    up("ours", shells.here())
    assert common.the_lab(None) == "ours"
    up("ours-too", shells.here())
    with pytest.raises(RunError, match=r"several labs are up \(ours, ours-too\)"):
        common.the_lab(None)


def test_the_variable_names_the_lab(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    up("theirs", ELSEWHERE)
    up("ours", shells.here())
    monkeypatch.setenv(shells.VARIABLE, "theirs")
    assert common.the_lab(None) == "theirs"
    assert common.the_lab("ours") == "ours"
    monkeypatch.setenv(shells.VARIABLE, "gone")
    with pytest.raises(RunError, match="MRCLAB_LAB: lab 'gone' is not up; up: ours, theirs"):
        common.the_lab(None)


def test_commands_of_one_shell_know_each_other_and_those_of_another_do_not() -> None:
    def said(*, new_session: bool) -> list[str]:
        words = [sys.executable, "-P", "-c", "from mrc_lab.records import shells; print(*shells.here(), sep='\\n')"]
        # The shell stays between us and the command.
        line = ["sh", "-c", '"$@"; true', "sh", *words]
        done = subprocess.run(line, capture_output=True, text=True, check=True, start_new_session=new_session)
        return done.stdout.splitlines()

    assert shells.is_here(said(new_session=False))
    assert not shells.is_here(said(new_session=True))


def test_run_and_capture_do_not_take_what_another_shell_brought_up(up: Up, tmp_path: pathlib.Path) -> None:
    up("theirs", ELSEWHERE)
    mrclab = [sys.executable, "-P", "-c", "from mrc_cli.app import main; main()"]
    words = ["run", "write_bw", "--duration", "0.01", "-o", str(tmp_path / "r")]
    done = subprocess.run([*mrclab, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "default" in (tmp_path / "r" / "result.json").read_text()[:4000]
    for verb in (["capture", "h0:0"], ["down"], ["fail", "h0:0"]):
        done = subprocess.run([*mrclab, *verb], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "theirs from elsewhere" in done.stderr, (verb, done.stderr)
