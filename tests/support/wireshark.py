"""tshark with the project's dissector."""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import subprocess

import pytest

DISSECTOR = pathlib.Path(__file__).parents[2] / "docs" / "mrc.lua"
#: Another user ID in a user namespace of its own, with the rights of the user outside: files stay readable.
AS_USER = ("unshare", "--user", "--map-user=1000")


@functools.cache
def prefix() -> tuple[str, ...]:
    """Return what goes before tshark: Wireshark 4.4 and later load no Lua script as root, and name no reason."""
    if os.geteuid() != 0 or subprocess.run([*AS_USER, "true"], capture_output=True, check=False).returncode:
        return ()
    return AS_USER


def tshark(capture: pathlib.Path, *options: str, dissector: bool = True) -> str:
    """Return what tshark prints of a capture, with the dissector loaded; skip the test where there is no tshark."""
    program = shutil.which("tshark")
    if program is None:
        pytest.skip("tshark is not installed (Debian package tshark)")
    script = ["-X", f"lua_script:{DISSECTOR}"] if dissector else []
    command = [*prefix(), program, "-n", *script, "-r", str(capture), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    noise = [line for line in done.stderr.splitlines() if "lua" in line.lower()]
    assert not noise
    assert "Lua Error" not in done.stdout
    return done.stdout
