"""What a parent or a machine may leave a command with: signals ignored or blocked, a read-only home, a full disk."""

from __future__ import annotations

import errno
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from lab.test_full_disk import on_a_small_disk
from mrc_workshop import cli as workshop
from p4lite.files import FolderError, check_private

PARENT = """
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.execv(sys.executable, [sys.executable, "-P", "-c", sys.argv[1]])
"""
CHILD = """
import subprocess, sys, signal
from mrclab.cli import verbs
from mrclab.cli.entry import main
import mrclab.cli.app
def command():
    print(subprocess.run(["false"]).returncode, flush=True)
    signal.raise_signal(signal.SIGTERM)
    print("deaf")
mrclab.cli.app.main = command
main()
"""


def test_signals_that_the_parent_ignored_or_blocked_are_handled() -> None:
    done = subprocess.run([sys.executable, "-c", PARENT, CHILD], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("1\n", -signal.SIGTERM), done.stderr


def test_progress_that_cannot_be_recorded_is_a_warning(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MRCLAB_WORKSHOP", "/proc/nowhere/workshop.json")
    monkeypatch.chdir(tmp_path)
    workshop.start("1", None)
    printed = capsys.readouterr()
    assert "MRCLAB_WORKSHOP" in printed.err
    assert "mrclab workshop check" in printed.out


def test_a_folder_in_which_others_can_write_has_a_remedy(tmp_path: pathlib.Path) -> None:
    above = tmp_path / "above"
    (above / "own").mkdir(parents=True)
    above.chmod(0o777)
    with pytest.raises(FolderError, match=f"chmod go-w {above}`"):
        check_private(above / "own")


START = """
    import pathlib, sys
    from mrc_workshop import exercise, learner
    from mrc_workshop.exercise import WorkshopError
    disk = pathlib.Path(sys.argv[1])
    fill(disk, 0)
    chosen = exercise.find("1")
    try:
        learner.copy_exercise(chosen, disk / "mine", chosen.starter)
    except WorkshopError as error:
        print(error)
    print(sorted(path.name for path in (disk / "mine").iterdir()))
    (disk / "filler").unlink()
    learner.copy_exercise(chosen, disk / "mine", chosen.starter)
"""


def test_start_on_a_full_disk_names_the_new_file_and_leaves_none(tmp_path: pathlib.Path) -> None:
    done = on_a_small_disk(tmp_path / "disk", 1, START, "")
    assert done.returncode == 0, done.stderr
    message, left = done.stdout.splitlines()
    assert message.startswith(f"{tmp_path / 'disk' / 'mine'}/")
    assert os.strerror(errno.ENOSPC) in message
    assert left == "[]"


COMPILE = """
    import os, pathlib, sys
    os.environ["MRCLAB_CACHE"] = sys.argv[1] + "/cache"
    os.mkdir(os.environ["MRCLAB_CACHE"], 0o700)
    from p4lite.switch.errors import BuildError
    from p4lite.switch.native.build import build
    fill(sys.argv[1], 16384)
    text = "int a[1 << 16] = {1};" + "int f(int x) { return x; }"
    try:
        build("small", generated={"small.c": text})
    except BuildError as error:
        print(error)
"""


def test_a_full_cache_is_named_with_its_variable(tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o700)
    done = on_a_small_disk(tmp_path / "disk", 1, COMPILE, "")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert "MRCLAB_CACHE" in line
    assert os.strerror(errno.ENOSPC) in line


TEMPORARY = """
    import os, sys, tempfile
    os.environ["TMPDIR"] = sys.argv[1]
    from mrc_workshop import confine
    from mrc_workshop.exercise import WorkshopError
    confine._warm_cache()
    fill(sys.argv[1], LEAVE)
    os.path.exists("/tmp")
    try:
        with confine.scratch_folders():
            print("there")
    except Exception as error:
        print(type(error).__name__, error)
"""


@pytest.mark.parametrize("leave", [8 << 10, 48 << 10])
def test_a_full_place_of_temporary_files_is_one_line(leave: int, tmp_path: pathlib.Path) -> None:
    tmp_path.chmod(0o700)
    done = on_a_small_disk(tmp_path / "disk", 1, TEMPORARY.replace("LEAVE", str(leave)), "")
    assert done.returncode == 0, done.stderr
    (line,) = done.stdout.splitlines()
    assert line.startswith("WorkshopError ")
    assert "TMPDIR" in line
    assert os.strerror(errno.ENOSPC) in line
    assert "[(" not in line
