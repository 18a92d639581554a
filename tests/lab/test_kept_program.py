"""The compiled fabric program is kept, and never taken where it is another's, not whole, or of other sources."""

from __future__ import annotations

import os
import pathlib
import shutil
import time
from typing import Any

import pytest

import p4lite.compiler
from mrclab.lab.switches import program
from mrclab.lab.switches.names import P4InfoNames


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("MRCLAB_CACHE", str(folder))
    return folder


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a program for every time that the compiler is called."""
    calls: list[Any] = []

    def compile_program(source: pathlib.Path, include_dirs: Any) -> p4lite.compiler.Compiled:
        calls.append(source)
        made = p4lite.compiler.Compiled.__new__(p4lite.compiler.Compiled)
        made.bmv2 = {"file": source.read_text()[:20], "number": len(calls)}
        made.__dict__["p4info"] = f'counters {{ preamble {{ id: {len(calls)} name: "count" }} }}'
        return made

    monkeypatch.setattr(p4lite.compiler, "compile_program", compile_program)
    return calls


def test_it_is_compiled_once_for_the_same_sources(
    cache: pathlib.Path, compiled: list[Any], tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = program.fabric_program()
    again = program.fabric_program()
    assert (again, len(compiled)) == (first, 1)
    assert (again.known, first.known) == (P4InfoNames.of(first.p4info), None)
    assert again.names.counters["count"].id == 1
    copy = shutil.copytree(program.FOLDER, tmp_path / "programs")
    assert program.fabric_program(copy / "fabric.p4").bmv2 != first.bmv2, "nobody's but the project's own is kept"
    monkeypatch.setattr(program, "FOLDER", copy)
    monkeypatch.setattr(program, "SOURCE", copy / "fabric.p4")
    program.fabric_program(copy / "fabric.p4")
    assert len(compiled) == 3
    header = next((copy / "include").glob("*.p4"))
    header.write_text(header.read_text() + "\n")
    program.fabric_program(copy / "fabric.p4")
    assert len(compiled) == 4, "a header was changed"


@pytest.mark.parametrize("harm", ["cut", "changed", "open", "no sum"])
def test_what_is_not_whole_or_not_ours_alone_is_made_anew(cache: pathlib.Path, compiled: list[Any], harm: str) -> None:
    program.fabric_program()
    (kept,) = cache.glob("p4-program-*.json")
    if harm == "cut":
        os.truncate(kept, 10)
    elif harm == "changed":
        kept.write_text(kept.read_text().replace("1", "2"))
    elif harm == "open":
        kept.chmod(0o666)
    else:
        kept.with_name(kept.name + ".sum").unlink()
    program.fabric_program()
    assert len(compiled) == 2


def test_a_folder_that_others_can_write_to_is_not_used(cache: pathlib.Path, compiled: list[Any]) -> None:
    program.fabric_program()
    cache.chmod(0o777)
    program.fabric_program()
    assert len(compiled) == 2


def test_the_cache_stays_small(cache: pathlib.Path, compiled: list[Any]) -> None:
    program.fabric_program()
    (kept,) = cache.glob("p4-program-*.json")
    for number in range(20):
        old = kept.with_name(f"p4-program-{number}.json")
        old.write_text("[]")
        old.with_name(old.name + ".sum").write_text("")
        os.utime(old, (time.time() - 1000 - number,) * 2)
    kept.unlink()
    program.fabric_program()
    assert len(list(cache.glob("p4-program-*.json"))) == program._CachedProgram.MOST
    assert kept.exists()
    assert len(list(cache.glob("p4-program-*.sum"))) == program._CachedProgram.MOST
