"""The examples run, and the program that docs/tutorials/first-program.md prints."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from support.verbs.bed import Bed, bed

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("verbs")) as made:
        yield made


def start(hosts: Bed, index: int, *words: str, code: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *words] if code else [sys.executable, *words]
    environment = {**os.environ, "MRC_DEVICE": hosts.path(index)}
    return subprocess.Popen(
        command, env=environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def both(first: subprocess.Popen[str], second: subprocess.Popen[str], *said: str) -> tuple[str, str]:
    texts = []
    for program, text in zip((first, second), said or ("", ""), strict=True):
        assert program.stdin is not None
        program.stdin.write(text)
        program.stdin.close()
        program.stdin = None
    for program in (first, second):
        texts.append(program.communicate(timeout=120)[0])
        assert program.returncode == 0
    return texts[0], texts[1]


@pytest.mark.parametrize("options", [[], ["--poll", "-s", "0"]])
def test_pingpong_prints_its_latency_table_on_one_side(hosts: Bed, tmp_path: pathlib.Path, options: list[str]) -> None:
    words = ["examples/pingpong.py", str(tmp_path / "meet"), "-n", "60", *options]
    said = sorted(both(start(hosts, 0, *words), start(hosts, 1, *words)))
    assert said[0] == ""
    head, row = said[1].splitlines()
    assert head.split()[:4] == ["#bytes", "#iterations", "t_min[usec]", "t_max[usec]"]
    numbers = row.split()
    assert numbers[1] == "60"
    assert 0 < float(numbers[2]) <= float(numbers[4]) <= float(numbers[3])


@pytest.mark.parametrize("options", [["-s", "70000", "-q", "2"], ["-s", "8", "--all", "-b"]])
def test_write_bw_prints_a_row_for_each_size(hosts: Bed, tmp_path: pathlib.Path, options: list[str]) -> None:
    words = ["examples/write_bw.py", str(tmp_path / "meet"), "-n", "80", *options]
    said = sorted(both(start(hosts, 0, *words), start(hosts, 1, *words)))
    rows = [[line.split() for line in text.splitlines()[1:]] for text in said]
    if "-b" in options:
        assert [[row[0] for row in each] for each in rows] == [["2", "4", "8"]] * 2
    else:
        assert rows[0] == []
        assert [row[:2] for row in rows[1]] == [["70000", "80"]]
    assert all(float(row[2]) >= float(row[3]) and float(row[4]) > 0 for each in rows for row in each)


def test_kv_store_has_the_same_contents_at_both_ends(hosts: Bed, tmp_path: pathlib.Path) -> None:
    programs = [
        start(hosts, index, "examples/kv_store.py", str(tmp_path), name, other)
        for index, (name, other) in enumerate([("left", "right"), ("right", "left")])
    ]
    said = both(
        programs[0],
        programs[1],
        "put colour blue\nput size 7\nwait colour red and green\nget size\ncount\nget nothing\n",
        "wait size 7\nput colour red and green\nget colour\nx\nwait size 7\n",
    )
    assert said[0].splitlines() == ["ready", "ok", "ok", "ok", "7", "3", "(nothing)"]
    assert said[1].splitlines()[:4] == ["ready", "ok", "ok", "red and green"]


def test_program_of_tutorial_page_prints_what_the_page_says(hosts: Bed, tmp_path: pathlib.Path) -> None:
    """Ten lines, which both ends run; the page says what they print."""
    page = (ROOT / "docs" / "tutorials/first-program.md").read_text()
    block = re.search(r"```python\n(.*?)```", page, re.S)
    assert block is not None
    code = block[1].replace("/run/lab/meet", str(tmp_path / "meet"))
    assert len([line for line in block[1].splitlines() if line]) == 10
    printed = re.search(r"prints on both\s+`([^`]*)`", page)
    assert printed is not None
    assert both(start(hosts, 0, code=code), start(hosts, 1, code=code)) == (f"{printed[1]}\n",) * 2
