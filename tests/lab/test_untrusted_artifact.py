"""Artifacts of an author who means harm: no code without leave, no verdict on trust, no memory for the asking."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import pytest

from mrc_topo.base.files import UnfitFile, open_plain, read_plain
from mrc_topo.base.interruption import Interrupted, interruptible
from mrc_topo.base.plain import decode
from mrclab.cli import app as cli
from mrclab.lab.switches.program import FOLDER
from mrclab.results.reading import RESULT, FolderError, of_any_version
from mrclab.results.record import RunResult
from mrclab.results.recording import EVENTS, SAMPLES
from mrclab.runs import artifact
from mrclab.runs.artifact import ArtifactError
from mrclab.web.replay import verdict_of
from support.hostile import bombs
from support.lab import users
from support.lab.users import NOBODY

#: What reading may hold: twice a document of the largest size that is looked at here; a bomb is 3 GiB.
MOST = 80 << 20
PLACE = "runs/1-write_bw"
Change = Callable[[dict[str, Any]], object]
EVIL = """\
import pathlib
from mrc_host.policy import EvSet
pathlib.Path({place!r}).touch()
class Evil(EvSet): ...
"""


@dataclass(frozen=True)
class Record:
    """A document of one number."""

    count: int


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


Check = Callable[..., Done]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return an artifact of a passing run and of one that fails."""
    folder = tmp_path_factory.mktemp("whole")
    command = [sys.executable, "-P", "-c", "from mrclab.cli.app import main; main()", "-q", "run"]
    words = ["write_bw", "--lab", "tiny", "--clock", "virtual", "--duration", "0.02", "-o", str(folder / "good")]
    subprocess.run([*command, *words], check=True, stdout=subprocess.DEVNULL)
    (folder / "bad.yaml").write_text(
        "{name: bad, title: bad, lab: tiny, clock: virtual, workload: {name: write_bw, duration: 0.02},\n"
        " expect: {trims: true}}\n"
    )
    done = subprocess.run([*command, str(folder / "bad.yaml"), "-o", str(folder / "bad")], stdout=subprocess.DEVNULL)
    assert done.returncode == 1
    artifact.pack([folder / "good"], folder / "good.zip")
    artifact.pack([folder / "bad"], folder / "bad.zip")
    return folder


def given(document: object, made: dict[str, Any]) -> object:
    """Return a document in the place of another."""
    return document


def listed_again(folder: str, made: dict[str, Any]) -> None:
    """List the run 300 times more, by a name of its folder."""
    made["runs"] += 300 * [{**made["runs"][0], "folder": folder}]


def squeezed(claimed: int, path: pathlib.Path) -> None:
    """Write samples with a bomb for an array."""
    bombs.archive(path, {}, "fabric/columns.npy", claimed, bombs.deflated())


def forged(
    whole: pathlib.Path, out: pathlib.Path, changes: dict[str, Change], content: Change = lambda made: None
) -> None:
    """Write the artifact with changed documents, and the digests that go with them."""
    with zipfile.ZipFile(whole) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    made = json.loads(members[artifact.CONTENT])
    folder = made["runs"][0]["folder"]
    for name, change in changes.items():
        document = json.loads(members[f"{folder}/{name}"])
        changed = change(document)
        data = json.dumps(document if changed is None else changed).encode()
        members[f"{folder}/{name}"] = data
        made["runs"][0]["files"][name] = hashlib.sha256(data).hexdigest()
    content(made)
    members[artifact.CONTENT] = json.dumps(made).encode()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Return what runs `mrclab artifact check` beside the archive: exit code, output and errors."""
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    monkeypatch.chdir(tmp_path)

    def go(path: pathlib.Path, *options: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["mrclab", "-q", "artifact", "check", str(path), *options])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        return Done(int(caught.value.code or 0), *capsys.readouterr())

    return go


# --- whose code ------------------------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs the machine's root, which checks another user's artifact")
@pytest.mark.parametrize("options", [(), ("--trust-code",)])
def test_root_runs_no_code_of_the_folder_of_another_user(whole: pathlib.Path, options: tuple[str, ...]) -> None:
    with users.home(NOBODY) as folder:
        (folder / "evil.py").write_text(EVIL.format(place=str(folder / "ran")))
        forged(
            whole / "good.zip",
            folder / "a.zip",
            {RESULT: lambda made: made["topology"]["policies"].update(ev="evil.py:Evil")},
        )
        for path in folder.iterdir():
            os.chown(path, NOBODY, NOBODY)
        words = [*users.MRCLAB, "-q", "artifact", "check", str(folder / "a.zip"), *options]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=users.PATIENCE_S)
        assert not (folder / "ran").exists(), "the author's code was run"
        assert done.returncode == 2, done.stderr


@pytest.mark.parametrize("part", ["experiment", "topology"])
@pytest.mark.parametrize("reference", ["evil.py", "./evil.py", "evil", "{folder}/evil.py", "/proc/self/cwd/evil.py"])
@pytest.mark.parametrize("options", [(), ("--trust-code",)])
def test_no_policy_beside_the_archive_is_run(
    check: Check, whole: pathlib.Path, tmp_path: pathlib.Path, part: str, reference: str, options: tuple[str, ...]
) -> None:
    """The list of the author says that there is no code; with leave, too, only code in the archive runs."""
    (tmp_path / "evil.py").write_text(EVIL.format(place=str(tmp_path / "ran")))
    given = reference.format(folder=tmp_path) + ":Evil"
    forged(whole / "good.zip", tmp_path / "a.zip", {RESULT: lambda made: made[part]["policies"].update(ev=given)})
    done = check(tmp_path / "a.zip", *options)
    assert not (tmp_path / "ran").exists(), "the author's code was run"
    assert done.returncode == 2
    assert "would load" in done.stderr
    assert "which is not in the archive" in done.stderr


@pytest.mark.parametrize("part", ["experiment", "topology"])
def test_code_in_the_archive_needs_leave_whatever_the_list_says(
    check: Check, whole: pathlib.Path, tmp_path: pathlib.Path, part: str
) -> None:
    """The list says `module`, which is no file, and the place is that of data."""
    path = tmp_path / "a.zip"
    forged(
        whole / "good.zip",
        path,
        {RESULT: lambda made: made[part]["policies"].update(ev="evil:Evil")},
        lambda made: made["runs"][0].update(code={"evil": "data/1/evil.py"}),
    )
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("data/1/evil.py", EVIL.format(place=str(tmp_path / "ran")))
    done = check(path)
    assert done.returncode == 2
    assert "has code of its author's (data/1/evil.py), which would run as you" in done.stderr
    assert not (tmp_path / "ran").exists(), "the author's code was run"
    check(path, "--trust-code")
    assert (tmp_path / "ran").exists()


def test_programs_traces_and_machines_are_those_of_the_archive(
    check: Check, whole: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    out = tmp_path / "a.zip"
    for name in ("own.p4", "two.goal"):
        (tmp_path / name).write_text("\n")

    def refused(said: str, change: Change, content: Change = lambda made: None) -> None:
        forged(whole / "good.zip", out, {RESULT: change}, content)
        done = check(out)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr

    absent = "which is not in the archive; it is not repeated"
    trace = {"name": "trace", "params": {"file": str(tmp_path / "two.goal"), "iterations": 1}}
    refused(absent, lambda made: made["topology"].update(program=str(tmp_path / "own.p4")))
    refused(absent, lambda made: made["experiment"].update(workload=trace))
    groups = {**trace, "params": {"file": "x", "groups": "/dev/zero", "iterations": 1}}
    refused(
        absent,
        lambda made: made["experiment"].update(workload=groups),
        lambda made: made["runs"][0].update(data={"file": "data/1/file/x"}),
    )
    machines = {"a": {"address": "10.0.0.1", "hosts": ["*"], "switches": ["*"], "ssh": "root@elsewhere"}}
    refused("log in to machines", lambda made: made["topology"].update(machines=machines))
    # What is shown as the run's name and clock is what it is.
    refused("its result.json 'write_bw'", lambda made: None, lambda made: made["runs"][0].update(name="fine"))
    refused("its result.json 'write_bw'", lambda made: None, lambda made: made["runs"][0].update(clock="[red]real"))


def test_what_a_program_includes_from_elsewhere_is_not_in_the_archive(
    check: Check, whole: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "part.p4").write_text("\n")
    packed = tmp_path / "a.zip"
    forged(
        whole / "good.zip",
        packed,
        {RESULT: lambda made: made["topology"].update(program="own.p4")},
        lambda made: made["runs"][0].update(code={"own.p4": "code/1/own.p4"}),
    )
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("code/1/own.p4", f'#include "{tmp_path / "part.p4"}"\n')
    done = check(packed, "--trust-code")
    assert done.returncode == 2
    assert "part.p4, which is not in the archive" in done.stderr


def test_files_of_one_name_and_what_a_program_includes_are_packed(check: Check, tmp_path: pathlib.Path) -> None:
    """Two policies of one name in two folders, and a program with a part of its own."""
    base = pathlib.Path(FOLDER, "fabric.p4")
    for name in ("one", "two", "p4/part"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "one/own.py").write_text("from mrc_host.policy import EvSet\nclass One(EvSet): ...\n")
    (tmp_path / "two/own.py").write_text("from mrc_host.policy import LossDetector\nclass Two(LossDetector): ...\n")
    (tmp_path / "p4/own.p4").write_text('#include "part/part.p4"\n' + base.read_text())
    (tmp_path / "p4/part/part.p4").write_text("\n")
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nplanes: 2\nt0_per_plane: 1\nt1_per_plane: 0\nhosts: 2\nhosts_per_t0: 2\npath_mtu: 1024\n"
        "ev: {size: 8, active: 4}\nprogram: p4/own.p4\npolicies: {ev: one/own.py:One, loss: two/own.py:Two}\n"
    )
    command = [sys.executable, "-P", "-c", "from mrclab.cli.app import main; main()", "-q", "run", "write_bw"]
    words = [
        "--lab",
        str(tmp_path / "mine.yaml"),
        "--clock",
        "virtual",
        "--duration",
        "0.01",
        "-o",
        str(tmp_path / "r"),
    ]
    subprocess.run([*command, *words], check=False, stdout=subprocess.DEVNULL)
    made = artifact.pack([tmp_path / "r"], tmp_path / "a.zip")
    assert sorted(made.runs[0].code.values()) == [
        "code/1/1/own.py", "code/1/own.py", "code/1/program/own.p4", "code/1/program/part/part.p4",
    ]  # fmt: skip
    for name in ("one", "two", "p4"):
        shutil.rmtree(tmp_path / name)
    done = check(tmp_path / "a.zip", "--trust-code")
    assert "the same bytes" in " ".join(done.stdout.split()), done.stderr


# --- whose verdict ---------------------------------------------------------------------------------------------------


def test_the_verdict_is_judged_again(check: Check, whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def checked(name: str, change: Change) -> tuple[int, Any]:
        forged(whole / f"{name}.zip", tmp_path / "a.zip", {"verdict.json": change})
        done = check(tmp_path / "a.zip", "--json")
        return done.returncode, json.loads(done.stdout)["runs"][0] if done.stdout else done.stderr

    code, row = checked("bad", lambda made: None)
    assert (code, row["passed_before"], row["passed"], row["contradictions"]) == (0, False, False, [])
    code, row = checked("bad", lambda made: made.update(passed=True))
    assert (code, row["passed_before"], row["contradictions"]) == (1, False, ["passed"])
    passing = json.loads((whole / "good/verdict.json").read_text())
    code, row = checked("bad", lambda made: made.update(passing))
    assert (code, row["passed_before"]) == (1, False)
    assert {"status", "passed", "checks"} <= set(row["contradictions"])
    empty: object
    for empty in ({}, {"passed": []}, {"passed": 1}):
        code, row = checked("good", partial(given, empty))
        assert (code, row["passed_before"], row["passed"]) == (1, True, True)
        assert "passed" in row["contradictions"]
    wrong: object
    for wrong in ([], "passed", 1):
        code, row = checked("good", partial(given, wrong))
        assert code == 2
        assert "verdict.json: no results that can be read" in row


# --- how much memory -------------------------------------------------------------------------------------------------


@contextmanager
def bounded() -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST, peak


@pytest.mark.parametrize("claimed", [bombs.SIZE, 1000], ids=["honest", "a lie"])
@pytest.mark.parametrize("member", [artifact.CONTENT, f"{PLACE}/{RESULT}", f"{PLACE}/{SAMPLES}", "code/1/x.py"])
def test_a_small_archive_with_much_in_it(
    whole: pathlib.Path, tmp_path: pathlib.Path, member: str, claimed: int
) -> None:
    with zipfile.ZipFile(whole / "good.zip") as archive:
        plain = {name: archive.read(name) for name in archive.namelist() if name != member}
    path, data = tmp_path / "a.zip", bombs.deflated()
    assert len(data) < 16 << 20
    bombs.archive(path, plain, member, claimed, data)
    (tmp_path / "out").mkdir()
    with bounded(), pytest.raises(ArtifactError, match=r"a\.zip: "):
        artifact.unpack(path, tmp_path / "out")


def test_a_directory_of_gigabytes_and_other_compressions(whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.zip"
    with path.open("wb") as file:
        file.truncate(bombs.SIZE)
        file.seek(0, os.SEEK_END)
        file.write(b"PK\5\6" + b"\0" * 4 + b"\1\0" * 2 + (bombs.SIZE).to_bytes(4, "little") + b"\0" * 6)
    with bounded(), pytest.raises(ArtifactError, match="is no artifact"):
        artifact.read(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr(artifact.CONTENT, b" " * (3 << 20))
    with bounded(), pytest.raises(ArtifactError, match="compressed in a way that is not used here"):
        artifact.read(path)


def test_a_run_is_listed_once(whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    for other in (PLACE, f"{PLACE}/", f"./{PLACE}"):
        forged(
            whole / "good.zip",
            tmp_path / "a.zip",
            {},
            partial(listed_again, other),
        )
        (tmp_path / "out").mkdir(exist_ok=True)
        with pytest.raises(ArtifactError, match="the same run is in it twice"):
            artifact.unpack(tmp_path / "a.zip", tmp_path / "out")


def test_what_is_no_file_is_not_read(whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path in (pathlib.Path("/dev/zero"), tmp_path / "pipe", tmp_path / "socket", tmp_path):
            for read in (open_plain, lambda path: read_plain(path, 10)):
                with pytest.raises(UnfitFile, match="not a file"):
                    read(path)
            with pytest.raises(ArtifactError, match="not a file"):
                artifact.read(path)
            for name in (RESULT, SAMPLES, EVENTS):
                folder = tmp_path / "run"
                shutil.copytree(whole / "good", folder)
                (folder / name).unlink()
                (folder / name).symlink_to(path)
                with pytest.raises(FolderError, match=f"{name}: no results that can be read .*not a file"):
                    RunResult.load(folder)
                shutil.rmtree(folder)


def test_large_files_of_a_run_are_refused_unread(whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    def load(folder: pathlib.Path) -> None:
        result = RunResult.load(folder)
        result.readings()

    def refused(name: str, write: Callable[[pathlib.Path], object]) -> None:
        folder = tmp_path / "run"
        shutil.copytree(whole / "good", folder)
        write(folder / name)
        with bounded(), pytest.raises(FolderError, match=f"{name}: no results that can be read"):
            load(folder)
        shutil.rmtree(folder)

    refused(RESULT, lambda path: os.truncate(path, bombs.SIZE))
    refused(RESULT, lambda path: path.write_bytes(b"[" + b"{}," * 10_000_000 + b"{}]"))
    refused(EVENTS, lambda path: path.write_bytes(bombs.gzipped()))
    refused(EVENTS, lambda path: path.write_bytes(gzip.compress(b"[" * 5000)))
    for claimed in (bombs.SIZE, 1000):
        refused(SAMPLES, partial(squeezed, claimed))

    def lasting(path: pathlib.Path) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), "finished_ns": 10**18}))

    refused(RESULT, lasting)


def test_an_artifact_without_runs_shows_nothing(check: Check, whole: pathlib.Path, tmp_path: pathlib.Path) -> None:
    forged(whole / "good.zip", tmp_path / "a.zip", {}, lambda made: made["runs"].clear())
    done = check(tmp_path / "a.zip")
    assert done.returncode == 2
    assert "lists no run" in done.stderr


@pytest.mark.parametrize("read", [partial(of_any_version, list[Record]), partial(decode, list[Record])])
def test_a_long_document_looks_for_signals(read: Callable[[object, str], object]) -> None:
    with interruptible():
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(Interrupted):
            read([{"count": 1}] * 5000, "counts")


@pytest.mark.parametrize("text", [None, "[]", "null", "[" * 100_000, '{"status": 1', '{"status": "\\u001b[31mpassed"}'])
def test_a_verdict_that_is_shown_is_a_plain_file(tmp_path: pathlib.Path, text: str | None) -> None:
    if text is None:
        os.mkfifo(tmp_path / "verdict.json")
    else:
        (tmp_path / "verdict.json").write_text(text)
    assert verdict_of(tmp_path).isprintable()
