"""The set-up runs each step with `setup/step.sh`, which passes on how the step ended, and two at once by beside.sh."""

from __future__ import annotations

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
STEP = ROOT / "setup" / "step.sh"
BESIDE = ROOT / "setup" / "beside.sh"


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
            [*words, f"STEP={STEP}", f"BESIDE={BESIDE}", ".venv/.installed"], check=False, capture_output=True
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


def test_of_two_commands_beside_each_other_the_second_decides(tmp_path: pathlib.Path) -> None:
    def beside(first: str, second: str) -> int:
        return subprocess.run([BESIDE, first, "sh", "-c", second], check=False, timeout=50).returncode

    (tmp_path / "first").symlink_to("/bin/false")
    assert beside(f"{tmp_path}/first", "exit 0") == 0
    assert beside("true", "exit 7") == 7
    # Where the second fails the first, which would take a minute, is ended.
    assert beside("sleep 60", "exit 7") == 7
    # Where the second succeeds the first is waited for.
    assert beside(f"sh -c 'sleep 0.2; touch {tmp_path}/done'", "exit 0") == 0
    assert (tmp_path / "done").exists()


def test_commands_beside_each_other_are_ended_with_the_step_that_runs_them(tmp_path: pathlib.Path) -> None:
    first = f'sh -c "echo \\$\\$ > {tmp_path}/one.new; mv {tmp_path}/one.new {tmp_path}/one; exec sleep 60"'
    second = f"echo $$ > {tmp_path}/two.new; mv {tmp_path}/two.new {tmp_path}/two; exec sleep 60"
    words = [str(STEP), "3", "Python packages", "Try again.", str(BESIDE), first, "sh", "-c", second]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    while not ((tmp_path / "one").exists() and (tmp_path / "two").exists()):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(50) == 130
    for name in ("one", "two"):
        assert not pathlib.Path("/proc", (tmp_path / name).read_text().strip()).exists()


def test_build_of_the_core_that_is_ended_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    """As the set-up ends it where pip fails."""
    package = tmp_path / "hosts" / "mrc_host"
    shutil.copytree(ROOT / "hosts" / "mrc_host", package, ignore=shutil.ignore_patterns("__compiled__", "__pycache__"))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {key: value for key, value in os.environ.items() if key != "MRCLAB_PURE"}
    environment |= {"PYTHONPATH": f"{tmp_path}/hosts", "TMPDIR": str(scratch)}
    process = subprocess.Popen([sys.executable, "-m", "mrc_host.build"], env=environment, stdout=subprocess.DEVNULL)
    while not any(scratch.glob("*/mrc_host")):
        assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(50) == 1
    assert list(scratch.iterdir()) == []
    assert list((package / "__compiled__").iterdir()) == []
