"""The hosts of a simulation in several processes: the same results as in one, and what happens when one is killed."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import psutil
import pytest

from mrc_lab.faults.action import Action, flapping
from mrc_lab.hosts.hostclient import HostError, HostGone
from mrc_lab.session import partition
from mrc_lab.session.base import closing
from mrc_lab.session.partition import PartitionError
from mrc_lab.session.virtual import VirtualSession
from mrc_runs.runner import WorkloadRun
from mrc_runs.workload import WorkloadSpec
from mrc_topo.labfile import parse_lab

LAB = """
name: halves
clock: virtual
planes: 2
t0_per_plane: 4
t1_per_plane: 2
hosts: 16
hosts_per_t0: 4
max_oversubscription: 2
links:
  host: {rate: 50Mbps, delay: 100us}
  fabric: {rate: 50Mbps, delay: 100us}
path_mtu: 1024
ev: {size: 32, active: 16}
"""


@pytest.fixture(autouse=True)
def few_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes exchange as few packets as this slow lab has: 19 per exchange."""
    monkeypatch.setattr(partition, "LEAST_PACKETS", 5)


@pytest.mark.parametrize(
    ("rate", "delay", "cores", "count"),
    [
        ("100Gbps", "100us", 1, 1), ("100Gbps", "100us", 2, 2), ("100Gbps", "100us", 9, 2), ("50Mbps", "100us", 2, 0),
        ("260Mbps", "100us", 2, 2), ("260Mbps", "50us", 2, 1), ("100Gbps", "0", 2, 0),
    ],
)  # fmt: skip
def test_there_are_processes_where_their_hosts_have_enough_to_do_between_two_exchanges(
    rate: str, delay: str, cores: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition, "LEAST_PACKETS", 50)
    text = LAB.replace("rate: 50Mbps", f"rate: {rate}").replace("delay: 100us", f"delay: {delay}", 1)
    assert partition.processes(parse_lab(text, "halves").lab, cores) == count


def session(cores: int, transport: str = "mrc") -> VirtualSession:
    return VirtualSession(parse_lab(LAB, "halves"), transport, cores)


def children() -> set[int]:
    """Return the processes that simulate hosts for this one."""
    found = set()
    for each in psutil.Process().children():
        if any("partition_worker" in word for word in each.cmdline()):
            found.add(each.pid)
    return found


def seen(cores: int, transport: str) -> str:
    """Return all that a run with failures of links, ports and agents has recorded, as text."""
    schedule = flapping(Action("fail", "p0-t0.0--p0-t1.0", loss=0.0), 0.05, 0.1, 1)
    schedule += [(0.08, Action("fail", "h3:1", "port_down")), (0.2, Action("restore", "h3:1"))]
    spec = WorkloadSpec("permutation", {"message_bytes": 20_000}, duration_s=0.3)
    with closing(session(cores, transport)) as made:
        assert len(made.nodes) == (16 if cores == 1 else 0)
        before = len(children())
        result = WorkloadRun(made, spec, sorted(schedule, key=lambda each: each[0])).go()
        assert before == (cores if cores > 1 else 0)
        assert all(each.iterations and not each.mismatches for each in result.progress.values())
        # Agents that stop, go on, die and come back, with a change of a link that only the fabric knows of.
        told: list[Any] = []
        made.freeze_agent("h1")
        made.advance(0.02)
        made.thaw_agent("h1")
        made.kill_agent("h9")
        with pytest.raises(HostGone, match="h9"):
            made.virtual_hosts["h9"].request("hello")
        made.advance(0.02)
        made.restart_agent("h9")
        made.advance(0.05)
        for host in made.virtual_hosts.values():
            with pytest.raises(HostError) as refused:
                host.request("no_such_verb")
            told += [host.request("hello"), host.request("statistics"), str(refused.value)]
        document: dict[str, Any] = result.document()
        parts = [document[key] for key in ("happenings", "progress", "statistics", "failures")]
        return json.dumps([parts, told, made.now_ns()], default=repr, sort_keys=True)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["mrc", "roce"])
def test_hosts_in_two_processes_do_what_they_do_in_one(transport: str) -> None:
    assert seen(2, transport) == seen(1, transport)
    assert not children()


@pytest.mark.parametrize("ask", [lambda made: made.advance(0.05), lambda made: made.set_carrier("h9", 0, False)])
def test_killed_process_is_named(ask: Callable[[VirtualSession], None]) -> None:
    with closing(session(2)) as made:
        made.advance(0.01)
        first, last = sorted(children())
        psutil.Process(last).send_signal(signal.SIGKILL)
        with pytest.raises(PartitionError, match=r"simulates h8 to h15 was ended by SIGKILL; without --cores"):
            ask(made)
        assert psutil.pid_exists(first)
    assert not children()


def test_few_hosts_stay_in_one_process() -> None:
    with closing(
        VirtualSession(parse_lab(LAB.replace("hosts: 16", "hosts: 8").replace("_t0: 4", "_t0: 2"), "a"), cores=2)
    ):
        assert not children()
