"""A campaign of hostile C programs against the agent of two hosts: `python -m support.hostile.campaign`.

While a pair of programs writes to each other and checks every byte, others overwrite their rings at random, unmap
memory that is in use, or are killed at random times. The agent must not end, fault, leak or give the pair a wrong
byte.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator

from libmrc import build
from mrc_host import requests
from mrc_topo.base.rpc import Client
from support.verbs.bed import process

SOURCE = pathlib.Path(__file__).with_name("programs.c")
HOSTS = 2
#: Kinds of attackers, and the longest time of each in ms.
ATTACKERS = {"unmap": 400, "scribble": 300, "flood": 10_000}
KILL_MS = 60
#: Resident bytes that the agent may gain from the first tenth of a campaign to its end.
GROWTH = 24 << 20


@dataclasses.dataclass
class Outcome:
    """What happened: how often attackers of each kind ran and with which exit codes, why the agent disconnected
    programs, rounds that were verified."""

    runs: Counter[str] = dataclasses.field(default_factory=Counter)
    exits: Counter[str] = dataclasses.field(default_factory=Counter)
    ejected: Counter[str] = dataclasses.field(default_factory=Counter)
    rounds: int = 0
    wrong: list[str] = dataclasses.field(default_factory=list)


def compiled(folder: pathlib.Path) -> pathlib.Path:
    """Compile the programs, with the library's own headers."""
    made, libraries = folder / "programs", build.library()
    words = ["cc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f"-I{build.INCLUDE}"]
    words += [str(SOURCE), "-o", str(made), f"-L{libraries}", "-lmrc", f"-Wl,-rpath,{libraries}"]
    subprocess.run(words, check=True)
    return made


class Pair:
    """Two programs of one mode, on two hosts, that are joined by a socket."""

    def __init__(self, program: pathlib.Path, folder: pathlib.Path, mode: str, seed: int, milliseconds: int) -> None:
        self.mode = mode
        self.members: list[subprocess.Popen[str]] = []
        ends = socket.socketpair()
        for index, end in enumerate(ends):
            name = f"verify{index}" if mode == "verify" else mode
            output = subprocess.PIPE if mode == "verify" else subprocess.DEVNULL
            self.members.append(
                subprocess.Popen(
                    [str(program), name, str(seed + index), str(milliseconds), str(end.fileno())],
                    env={**os.environ, "MRC_DEVICE": str(folder / f"h{index}.verbs"), "MRCLAB_MESSAGES": "0"},
                    pass_fds=[end.fileno()],
                    stdout=output,
                    stderr=output,
                    text=True,
                )
            )
        for end in ends:
            end.close()

    def ended(self) -> bool:
        """Return whether both have ended."""
        return all(member.poll() is not None for member in self.members)

    def kill(self) -> None:
        """End both at once, without a chance to say anything."""
        for member in self.members:
            member.kill()


def resident(pid: int) -> int:
    """Return the resident bytes of a process."""
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def files(pid: int) -> int:
    """Return how many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


@contextlib.contextmanager
def controllers(folder: pathlib.Path) -> Iterator[list[Client]]:
    """Connect to both agents."""
    made = [Client(folder / f"h{index}.sock") for index in range(HOSTS)]
    try:
        yield made
    finally:
        for each in made:
            each.close()


def campaign(seconds: float, kills: int, seed: int) -> Outcome:
    """Run attackers for at least `seconds`, and until at least `kills` programs have been killed."""
    rng, outcome = random.Random(seed), Outcome()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = compiled(folder)
        log = folder / "agent.log"
        with log.open("wb") as errors, process(folder, errors=errors.fileno()) as agent, controllers(folder) as hosts:
            began = time.monotonic()
            for host in hosts:
                host.ask(requests.GetSummary())  # the agent has accepted the connection when it answers
            files_before = files(agent.pid)
            honest = Pair(program, folder, "verify", seed, 10**9)
            settled = 0
            pairs: list[tuple[Pair, float]] = []
            try:
                while time.monotonic() - began < seconds or outcome.runs["killed"] < kills:
                    if agent.poll() is not None:
                        outcome.wrong.append(f"the agent has ended with {agent.returncode}")
                        return outcome
                    if any(member.poll() is not None for member in honest.members):
                        outcome.wrong.append("the pair that verifies has ended")
                        break
                    while len(pairs) < 3:
                        mode = rng.choice(list(ATTACKERS))
                        limit = rng.randrange(KILL_MS) / 1000 if mode == "flood" else 30.0
                        pair = Pair(program, folder, mode, rng.getrandbits(32), rng.randrange(1, ATTACKERS[mode]))
                        pairs.append((pair, time.monotonic() + limit))
                        outcome.runs[mode] += 1
                    for entry in list(pairs):
                        pair, limit = entry
                        if pair.ended():
                            outcome.exits.update(f"{pair.mode} {member.returncode}" for member in pair.members)
                            outcome.runs["killed"] += sum(
                                member.returncode == -signal.SIGKILL for member in pair.members
                            )
                            pairs.remove(entry)
                        elif time.monotonic() > limit:
                            if pair.mode != "flood":
                                outcome.wrong.append(f"a program of mode {pair.mode} does not end")
                            pair.kill()
                    if not settled and time.monotonic() - began > seconds / 10:
                        settled = resident(agent.pid)
                    time.sleep(0.002)
            finally:
                for pair, _ in pairs:
                    pair.kill()
                    for member in pair.members:
                        member.wait()
                outcome.rounds = _finish(honest, outcome)
            _judge(outcome, agent.pid, hosts, files_before, settled)
            reasons = re.findall(r"is disconnected: ([a-z ]+)", log.read_text())
            outcome.ejected = Counter(reason.strip() for reason in reasons)
    return outcome


def _finish(honest: Pair, outcome: Outcome) -> int:
    """End the pair that verifies; return how many rounds it has verified."""
    for member in honest.members:
        member.send_signal(signal.SIGTERM)
    said = []
    for member in honest.members:
        try:
            text, complaint = member.communicate(timeout=300)
        except subprocess.TimeoutExpired:
            member.kill()
            text, complaint = member.communicate()[0], "it does not end"
        if member.returncode:
            outcome.wrong.append(f"the pair that verifies: exit code {member.returncode}, {complaint or text}")
        said.append(text)
    return min((int(text.split()[0]) for text in said if text), default=0)


def _judge(outcome: Outcome, agent: int, hosts: list[Client], files_before: int, settled: int) -> None:
    """Check what the agent has left of all these programs."""
    deadline = time.monotonic() + 120
    while any(host.ask(requests.GetPrograms()).programs for host in hosts) or files(agent) > files_before:
        if time.monotonic() > deadline:
            outcome.wrong.append(f"{files(agent) - files_before} files of programs that are gone are still open")
            break
        time.sleep(0.05)
    for index, host in enumerate(hosts):
        faults = host.ask(requests.GetSummary()).faults
        if faults:
            outcome.wrong.append(f"host h{index}: {faults} internal faults")
    if settled and resident(agent) > settled + GROWTH:
        outcome.wrong.append(f"resident memory grew from {settled} to {resident(agent)} bytes")


def main() -> int:
    """Run the command line; exit with 1 when something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long attackers run (%(default)s)")
    parser.add_argument("--kills", type=int, default=100, help="how many programs are killed at least (%(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    outcome = campaign(chosen.seconds, chosen.kills, chosen.seed)
    print(f"disconnected: {dict(outcome.ejected)}")
    print(f"runs {dict(outcome.runs)}, exits {dict(sorted(outcome.exits.items()))}, rounds verified {outcome.rounds}")
    for each in outcome.wrong:
        print(f"WRONG: {each}")
    return 1 if outcome.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
