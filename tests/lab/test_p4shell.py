"""The environment of p4runtime-shell: never taken for complete while it is not, made again, and only the user's own.

A script stands in for Python, so that nothing is fetched: its `venv` and `pip` write down that they ran.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from unittest import mock

import pytest

from mrclab.cli import p4sh
from mrclab.lab import p4shell
from mrclab.lab.records.rundir import is_locked
from p4lite.files import FolderError
from support.mrclab import within

STAND_IN = """#!/bin/sh
case "$*" in
  *venv*)
    for folder; do :; done
    rm -rf "$folder"/* && mkdir "$folder/bin" && cp "$0" "$folder/bin/python"
    step=venv ;;
  *) step=pip ;;
esac
echo "$step" >> LOG
FATE
"""
PYTHON = sys.executable
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to another user or group")
Steps = Callable[[], list[str]]


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return the folder of the environment in the cache of an installed wheel."""
    monkeypatch.setattr(p4shell, "checkout", lambda: None)
    monkeypatch.setenv("MRCLAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "p4sh"


@pytest.fixture
def stand_in(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], pathlib.Path]:
    """Return a function that makes a script Python; the shell text is run at the end of each `$step`."""
    path = tmp_path / "python"

    def make(fate: str = "") -> pathlib.Path:
        path.write_text(STAND_IN.replace("LOG", str(tmp_path / "log")).replace("FATE", fate), encoding="utf-8")
        path.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(path))
        return path

    make()
    return make


@pytest.fixture
def steps(tmp_path: pathlib.Path, stand_in: object) -> Steps:
    """Return a function that returns the steps that ran since it was called last."""
    log = tmp_path / "log"

    def ran() -> list[str]:
        said = log.read_text(encoding="utf-8").split() if log.exists() else []
        log.unlink(missing_ok=True)
        return said

    return ran


DAMAGES: dict[str, Callable[[pathlib.Path], object]] = {
    "no completion": lambda folder: (folder / p4shell.CONFIG).unlink(),
    "another version": lambda folder: (folder / p4shell.CONFIG).write_text("# p4runtime-shell==0.0.5\n"),
    "no interpreter": lambda folder: (folder / "bin" / "python").unlink(),
    "empty": lambda folder: (shutil.rmtree(folder), folder.mkdir(0o700)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_an_incomplete_environment_is_made_again(place: pathlib.Path, steps: Steps, damage: str) -> None:
    assert p4shell.install() == place
    assert steps() == ["venv", "pip"]
    assert p4shell.command("unix:/s", 7, 5)[:4] == [str(place / "bin" / "python"), "-I", "-m", "p4runtime_sh"]
    p4shell.install()
    assert steps() == []
    DAMAGES[damage](place)
    with pytest.raises(p4shell.MissingShellError):
        p4shell.command("unix:/s", 7, 5)
    p4shell.install()
    assert steps() == ["venv", "pip"]
    p4shell.command("unix:/s", 7, 5)


def installed_elsewhere(python: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """Make the environment by a process of its own, for which a script is Python."""
    code = (
        "import sys; from mrclab.lab import p4shell; p4shell.checkout = lambda: None\n"
        "sys.executable = sys.argv[1]; p4shell.install()"
    )
    return subprocess.run([PYTHON, "-c", code, str(python)], check=False, capture_output=True, text=True)


@pytest.mark.parametrize("killed", ["venv", "pip"])
def test_one_that_was_killed_in_the_middle_is_not_complete(
    place: pathlib.Path, stand_in: Callable[[str], pathlib.Path], steps: Steps, killed: str
) -> None:
    python = stand_in(f'[ "$step" != {killed} ] || kill -9 $PPID')
    for _ in range(2):
        done = installed_elsewhere(python)
        assert done.returncode == -9, done.stderr
        with pytest.raises(p4shell.MissingShellError):
            p4shell.command("unix:/s", 7, 5)
    steps()
    stand_in("")
    p4shell.install()
    assert steps() == ["venv", "pip"]
    p4shell.command("unix:/s", 7, 5)


def test_no_other_begins_while_pip_goes_on_without_us(
    place: pathlib.Path, tmp_path: pathlib.Path, stand_in: Callable[[str], pathlib.Path]
) -> None:
    os.mkfifo(tmp_path / "go")
    python = stand_in(f'[ "$step" = venv ] || {{ kill -9 $PPID; read word < {tmp_path}/go; }}')
    assert installed_elsewhere(python).returncode == -9
    try:
        assert is_locked(place.with_name("p4sh.lock"))
    finally:
        (tmp_path / "go").write_text("on\n", encoding="utf-8")
    stand_in("")
    p4shell.install()


def test_what_pip_said_last_is_the_reason(place: pathlib.Path, stand_in: Callable[[str], pathlib.Path]) -> None:
    stand_in('[ "$step" = venv ] || { echo "ERROR: first" >&2; echo "ERROR: no such distribution" >&2; exit 1; }')
    done = within("p4sh", "--install")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "ERROR: no such distribution" in line
    assert str(place) in line
    with pytest.raises(p4shell.MissingShellError):
        p4shell.command("unix:/s", 7, 5)


def test_without_a_network_the_wheels_of_make_vendor_are_used(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, stand_in: Callable[[str], pathlib.Path]
) -> None:
    checkout = tmp_path / "My Lab"
    (checkout / "vendor" / "wheels").mkdir(parents=True)
    monkeypatch.setattr(p4shell, "checkout", lambda: checkout)
    stand_in(f'printf "%s\\n" "$@" > {tmp_path}/words')
    assert p4shell.install() == checkout / "build" / "p4sh"
    words = (tmp_path / "words").read_text(encoding="utf-8").splitlines()
    assert words[-4:] == [p4shell.WANTED, "--no-index", "--find-links", str(checkout / "vendor" / "wheels")]


@pytest.mark.parametrize("folder", ["cache", "cache/p4sh"])
@pytest.mark.parametrize("others", ["all", *(pytest.param(each, marks=AS_ROOT) for each in ("group", "owner"))])
def test_a_folder_that_others_can_change_is_refused(
    place: pathlib.Path, tmp_path: pathlib.Path, steps: Steps, folder: str, others: str
) -> None:
    p4shell.install()
    steps()
    stranger = pwd.getpwnam("nobody")
    if others == "owner":
        os.chown(tmp_path / folder, stranger.pw_uid, -1)
    elif others == "group":
        os.chown(tmp_path / folder, -1, stranger.pw_gid)
        (tmp_path / folder).chmod(0o770)
    else:
        (tmp_path / folder).chmod(0o777)
    for use in (p4shell.install, lambda: p4shell.command("unix:/s", 7, 5)):
        with pytest.raises(FolderError, match=str(tmp_path / folder)):
            use()
    assert within("p4sh", "--install").returncode == 1
    assert steps() == []


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the verb find a lab with a switch."""
    session = mock.Mock()
    session.topology.switch.return_value.device_id = 7
    session.target.address.return_value = "unix:/s"
    monkeypatch.setattr(p4sh, "on_lab", lambda _: contextlib.nullcontext(session))


@pytest.mark.usefixtures("lab")
def test_without_a_terminal_the_error_names_the_command(place: pathlib.Path, steps: Steps) -> None:
    done = within("p4sh", "p0-t0.0")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "`mrclab p4sh --install`" in line
    assert str(place) in line
    assert steps() == []
    assert within("p4sh", "--install").returncode == 0
    assert steps() == ["venv", "pip"]
    assert within("p4sh", "p0-t0.0").returncode == 0
    assert steps() == ["pip"], "the shell, for which the script stands, too"


class Terminal(io.StringIO):
    """A text that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("lab", "stand_in")
@pytest.mark.parametrize(("answer", "ran"), [("y", True), ("n", False), ("", False)])
def test_on_a_terminal_it_asks(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch, answer: str, ran: bool) -> None:
    asked = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\n"))
    monkeypatch.setattr(sys, "stderr", asked)
    run = mock.Mock(return_value=mock.Mock(returncode=0))
    monkeypatch.setattr(subprocess, "run", run)
    again = mock.Mock(side_effect=SystemExit(0))
    monkeypatch.setattr(os, "execv", again)
    with pytest.raises(SystemExit if ran else p4shell.MissingShellError):
        p4sh.verb("p0-t0.0")
    for part in (p4shell.WANTED, str(place), f"{p4shell.MEGABYTES} MB"):
        assert part in asked.getvalue()
    commands = [call.args[0] for call in run.call_args_list]
    assert [words[-3:] for words in commands] == ([["mrclab.cli", "p4sh", "--install"]] if ran else [])
    assert again.called is ran
