"""Ranks that die, agents that die, hosts that fall silent: every other rank gets an error that names them, in time."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from mrc_torch import CollectiveError, Collectives, FolderStore, RankDeadError, RankSilentError, Work
from support.verbs.bed import Bed, bed, process
from support.verbs.ranks import SECONDS, at_once, group, wait

#: Joins a group as its last rank, does so many barriers, says so, and goes on as it is told: "idle" or "reducing".
RANK = """
import sys, time
import numpy as np
from mrc_torch import Collectives, FolderStore
folder, device, size, what = sys.argv[1:]
group = Collectives(FolderStore(folder), int(size) - 1, int(size), device=device)
group.barrier().wait(60)
print("ready", flush=True)
while what == "reducing":
    group.all_reduce(np.ones(200_000, np.float32)).wait(60)
time.sleep(600)
"""


@pytest.fixture(scope="module", params=["mrc", "roce"])
def hosts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    with bed(tmp_path_factory.mktemp("bed"), hosts=3, transport=request.param) as made:
        yield made


@contextlib.contextmanager
def with_a_program(
    hosts: Bed, folder: pathlib.Path, what: str, timeout: float = SECONDS
) -> Iterator[tuple[list[Collectives], int]]:
    """Ranks 0 and 1 of a group here, and rank 2 in a program of its own, with its PID."""
    command = [sys.executable, "-c", RANK, str(folder), hosts.path(2), "3", what]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        ranks: list[Collectives] = []
        try:
            ranks += at_once(
                2, lambda rank: Collectives(FolderStore(folder), rank, 3, device=hosts.path(rank), timeout=timeout)
            )
            wait([each.barrier() for each in ranks])
            assert program.stdout is not None
            assert program.stdout.readline() == b"ready\n"
            yield ranks, program.pid
        finally:
            program.kill()
            for each in ranks:
                each.close()


def dead(work: Work) -> RankDeadError:
    with pytest.raises(RankDeadError) as caught:
        work.wait(SECONDS)
    return caught.value


@pytest.mark.parametrize("what", ["idle", "reducing"])
def test_a_killed_rank_is_named_by_all(hosts: Bed, tmp_path: pathlib.Path, what: str) -> None:
    with with_a_program(hosts, tmp_path, what) as (ranks, pid):
        if what == "reducing":
            wait([each.all_reduce(np.ones(200_000, np.float32)) for each in ranks])
        works = [each.all_reduce(np.ones(200_000, np.float32)) for each in ranks]
        works += [ranks[0].receive(np.zeros(1), 1)]  # which is of a rank that lives
        os.kill(pid, signal.SIGKILL)
        if what == "reducing":
            for work in works[:2]:  # may have been done before
                with contextlib.suppress(CollectiveError):
                    work.wait(SECONDS)
            works = [each.barrier() for each in ranks]
        for work in works:
            error = dead(work)
            assert error.rank == 2
            assert "rank 2 (host h2) is dead: " in str(error)
            assert "its program has ended" in str(error) or "says so" in str(error)
        for each in ranks:
            assert dead(each.barrier()) is each.error
            assert dead(each.send(np.zeros(1), 0 if each.rank else 1)) is each.error
    deadline = time.monotonic() + SECONDS
    while any(node.programs.connected for node in hosts.nodes):  # the agents hear of it in their next round
        assert time.monotonic() < deadline, "something of the ranks is left"
        time.sleep(0.01)


def test_a_stopped_program_is_named_by_all(hosts: Bed, tmp_path: pathlib.Path) -> None:
    """Rank 1 of the ring waits for rank 0, which waits for the stopped one; the host of that one answers."""
    with with_a_program(hosts, tmp_path, "idle", timeout=2) as (ranks, pid):
        os.kill(pid, signal.SIGSTOP)
        works = [each.all_reduce(np.ones(200_000, np.float32), algorithm="ring") for each in ranks]
        for work in works:
            with pytest.raises(RankSilentError, match=r"rank 2 \(host h2\)") as caught:
                work.wait(SECONDS)
            assert caught.value.rank == 2
        assert any("its program is stopped" in str(each.error) for each in ranks)


def test_a_host_that_falls_silent_is_named_by_all(tmp_path: pathlib.Path) -> None:
    """Its agent is gone, or frozen, or its cables are."""
    with bed(tmp_path, hosts=3) as hosts, group(hosts, tmp_path / "meet", 3) as ranks:
        wait([each.barrier() for each in ranks])
        for end in hosts.ends[1]:
            end.cut = True
        works = [ranks[0].receive(np.zeros(1), 1), ranks[2].receive(np.zeros(1), 0)]
        for work in works:
            error = dead(work)
            assert error.rank == 1
            assert "its host does not answer" in str(error) or "says so" in str(error)
        error = dead(ranks[1].barrier())
        # It cannot know better, unless it is told.
        assert error.rank in (0, 2) or "says so" in str(error)


def test_rank_whose_agent_is_killed_names_itself(tmp_path: pathlib.Path) -> None:
    with process(tmp_path, hosts=2) as agent:
        paths = [str(tmp_path / f"h{rank}.verbs") for rank in range(2)]
        ranks = at_once(2, lambda rank: Collectives(FolderStore(tmp_path / "meet"), rank, 2, device=paths[rank]))
        wait([each.barrier() for each in ranks])
        works = [each.receive(np.zeros(1), 1 - each.rank) for each in ranks]
        agent.kill()
        for rank, work in enumerate(works):
            error = dead(work)
            assert error.rank == rank
            assert f"rank {rank} (this one, host h{rank}): device h{rank}: the agent is gone" in str(error)
        before = time.monotonic()
        at_once(2, lambda rank: ranks[rank].close())
        assert time.monotonic() - before < SECONDS


def test_data_arrives_although_its_sender_exits_without_close(hosts: Bed, tmp_path: pathlib.Path) -> None:
    code = (
        "import sys, numpy as np; from mrc_torch import Collectives, FolderStore\n"
        "group = Collectives(FolderStore(sys.argv[1]), 1, 2, device=sys.argv[2])\n"
        "group.send(np.arange(100_000), 0)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path), hosts.path(1)]) as program:
        with Collectives(FolderStore(tmp_path), 0, 2, device=hosts.path(0)) as own:
            got = np.zeros(100_000, np.int64)
            own.receive(got, 1).wait(SECONDS)
            assert (got == np.arange(100_000)).all()
            with pytest.raises(CollectiveError, match=r"rank 1 \(host h1\) has left the group"):
                own.barrier().wait(SECONDS)
        assert program.wait(SECONDS) == 0


#: Forks while another thread has the group's lock; the child may neither use the group nor wait for that thread.
FORKER = """
import os, signal, sys, threading
from mrc_torch import ClosedError, Collectives, FolderStore
group = Collectives(FolderStore(sys.argv[1]), 1, 2, device=sys.argv[2])
group.barrier().wait(60)
locked, go = threading.Event(), threading.Event()
def hold():
    with group.group._lock:
        locked.set()
        go.wait(60)
threading.Thread(target=hold).start()
locked.wait()
if not (child := os.fork()):
    signal.alarm(60)
    try:
        group.barrier().wait(60)
    except ClosedError:
        group.close()
        sys.exit(7)
go.set()
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
assert status == 7, status
for _ in range(3):
    group.barrier().wait(60)
"""


def test_a_forked_child_leaves_the_group_alone(hosts: Bed, tmp_path: pathlib.Path) -> None:
    with subprocess.Popen([sys.executable, "-c", FORKER, str(tmp_path), hosts.path(1)]) as program:
        with Collectives(FolderStore(tmp_path), 0, 2, device=hosts.path(0)) as own:
            for _ in range(4):
                own.barrier().wait(SECONDS)
        assert program.wait(SECONDS) == 0
