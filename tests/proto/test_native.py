"""Compiled and interpreted the core does the same, and a source that was edited never runs as it was."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

import pytest

from mrc_host import build, native, running
from p4lite.switch.native import build as native_switch
from support.amount import LONG
from support.proto.soak import digest

TESTS = pathlib.Path(__file__).parents[1]
#: Scenarios of the campaign: losses, reordering, trims, flaps, SRv6, several queue pairs.
SEEDS = tuple(range(24 if LONG else 12))

compiled_only = pytest.mark.skipif(not native.COMPILED, reason=f"not compiled here: {native.WHY_NOT}")


def python(*words: str, pure: bool = True, **more: str) -> str:
    """Return what a Python of ours prints; without what was compiled unless told otherwise."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS), "MRCLAB_PURE": "1" if pure else "", **more}
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr
    return done.stdout


@compiled_only
def test_every_packet_and_counter_is_the_same_compiled_and_interpreted() -> None:
    said = python("-m", "support.proto.digests", *map(str, SEEDS)).split()
    assert said[0] == "pure"
    assert said[1:] == [word for seed in SEEDS for word in (str(seed), digest(seed))]


@compiled_only
@pytest.mark.slow
def test_interpreted_core_passes_its_tests() -> None:
    some: tuple[str, ...] = ("test_arithmetic.py", "test_stories_loss.py")
    if LONG:
        some += ("wire", "congestion", "paths", "test_qp_states.py")
    folder = TESTS / "proto"
    said = python(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *(str(folder / each) for each in some)
    )
    assert " failed" not in said


@compiled_only
def test_every_module_of_the_build_is_loaded_compiled() -> None:
    for path in build.modules():
        module = sys.modules.get(".".join(path.with_suffix("").parts))
        if module is not None:
            assert str(module.__file__).endswith(native.SUFFIX), path
    assert running.document()["core"] == "compiled"


def test_an_edited_source_runs_as_it_stands(tmp_path: pathlib.Path) -> None:
    """What was built for other sources is never found; with the sources back as they were it is."""
    package = tmp_path / "mrc_host"
    shutil.copytree(native.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    ask = ("-c", "import sys; sys.path.insert(0, sys.argv[1]); from mrc_host import native as n, running;"
           "from mrc_host.proto.wire import psn; print(n.PACKAGE, n.COMPILED, n.WHY_NOT, psn.MPR_UNIT, sep='|')",
           str(tmp_path))  # fmt: skip
    source = package / "proto" / "wire" / "psn.py"
    whole = source.read_text()
    there = native.COMPILED or native.BUILDS.joinpath(native.key()).is_dir()
    assert python(*ask, pure=False).split("|")[:2] == [str(package), str(there)]
    source.write_text(whole.replace("MPR_UNIT: Final = 128", "MPR_UNIT: Final = 129"))
    said = python(*ask, pure=False).strip().split("|")
    assert said[1] == "False"
    assert said[3] == "129"
    assert not there or said[2] == "sources have changed since the build"
    source.write_text(whole)
    assert python(*ask, pure=False).split("|")[1] == str(there)


def test_an_edit_of_any_module_that_is_compiled_asks_for_another_build(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / native.PACKAGE.name
    shutil.copytree(native.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "__compiled__"))
    whole = native.key()
    monkeypatch.setattr(native, "PACKAGE", package)
    assert native.key() == whole
    for path in build.modules():
        source = tmp_path / path
        text = source.read_bytes()
        source.write_bytes(text + b"#")
        assert native.key() != whole, path
        source.write_bytes(text)


def test_another_machine_asks_for_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout may be shared by an x86-64 and an arm64 Linux, and by both architectures of Python on one Mac."""
    here = native.key()
    monkeypatch.setattr("platform.machine", lambda: "another")
    assert native.key() != here


@pytest.mark.parametrize("lacking", ["compiler", "switch"])
def test_build_without_a_compiler_prints_one_line(lacking: str, tmp_path: pathlib.Path) -> None:
    package = tmp_path / "mrc_host"
    shutil.copytree(native.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__", "__compiled__"))
    code = "import sys; sys.path.insert(0, sys.argv[1]); from mrc_host import build; sys.exit(build.main())"
    said = python("-c", code, str(tmp_path), pure=lacking == "switch", PATH=str(tmp_path), CC="")
    assert said.count("\n") == 1
    assert ("no C compiler" if lacking == "compiler" else "MRCLAB_PURE") in said
    assert not (package / "__compiled__").exists()


@pytest.mark.parametrize("pure", [False, True])
def test_the_version_says_how_the_core_runs(pure: bool) -> None:
    said = python("-c", "from mrclab.cli.app import main; main()", "--version", pure=pure)
    core = python("-c", "from mrc_host import running; print(running.description())", pure=pure)
    assert said == f"mrclab {importlib.metadata.version('mrclab')}, {core}"
    assert ("MRCLAB_PURE is set" in said) == pure


FUSABLE = "double f(double a, double b, double c) { return a * b + c; }\n"


@pytest.mark.parametrize("flags", [build._FLAGS, (*build._FLAGS, *build._OPTIMISE_MADE), native_switch.COMMON_FLAGS])
def test_products_and_sums_are_rounded_one_after_the_other(flags: tuple[str, ...], tmp_path: pathlib.Path) -> None:
    """arm64 has an instruction for both, which rounds once: a simulation would differ from one on x86-64."""
    compiler = build.compiler()
    machine = {"x86_64": ["-mfma"], "aarch64": []}.get(platform.machine())
    if not compiler or machine is None:
        pytest.skip("no C compiler, or an unknown machine")
    (tmp_path / "f.c").write_text(FUSABLE)

    def assembly(*more: str) -> str:
        command = [compiler, "-S", "-o", "-", "-w", *more, *machine, str(tmp_path / "f.c")]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout

    fused = re.compile(r"^\s*v?fn?madd", re.MULTILINE)
    assert fused.search(assembly("-O2", "-ffp-contract=fast")), "the test would see it"
    assert not fused.search(assembly("-O2", *flags))
