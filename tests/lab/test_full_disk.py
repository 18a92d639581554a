"""A full disk: one clear line, and files that are complete or absent. On a small tmpfs in an own mount namespace."""

from __future__ import annotations

import errno
import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap

import pytest

from mrc_topo.base.files import WriteError, write_whole
from mrclab.results.record import RunResult
from support.amount import first
from support.namespaces import OWN_MOUNTS

#: Fills the disk of a folder but for so many bytes.
FILL = """
    import os
    def fill(folder, leave):
        with open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    pass
            except OSError:
                pass
            size = file.tell()
            file.truncate(max(size - leave, 0))
"""


def on_a_small_disk(folder: pathlib.Path, megabytes: int, script: str, after: str) -> subprocess.CompletedProcess[str]:
    """Run a Python script with a tmpfs at `folder`; then shell commands that see the disk as it was left."""
    folder.mkdir()
    program = folder.parent / "script.py"
    program.write_text(textwrap.dedent(FILL) + textwrap.dedent(script))
    shell = (
        f'mount -t tmpfs -o size={megabytes}m none "$1" || exit 99\n"$2" -P "$3" "$1"\ncode=$?\n{after}\nexit $code\n'
    )
    done = subprocess.run(
        [*OWN_MOUNTS, "sh", "-c", shell, "sh", str(folder), sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder.parent,
        env={**os.environ, "MRCLAB_RUN": str(folder / "run")},
    )
    if done.returncode in (1, 99) and ("unshare" in done.stderr or done.returncode == 99):
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    return done


RUN = """
    import sys
    from mrclab.cli import app as cli
    from mrclab.runs import execute
    folder, run_on = sys.argv[1], execute.run_on
    def then_full(*arguments):
        result = run_on(*arguments)
        fill(folder, LEAVE)
        return result
    execute.run_on = then_full
    sys.argv = ["mrclab", "run", "write_bw", "--lab", "tiny", "--clock", "virtual", "--set", "iterations=2", "--json"]
    sys.argv += ["-o", folder + "/results"]
    cli.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("leave", [0, 32 << 10])  # the report has 45 KiB, all else together 24
def test_a_disk_that_fills_up_during_a_run(leave: int, tmp_path: pathlib.Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    copy = f'cp -a "$1/results/." "{kept}" 2>/dev/null'
    done = on_a_small_disk(tmp_path / "disk", 30, RUN.replace("LEAVE", str(leave)), copy)
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stderr.splitlines() if line not in ("building the simulation", "running")]
    missing = "verdict.json" if leave == 0 else "report.html"
    assert lines == [
        f"mrclab: error: {tmp_path}/disk/results/{missing}: cannot be written: {os.strerror(errno.ENOSPC)}"
    ]
    assert done.stdout == ""
    left = sorted(os.listdir(kept))
    assert left == ([] if leave == 0 else ["events.jsonl.gz", "result.json", "samples.npz", "verdict.json"])
    for name in left:
        if name.endswith(".json"):
            json.loads((kept / name).read_text())
    if left:
        assert len(RunResult.load(kept).samples) == 4
        assert json.loads((kept / "verdict.json").read_text())["passed"] is True


FIGURES = """
    import sys
    from mrclab.cli import app as cli
    from mrclab.studies.cells.store import CellStore
    folder, keep = sys.argv[1], CellStore.keep
    def then_full(*arguments):
        answer = keep(*arguments)
        fill(folder, 0)
        return answer
    CellStore.keep = then_full
    sys.argv = ["mrclab", "figures", "table", "--jobs", "1", "-o", folder + "/figures"]
    if __name__ == "__main__":  # the workers import this, too
        cli.main()
"""


@pytest.mark.slow
def test_a_disk_that_fills_up_between_two_runs_of_a_figure(tmp_path: pathlib.Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    done = on_a_small_disk(tmp_path / "disk", 30, FIGURES, f'cp -a "$1/figures/." "{kept}" 2>/dev/null')
    assert done.returncode == 1, done.stderr
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"mrclab: error: {tmp_path}/disk/figures/runs/"), done.stderr
    assert last.endswith(f": cannot be written: {os.strerror(errno.ENOSPC)}")
    # What was done before is whole, and of what was not nothing is left.
    left = [path for path in (kept / "runs").iterdir() if path.suffix == ".json"]
    assert [json.loads(path.read_text())["digest"] for path in left] == [left[0].stem]
    assert not (kept / "index.html").exists()


RECORD = """
    import json, os, pathlib, random, sys
    from mrc_host.answers import FaultEvent
    from mrclab.results.recording import Recording
    folder = sys.argv[1]
    fill(folder, 1 << 20)
    with Recording(pathlib.Path(folder)) as recording:
        try:
            for tick in range(10**6):
                row = {"t_ns": tick, "noise": [hash((tick, number)) for number in range(100)]}
                # A detail that gzip cannot make small.
                event = FaultEvent(tick, "fault", "", "", random.randbytes(500).hex(), None)
                EVERY
        except OSError as error:
            print(type(error).__name__, error)
"""


@pytest.mark.parametrize(
    ("every", "name"),
    [
        ('recording.sample("h0", row)', "samples.npz"),
        ("recording.fabric_sample(row)", "samples.npz"),
        ('recording.events.extend("h0", [event])', "events.jsonl.gz"),
    ],
)
def test_a_disk_that_fills_up_while_samples_are_recorded(every: str, name: str, tmp_path: pathlib.Path) -> None:
    done = on_a_small_disk(tmp_path / "disk", 8, RECORD.replace("EVERY", every), 'ls -A "$1"')
    assert done.returncode == 0, done.stderr
    told, *left = done.stdout.splitlines()
    assert told == f"WriteError {tmp_path}/disk/{name}: cannot be written: {os.strerror(errno.ENOSPC)}"
    assert left == ["filler"]
    assert done.stderr == ""


@pytest.mark.slow
def test_a_disk_without_room_is_found_before_the_run(tmp_path: pathlib.Path) -> None:
    done = on_a_small_disk(tmp_path / "disk", 4, RUN.replace("LEAVE", "0"), 'ls -A "$1"')
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "too little room for the results: 4 MiB free, up to 16 MiB needed; choose another with -o" in line
    assert done.stdout == ""


UP = """
    import os
    import sys
    from mrclab.cli import app as cli
    os.mkdir(os.environ["MRCLAB_RUN"], 0o700)
    fill(sys.argv[1], LEAVE)
    sys.argv = ["mrclab", "up", "tiny"]
    cli.main()
"""


@pytest.mark.lab
@pytest.mark.slow
@pytest.mark.parametrize("leave", first([8 << 10, 0, 24 << 10]))
def test_a_run_directory_without_room(leave: int, tmp_path: pathlib.Path) -> None:
    os.chmod(tmp_path, 0o700)
    # Nothing is left, neither folder nor process; `down` for the case that it came up after all.
    end = """"$2" -P -c 'from mrclab.cli.app import main; main()' down tiny 2>/dev/null"""
    listing = f'{end}; ls "$1/run"; pgrep -f "[l]abd tiny" --ns $$ --nslist mnt'
    done = on_a_small_disk(tmp_path / "disk", 8, UP.replace("LEAVE", str(leave)), listing)
    # 2 where the lab itself found out: that it did not come up is what the command says then.
    assert done.returncode in (1, 2), done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "error" in line]
    assert line.startswith("mrclab: error: ")
    assert os.strerror(errno.ENOSPC) in line
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


WRITE = """
    import sys
    from mrc_topo.base.files import write_whole
    path = sys.argv[1] + "/file"
    write_whole(path, "old" * 1000)
    fill(sys.argv[1], 8192)
    try:
        write_whole(path, "new" * 100_000)
    except OSError as error:
        print(error)
    assert open(path).read() == "old" * 1000
    write_whole(path, "new" * 1000)
    assert open(path).read() == "new" * 1000
"""


def test_what_was_there_stays_when_the_new_does_not_fit(tmp_path: pathlib.Path) -> None:
    done = on_a_small_disk(tmp_path / "disk", 1, WRITE, 'ls -A "$1"')
    assert done.returncode == 0, done.stderr
    told, *left = done.stdout.splitlines()
    assert told == f"{tmp_path}/disk/file: cannot be written: {os.strerror(errno.ENOSPC)}"
    assert left == ["file", "filler"]


def test_writing_whole_keeps_to_umask_links_and_devices(tmp_path: pathlib.Path) -> None:
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "a", "text\n")
        write_whole(tmp_path / "secret", b"\x00", mode=0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640
    assert (tmp_path / "secret").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link").symlink_to("a")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "new"
    write_whole("/dev/null", "gone")
    with pytest.raises(WriteError, match="/a/b: cannot be written: Not a directory"):
        write_whole(tmp_path / "a" / "b", "")
    with pytest.raises(WriteError, match="cannot be written"):
        write_whole(tmp_path / "n\0n", "")
    assert sorted(os.listdir(tmp_path)) == ["a", "link", "secret"]
    shutil.rmtree(tmp_path)
    with pytest.raises(WriteError, match="No such file or directory"):
        write_whole(tmp_path / "a", "")
