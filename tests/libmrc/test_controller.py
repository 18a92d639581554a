"""`mrc_ctl.h` from C, towards the agents of the bed, with the sanitizers of addresses and undefined behaviour."""

from __future__ import annotations

import os
import pathlib
import subprocess
from collections.abc import Iterator

import pytest

from support.libmrc import compiled, environment
from support.verbs.bed import Bed, bed

CASES = ("device", "ports", "formats", "explicits", "generated", "congestion", "probes")
OCP = pathlib.Path(os.environ.get("MRCLAB_OCP", "/nonexistent"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return compiled(tmp_path_factory.mktemp("controller"), "controller")


@pytest.fixture(scope="module")
def program_of_others(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return the program as it is compiled elsewhere: with OCP's headers and the system's libibverbs."""
    if not (OCP / "mrc_ctl.h").is_file():
        pytest.skip("MRCLAB_OCP names no checkout of OCP's repository")
    return compiled(tmp_path_factory.mktemp("others"), "controller", include=[OCP])


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def run(program: pathlib.Path, case: str, hosts: Bed) -> subprocess.CompletedProcess[str]:
    words = [str(program), case, hosts.path(0), hosts.path(1)]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("case", CASES)
def test_a_case_of_a_controller(program: pathlib.Path, hosts: Bed, case: str) -> None:
    done = run(program, case, hosts)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", CASES)
def test_the_same_controller_with_the_headers_of_others(program_of_others: pathlib.Path, hosts: Bed, case: str) -> None:
    done = run(program_of_others, case, hosts)
    assert done.returncode == 0, done.stderr


def test_a_controller_hears_of_evs_that_fail(program: pathlib.Path, hosts: Bed) -> None:
    words = [str(program), "events", hosts.path(0), hosts.path(1)]
    with subprocess.Popen(
        words, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as held:
        assert held.stdout is not None
        said = held.stdout.readline()
        # What leaves by the port is lost; its carrier stays.
        hosts.ends[0][1].cut = True
        _, errors = held.communicate("go\n", timeout=120)
    assert (said, held.returncode) == ("ready\n", 0), errors


def test_without_the_rights_of_the_control_socket_nothing_is_done(program: pathlib.Path, hosts: Bed) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may connect to every socket")
    (hosts.folder / "h0.sock").chmod(0)
    done = run(program, "rights", hosts)
    assert done.returncode == 0, done.stderr
