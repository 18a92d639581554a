"""Rings of libmrc between two threads, here and on arm64, for which all C is compiled.

A cross compiler makes the programs (Debian: gcc-aarch64-linux-gnu) and qemu's user mode runs them (qemu-user-static);
what is not installed is skipped. qemu keeps the order of this machine, so that a ring without its orders passes here,
too: of the orders the instructions are looked at. Layouts on arm64: test_abi.py.
"""

from __future__ import annotations

import pathlib
import re
import subprocess

import pytest

from libmrc import build
from p4lite.switch.native.build import COMMON_FLAGS, CORE_DIR, FABRIC_DIR, PROGRAM_DIR, WARNINGS
from support.libmrc import compiler, cross_compiler, emulator

PROGRAM = pathlib.Path(__file__).parent / "programs" / "ring.c"
INCLUDE = (build.SOURCES, build.INCLUDE)


@pytest.fixture
def cross(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Make the C compiler one for arm64, or skip the test."""
    monkeypatch.setenv("CC", cross_compiler(tmp_path_factory.mktemp("cross")))


def ring(folder: pathlib.Path) -> pathlib.Path:
    """Return the program of two threads at a ring, compiled."""
    made = folder / "ring"
    flags = [*COMMON_FLAGS, *WARNINGS, "-O2", "-pthread", *(f"-I{each}" for each in INCLUDE)]
    subprocess.run([*compiler(), *flags, str(PROGRAM), "-o", str(made)], check=True)
    return made


def through(program: list[str], capacity: int) -> subprocess.CompletedProcess[str]:
    command = [*program, "20000", str(capacity)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("capacity", [1, 64])
def test_entries_cross_whole_between_threads(tmp_path: pathlib.Path, capacity: int) -> None:
    done = through([str(ring(tmp_path))], capacity)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("cross")
@pytest.mark.parametrize("capacity", [1, 64])
def test_entries_cross_whole_between_emulated_threads(tmp_path: pathlib.Path, capacity: int) -> None:
    done = through([emulator(), str(ring(tmp_path))], capacity)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("cross")
def test_every_source_compiles_without_a_warning(tmp_path: pathlib.Path) -> None:
    core = [path for folder in (PROGRAM_DIR, FABRIC_DIR) for path in sorted(folder.glob("*.c"))]
    for sources, include in ((build.sources(), INCLUDE), (core, (CORE_DIR, PROGRAM_DIR, FABRIC_DIR))):
        flags = [*COMMON_FLAGS, *WARNINGS, "-O2", *(f"-I{each}" for each in include)]
        for path in sources:
            command = [*compiler(), *flags, "-c", str(path), "-o", str(tmp_path / "made.o")]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("cross")
def test_rings_load_with_acquire_and_store_with_release(tmp_path: pathlib.Path) -> None:
    orders = {"room": "ldap?r", "pending": "ldap?r", "noted": "ldap?r", "publish": "stlr", "release": "stlr"}
    source = tmp_path / "orders.c"
    ends = "\n".join(
        f"{'void' if order == 'stlr' else 'uint64_t'} an_{name}(struct ring *ring) {{ return ring_{name}(ring); }}"
        for name, order in orders.items()
    )
    source.write_text(f'#include "ring.h"\n{ends}\n')
    flags = ["-std=c11", "-O2", *(f"-I{each}" for each in INCLUDE)]
    command = [*compiler(), *flags, "-S", str(source), "-o", "-"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = dict(re.findall(r"^an_(\w+):\n(.*?)^\tret$", text, re.DOTALL | re.MULTILINE))
    for name, order in orders.items():
        assert re.search(rf"^\t{order}\t", found[name], re.MULTILINE), found[name]
