"""Standard output that is full or closed, and files that are devices or no text."""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys

import pytest

from p4lite.cli import main
from support.p4.tools import saved

COMMAND = f"{shlex.quote(sys.executable)} -c 'import sys; from p4lite.cli import main; sys.exit(main())'"
PRINTING = (
    "trace router.p4 --packet 00",
    "trace router.p4 --packet 00 --json",
    "coverage router.p4 --packets 00",
    "diff router.p4 router.p4 --packets 3",
    "format router.p4",
    "--help",
    "compile --help",
)


@pytest.fixture(autouse=True)
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "router.p4").write_text(saved("router.p4"), encoding="utf-8")
    return tmp_path


def shell(words: str, redirection: str, unbuffered: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        f"{COMMAND} {words} {redirection}",
        shell=True,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", PRINTING)
def test_a_full_disk_is_told_in_one_line(words: str, unbuffered: str) -> None:
    done = shell(words, "> /dev/full", unbuffered)
    assert done.stderr == "p4lite: error: cannot write to standard output: No space left on device\n"
    assert done.returncode == 1


@pytest.mark.parametrize("words", PRINTING)
def test_a_closed_output_is_as_if_nobody_read_it(words: str) -> None:
    done = shell(words, ">&-")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_is_printed_to_a_closed_output_goes_into_no_file(folder: pathlib.Path) -> None:
    done = shell("coverage router.p4 --packets 00 --lcov router.lcov", ">&- 2>&- <&-")
    assert done.returncode == 0
    assert (folder / "router.lcov").read_text().startswith("TN:\nSF:")
    assert "lines " not in (folder / "router.lcov").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compile /dev/zero", "/dev/zero: error: is a device; give a P4 source file"),
        ("format --write /dev/full", "/dev/full: error: is a device; give a P4 source file"),
        ("coverage router.p4 --data /dev/zero", "p4lite coverage: /dev/zero: cannot read: it is a device; give a file"),
        ("coverage router.p4 --stf .", "p4lite coverage: .: cannot read: Is a directory"),
        ("trace router.p4 --packet /dev/zero", "p4lite trace: /dev/zero: cannot read: it is a device; give a file"),
        ("trace router.p4 --entries . --packet 00", "p4lite trace: .: cannot read: Is a directory"),
        ("trace router.p4 --entries data --packet 00", "cannot read: it is not UTF-8 text (byte 0xff at offset 2)"),
        ("debug router.p4 --script none", "p4lite debug: --script none: cannot read: No such file or directory"),
        ("stf router.p4 .", "p4lite stf: unsupported: .: cannot read: Is a directory"),
    ],
)
def test_what_cannot_be_read_is_refused(words: str, said: str, folder: pathlib.Path) -> None:
    (folder / "data").write_bytes(b"ab\xff")
    done = shell(words, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert done.returncode in (1, 2)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("trace router.p4 --packet 00 --port -1", "argument --port: '-1': give a whole number from 0 to 510"),
        ("trace router.p4 --packet 00 --port 511", "argument --port: '511': give a whole number from 0 to 510"),
        ("coverage router.p4 --packets 00 --port x", "argument --port: 'x': give a whole number from 0 to 510"),
        ("coverage router.p4 --packets 00 --fail-under nan", "--fail-under: 'nan': give a number from 0 to 100"),
        ("diff router.p4 router.p4 --packets -5", "--packets: '-5': give a whole number from 1 to 1000000000"),
        ("diff router.p4 router.p4 --seed 1.5", "--seed: '1.5': give a whole number from 0 to "),
        ("stf router.p4 x.stf --priority-queues 0", "--priority-queues: '0': give a whole number from 1 to 8"),
    ],
)
def test_numbers_out_of_bounds_are_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err
