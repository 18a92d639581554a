"""C programs of libmrc on two hosts of the bed, with the sanitizers of addresses and undefined behaviour."""

from __future__ import annotations

import errno
import os
import pathlib
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from support.libmrc import compiled, environment
from support.verbs.bed import Bed, bed, process

CASES = (
    "writes", "requests", "refusals", "notifications", "acknowledgements", "failures", "attributes", "threads",
    "resets", "lookups",
)  # fmt: skip
LIVES = ("forks", "signals")
MEMORY = ("memory", "addresses", "exchanges", "exchange_limits", "exchange_forks")
OCP = pathlib.Path(os.environ.get("MRCLAB_OCP", "/nonexistent"))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return compiled(tmp_path_factory.mktemp("cases"), "cases")


@pytest.fixture(scope="module")
def lives(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return compiled(tmp_path_factory.mktemp("lives"), "lives")


@pytest.fixture(scope="module")
def verbs(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return compiled(tmp_path_factory.mktemp("verbs"), "verbs")


@pytest.fixture
def hosts(tmp_path: pathlib.Path) -> Iterator[Bed]:
    with bed(tmp_path) as made:
        yield made


def run(program: pathlib.Path, case: str, first: str, second: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), case, first, second],
        env=environment(**changes),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("case", [*CASES, *LIVES])
def test_a_case_of_the_library(program: pathlib.Path, lives: pathlib.Path, hosts: Bed, case: str) -> None:
    done = run(lives if case in LIVES else program, case, hosts.path(0), hosts.path(1))
    assert done.returncode == 0, done.stderr
    # Whatever the program had is given back, also by the child of a fork.
    deadline = time.monotonic() + 120
    while any(node.programs.connected for node in hosts.nodes) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(node.programs.connected for node in hosts.nodes)
    assert not any(node.programs.ejected for node in hosts.nodes)


NOT_THERE = ["ud", "uc", "ud_ex", "xrc", "mw", "ah", "resize", "bind", "sqd", "mcast"]
WRONG = ["inline", "elements", "requests", "no_cq", "cq", "vector", "srq", "empty", "rtr", "send", "receive"]


def test_each_refusal_has_one_line_with_its_reason(tmp_path: pathlib.Path, hosts: Bed) -> None:
    program = compiled(tmp_path, "refusals")
    done = subprocess.run(
        [program], env=environment(MRC_DEVICE=hosts.path(0)), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert {line.split(":")[0] for line in lines[::2]} == {"libmrc"}, done.stderr
    told = dict(line.split() for line in lines[1::2])
    assert {name for name, number in told.items() if int(number) == errno.EOPNOTSUPP} == set(NOT_THERE)
    assert {name for name, number in told.items() if int(number) == errno.EINVAL} == set(WRONG)
    assert told.keys() == {*NOT_THERE, *WRONG}
    assert len(set(lines[::2])) == len(told) - 1, "each says something else, but for both kinds of UD"


@pytest.fixture(scope="module")
def memory_program(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return compiled(tmp_path_factory.mktemp("memory"), "memory")


@pytest.mark.parametrize("case", MEMORY)
def test_a_case_of_registered_memory(memory_program: pathlib.Path, hosts: Bed, case: str) -> None:
    done = run(memory_program, case, hosts.path(0), hosts.path(1))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("seed", range(int(os.environ.get("MRCLAB_SEEDS", "3"))))
def test_registered_memory_has_the_bytes_that_it_should_have(
    memory_program: pathlib.Path, hosts: Bed, seed: int
) -> None:
    done = run(memory_program, "anything", hosts.path(0), hosts.path(1), SEED=str(seed))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", ["threads", "notifications", "acknowledgements"])
def test_threads_take_turns(tmp_path: pathlib.Path, hosts: Bed, case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the sanitizer of threads, which notices a missing lock in every run."""
    setarch = shutil.which("setarch")
    if setarch is None:
        pytest.skip("setarch is not installed; the sanitizer of threads needs addresses that are not random")
    monkeypatch.setenv("P4LITE_SANITIZE", "threads")
    program = compiled(tmp_path, "cases")
    command = [setarch, "--addr-no-randomize", str(program), case, hosts.path(0), hosts.path(1)]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    if "unexpected memory mapping" in done.stderr or "personality" in done.stderr:
        pytest.skip(f"the sanitizer of threads does not run here: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", ["writes", "attributes"])
def test_the_same_program_with_the_headers_of_others(tmp_path: pathlib.Path, hosts: Bed, case: str) -> None:
    """OCP's `mrc.h` and the system's libibverbs are what programs are compiled with elsewhere."""
    if not (OCP / "mrc.h").is_file():
        pytest.skip("MRCLAB_OCP names no checkout of OCP's repository")
    program = compiled(tmp_path, "cases", include=[OCP])
    done = run(program, case, hosts.path(0), hosts.path(1))
    assert done.returncode == 0, done.stderr


def test_libibverbs_functions_over_mrc(verbs: pathlib.Path, hosts: Bed) -> None:
    """Extended queue pairs and completion queues, with batches of requests."""
    done = run(verbs, "batches", hosts.path(0), hosts.path(1), MRCLAB_RC="mrc")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("case", ["batches", "reliable"])
def test_libibverbs_functions_over_roce(verbs: pathlib.Path, hosts: Bed, case: str) -> None:
    done = run(verbs, case, hosts.path(0), hosts.path(1))
    assert done.returncode == 0, done.stderr


def test_a_program_hears_that_its_agent_has_died(lives: pathlib.Path, tmp_path: pathlib.Path) -> None:
    with process(tmp_path) as agent:
        command = [str(lives), "agent_dies", str(tmp_path / "h0.verbs"), str(tmp_path / "h1.verbs")]
        with subprocess.Popen(
            command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as held:
            assert held.stdout is not None
            assert held.stdout.readline() == "ready\n"
            agent.kill()
            said, errors = held.communicate(timeout=120)
    assert held.returncode == 0, errors
    assert said == "done\n"
    assert "the agent is gone" in errors


def test_the_agent_notices_a_killed_program_with_a_child_that_lives(lives: pathlib.Path, hosts: Bed) -> None:
    """A child's copy of the connection would hide the death."""
    command = [str(lives), "is_killed", hosts.path(0), hosts.path(1)]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout is not None
        child = int(held.stdout.readline())
        try:
            assert all(len(node.programs.connected) == 1 for node in hosts.nodes)
            held.kill()
            deadline = time.monotonic() + 120
            while any(node.programs.connected for node in hosts.nodes) and time.monotonic() < deadline:
                time.sleep(0.01)
            assert not any(node.programs.connected for node in hosts.nodes)
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


def test_a_program_may_end_without_giving_anything_back(lives: pathlib.Path, hosts: Bed) -> None:
    assert run(lives, "leaves", hosts.path(0), hosts.path(1)).returncode == 0
    deadline = time.monotonic() + 120
    while any(node.programs.connected for node in hosts.nodes) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not any(node.programs.connected for node in hosts.nodes)


def test_a_device_without_an_agent_cannot_be_opened(program: pathlib.Path, tmp_path: pathlib.Path) -> None:
    done = run(program, "writes", str(tmp_path / "none.verbs"), "x")
    assert done.returncode == 1
    assert "no agent answers" in done.stderr


def test_events_of_ports_are_of_all_planes_together(program: pathlib.Path, hosts: Bed) -> None:
    """Of `mrc.h` each plane is a port; for libibverbs there is one, which is down when all planes are."""
    with subprocess.Popen(
        [str(program), "ports", hosts.path(0), hosts.path(1)], env=environment(), stdout=subprocess.PIPE, text=True
    ) as held:
        assert held.stdout is not None
        assert held.stdout.readline() == "ready\n"
        said = []
        for port, up in ((0, False), (1, False), (1, True)):
            hosts.nodes[0].command("port", {"port": port, "up": up}, time.monotonic_ns())
            said.append(held.stdout.readline())
        assert held.wait(60) == 0
    assert said == ["mrc 10 1\n", "mrc 10 2, verbs 10 1\n", "mrc 9 2, verbs 9 1\n"]
