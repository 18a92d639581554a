"""A checkout that cannot be written to, as of an administrator: commands work elsewhere, and say so within it."""

from __future__ import annotations

import os
import pathlib
import subprocess

import pytest

from support.lab import users
from support.namespaces import OWN_MOUNTS

ROOT = pathlib.Path(__file__).parents[2]
SCRIPT = """
mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" || exit 99
cd "$2" && shift 2 && exec "$@"
"""


def read_only(where: pathlib.Path, home: pathlib.Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command of mrclab in a folder while the checkout is read-only, with a home of its own."""
    command = [*OWN_MOUNTS, "sh", "-c", SCRIPT, "sh", str(ROOT), str(where), *users.MRCLAB, *words]
    environment = {**os.environ, "HOME": str(home)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    return done


def test_commands_on_a_read_only_checkout(tmp_path: pathlib.Path) -> None:
    run = ("run", "write_bw", "--lab", "tiny", "--clock", "virtual", "--set", "iterations=2")
    done = read_only(tmp_path, tmp_path, *run)
    assert done.returncode == 0, done.stderr
    assert [each.name for each in (tmp_path / "results").iterdir()]
    done = read_only(ROOT, tmp_path, *run)
    assert done.returncode == 2
    assert done.stderr.strip().endswith("Read-only file system; choose another with -o")
