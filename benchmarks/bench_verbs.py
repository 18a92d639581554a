"""Programs' writes against the agent's own workloads: the same two hosts, on links in memory, in one agent's process.

In turn, several times: `write_bw` in the agent, and a program that writes messages of the same size to another program.
MB/s by the wall clock, and CPU (user and system) of the agent and of both programs per MB. The agent's workload makes
and verifies its data, which the programs do not. Then latency: half the time of an 8-byte write there and back.

Programs in Python and in C (over libmrc, with memory of their own) take turns, where there is a C compiler; those in C
with exchanged pages, as usual, and without.
"""

from __future__ import annotations

import json
import os
import pathlib
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from enum import Enum
from typing import Any

from benchmarks import scaled

ROOT = pathlib.Path(__file__).parents[1]
SIZE = 1 << 18
MESSAGES = scaled(160, 16)
ROUNDS = scaled(7, 1)
TRIPS = scaled(300, 10)
_OPTIONS: dict[str, list[str]] = {"latency": [], "polling": ["--poll"]}


def cpu_s(pid: int) -> float:
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def in_agent(folder: pathlib.Path, workload: str, params: dict[str, Any]) -> dict[str, Any]:
    """Run a workload between the hosts; return what rank 0 measured."""
    from mrc_host import requests
    from mrc_topo.base.plain import encode
    from mrc_topo.base.rpc import Client

    hosts = [Client(folder / f"h{index}.sock") for index in range(2)]
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


def c_programs(folder: pathlib.Path, program: pathlib.Path, *words: str, exchange: bool = True) -> list[float]:
    """Run the C program on both hosts; return the numbers that the first one prints."""
    ends = socket.socketpair()
    started = [
        subprocess.Popen(
            [str(program), *words, str(1 - index), str(end.fileno())],
            env={
                **os.environ,
                "MRC_DEVICE": str(folder / f"h{index}.verbs"),
                "MRCLAB_EXCHANGE": str(int(exchange)),
            },
            stdout=subprocess.PIPE,
            pass_fds=[end.fileno()],
            text=True,
        )
        for index, end in enumerate(ends)
    ]
    for end in ends:
        end.close()
    said = [each.communicate()[0] for each in started]
    if any(each.returncode for each in started):
        raise SystemExit(f"{program.name} {words[0]} failed")
    return [float(number) for number in said[0].split()]


def compiled(folder: pathlib.Path) -> pathlib.Path | None:
    """Return the C program, linked with libmrc; None without a compiler."""
    from libmrc import build
    from p4lite.switch.errors import BuildError
    from p4lite.switch.native.build import compiler

    try:
        libraries, command = build.library(), compiler()
    except BuildError as error:
        print(f"no C programs: {error}")
        return None
    program = folder / "verbs_pair"
    source = pathlib.Path(__file__).with_name("verbs_pair.c")
    command += ["-O2", "-D_GNU_SOURCE", f"-I{build.INCLUDE}", str(source), "-o", str(program)]
    subprocess.run([*command, f"-L{libraries}", "-lmrc", f"-Wl,-rpath,{libraries}"], check=True)
    return program


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
                program = compiled(folder)
                _bandwidth(folder, agent.pid, program)
                _latency(folder, program)
            finally:
                agent.terminate()


class _Case(Enum):
    """Who writes, as the table names it."""

    AGENT = "in the agent"
    PYTHON = "two programs"
    C = "two C programs"
    C_WITHOUT_EXCHANGE = "C, no exchange"


def _bandwidth(folder: pathlib.Path, pid: int, program: pathlib.Path | None) -> None:
    megabytes = SIZE * MESSAGES / 1e6
    cases = [_Case.AGENT, _Case.PYTHON, *((_Case.C, _Case.C_WITHOUT_EXCHANGE) if program is not None else ())]
    rows: dict[_Case, list[tuple[float, float, float]]] = {case: [] for case in cases}
    for _ in range(ROUNDS):
        for case, found in rows.items():
            used, children = cpu_s(pid), _children_s()
            if case is _Case.AGENT:
                began = time.perf_counter()
                in_agent(folder, "write_bw", {"message_bytes": SIZE, "window": 8, "iterations": MESSAGES})
                rate = megabytes / (time.perf_counter() - began)
            elif program is not None and case is not _Case.PYTHON:
                words = ("bandwidth", str(SIZE), str(MESSAGES))
                (rate,) = c_programs(folder, program, *words, exchange=case is _Case.C)
            else:
                rate = float(programs(folder, "write_bw.py", "-s", str(SIZE), "-n", str(MESSAGES))[3])
            found.append((rate, (cpu_s(pid) - used) / megabytes * 1e3, (_children_s() - children) / megabytes * 1e3))
    print(f"{'writes of 256 KiB':>20} {'MB/s':>8} {'agent, CPU ms/MB':>18} {'programs, CPU ms/MB':>20}")
    for case, found in rows.items():
        rate, agent, own = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"{case.value:>20} {rate:8.1f} {agent:18.2f} {own:20.2f}")
    ratio = [statistics.median(column[0] for column in found) for found in rows.values()]
    print(f"programs / agent: {ratio[1] / ratio[0]:.2f} (programs' CPU is with that of starting Python)")
    if program is not None:
        print(f"C programs / Python programs: {ratio[2] / ratio[1]:.2f}, without exchange {ratio[3] / ratio[1]:.2f}")


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _latency(folder: pathlib.Path, program: pathlib.Path | None) -> None:
    measured = in_agent(folder, "write_lat", {"iterations": TRIPS})
    print(f"\nlatency of 8 bytes: in the agent {json.dumps(measured)}")
    for option, how in (("latency", "waiting for notifications"), ("polling", "polling")):
        python, in_c = [], []
        for _ in range(ROUNDS):
            python.append(float(programs(folder, "pingpong.py", "-n", str(TRIPS), *_OPTIONS[option])[4]))
            if program is not None:
                in_c.append(c_programs(folder, program, option, "8", str(TRIPS))[1])
        line = f"programs, {how}, median of medians: in Python {statistics.median(python):.1f} µs"
        if in_c:
            ratio = statistics.median(in_c) / statistics.median(python)
            line += f", in C {statistics.median(in_c):.1f} µs ({ratio:.2f})"
        print(line)


if __name__ == "__main__":
    run()
