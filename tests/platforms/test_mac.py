"""What runs without Linux: commands on `support.mac`, a stand-in for a Mac (Linux without what only Linux has)."""

from __future__ import annotations

import json
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


#: Commands, and how they end.
REFUSED = {
    "up tiny": 1, "run write_bw --lab tiny --clock real": 1, "demo --clock real": 1, "exec h0 ls": 2, "down": 2,
    **({} if assets.missing() else {"web": 2}),
}  # fmt: skip
ANSWERED = ("--version", "status", "workshop list", "topo show tiny")
TYPED = """
from support import mac
mac.become()
import json, sys
from support.mrclab import within
done = {line: within(*line.split()) for line in sys.argv[1:]}
print(json.dumps({line: (each.returncode, each.stdout, each.stderr) for line, each in done.items()}))
"""


@pytest.fixture(scope="module")
def typed() -> dict[str, tuple[int, str, str]]:
    """Return what all commands say, one after the other in one process on the stand-in."""
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    command = [sys.executable, "-c", TYPED, *REFUSED, *ANSWERED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return {line: tuple(answer) for line, answer in json.loads(done.stdout).items()}


@pytest.mark.parametrize("line", REFUSED)
def test_commands_that_need_namespaces_say_so_once(line: str, typed: dict[str, tuple[int, str, str]]) -> None:
    code, output, errors = typed[line]
    assert (code, output) == (REFUSED[line], "")
    (told,) = errors.splitlines()
    for part in ("need Linux", "network namespaces", "C code", "this is Darwin", "virtual-machine.md", "container.md"):
        assert part in told
    assert "mrclab up`" not in told, "it cannot work"


def test_simulated_time_without_a_compiler_for_linux_says_what_to_use(tmp_path: pathlib.Path) -> None:
    """macOS has a compiler, but not Linux's headers."""
    for compiler, said in (("false", "the C compiler failed"), ("no-such-compiler", "no C compiler found")):
        done = run("support.mac", *RUN, str(tmp_path / "out"), CC=compiler, MRCLAB_CACHE=str(tmp_path / "cache"))
        assert done.returncode == 1, done.stdout
        assert "the switch's C code is for Linux, and this is Darwin" in done.stderr
        assert "a virtual machine or a container with Linux" in done.stderr
        assert said in done.stderr


@pytest.mark.parametrize("line", ANSWERED)
def test_commands_that_need_no_namespaces_answer(line: str, typed: dict[str, tuple[int, str, str]]) -> None:
    code, output, errors = typed[line]
    assert code == 0, output + errors
    assert "Traceback" not in errors


IMPORTS = """
from support import mac
mac.become()
import mrclab.cli.app, mrclab.web.server, mrclab.web.lab, mrclab.web.server
import mrc_workshop.perform, mrc_workshop.verify
import mrc_workshop.confine, p4lite.cli, p4lite.compiler, p4lite.switch.fabric.fabric, p4lite.switch.p4rt.service
import mrc_host.verbs, mrc_host.node.host, mrclab.runs.execute
"""


def test_simulation_workshop_live_view_and_compiler_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], env={**os.environ, "PYTHONPATH": str(TESTS)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
