"""Tab completion: what a line may go on with, in each shell, without importing the verbs."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from mrc_cli import tab
from mrc_cli.candidates import LIVE, CommandTable, Kind, Table, candidates
from mrc_cli.completion import PARAMETERS, SCRIPTS, make_table
from mrc_common.plain import encode
from mrc_lab.records.record import LabNames

NAMES = LabNames(["h0", "h1", "h12"], ["h0:0", "h0:1", "h1:0"], ["p0-t0.0", "p0-t1.0"], ["p0-t0.0--p0-t1.0"])


@pytest.fixture(scope="module")
def table() -> Table:
    return make_table()


@pytest.fixture
def labs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Make run directories of two labs that are up."""
    base = tmp_path / "run"
    base.mkdir(mode=0o700)
    monkeypatch.setenv("MRCLAB_RUN", str(base))
    monkeypatch.delenv("MRCLAB_LAB", raising=False)
    for name, names in (("one", NAMES), ("two", LabNames(["h7"], ["h7:0"], ["p1-t0.0"], []))):
        (base / name).mkdir(mode=0o700)
        (base / name / "names.json").write_text(json.dumps(encode(names)), encoding="utf-8")
    return base


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("work", ["workshop"]),
        ("workshop ch", ["check"]),
        ("run fabr", ["fabric-links"]),
        ("run write_", ["write_bw", "write_lat"]),
        ("run --clock v", ["virtual"]),
        ("run --clock=v", ["--clock=virtual"]),
        ("run write_bw --durat", ["--duration"]),
        ("run x --duration ", []),
        ("up ti", ["tiny"]),
        ("sweep ev", ["evs-failures"]),
        ("sweep rep", ["report", "repeat"]),
        ("scale cluster-1", ["cluster-131k", "cluster-16k"]),
        ("figures 9a 9", ["9a", "9b", "9c"]),
        ("list exp", ["experiments"]),
        ("completion b", ["bash"]),
        ("workshop start 11", ["11"]),
        ("down one two", []),
        ("nonsense x", []),
        ("part", []),
    ],
)
def test_candidates_without_a_lab(table: Table, line: str, wanted: list[str]) -> None:
    words = line.split(" ")
    assert candidates(table, words[:-1], words[-1]) == wanted


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("down ", ["one", "two"]),
        ("exec h", ["h0", "h1", "h12", "h7"]),
        ("exec --lab two h", ["h7"]),
        ("exec --lab=two h", ["h7"]),
        ("fail --lab one p0-t0.0--", ["p0-t0.0--p0-t1.0"]),
        ("fail --lab one h0:", ["h0:0", "h0:1"]),
        ("logs --lab one la", ["labd"]),
        ("run incast --hosts h0,h1", ["h0,h1", "h0,h12"]),
        ("run incast --hosts h0,h1,h1", ["h0,h1,h12"]),
    ],
)
def test_candidates_of_running_labs(labs: pathlib.Path, table: Table, line: str, wanted: list[str]) -> None:
    words = line.split(" ")
    assert candidates(table, words[:-1], words[-1]) == wanted


def test_the_lab_of_the_environment(labs: pathlib.Path, table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_LAB", "two")
    assert candidates(table, ["exec"], "") == ["h7"]


def test_a_damaged_lab_hides_no_other(labs: pathlib.Path, table: Table) -> None:
    (labs / "one" / "names.json").write_text("{", encoding="utf-8")
    assert candidates(table, ["exec"], "") == ["h7"]
    (labs / "one" / "names.json").unlink()
    assert candidates(table, ["exec"], "") == ["h7"]


def test_each_named_parameter_exists(table: Table) -> None:
    """A parameter that was renamed would silently lose its names."""
    for key in PARAMETERS:
        if isinstance(key, tuple):
            assert key[0] in table.commands, key
    found = {kind for each in table.commands.values() for kind in each.arguments}
    found |= {kind for each in table.commands.values() for kind in each.options.values() if kind is not None}
    assert found == set(Kind)
    for kind in Kind:
        if kind not in LIVE and kind is not Kind.FREE:
            assert table.names[kind.value], kind


def test_the_table_is_kept_until_something_changes(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_CACHE", str(tmp_path / "cache"))
    made = Table({"": CommandTable(commands=["run"]), "run": CommandTable()}, {})
    monkeypatch.setattr("mrc_cli.completion.make_table", lambda: made)
    assert tab.table() == made
    (kept,) = (tmp_path / "cache").glob("completion-*.json")
    assert kept.stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr("mrc_cli.completion.make_table", lambda: pytest.fail("it was made again"))
    assert tab.table() == made
    kept.write_text("{}", encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match="made again"):
        tab.table()


def test_a_cache_that_others_can_write_to_is_not_read(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("MRCLAB_CACHE", str(folder))
    monkeypatch.setattr("mrc_cli.completion.make_table", lambda: Table({"": CommandTable()}, {}))
    tab.table()
    assert not list(folder.iterdir())


def test_a_keystroke_imports_no_verb(tmp_path: pathlib.Path) -> None:
    code = (
        "import sys; sys.argv = ['mrclab', '__complete', 'run', 'fabr']; from mrc_cli.entry import main; main()\n"
        "print([name for name in ('typer', 'rich', 'pydantic', 'mrc_cli.app', 'numpy') if name in sys.modules])"
    )
    environment = {**os.environ, "MRCLAB_CACHE": str(tmp_path / "cache")}
    for _ in range(2):  # the first one makes the table
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.splitlines() == ["fabric-links", "[]"]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Make a folder with a command `mrclab` that asks this interpreter."""
    folder = tmp_path_factory.mktemp("bin")
    (folder / "mrclab").write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'from mrc_cli.entry import main; main()' \"$@\"\n", encoding="utf-8"
    )
    (folder / "mrclab").chmod(0o755)
    return folder


def shell(command: pathlib.Path, name: str, text: str) -> list[str]:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no {name}")
    environment = {**os.environ, "PATH": f"{command}:{os.environ['PATH']}"}
    flags = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[name]
    done = subprocess.run(
        [found, *flags, "-c", text], capture_output=True, text=True, check=True, env=environment, timeout=120
    )
    assert not done.stderr, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("mrclab run fabr", ["fabric-links"]),
        ("mrclab up ", ["tiny"]),
        ("mrclab fail --lab one h0:", ["0", "1"]),
        ("mrclab run --clock=v", ["virtual"]),
        ("mrclab run nonsense-", []),
    ],
)
def test_bash(command: pathlib.Path, labs: pathlib.Path, line: str, wanted: list[str]) -> None:
    text = (
        f'{SCRIPTS["bash"]}\nCOMP_LINE=\'{line}\'; COMP_POINT={len(line)}; _mrclab\nprintf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    found = shell(command, "bash", text)
    assert found == wanted or (line.endswith("up ") and set(wanted) <= set(found))


def test_fish(command: pathlib.Path, labs: pathlib.Path) -> None:
    assert shell(command, "fish", f"{SCRIPTS['fish']}\ncomplete -C 'mrclab run fabr'") == ["fabric-links"]


def test_zsh_parses_the_script(command: pathlib.Path) -> None:
    """A completion of zsh runs in its line editor only; here its words are asked as the script asks."""
    text = (
        f"compdef() {{ :; }}\ncompadd() {{ print -l ${{(P)2}}; }}\n_files() {{ print files; }}\n{SCRIPTS['zsh']}\n"
        "words=(mrclab run fabr); CURRENT=3; _mrclab"
    )
    assert shell(command, "zsh", text) == ["fabric-links"]
