"""One lab on two machines: two network namespaces with a cable between them stand for these, and their clocks differ.

The tests of this file share one lab, in their order: the last ones kill what carries it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import yaml

from mrclab.lab.session.base import closing
from mrclab.lab.spread import session_of
from mrclab.results.record import RunResult
from support.lab import users
from support.lab.results import plain
from support.lab.users import mrclab
from support.namespaces import lab_processes, run

pytestmark = pytest.mark.netns
#: h1's port in plane 1 and links between switches in both planes are tunnels.
LAB: dict[str, Any] = {
    "name": "two",
    "planes": 2,
    "t0_per_plane": 2,
    "t1_per_plane": 1,
    "hosts": 2,
    "hosts_per_t0": 1,
    "path_mtu": 2048,
    "links": {"host": {"rate": "2Mbps"}, "fabric": {"rate": "2Mbps"}},
    "ev": {"size": 8, "active": 4, "min_active": 1},
    "cc": {"base_rtt": "80ms"},
}
PARTS: dict[str, dict[str, Any]] = {
    "one": {"hosts": ["h0"], "switches": ["p*-t0.0", "p0-t1.0", "p1-t0.1"]},
    "two": {"hosts": ["h1"], "switches": ["p0-t0.1", "p1-t1.0"]},
}
CROSSING = "p1-t0.1--p1-t1.0"
#: The second machine was started so long before the first.
OLDER_S = 5000
WAIT_S = 60.0


@dataclasses.dataclass
class World:
    """Machine k is the namespace `prefix + k` with address 10.7.0.k; labs' run directories are in `folder`/run."""

    folder: pathlib.Path
    prefix: str
    lab: pathlib.Path

    def make(self) -> None:
        for k in (1, 2):
            run("ip", "netns", "add", f"{self.prefix}{k}")
            run("ip", "-n", f"{self.prefix}{k}", "link", "set", "lo", "up")
        cable = ["link", "add", "net0", "type", "veth", "peer", "name", "net0", "netns", f"{self.prefix}2"]
        run("ip", "-n", f"{self.prefix}1", *cable)
        for k in (1, 2):
            run("ip", "-n", f"{self.prefix}{k}", "addr", "add", f"10.7.0.{k}/24", "dev", "net0")
            self.cable(k, "up")
        machines = {
            name: {"ssh": f"{self.prefix}{k}", "address": f"10.7.0.{k}", **part}
            for k, (name, part) in enumerate(PARTS.items(), 1)
        }
        self.lab.write_text(yaml.safe_dump({**LAB, "machines": machines}, sort_keys=False))
        # What takes the place of ssh.
        way = self.folder / "way"
        mrclab = shlex.join(users.MRCLAB)
        older = f"unshare --time --fork --monotonic {OLDER_S}"
        way.write_text(
            "#!/bin/sh\nname=$1\nshift\n"
            f'[ "$name" = {self.prefix}2 ] && set -- {older} {mrclab} "$@" || set -- {mrclab} "$@"\n'
            'exec ip netns exec "$name" "$@"\n'
        )
        way.chmod(0o755)
        os.environ["MRCLAB_CONNECT"] = f"{way} {{ssh}}"

    def cable(self, k: int, state: str) -> None:
        run("ip", "-n", f"{self.prefix}{k}", "link", "set", "net0", state)

    def remove(self) -> None:
        for k in (1, 2):
            run("ip", "netns", "del", f"{self.prefix}{k}", check=False)

    def processes(self) -> list[psutil.Process]:
        """Keepers and parts of labs in our folder that live."""
        found = []
        for each in psutil.process_iter():
            try:
                words, folder = each.cmdline(), each.environ().get("MRCLAB_RUN", "")
                ours = words[-1:] == ["part"] or "mrc_machines.coordinator" in words
                if ours and folder.startswith(str(self.folder)):
                    found.append(each)
            except (psutil.Error, OSError):
                continue
        return found

    def part(self, k: int) -> psutil.Process:
        """Return the process of machine k's part."""
        inode = os.stat(f"/run/netns/{self.prefix}{k}").st_ino
        for each in self.processes():
            words = each.cmdline()
            if words[-1:] != ["part"] or "unshare" in words:
                continue
            if os.stat(f"/proc/{each.pid}/ns/net").st_ino == inode:
                return each
        raise AssertionError("there is none")

    def left(self) -> list[str]:
        """Return what is left after a moment: processes of labs, and those that keep them."""
        deadline = time.monotonic() + WAIT_S
        while True:
            found = [*map(str, self.processes()), *lab_processes(self.folder).values()]
            if not found or time.monotonic() > deadline:
                return found
            time.sleep(0.1)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("ma")
    made = World(folder, f"ma{os.getpid() % 100000}m", folder / "two.yaml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRCLAB_RUN", str(folder / "run"))
        patch.setenv("MRCLAB_CONNECT", "")
        patch.setenv("COLUMNS", "250")
        patch.chdir(folder)
        try:
            made.make()
            yield made
            subprocess.run([*users.MRCLAB, "down", "two"], capture_output=True, check=False)
        finally:
            for each in made.processes():
                each.kill()
            made.remove()


def experiment(world: World, name: str, **changes: Any) -> RunResult:
    """Run an experiment on the lab; its result, which must be as wanted."""
    document: dict[str, Any] = {
        "name": name,
        "title": name,
        "lab": str(world.lab),
        "clock": "real",
        "workload": {"name": "all_to_all", "params": {"block_bytes": 6000}, "duration": 2},
        "expect": {"valid": False},
    }
    (world.folder / f"{name}.yaml").write_text(yaml.safe_dump({**document, **changes}))
    mrclab("run", str(world.folder / f"{name}.yaml"), "-o", str(world.folder / name))
    return RunResult.load(world.folder / name)


def status() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(mrclab("status", "--json").stdout)
    return document


def datagrams(row: dict[str, Any], key: str) -> int:
    return sum(end[key] for end in row["tunnels"].values())


def started(*words: str) -> subprocess.Popen[str]:
    """Start a run and return it once data arrives."""

    def delivered() -> int:
        """Since the beginning, whatever counter a new run begins anew."""
        counts = [row["delivered_bytes"] for row in client.request("samples", since=begin)["samples"]]
        return sum(max(after - before, 0) for before, after in itertools.pairwise(counts))

    with closing(session_of("two")) as session:
        client, begin = session.clients["h1"], session.now_ns()
        running = subprocess.Popen(
            [*users.MRCLAB, "run", "all_to_all", "--set", "block_bytes=6000", *words],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        deadline = time.monotonic() + 4 * WAIT_S
        while delivered() < 30_000:
            assert running.poll() is None, running.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.1)
    return running


def test_a_machine_that_cannot_be_reached_is_named_and_nothing_is_left(world: World) -> None:
    said = mrclab("up", str(world.lab), "--connect", "false {ssh}", code=1).stderr
    assert "machine one: is lost: `false ...`, which leads there, ended by itself with exit code 1" in said
    assert "machine two: is lost" in said
    assert not world.left()
    assert not (world.folder / "run" / "two").exists()


def test_a_tunnel_that_lets_nothing_through_is_named_at_up(world: World) -> None:
    """Datagrams from the first machine go to no one; those from the second arrive."""
    wrong = ["ip", "-n", f"{world.prefix}1", "neigh", "replace", "10.7.0.2", "lladdr", "02:00:00:00:00:99"]
    run(*wrong, "dev", "net0", "nud", "permanent")
    try:
        said = mrclab("up", str(world.lab), code=1).stderr
    finally:
        run("ip", "-n", f"{world.prefix}1", "neigh", "del", "10.7.0.2", "dev", "net0")
    assert f"tunnel {CROSSING}: no datagram from 10.7.0.1:" in said
    assert "arrives at machine two (10.7.0.2:" in said
    assert "arrives at machine one" not in said
    assert not world.left()
    assert not (world.folder / "run" / "two").exists()


def test_all_to_all_between_two_machines_is_verified(world: World) -> None:
    said = mrclab("up", str(world.lab))
    assert "lab two is up on 2 machines: 2 hosts, 6 switches" in said.stdout
    assert "from machine one full frames" in said.stderr
    assert "travel in pieces" in said.stderr
    result = experiment(world, "plain")
    assert result.ranks == ["h0", "h1"]
    machines = plain(result)["fidelity"]["machines"]
    assert list(machines) == ["one", "two"]
    # The second machine's clock was so much ahead, and its part has ours.
    assert abs(machines["two"]["clock"]["set_ns"] + OLDER_S * 10**9) < 10**10
    assert abs(machines["one"]["clock"]["set_ns"]) < 10**10
    for row in machines.values():
        clock = row["clock"]
        # The clocks run alike, so that what was measured then and now overlaps, however late this machine is.
        assert abs(clock["off_ns"]) <= clock["uncertainty_ns"] + clock["set_uncertainty_ns"]
        assert clock["uncertainty_ns"] > 0
        assert sorted(row["tunnels"]) == ["h1:1", "p0-t0.1--p0-t1.0", "p1-t0.0--p1-t1.0", CROSSING]
        assert datagrams(row, "received") > 0
        assert datagrams(row, "refused") == 0
    for host in ("h0", "h1"):
        (times,) = result.samples[host].take(["t_ns"])
        assert len(times)
        assert result.started_ns - 10**10 < times[0] < times[-1] < result.finished_ns + 10**10


def test_a_link_between_machines_and_a_port_far_away_fail_and_recover(world: World) -> None:
    lost = {"losses": 1, "evs_lost": 1, "dropped": 1}
    schedule = [
        {"at": 1, "fail": CROSSING, "evidence": lost},
        {"at": 3, "restore": CROSSING},
        {"at": 4, "fail": "h1:1", "kind": "port_down", "evidence": {"ports_down": 1}},
        {"at": 6, "restore": "h1:1"},
    ]
    workload = {"name": "all_to_all", "params": {"block_bytes": 6000}, "duration": 8}
    result = experiment(world, "broken", schedule=schedule, workload=workload)
    assert not result.failures
    assert len(result.happenings) == 4


def test_what_the_network_between_loses_is_counted(world: World) -> None:
    before = [datagrams(row, "lost") for row in status()["machines"]]
    running = started("--duration", "5", "-o", "lossy")
    world.cable(1, "down")
    time.sleep(2)
    world.cable(1, "up")
    said = running.communicate(timeout=200)[0]
    assert running.returncode == 0, said
    rows = status()["machines"]
    assert sum(datagrams(row, "lost") for row in rows) > sum(before)
    books = RunResult.load(world.folder / "lossy").books
    # Four links of hosts, three tunnels between switches, and both ways of the link that is none.
    assert not [each for each in books.balances if each.unbalanced]
    assert [each.entries for each in books.balances if each.identity == "packets by link"] == [9]


def test_what_cannot_be_done_here_is_refused_with_the_place(world: World) -> None:
    said = mrclab("exec", "h1", "true", code=2).stderr
    assert "host h1 is on machine two: this is done there, with MRCLAB_PART=two in the environment" in said
    assert "lab 'two' is on several machines" in mrclab("capture", "h0:0", code=2).stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRCLAB_PART", "two")
        assert "h1-p0" in mrclab("exec", "h1", "ip", "-br", "link").stdout
        patch.setenv("MRCLAB_PART", "../two")
        assert "is not the name of a machine" in mrclab("exec", "h1", "true", code=2).stderr


def test_a_part_that_is_killed_is_named_by_a_run_and_by_commands(world: World) -> None:
    running = started("--duration", "60", "-o", "killed")
    world.part(1).send_signal(signal.SIGKILL)
    said = running.communicate(timeout=200)[0]
    assert running.returncode == 1, said
    died = "machine one is lost: `way ...`, which leads there, was killed by SIGKILL"
    verdict = json.loads((world.folder / "killed" / "verdict.json").read_text())
    assert any(died in each["how"] or died in f"machine one {each['how']}" for each in verdict["deaths"]), verdict
    said = mrclab("status").stdout
    assert died in " ".join(said.split())
    assert "1 of 2 agents alive" in said
    assert "machine two (ssh " in said
    for text in ("grpc", "StatusCode", "UNAVAILABLE", "failed to connect"):
        assert text not in said
    document = status()
    assert {row["name"]: row["alive"] for row in document["hosts"]} == {"h0": False, "h1": True}
    states = {row["name"]: row["state"] for row in document["switches"]}
    assert states["p0-t0.0"] == states["p0-t1.0"] == "lost"
    assert states["p0-t0.1"] == states["p1-t1.0"] == "running"
    assert {row["name"]: bool(row["lost"]) for row in document["machines"]} == {"one": True, "two": False}


def test_the_parts_end_with_a_keeper_that_is_killed(world: World) -> None:
    (keeper,) = [each for each in world.processes() if "mrc_machines.coordinator" in each.cmdline()]
    keeper.kill()
    assert not world.left()
    assert "lab 'two' has died" in mrclab("status", code=2).stderr
    said = mrclab("cleanup").stdout
    assert "lab two: removed" in said
    assert "lab two (machine one): removed" in said
    assert not list((world.folder / "run").glob("two")) + list((world.folder / "run").glob(".parts/*/two"))


def test_a_run_brings_the_lab_up_and_down_again(world: World) -> None:
    mrclab("run", "all_to_all", "--lab", str(world.lab), "--clock", "real", "--duration", "1", "-o", "alone")
    assert not world.left()
    assert not list((world.folder / "run").glob("two")) + list((world.folder / "run").glob(".parts/*/two"))


def test_a_machine_whose_stream_stands_still_is_lost(world: World) -> None:
    """As with a pulled cable: nothing ends, and nothing comes."""
    mrclab("up", str(world.lab))
    part = world.part(2)
    part.suspend()
    try:
        deadline = time.monotonic() + WAIT_S
        while not any(row["lost"] for row in status()["machines"]):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        said = " ".join(mrclab("status").stdout.split())
        assert "machine two is lost: no word from it for 8 s" in said
        assert "1 of 2 agents alive" in said
    finally:
        part.resume()
    mrclab("down", "two")
    assert not world.left()
