"""`python -m libmrc.build`: what it prints, keeps and refuses."""

from __future__ import annotations

import os
import pathlib
import shlex
import subprocess
import sys

import pytest

from libmrc import build
from support.libmrc import compiler


def run(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "libmrc.build", *arguments]
    return subprocess.run(command, env={**os.environ, **changes}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("cc", ["gcc", "clang"])
def test_it_is_built_once_for_each_compiler(tmp_path: pathlib.Path, cc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", cc)
    compiler()
    first = run(MRCLAB_CACHE=str(tmp_path / "cache"))
    assert first.returncode == 0, first.stderr
    folder = pathlib.Path(first.stdout.splitlines()[-1])
    assert sorted(path.name for path in folder.iterdir()) == ["lib_mrc.so", "libmrc.so", "libmrc.so.1"]
    made = (folder / "lib_mrc.so").resolve()
    assert made.parent == folder.parent
    assert made.read_bytes()[:4] == b"\x7fELF"
    before = made.stat().st_ino
    assert run(MRCLAB_CACHE=str(tmp_path / "cache")).stdout == first.stdout
    assert made.stat().st_ino == before


@pytest.mark.parametrize(("header", "package"), build.HEADERS.items())
def test_without_a_header_of_others_it_says_what_to_install(tmp_path: pathlib.Path, header: str, package: str) -> None:
    """A compiler that finds nothing of that name stands for a machine without the package."""
    real = shlex.join(compiler())
    wrapper = tmp_path / "cc"
    missing = f"#error {header} is missing"
    folder = (tmp_path / "shadow" / header).parent
    folder.mkdir(parents=True)
    (tmp_path / "shadow" / header).write_text(missing)
    wrapper.write_text(f'#!/bin/sh\nexec {real} -I{tmp_path / "shadow"} "$@"\n')
    wrapper.chmod(0o755)
    done = run(CC=str(wrapper), MRCLAB_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"libmrc: {header}: not found; install {package}"), done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_without_a_compiler_it_says_what_to_install(tmp_path: pathlib.Path) -> None:
    done = run(CC="no-such-compiler", MRCLAB_CACHE=str(tmp_path / "cache"))
    assert done.returncode == 1
    assert done.stderr.startswith("libmrc: no-such-compiler: no C compiler found; install gcc")


def test_the_command_line() -> None:
    assert run("--include").stdout == f"{build.INCLUDE}\n"
    assert (build.INCLUDE / "mrc.h").is_file()
    wrong = run("--what")
    assert wrong.returncode == 2
    assert "--include" in wrong.stderr
