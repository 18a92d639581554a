"""`python -m libmrc.build`: what it prints, keeps and refuses."""

from __future__ import annotations

import os
import pathlib
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


def test_it_needs_no_header_of_libibverbs(tmp_path: pathlib.Path) -> None:
    """No file outside of the package but the C library's and Linux's is read."""
    for source in build.sources():
        said = subprocess.run(
            [*compiler(), "-M", "-std=c11", "-D_GNU_SOURCE", f"-I{build.SOURCES}", f"-I{build.INCLUDE}",
             f"-I{build.ABI}", str(source)],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert not [name for name in said.split() if "infiniband" in name and not name.startswith(str(build.PACKAGE))]


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
