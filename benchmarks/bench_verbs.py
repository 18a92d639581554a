"""Programs' writes against the agent's own workloads: the same two hosts, on links in memory, in one agent's process.

In turn, several times: `write_bw` in the agent, and a program that writes messages of the same size to another program.
MB/s by the wall clock, and CPU (user and system) of the agent and of both programs per MB. The agent's workload makes
and verifies its data, which the programs do not. Then latency: half the time of an 8-byte write there and back.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

from benchmarks import scaled

ROOT = pathlib.Path(__file__).parents[1]
SIZE = 1 << 18
MESSAGES = scaled(160, 16)
ROUNDS = scaled(3, 1)
TRIPS = scaled(300, 10)


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_agent(folder: pathlib.Path, workload: str, params: dict[str, Any]) -> dict[str, Any]:
    """Run a workload between the hosts; return what rank 0 measured."""
    from mrc_common.plain import encode
    from mrc_host import requests
    from mrc_host.control_api import Controller

    hosts = [Controller(folder / f"h{index}.sock") for index in range(2)]
    names, addresses = ["h0", "h1"], ["fd00::1", "fd00::2"]
    told = [
        host.ask(requests.PrepareJob("j", workload, params, rank, names, addresses)) for rank, host in enumerate(hosts)
    ]
    for rank, host in enumerate(hosts):
        host.ask(requests.ConnectJob("j", {1 - rank: told[1 - rank]}))
    for host in hosts:
        host.ask(requests.StartJob("j"))
    while not all(host.ask(requests.GetProgress("j")).done for host in hosts):
        time.sleep(0.02)
    measured = [encode(host.ask(requests.FinishJob("j")).measured) for host in hosts]
    for host in hosts:
        host.close()
    found: dict[str, Any] = measured[0]
    return found


def programs(folder: pathlib.Path, *words: str) -> list[str]:
    """Run an example on both hosts; return the row of numbers that one of them prints."""
    meet = folder / "meet"
    started = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "examples" / words[0]), str(meet), *words[1:]],
            env={**os.environ, "MRC_DEVICE": str(folder / f"h{index}.verbs")},
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    said = "".join(each.communicate()[0] for each in started)
    if any(each.returncode for each in started):
        raise SystemExit(f"{words[0]} failed")
    return said.splitlines()[-1].split()


def run() -> None:
    """Print the tables."""
    from mrc_host import running

    print(f"verbs: {running.description()}")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        command = [sys.executable, "-m", "support.verbs.bed", name]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as agent:
            assert agent.stdout is not None
            agent.stdout.readline()
            try:
                _bandwidth(folder, agent.pid)
                _latency(folder)
            finally:
                agent.terminate()


def _bandwidth(folder: pathlib.Path, pid: int) -> None:
    megabytes = SIZE * MESSAGES / 1e6
    rows: dict[str, list[tuple[float, float, float]]] = {"in the agent": [], "two programs": []}
    for _ in range(ROUNDS):
        for case, found in rows.items():
            used, children = cpu_s(pid), _children_s()
            if case == "in the agent":
                began = time.perf_counter()
                in_agent(folder, "write_bw", {"message_bytes": SIZE, "window": 8, "iterations": MESSAGES})
                rate = megabytes / (time.perf_counter() - began)
            else:
                rate = float(programs(folder, "write_bw.py", "-s", str(SIZE), "-n", str(MESSAGES))[3])
            found.append((rate, (cpu_s(pid) - used) / megabytes * 1e3, (_children_s() - children) / megabytes * 1e3))
    print(f"{'writes of 256 KiB':>20} {'MB/s':>8} {'agent, CPU ms/MB':>18} {'programs, CPU ms/MB':>20}")
    for case, found in rows.items():
        rate, agent, own = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{case:>20} {rate:8.1f} {agent:18.2f} {own:20.2f}")
    ratio = [statistics.median(column[0] for column in found) for found in rows.values()]
    print(f"programs / agent: {ratio[1] / ratio[0]:.2f} (programs' CPU is with that of starting Python)")


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _latency(folder: pathlib.Path) -> None:
    measured = in_agent(folder, "write_lat", {"iterations": TRIPS})
    print(f"\nlatency of 8 bytes: in the agent {json.dumps(measured)}")
    for option in ([], ["--poll"]):
        row = programs(folder, "pingpong.py", "-n", str(TRIPS), *option)
        how = "polling" if option else "waiting for notifications"
        print(f"programs, {how}: min {row[2]}, median {row[4]}, 99 % {row[6]} µs")


if __name__ == "__main__":
    run()
