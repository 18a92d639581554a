"""The set-up runs each step with `setup/step.sh`, which passes on how the step ended."""

from __future__ import annotations

import os
import pathlib
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
STEP = ROOT / "setup" / "step.sh"


def step(*words: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run([STEP, *words], capture_output=True, text=True, check=False, env=environment)


def test_step_that_succeeds_prints_its_beginning_and_end_and_leaves_no_log(tmp_path: pathlib.Path) -> None:
    done = step("3", "Python packages", "Try again.", "sh", "-c", "echo many lines", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    begins, ends = done.stdout.splitlines()
    assert begins == "Python packages: usually about 3 s"
    assert re.fullmatch(r"Python packages: done in \d s", ends)
    assert list(tmp_path.iterdir()) == []


def test_step_that_takes_long_says_that_it_goes_on(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEP_EVERY", "1")
    done = step("3", "Python packages", "Try again.", "sleep", "3", folder=tmp_path)
    _, *goes_on, ends = done.stdout.splitlines()
    assert goes_on
    assert all(re.fullmatch(r"Python packages: goes on, [1-9] s by now", line) for line in goes_on)
    assert ends.startswith("Python packages: done in ")


def test_step_that_fails_shows_its_output_its_remedy_and_its_exit_status(tmp_path: pathlib.Path) -> None:
    done = step("3", "Python packages", "Is there a network?", "sh", "-c", "echo no route; exit 7", folder=tmp_path)
    assert done.returncode == 7
    assert done.stderr == "  | no route\nPython packages failed (exit status 7). Is there a network?\n"
    assert list(tmp_path.iterdir()) == []


def test_step_that_is_killed_leaves_no_log(tmp_path: pathlib.Path) -> None:
    words = [str(STEP), "3", "Python packages", "Try again.", "sh", "-c", f"touch {tmp_path}/runs; exec sleep 60"]
    process = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(tmp_path)}, start_new_session=True
    )
    while not (tmp_path / "runs").exists():
        assert process.poll() is None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


@pytest.mark.parametrize("words", [(), ("3", "title", "remedy"), ("soon", "title", "remedy", "true")])
def test_step_with_wrong_arguments_exits_with_2(words: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    assert step(*words, folder=tmp_path).returncode == 2


def test_step_on_a_terminal_shows_a_bar_that_is_full_only_at_its_end(tmp_path: pathlib.Path) -> None:
    ours, theirs = pty.openpty()
    words = [str(STEP), "1", "Python packages", "remedy", "sleep", "0.5"]
    process = subprocess.Popen(words, stdout=theirs, env={**os.environ, "TMPDIR": str(tmp_path)})
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 4096):
            shown += data
    except OSError:  # the terminal's other end is closed
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0
    first, *_, last = shown.decode().replace("\n", "\r").rstrip("\r").split("\r")[1:]
    assert "[...................." in first
    assert "[####################] done in " in last


def test_build_of_the_core_is_not_needed_where_it_is_switched_off() -> None:
    command = [sys.executable, "-m", "mrc_host.build", "--needed"]
    done = subprocess.run(command, env={**os.environ, "MRCLAB_PURE": "1"}, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "protocol core: not compiled, MRCLAB_PURE is set\n")


def test_vendored_packages_are_found_in_a_checkout_with_a_space_in_its_path(tmp_path: pathlib.Path) -> None:
    place = tmp_path / "My Lab ü"
    (place / "vendor" / "wheels").mkdir(parents=True)
    command = ["make", "-n", "-f", str(ROOT / "Makefile"), "-C", str(place), "-o", "apt", "PYTHON=true", "lock"]
    for name in ("pyproject.toml", "p4/pyproject.toml"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).touch()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.endswith("'uv>=0.5,<1'"))
    assert str(place / "vendor" / "wheels") in shlex.split(line)


def test_a_set_up_that_was_killed_is_begun_again_from_nothing(tmp_path: pathlib.Path) -> None:
    """Of one that was killed pip may be missing, and pip takes for installed what is incomplete."""
    for name in ("pyproject.toml", "p4/pyproject.toml", "build/.unfinished", ".venv/bin/half"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()

    def packages(pip: str) -> int:
        words = ["make", "-f", str(ROOT / "Makefile"), "-C", str(tmp_path), "-o", "apt", "PYTHON=true", f"PIP={pip}"]
        done = subprocess.run(
            [*words, f"STEP={ROOT}/setup/step.sh", ".venv/.installed"], check=False, capture_output=True
        )
        return done.returncode

    # What pip itself refuses leaves a complete environment behind.
    for pip, unfinished in (("sh -c 'exit 137'", True), ("sh -c 'exit 1'", False)):
        assert packages(pip) == 2
        assert not (tmp_path / ".venv" / "bin" / "half").exists()
        assert (tmp_path / "build" / ".unfinished").exists() is unfinished
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copyfile("/bin/true", tmp_path / ".venv" / "bin" / "p4lite")
    (tmp_path / ".venv" / "bin" / "p4lite").chmod(0o755)
    assert packages("true") == 0
    assert not (tmp_path / "build" / ".unfinished").exists()
