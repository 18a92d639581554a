"""Files of other users: a plain name means what comes with the project, and code that others can change is not run."""

from __future__ import annotations

import json
import os
import pathlib
import py_compile
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import p4lite.files
from mrc_host.policy import load_class
from mrc_topo.base import files
from mrc_topo.labfile import LabError, builtin_labs, lab_path, load_lab
from mrclab.cli.app import main
from mrclab.lab import policies
from mrclab.lab.policies import PolicyRefused
from mrclab.lab.records import rundir
from mrclab.lab.records.capture_tail import CaptureTail
from mrclab.lab.records.record import LabFolder
from mrclab.lab.records.rundir import RunError
from mrclab.lab.requested import LabRequest
from mrclab.lab.switches.program import OwnProgramError, program_of
from mrclab.results.reading import FolderError
from mrclab.results.resultdir import prepared
from mrclab.runs.compare import known_comparisons, load_comparison
from mrclab.runs.experiment import ExperimentError, find_file, known_experiments, load_experiment
from mrclab.runs.sessions import session_for
from mrclab.studies.sweeps import plan, work
from mrclab.studies.sweeps.spec import known_sweeps, load_sweep
from support.lab import users
from support.lab.users import NOBODY

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs a second user, as whom only root can act")

EVIL = """\
import os, pathlib
pathlib.Path({place!r}).write_text(str(os.getuid()))
class Evil: ...
"""
LAB = (
    "name: tiny\nplanes: 2\nt0_per_plane: 1\nt1_per_plane: 0\nhosts: 2\nhosts_per_t0: 2\npath_mtu: 1024\n"
    "ev: {size: 8, active: 4}\n"
)
EXPERIMENT = """\
name: fabric-links
title: T
lab: tiny
workload: {name: write_bw, params: {message_bytes: 4096}, duration: 0.01}
"""
POLICY = "policies: {ev: evil.py:Evil}\n"


@pytest.fixture
def shared() -> Iterator[pathlib.Path]:
    """Yield a folder with mode 1777 below /tmp, as two users of a machine have one."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="mrc", dir="/tmp"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def _plant(shared: pathlib.Path, name: str, text: str, uid: int = NOBODY) -> pathlib.Path:
    path = shared / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    for each in (path, path.parent) if path.parent != shared else (path,):
        os.chown(each, uid, uid)
    return path


def test_a_plain_name_is_never_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("tiny", "loss-messages"):
        (tmp_path / name).write_text("nonsense")
    for name, file in (
        ("fabric-links", "experiment.yaml"),
        ("mrc-vs-tcp", "compare.yaml"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / file).write_text("nonsense")
    assert lab_path("tiny") == builtin_labs()["tiny"]
    assert load_experiment("fabric-links").name == "fabric-links"
    assert find_file("mrc-vs-tcp", known_comparisons(), "compare.yaml", "comparison").is_absolute()
    assert load_comparison("mrc-vs-tcp").name == "mrc-vs-tcp"
    assert load_sweep("loss-messages").sweep.name
    for path in ("./tiny", str(tmp_path / "tiny")):
        assert lab_path(path) == pathlib.Path(path)


def test_a_file_that_is_named_without_its_path_is_told_how(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text(LAB)
    (tmp_path / "mine.yaml").write_text(LAB)
    said = r"mine: no {} of that name; known: .*; a file is given by its path: \./mine"
    with pytest.raises(LabError, match=said.format("lab")):
        load_lab("mine")
    for known, file, what in (
        (known_experiments(), "experiment.yaml", "experiment"),
        (known_comparisons(), "compare.yaml", "comparison"),
        (known_sweeps(), "sweep.yaml", "sweep"),
    ):
        with pytest.raises(ExperimentError, match=said.format(what)):
            find_file("mine", known, file, what)
    assert load_lab("mine.yaml").lab.name == load_lab("./mine").lab.name == "tiny"
    with pytest.raises(LabError, match=r"gone\.yaml: no such lab file"):
        load_lab("gone.yaml")


def test_code_is_found_wherever_a_document_names_it() -> None:
    for code in (
        {"policies": {"ev": "evil.py:Evil"}},
        {"variants": [{"lab": {"program": "evil.p4"}}]},
        {"set": {"lab.policies.ev": "evil.py:Evil"}},
        {"grid": {"experiment.policies.ev": ["evil.py:Evil"]}},
    ):
        assert rundir.names_code(code), code
    data: dict[str, Any]
    for data in ({"policies": {}}, {"program": None}, {"lab": "policies"}, {"lab": {"planes": 2}}):
        assert not rundir.names_code(data), data


@as_root
@pytest.mark.root
@pytest.mark.parametrize("words", [["run", "fabric-links"], ["run", "write_bw", "--lab", "tiny", "--duration", "0.01"]])
def test_root_runs_nothing_that_another_user_left_in_the_working_directory(
    shared: pathlib.Path, words: list[str]
) -> None:
    """The attack of the finding, typed as it was."""
    place = shared / "ran"
    _plant(shared, "evil.py", EVIL.format(place=str(place)))
    _plant(shared, "fabric-links/evil.py", EVIL.format(place=str(place)))
    _plant(shared, "fabric-links/experiment.yaml", EXPERIMENT + POLICY)
    for name in ("tiny", "default"):
        _plant(shared, name, LAB + POLICY)
    own = pathlib.Path(tempfile.mkdtemp(prefix="mrc"))
    try:
        command = [*users.MRCLAB, *words, "--clock", "virtual", "-o", str(own / "r")]
        started = subprocess.Popen(command, cwd=shared, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            # An experiment of the project takes longer than it takes to read and run what is not to be read.
            output = "".join(started.communicate(timeout=10))
        except subprocess.TimeoutExpired:
            started.kill()
            output = "".join(started.communicate())
    finally:
        shutil.rmtree(own)
    assert not place.exists(), f"another user's code was run as {place.read_text()}: {output}"
    assert "evil" not in output, output
    assert started.returncode in (0, -9), output


@as_root
@pytest.mark.root
@pytest.mark.parametrize("clock", ["virtual", "real"])
def test_policies_of_another_user_are_refused(
    shared: pathlib.Path, clock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "is_machine_root", lambda: False)
    place = shared / "ran"
    evil = _plant(shared, "evil.py", EVIL.format(place=str(place)))
    lab = _plant(shared, "lab.yaml", LAB + POLICY, uid=0)
    match = f"policies.ev: .*evil.py: belongs to user {NOBODY}" if clock == "virtual" else "policies.ev: .*others can"
    with (
        pytest.raises(PolicyRefused, match=match),
        session_for(LabRequest.of(str(lab), trust_code=True, clock=clock)),
    ):
        pass
    # The file is ours, and others can write to it; then the lab is theirs; then the folder above is.
    os.chown(evil, 0, 0)
    evil.chmod(0o666)
    with (
        pytest.raises(PolicyRefused, match="others can"),
        session_for(LabRequest.of(str(lab), trust_code=True, clock=clock)),
    ):
        pass
    evil.chmod(0o600)
    os.chown(lab, NOBODY, NOBODY)
    with pytest.raises(PolicyRefused, match=r"lab\.yaml: belongs to user"):
        policies.check_lab_file(str(lab), load_lab(lab))
    os.chown(lab, 0, 0)
    shared.chmod(0o777)
    with pytest.raises(PolicyRefused, match=f"others can write to .*{shared.name}"):
        policies.check(load_lab(lab), clock, "mrc", trust_code=True)
    assert not place.exists()


@as_root
@pytest.mark.root
def test_experiments_comparisons_and_sweeps_of_another_user_name_no_code(shared: pathlib.Path) -> None:
    _plant(shared, "evil.py", EVIL.format(place=str(shared / "ran")), uid=0)
    path = _plant(shared, "e.yaml", EXPERIMENT + POLICY)
    with pytest.raises(ExperimentError, match=f"e.yaml: belongs to user {NOBODY}.*security.md"):
        load_experiment(str(path))
    harmless = _plant(shared, "h.yaml", EXPERIMENT)
    assert load_experiment(str(harmless)).name == "fabric-links", "data of another user may be read"
    sweep = _plant(
        shared,
        "s.yaml",
        "name: s\ntitle: S\nlab: tiny\nexperiment:\n  workload: {name: write_bw, duration: 0.01}\n"
        "set: {lab.policies.ev: evil.py:Evil}\ngrid: {lab.ev.size: [8]}\n",
    )
    with pytest.raises(ExperimentError, match=f"s.yaml: belongs to user {NOBODY}"):
        load_sweep(str(sweep))
    made = {"format": plan.FORMAT, "sweep": yaml.safe_load(sweep.read_text()), "software": ""}
    _plant(shared, f"folder/{work.PLAN}", json.dumps(made))
    with pytest.raises(ExperimentError, match=f"{work.PLAN}: .*belongs to user {NOBODY}"):
        work.load_plan(shared / "folder")


@as_root
@pytest.mark.root
def test_programs_of_another_user_are_refused_and_so_is_what_they_include(shared: pathlib.Path) -> None:
    lab = _plant(shared, "lab.yaml", LAB + "program: own.p4\n", uid=0)
    program = _plant(shared, "own.p4", '#include "part.p4"\n', uid=0)
    part = _plant(shared, "part.p4", "\n")
    with pytest.raises(OwnProgramError, match=f"part.p4: belongs to user {NOBODY}"):
        program_of(load_lab(lab))
    os.chown(part, 0, 0)
    os.chown(program, NOBODY, NOBODY)
    with pytest.raises(OwnProgramError, match=f"own.p4: belongs to user {NOBODY}"):
        program_of(load_lab(lab))
    os.chown(program, 0, 0)
    with pytest.raises(OwnProgramError) as ours:
        program_of(load_lab(lab))
    assert "belongs" not in str(ours.value), "the compiler's own words about an empty program"


@as_root
@pytest.mark.root
def test_an_ordinary_user_may_run_what_root_installed(shared: pathlib.Path) -> None:
    (shared / "own.py").write_text("class Own: ...\n")
    command = users.as_user(NOBODY, "test", "-r", __file__)
    if subprocess.run(command, check=False).returncode:
        pytest.skip(f"the checkout is in a folder that another user cannot read: chmod o+x above {__file__}")
    code = (
        "import os, sys, pathlib; os.setuid(65534)\n"
        "from mrclab.lab.records import rundir; rundir.check(pathlib.Path(sys.argv[1]))"
    )
    command = [users.MRCLAB[0], "-P", "-c", code, str(shared / "own.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_compiled_code_beside_a_policy_is_not_run(tmp_path: pathlib.Path) -> None:
    """In a folder such as /tmp another user can make `__pycache__`, with any code for the file's time and size."""
    file, other = tmp_path / "own.py", tmp_path / "other.py"
    other.write_text("class Own:\n    who = 'evil'\n")
    file.write_text("class Own:\n    who = 'mine'\n")
    for each in (file, other):
        os.utime(each, (1e9, 1e9))
    cached = py_compile.compile(str(other))
    assert cached is not None
    pathlib.Path(cached).rename(cached.replace("other", "own"))
    assert load_class(f"{file}:Own").__dict__["who"] == "mine"


def test_a_command_says_how_a_file_is_named(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").write_text(EXPERIMENT)
    monkeypatch.setattr("sys.argv", ["mrclab", "run", "mine"])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert "./mine" in said, said
    assert "workloads: " in said, said


@pytest.mark.parametrize("module", [files, p4lite.files])
def test_a_link_that_replaces_a_folder_at_the_last_moment_leads_nowhere(
    module: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen, victim = tmp_path / "chosen", tmp_path / "victim"
    for folder in (chosen, victim):
        (folder / "deep").mkdir(parents=True)
    find = os.path.realpath

    def swap(path: str) -> str:
        """Let another user be faster than the writer, between its look at the path and its opening of the folder."""
        real = find(path)
        chosen.rename(tmp_path / "gone")
        chosen.symlink_to(victim)
        return real

    monkeypatch.setattr(os.path, "realpath", swap)
    with pytest.raises(OSError, match="Not a directory"):
        module.write_whole(chosen / "deep" / "file", "text")
    assert list(tmp_path.rglob("file")) == []


@as_root
def test_another_users_link_chooses_no_file_of_ours(shared: pathlib.Path, tmp_path: pathlib.Path) -> None:
    ours = tmp_path / "ours"
    ours.mkdir()
    (ours / "file").write_text("before")
    for name, target in (("folder", ours), ("file", ours / "file"), ("new", ours / "new")):
        (shared / name).symlink_to(target)
        os.chown(shared / name, NOBODY, NOBODY, follow_symlinks=False)
    for write in (files.write_whole, p4lite.files.write_whole):
        for name in ("folder/file", "folder/new", "file", "new"):
            with pytest.raises(OSError, match=f"link of user {NOBODY}'s; name a place without it"):
                write(shared / name, "after")
    with pytest.raises(FolderError, match=r"no folder for results: .* is a link"), prepared(shared / "folder" / "x", 0):
        pass
    assert {path.name: path.read_text() for path in ours.iterdir()} == {"file": "before"}
    with pytest.raises(RunError, match="is a link of user"):
        CaptureTail(LabFolder(tmp_path), shared / "file")
    # Our own links, and root's, are followed as before.
    (shared / "mine").symlink_to(ours / "file")
    files.write_whole(shared / "mine", "after")
    assert (ours / "file").read_text() == "after"


def test_a_pipe_that_nothing_reads_is_refused(tmp_path: pathlib.Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for write in (files.write_whole, p4lite.files.write_whole):
        with pytest.raises(OSError, match="No such device or address"):
            write(tmp_path / "pipe", "x")
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        write(tmp_path / "pipe", "text")
        assert os.read(reader, 99) == b"text"
        os.close(reader)
