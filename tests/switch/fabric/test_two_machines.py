"""Two network namespaces stand for two machines, each with a fabric process: a tunnel joins them."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from p4lite.switch.fabric.values import TunnelStats
from p4lite.switch.targetapi.client import TargetClient
from support.namespaces import Hosts, run

pytestmark = pytest.mark.netns
#: Longer than a frame of the network between the machines, so that datagrams travel in pieces.
MTU = 4000


class Machines:
    """Machine k (1, 2) is a namespace with address 10.8.0.k on a cable to the other, and has host k plugged in."""

    def __init__(self, folder: pathlib.Path, hosts: Hosts) -> None:
        self.folder = folder
        self.hosts = hosts
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        (folder / "key").write_text(os.urandom(16).hex())
        (folder / "key").chmod(0o600)

    def name(self, k: int) -> str:
        return f"{self.hosts.prefix}m{k}"

    def __enter__(self) -> Machines:
        one, two = self.name(1), self.name(2)
        for name in (one, two):
            run("ip", "netns", "add", name)
        run("ip", "-n", one, "link", "add", "net0", "type", "veth", "peer", "name", "net0", "netns", two)
        for k in (1, 2):
            run("ip", "-n", self.name(k), "addr", "add", f"10.8.0.{k}/24", "dev", "net0")
            run("ip", "-n", self.name(k), "link", "set", "net0", "up")
            run("ip", "link", "set", self.hosts.port(k), "netns", self.name(k))
            run("ip", "-n", self.name(k), "link", "set", self.hosts.port(k), "up")
        return self

    def __exit__(self, *exc: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
        for k in (1, 2):
            run("ip", "netns", "del", self.name(k), check=False)

    def start(self, k: int) -> TargetClient:
        """Return the fabric process of a machine."""
        there = 3 - k
        tunnel = {"local": f"10.8.0.{k}:7001", "peer": f"10.8.0.{there}:7001", "key_file": "key"}
        ports = [
            {"port": 1, "interface": self.hosts.port(k)},
            {"port": 2, "tunnel": {**tunnel, "end": k, "peer_end": there}, "to_host": {"rate_bps": 10_000_000}},
        ]
        switch = {"device_id": k, "ports": ports, "patches": [[1, 2]]}
        address = f"unix:{self.folder}/{k}.sock"
        (self.folder / f"{k}.json").write_text(json.dumps({"grpc_server_addr": address, "switches": [switch]}))
        server = [sys.executable, "-P", "-m", "p4lite.switch.server", "--fabric", str(self.folder / f"{k}.json")]
        process = subprocess.Popen(["ip", "netns", "exec", self.name(k), *server], stdout=subprocess.PIPE)
        self.processes[k] = process
        assert process.stdout is not None
        assert process.stdout.readline().split()[:1] == [b"ready"]
        return TargetClient(address)


@pytest.fixture
def machines(tmp_path: pathlib.Path) -> Iterator[Machines]:
    with Hosts("tu", mtu=MTU) as hosts, Machines(tmp_path, hosts) as made:
        yield made


def tunnel_of(client: TargetClient, k: int) -> TunnelStats:
    found = client.stats()[k].ports[2].tunnel
    assert found is not None
    return found


def test_hosts_on_two_machines_reach_each_other_and_again_after_a_machine_died(machines: Machines) -> None:
    def ping() -> bool:
        # The first may meet a neighbour that is not known yet, or the kernel's last word of a time without listener.
        command = ["ping", "-c", "20", "-i", "0.05", "-W", "3", "-s", str(MTU - 100), "-M", "do", "10.9.0.2"]
        return " 0 received" not in machines.hosts.on(1, *command, check=False, timeout_s=90)

    one, two = machines.start(1), machines.start(2)
    assert ping()
    before = tunnel_of(one, 1), tunnel_of(two, 2)
    for stats in before:
        assert stats.received > 0
        assert (stats.refused, stats.repeated) == (0, 0)
    # Whoever sits on the network between and has no key is refused, from the peer's own address, too.
    code = (
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
        "s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(('10.8.0.2', 7002)); "
        "[s.sendto(bytes(100), ('10.8.0.1', 7001)) for _ in range(5)]"
    )
    run("ip", "netns", "exec", machines.name(2), sys.executable, "-c", code)
    machines.processes[2].send_signal(signal.SIGKILL)
    machines.processes[2].wait()
    two.close()
    code = code.replace("7002", "7001")
    run("ip", "netns", "exec", machines.name(2), sys.executable, "-c", code)
    two = machines.start(2)
    assert ping()
    after = tunnel_of(one, 1)
    assert after.received > before[0].received
    assert after.refused == 5  # of those from the right port; the others never reached it
    assert after.repeated == 0
    for client in (one, two):
        client.close()
