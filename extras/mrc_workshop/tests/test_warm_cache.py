"""The cache of compiled parts that confined processes start from is built once, also by processes at the same time."""

from __future__ import annotations

import os
import pathlib
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from mrc_workshop import confine
from mrc_workshop.exercise import WorkshopError


@pytest.fixture
def cache(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.setattr("p4lite.switch.native.build.cache_dir", lambda: tmp_path)
    return tmp_path / "workshop"


def test_builds_at_the_same_time_end_with_one_folder(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2)

    def build(*_: Any, env: dict[str, str], **__: Any) -> subprocess.CompletedProcess[str]:
        pathlib.Path(env["MRCLAB_CACHE"], "core.so").write_text("built")
        return subprocess.CompletedProcess([], 0)

    def make(**options: Any) -> str:
        both.wait(60)  # neither has found the folder of the other
        return make_now(**options)

    make_now = tempfile.mkdtemp
    monkeypatch.setattr("mrc_topo.base.interruption.run", build)
    monkeypatch.setattr("mrc_workshop.confine.tempfile.mkdtemp", make)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: confine._warm_cache(), range(2))
    assert first == second
    assert [(each.name, each.stat().st_mode & 0o777) for each in cache.iterdir()] == [(first.name, 0o700)]
    assert (first / "core.so").read_text() == "built"


def test_failed_build_leaves_nothing_and_old_leftovers_go(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = cache / "0123456789abcdef.killed"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("mrc_topo.base.interruption.run", fail)
    with pytest.raises(OSError, match="no space left"):
        confine._warm_cache()
    assert list(cache.iterdir()) == []


def test_a_machine_without_a_compiler_is_named(cache: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(WorkshopError, match="no-such-compiler"):
        confine._warm_cache()
    assert list(cache.iterdir()) == []
