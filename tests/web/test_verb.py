"""What `mrclab web` cannot show it refuses in one line, before there is an address to open."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest

from mrc_topo.labfile import load_lab
from mrclab.cli import livepage
from mrclab.cli.app import main
from mrclab.lab.records.rundir import RunDir
from mrclab.web import assets
from mrclab.web.state import layout_of

BROKEN = "schedule:\n- at: 0.5\n  fail: nothing-of-that-name\n  evidence: {dropped: 1}\n"


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change to a folder with things that are no runs; the page's libraries count as installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "labs"))
    monkeypatch.setattr(assets, "missing", list)
    for folder in ("empty", "many/one", "many/two", "broken"):
        pathlib.Path(folder).mkdir(parents=True)
    for path in ("many/one/result.json", "many/two/result.json"):
        pathlib.Path(path).write_text("{}")
    pathlib.Path("broken/result.json").write_text("{")
    pathlib.Path("mine.yaml").write_text(
        "name: mine\ntitle: mine\nlab: tiny\nworkload: {name: ring_all_reduce, duration: 1}\n" + BROKEN
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("empty", r"empty: no recorded run: it has no result\.json; `mrclab run NAME -o FOLDER` records one"),
        ("many", r"many: no recorded run: it has no result\.json; there are some in it: one, two"),
        ("broken", r"broken/result\.json: no results that can be read"),
        ("broken/result.json", r"broken/result\.json: no results that can be read"),
        ("many/one --lab tiny", "many/one is a recorded run: its lab and clock are its own; leave out --lab"),
        ("nothing", "nothing"),
        ("mine.yaml", "nothing in lab tiny is called 'nothing-of-that-name'"),
        ("mine.yaml --clock real", "an experiment is shown with --clock virtual"),
        ("--clock virtual --lab nolab", "nolab"),
        ("", "no lab is up: `mrclab up` brings one up; `mrclab web --clock virtual` simulates one"),
        ("--clock real --lab tiny", "lab 'tiny' is not up; none is; .* `mrclab web --clock virtual --lab tiny`"),
        ("--clock real --speed 2", "a lab on the real clock has no speed"),
        ("--clock real --paused", "a lab on the real clock has no speed and does not pause"),
        ("--clock sideways", "clock is real or virtual, not 'sideways'"),
        ("--clock virtual --port 99999", "less than or equal to 65535"),
    ],
)
def test_what_cannot_be_shown_gets_no_address(
    words: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["mrclab", "web", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    printed = capsys.readouterr()
    assert ended.value.code == 2, printed.err
    assert re.search(said, " ".join(printed.err.split())), printed.err
    assert "live view:" not in printed.out + printed.err


def test_address_is_one_line_on_standard_output_while_the_page_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that starts the view reads the address from a pipe, to which Python writes whole blocks."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        with livepage.page(port=0) as made:
            os.set_blocking(reader, False)
            with pytest.raises(BlockingIOError):
                os.read(reader, 4096)
            for _ in range(2):
                made.hub.show(
                    layout_of(load_lab("tiny"), "simulation", clock="virtual", transport="mrc", began_ns=0, can=[])
                )
            told = os.read(reader, 4096).decode()
    os.close(reader)
    assert re.fullmatch(r"live view: http://127\.0\.0\.1:[0-9]+/\S*\n", told), told


@pytest.mark.parametrize("words", ["web --clock virtual --lab tiny --port 0", "demo --web --clock virtual"])
def test_a_lab_that_does_not_come_up_gets_no_address(words: str, tmp_path: pathlib.Path) -> None:
    """The folder of compiled switches is refused, because others can write to it."""
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(0o777)
    code = "from mrclab.web import assets; assets.missing = list; from mrclab.cli.app import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()],
        env={**os.environ, "MRCLAB_CACHE": str(cache)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 1, done.stderr
    assert "others can write to it" in done.stderr
    assert "Traceback" not in done.stderr
    assert "live view:" not in done.stdout + done.stderr


def test_another_lab_than_those_that_are_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    RunDir("tiny").create()
    monkeypatch.setattr(sys, "argv", ["mrclab", "web", "--lab", "spray"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "lab 'spray' is not up; those that are up: tiny;" in capsys.readouterr().err


def test_what_is_missing_is_said_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(assets, "missing", lambda: ["uplot"])
    for words in ("web empty", "up tiny --web"):
        monkeypatch.setattr(sys, "argv", ["mrclab", *words.split()])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        assert "the live view needs uplot, which this checkout has not: `make web-assets`" in capsys.readouterr().err
