"""What runs without Linux: commands on `support.mac`, a stand-in for a Mac (Linux without what only Linux has)."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from mrclab.web import assets
from platforms.same import FILES, differences

TESTS = pathlib.Path(__file__).parents[1]
RUN = ("run", "write_bw", "--lab", "tiny", "--clock", "virtual", "--output")


def run(module: str, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(TESTS), **changes}
    command = [sys.executable, "-m", module, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_the_stand_in_lacks_what_a_mac_lacks() -> None:
    code = (
        "from support import mac; mac.become(); import os, socket, select, sys;"
        "print(sys.platform, hasattr(os, 'eventfd'), hasattr(socket, 'AF_PACKET'), hasattr(select, 'epoll'),"
        "os.path.exists('/proc'))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["darwin", "False", "False", "False", "False"], done.stderr
    assert all(hasattr(os, name) for name in ("eventfd", "memfd_create")), "only in that process"


def test_a_simulated_run_leaves_the_same_bytes(tmp_path: pathlib.Path) -> None:
    for module, folder in (("support.mac", "mac"), ("support.mrclab", "linux")):
        done = run(module, *RUN, str(tmp_path / folder))
        assert done.returncode == 0, done.stdout + done.stderr
    assert differences(tmp_path / "mac", tmp_path / "linux") == []
    (tmp_path / "mac" / FILES[0]).write_bytes(b"")
    assert differences(tmp_path / "mac", tmp_path / "linux") == [FILES[0]]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("up", "tiny"), 1), (("run", "write_bw", "--lab", "tiny", "--clock", "real"), 1),
        (("demo", "--clock", "real"), 1), (("exec", "h0", "ls"), 2), (("down",), 2),
        pytest.param(("web",), 2, marks=pytest.mark.skipif(bool(assets.missing()), reason="make web-assets")),
    ],
)  # fmt: skip
def test_commands_that_need_namespaces_say_so_once(words: tuple[str, ...], code: int) -> None:
    done = run("support.mac", *words)
    assert done.returncode == code, done.stdout
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    for part in ("need Linux", "network namespaces", "C code", "this is Darwin", "virtual-machine.md", "container.md"):
        assert part in line
    assert "mrclab up`" not in line, "it cannot work"


def test_simulated_time_without_a_compiler_for_linux_says_what_to_use(tmp_path: pathlib.Path) -> None:
    """macOS has a compiler, but not Linux's headers."""
    for compiler, said in (("false", "the C compiler failed"), ("no-such-compiler", "no C compiler found")):
        done = run("support.mac", *RUN, str(tmp_path / "out"), CC=compiler, MRCLAB_CACHE=str(tmp_path / "cache"))
        assert done.returncode == 1, done.stdout
        assert "the switch's C code is for Linux, and this is Darwin" in done.stderr
        assert "a virtual machine or a container with Linux" in done.stderr
        assert said in done.stderr


@pytest.mark.parametrize("words", [("--version",), ("status",), ("workshop", "list"), ("topo", "show", "tiny")])
def test_commands_that_need_no_namespaces_answer(words: tuple[str, ...]) -> None:
    done = run("support.mac", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr


IMPORTS = """
from support import mac
mac.become()
import mrclab.cli.app, mrclab.web.server, mrclab.web.simulation, mrclab.web.serve
import mrc_workshop.perform, mrc_workshop.verify
import mrc_workshop.confine, p4lite.cli, p4lite.compiler, p4lite.switch.fabric.fabric, p4lite.switch.p4rt.service
import mrc_host.verbs, mrc_host.node.host, mrclab.runs.execute
"""


def test_simulation_workshop_live_view_and_compiler_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
