"""Temporary folders: they go with their process, however it ends, and there is no way around them."""

from __future__ import annotations

import ast
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest

from p4lite import scratch
from p4lite.files import FolderError
from p4lite.scratch import remove_abandoned

ROOTS = ("p4", "topologies", "controller", "hosts", "extras")
#: What makes folders or named files, and the modules that may call it: for a folder that others clean up, or set-up.
MAKES = {"TemporaryDirectory", "mkdtemp", "mkstemp", "NamedTemporaryFile"}
MAY = {
    "p4/p4lite/scratch.py",
    "p4/p4lite/switch/native/build.py",  # in the cache, whose store removes what killed builds left
    "controller/mrclab/lab/switches/program.py",  # likewise
    "extras/mrc_workshop/confine.py",  # in the cache, with removal of what is old
    "hosts/mrc_host/build.py",  # `make setup`, before p4lite is there
}


@pytest.fixture
def place(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Return a folder of temporary files."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def files(place: pathlib.Path) -> list[str]:
    return sorted(each.name for each in (place / f"mrclab-scratch-{os.geteuid()}").iterdir() if each.name != ".lock")


KILLED = """
import os, signal
from p4lite.scratch import scratch
with scratch("sweep") as folder:
    (folder / "deep").mkdir()
    (folder / "deep" / "file").write_bytes(b"x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_goes_with_its_context(place: pathlib.Path) -> None:
    with scratch.scratch("lab") as folder:
        assert folder.parent.stat().st_mode & 0o777 == folder.stat().st_mode & 0o777 == 0o700
        assert folder.name.startswith("lab-")
        assert list(folder.iterdir()) == []
        assert remove_abandoned() == []
        (folder / "file").write_bytes(b"x")
        assert folder.exists()
    assert files(place) == []


def test_the_next_start_removes_what_a_killed_process_left(place: pathlib.Path) -> None:
    assert remove_abandoned() == []
    killed = subprocess.run([sys.executable, "-c", KILLED], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert len(files(place)) == 2
    with scratch.scratch("next"):
        assert not any(name.startswith("sweep-") for name in files(place))


def test_cleanup_removes_it(place: pathlib.Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED], check=False)
    environment = {**os.environ, "MRCLAB_RUN": str(place / "run")}
    command = [sys.executable, "-P", "-m", "mrclab.cli", "cleanup"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "sweep-" in done.stdout
    assert files(place) == []


def test_a_place_that_cannot_be_used_is_named(place: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / f"mrclab-scratch-{os.geteuid()}").write_bytes(b"")
    with pytest.raises(FolderError, match=str(place)), scratch.scratch("lab"):
        pass

    def full() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found in ['/a', '/b']")

    monkeypatch.setattr(tempfile, "gettempdir", full)
    with pytest.raises(FolderError, match=str(place)) as raised, scratch.scratch("lab"):
        pass
    assert "['/a'" not in str(raised.value)


def makers(source: str) -> set[str]:
    """Return the functions of `tempfile` that a module uses and that leave something when it is killed."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "tempfile":
            found.add(node.attr)
        if isinstance(node, ast.ImportFrom) and node.module == "tempfile":
            found |= {alias.name for alias in node.names}
    return found & MAKES


def test_nothing_makes_temporary_files_by_other_means() -> None:
    assert makers("import tempfile\ntempfile.mkdtemp()") == makers("from tempfile import mkdtemp") == {"mkdtemp"}
    top = pathlib.Path(__file__).parents[1]
    paths = [path for root in ROOTS for path in (top / root).rglob("*.py") if "tests" not in path.parts]
    found = {str(path.relative_to(top)) for path in paths if makers(path.read_text(encoding="utf-8"))}
    assert found == MAY
