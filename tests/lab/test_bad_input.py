"""Bad input to the mrclab command: exit code 2 and one printable line, before a lab is built or a folder made."""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
import yaml

from mrclab.cli import app as cli
from mrclab.results import resultdir
from mrclab.results.reading import FolderError
from p4lite.switch.errors import BuildError
from p4lite.switch.native import build

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Run the command in this process, in an empty folder, where nothing may be started: code, output, errors."""

    def built(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("a lab was built")

    for place in (
        "mrclab.runs.sessions.session_for",
        "mrclab.runs.compare.session_for",
        "mrclab.lab.lifecycle.up",
    ):
        monkeypatch.setattr(place, built)
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def go(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mrclab", *words])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        out, err = capsys.readouterr()
        return int(caught.value.code or 0), out, err

    return go


def refused(call: Call, *words: str, hint: str) -> None:
    code, out, err = call(*words)
    assert code == 2, (out, err)
    lines = err.strip("\n").split("\n")
    assert len(lines) == 1, err
    assert lines[0].startswith(("mrclab: error: ", "mrclab topo: error: "))
    assert hint in lines[0]
    assert lines[0].isprintable()
    assert len(lines[0]) < 800
    assert not any(each.startswith("results") for each in os.listdir())


RUN = ["run", "write_bw", "--lab", "tiny", "--clock", "virtual"]
HUGE = "9" * 5001
OPTIONS = [
    (["--duration", "nan"], "--duration: input should be a finite number"),
    (["--duration", "inf"], "--duration"),
    (["--duration", "1e400"], "--duration"),
    (["--duration", "-1"], "--duration: input should be greater than 0, not -1.0"),
    (["--duration", "0"], "--duration: input should be greater than 0"),
    (["--duration", "1e9"], "--duration: input should be less than or equal to 1000000"),
    (["--duration", "soon"], "--duration"),
    (["--qps", "0"], "--qps: input should be greater than or equal to 1, not 0"),
    (["--qps", "-3"], "--qps"),
    (["--qps", "65"], "--qps: input should be less than or equal to 64"),
    (["--qps", HUGE], "--qps"),
    (["--transport", "../x"], "--transport: input should be 'mrc' or 'roce', not '../x'"),
    (["--transport", ""], "--transport"),
    (["--clock", "slow"], "clock is real or virtual"),
    (["--hosts", "h0,h9"], "no host 'h9' in lab 'tiny'; it has: h0, h1"),
    (["--hosts", "h0,h0"], "--hosts: host 'h0' is named twice"),
    (["--hosts", ""], "no host ''"),
    (["--hosts", "h2"], "no stream can go from rank 0 to rank 1 among 1 ranks"),
    (["--set", "message_bytes=0"], "message_bytes must be a whole number of at least 1"),
    (["--set", "message_bytes=-4"], "--set: workload write_bw: message_bytes must be a whole number of at least 0"),
    (["--set", "message_bytes=1e400"], "finite number"),
    (["--set", "message_bytes=nan"], "finite number"),
    (["--set", f"message_bytes={HUGE}"], "finite number"),
    (["--set", "message_bytes=true"], "message_bytes must be a whole number"),
    (["--set", "message_bytes=1.5"], "message_bytes must be a whole number"),
    (["--set", "message_bytes=9999999999"], "bytes of memory at every rank are more than"),
    (["--set", "iterations=0"], "iterations must be a whole number of at least 1"),
    (["--set", "window=1000"], "window must be a whole number from 1 to 128"),
    (["--set", "source=4"], "from rank 4 to rank 1 among 4 ranks"),
    (["--set", "speed=3"], "no parameter 'speed'; known: "),
    (["--set", "speed"], "name=value"),
    (["--set", "a=1", "--set", "a=1"], "--set a is given twice"),
    (["--set", "\x1b[31m=\x07"], "finite number"),
    (["--lab", "../" * 2000], "--lab: string should have at most 4096 characters"),
    (["--lab", ""], "--lab: string should have at least 1 character"),
    (["--lab", "/dev/zero"], "a device, not a file"),
    (["--lab", "\x1b[2J"], "no lab of that name"),
    (["--xyz"], "No such option: --xyz; see mrclab run --help"),
    (["-o", "/proc/none"], "/proc/none: no folder for results: No such file or directory; choose another with -o"),
    (["-o", "/dev/null"], "/dev/null: no folder for results: it is a file"),
    (["-o", "/dev/null/x"], "Not a directory"),
    (["-o", "x" * 5000], "File name too long"),
    (["-o", "/proc/\x1b[31m"], "\\x1b[31m"),
]


@pytest.mark.parametrize(("words", "hint"), OPTIONS, ids=lambda value: str(value)[:60])
def test_run_refuses_a_bad_option_with_exit_code_2(words: list[str], hint: str, call: Call) -> None:
    refused(call, *RUN, *words, hint=hint)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", "--patience", "3"], "option --patience was renamed; write --collective-timeout instead; see mrclab"),
        (["run", "nothing"], "no experiment of that name"),
        (["run", "x" * 5000], "no experiment of that name"),
        (["run", "\x1b]0;title\x07"], "no experiment of that name"),
        (["run", "/dev/zero"], "a device, not a file"),
        (["run", "demo", "--duration", "3"], "--duration: 3 s end before all of the schedule has happened"),
        (["run", "demo", "--qps", "3"], "--qps is for workloads"),
        (["compare", "nothing"], "no comparison of that name"),
        (["compare", "/dev/zero"], "a device, not a file"),
        (["demo", "--clock", "x"], "clock is real or virtual"),
        (["topo", "show", "/dev/zero"], "a device, not a file"),
        (["topo", "plan", "--radix", HUGE], "--radix"),
        (["topo", "plan", "--radix", "-4"], "radix"),
        (["topo", "draw", "tiny", "-o", "/dev/null/x"], "cannot be written: Not a directory"),
        (["capture", "h0:0", "--duration", "nan"], "--duration is a number of seconds"),
        (["capture", "h0:0", "--duration", "-1"], "--duration is a number of seconds"),
        (["fail", "h0:0", "--set", "loss=nan"], "no lab is up"),
        (["down", "../x"], "not a lab name"),
        (["down", "\x1b[31m"], "not a lab name"),
        (["no-such-verb"], "No such command 'no-such-verb'; see mrclab --help"),
        (["run"], "Missing argument 'name'; see mrclab run --help"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_verb_refuses_a_bad_argument_with_exit_code_2(words: list[str], hint: str, call: Call) -> None:
    refused(call, *words, hint=hint)


GOOD: dict[str, Any] = {
    "name": "fine",
    "title": "It is fine",
    "lab": "tiny",
    "workload": {"name": "write_bw", "params": {"iterations": 2}},
}
#: What a file says, the line, and words that the error must have.
FILES = [
    ("name: ../../x\ntitle: t\nworkload: {name: write_bw}\n", 1, "name: use letters, digits"),
    ("name: ..\ntitle: t\nworkload: {name: write_bw}\n", 1, "name: use letters, digits"),
    (f"name: {'x' * 5000}\ntitle: t\nworkload: {{name: write_bw}}\n", 1, "at most 64 characters"),
    ('name: "a\\e[31mb"\ntitle: t\nworkload: {name: write_bw}\n', 1, "name: the character U+001B"),
    ('name: "a\\0b"\ntitle: t\nworkload: {name: write_bw}\n', 1, "name: the character U+0000"),
    ('name: a\ntitle: "\\e]0;x\\a"\nworkload: {name: write_bw}\n', 2, "title: the character U+001B"),
    ("name: a\ntitle: t\nname: b\nworkload: {name: write_bw}\n", 3, "name: given twice"),
    ("name: a\ntitle: t\nworkload:\n  name: write_bw\n  duration: .inf\n", 5, "workload.duration: a finite number"),
    ("name: a\ntitle: t\nworkload:\n  name: write_bw\n  duration: .nan\n", 5, "workload.duration: a finite number"),
    (
        "name: a\ntitle: t\nworkload:\n  name: write_bw\n  duration: 0\n",
        5,
        "workload.duration: input should be gr",
    ),
    ("name: a\ntitle: t\nworkload:\n  name: write_bw\n  limit: -1\n", 5, "workload.limit"),
    ("name: a\ntitle: t\nworkload:\n  name: write_bw\n  hosts: [h0, h0]\n", 5, "host 'h0' is named twice"),
    ("name: a\ntitle: t\nworkload:\n  name: write_bw\n  hosts: []\n", 5, "workload.hosts"),
    ("name: a\ntitle: t\nworkload:\n  name: write_fast\n", 4, "workload.name: no workload 'write_fast'; known: all_"),
    ("name: a\ntitle: t\nworkload: {name: ring_all_reduce, params: {size_bytes: true}}\n", 3, "size_bytes must be"),
    ("name: a\ntitle: t\nworkload: {name: ring_all_reduce, params: {size_bytes: 1.0e+400}}\n", 3, "a finite number"),
    ("name: a\ntitle: t\nworkload: {name: ring_all_reduce, params: {size_bytes: 1e400}}\n", 3, "size_bytes must be"),
    (f"name: a\ntitle: t\nworkload: {{name: ring_all_reduce, params: {{size_bytes: {HUGE}}}}}\n", 3, "5001 digits"),
    ("name: a\ntitle: t\nworkload: {name: write_bw}\nschedule: " + "[" * 20_000, 4, "nested deeper than 32"),
    ("name: a\ntitle: t\nworkload: {name: write_bw}\nschedule:\n- {at: -1, fail: h0:0}\n", 5, "schedule.0.at"),
    ("name: a\ntitle: t\nworkload: {name: write_bw}\nschedule:\n- {at: 1}\n", 5, "schedule.0: a step has exactly one"),
    ("name: a\ntitle: t\nworkload: {name: write_bw}\nschedule:\n- {at: true, fail: h0:0}\n", 5, "true is not a value"),
    ("- name: a\n", 1, "an experiment is a mapping with name"),
    ("", 1, "an experiment is a mapping with name"),
]


@pytest.mark.parametrize(("text", "line", "hint"), FILES, ids=lambda value: str(value)[:70])
def test_experiment_files(text: str, line: int, hint: str, call: Call) -> None:
    pathlib.Path("e.yaml").write_text(text)
    refused(call, "run", "e.yaml", hint=hint)
    _, _, err = call("run", "e.yaml")
    assert f"e.yaml:{line}: " in err


#: Changes to a good experiment that only the lab makes bad.
SHOWN = {"dropped": 1}
UNFIT = [
    ({"workload": {"name": "write_bw", "hosts": ["h0", "h4"]}}, "workload.hosts: no host 'h4' in lab 'tiny'"),
    ({"workload": {"name": "ring_all_reduce", "params": {"size_bytes": 0}}}, "positive multiple of 4"),
    ({"workload": {"name": "ring_all_reduce", "params": {"size_bytes": 1 << 35}}}, "bytes of memory at every rank"),
    ({"workload": {"name": "write_bw", "ev_profile": "none"}}, "no ev profile 'none'; known: "),
    ({"workload": {"name": "write_bw", "cc_profile": "none"}}, "no cc profile 'none'"),
    ({"workload": {"name": "write_bw", "cc_profile": "x"}, "transport": "roce"}, "profiles are of MRC"),
    ({"profiles": [{"kind": "ev", "name": "few", "settings": {"active": -4}}]}, "profiles.0: "),
    ({"profiles": [{"kind": "ev", "name": "few", "settings": {"speed": 4}}]}, "profiles.0: "),
    ({"profiles": [{"kind": "cc", "name": "default"}]}, "cc profile 'default' exists"),
    ({"schedule": [{"at": 1, "fail": "h9:0", "evidence": SHOWN}]}, "h9:0"),
    ({"schedule": [{"at": 1, "fail": "h0:0", "kind": "melt", "evidence": SHOWN}]}, "melt"),
    ({"lab": "nowhere"}, "no lab of that name"),
    ({"lab": "/dev/zero"}, "a device, not a file"),
    ({"lab": "x" * 4000}, "no lab of that name"),
]


@pytest.mark.parametrize(("change", "hint"), UNFIT, ids=lambda value: str(value)[:70])
def test_experiments_that_the_lab_does_not_fit(change: dict[str, Any], hint: str, call: Call) -> None:
    pathlib.Path("e.yaml").write_text(yaml.safe_dump(GOOD | change))
    refused(call, "run", "e.yaml", hint=hint)


def test_the_good_one_gets_as_far_as_the_lab(call: Call) -> None:
    pathlib.Path("e.yaml").write_text(yaml.safe_dump(GOOD))
    with pytest.raises(AssertionError, match="a lab was built"):
        call("run", "e.yaml")
    assert os.listdir() == ["e.yaml"]


def test_a_comparison_whose_workload_the_lab_does_not_fit(call: Call) -> None:
    document = {
        "name": "c",
        "title": "t",
        "workload": {"name": "ring_all_reduce", "params": {"size_bytes": 10}},
        "variants": [{"name": "mrc"}],
        "conditions": [{"name": "clean"}],
    }
    pathlib.Path("c.yaml").write_text(yaml.safe_dump(document))
    refused(call, "compare", "c.yaml", hint="comparison c: mrc: workload ring_all_reduce: size_bytes")


def test_memory_that_the_machine_has_not(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 1 << 20}))
    refused(call, *RUN, "--set", "message_bytes=1000000", hint="for 4 hosts' regions, this machine has 1 MiB free")


def test_results_need_room_and_permission(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    pathlib.Path("there").mkdir()
    real = os.statvfs(".")
    small = os.statvfs_result((*tuple(real)[:4], (1 << 20) // real.f_frsize, *tuple(real)[5:]))
    monkeypatch.setattr(os, "statvfs", lambda path: small)
    hint = "too little room for the results: 1 MiB free, up to "
    refused(call, *RUN, "-o", "there", hint=hint)
    refused(call, *RUN, "--duration", "1000", "-o", "new/one", hint=hint)
    assert os.listdir() == ["there"]
    assert os.listdir("there") == []
    monkeypatch.undo()


def test_a_folder_that_others_own(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with (
        pytest.raises(FolderError, match="no folder for results: Permission denied; choose another with -o"),
        resultdir.prepared(tmp_path / "x", 0),
    ):
        pass
    assert not (tmp_path / "x").exists()


def test_two_runs_in_a_second_do_not_share_a_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.strftime", lambda *_: "now")
    names = []
    for _ in range(3):
        folder = resultdir.default_folder("e", "virtual")
        folder.mkdir(parents=True)
        names.append(folder.name)
    assert names == ["e-virtual-now", "e-virtual-now-2", "e-virtual-now-3"]


def test_a_compiler_that_no_shell_understands_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", '"')
    with pytest.raises(BuildError, match=r'CC=": no command .*; set CC=gcc'):
        build.compiler()
