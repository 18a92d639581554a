"""The management network: only hosts of a lab reach it, by their names, and it ends with the lab."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from mrc_topo.base.errors import UsageError
from mrc_topo.labfile import load_lab
from mrclab.cli.sh import in_fabric
from mrclab.lab.hosts import hostnet, inside
from mrclab.lab.hosts.hostnet import HostNet, HostNetError
from mrclab.lab.processes.process import Process, wait_dead
from mrclab.lab.records.record import LabRecord, LabState
from mrclab.lab.records.rundir import RunDir
from support.lab import users
from support.lab.labs import lab_file
from support.namespaces import interfaces, left_behind

SMALL = {"planes": 2, "t0_per_plane": 1, "t1_per_plane": 0, "hosts": 2, "ev": {"size": 8, "active": 4}}
SERVER = """
import socket
with socket.create_server(("", 7471)) as server:
    print("ready", flush=True)
    peer, where = server.accept()
    with peer:
        print(where[0], peer.recv(64).decode(), socket.gethostname())
"""
CLIENT = """
import socket
with socket.create_connection(("h1", 7471)) as peer:
    peer.sendall(socket.gethostname().encode())
"""
UNREACHABLE = """
import socket
try:
    socket.create_connection(("{address}", 7471), timeout=5)
except OSError as error:
    print(type(error).__name__)
"""


def mrclab(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*users.MRCLAB, *words], capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunDir]:
    folder = tmp_path_factory.mktemp("mgmt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MRCLAB_RUN", str(folder / "run"))
        patch.setenv("COLUMNS", "200")
        mrclab("up", lab_file(folder, "tiny", **SMALL))
        try:
            yield RunDir("tiny")
        finally:
            mrclab("down", "tiny")


def counted(host: str) -> tuple[int, int]:
    """Return the packets of IPv4 that a host sent and received: only its management interface has an address."""
    lines = [line.split() for line in mrclab("exec", host, "--", "cat", "/proc/net/snmp").stdout.splitlines()]
    names, values = (line for line in lines if line[0] == "Ip:")
    found = dict(zip(names[1:], map(int, values[1:]), strict=True))
    return found["OutRequests"], found["InReceives"]


def test_addresses_are_of_one_network_and_differ() -> None:
    addresses = [hostnet.address(index) for index in range(1000)]
    assert addresses[0] == "172.31.0.1"
    assert addresses[255] == "172.31.1.0"
    assert len(set(addresses)) == 1000
    assert len(hostnet.bridge_port(hostnet.MAX_HOSTS)) <= 15, "the longest name that Linux takes"


def test_names_come_before_those_of_the_machine() -> None:
    hosts = load_lab("tiny").hosts[:2]
    text = hostnet.names(hosts, "127.0.0.1 localhost\n10.0.0.1 h0\n")
    management = "172.31.0.1 h0 h0.mgmt\n172.31.0.2 h1 h1.mgmt\n"
    fabric = "fd4d:5248:0:1::1 h0.p0\nfd4d:5248:0:2::1 h0.p1\nfd4d:5248:0:1::2 h1.p0\nfd4d:5248:0:2::2 h1.p1\n"
    assert text == management + fabric + "127.0.0.1 localhost\n10.0.0.1 h0\n"


def test_names_of_hosts_are_addresses_of_the_fabric_in_the_prompt() -> None:
    topology, others = load_lab("tiny"), ["h10", "h1.", "x.h1", "h1.pcap", "h1.p1.log"]
    words, notes = in_fabric(topology, ["ping", "-c1", "h1", "h1.p1", "h1.mgmt", *others])
    assert words == ["ping", "-c1", "fd4d:5248:0:1::2", "fd4d:5248:0:2::2", "172.31.0.2", *others]
    assert [note.split(" is ")[0] for note in notes] == ["h1", "h1.p1", "h1.mgmt"]
    with pytest.raises(UsageError, match=r"h1\.p0, h1\.p1 and h1\.mgmt"):
        in_fabric(topology, ["h1.p2"])


def test_a_lab_comes_up_without_the_network_where_the_kernel_has_no_bridges(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise HostNetError("ip: RTNETLINK answers: Operation not supported")

    net = HostNet(load_lab("tiny"))
    monkeypatch.setattr(net, "batch", refuse)
    monkeypatch.setattr(net, "pid", lambda host: 1)
    net._join_management()
    assert not net.managed
    assert "no management network: ip: RTNETLINK answers: Operation not supported" in capsys.readouterr().err


@pytest.mark.lab
def test_hosts_meet_by_their_names(lab: RunDir) -> None:
    words = [*users.MRCLAB, "exec", "h1", "--", sys.executable, "-c", SERVER]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        mrclab("exec", "h0", "--", sys.executable, "-c", CLIENT)
        assert server.stdout.read() == "172.31.0.1 h0 h1\n"
    assert mrclab("exec", "h0", "--", "getent", "hosts", "h1").stdout.split() == ["172.31.0.2", "h1", "h1.mgmt"]
    assert "127.0.0.1" in mrclab("exec", "h0", "--", "getent", "ahostsv4", "localhost").stdout


@pytest.mark.lab
def test_nothing_outside_is_reached(lab: RunDir) -> None:
    state = lab.read()
    # The fabric's own namespace has the bridge, but no address on it and no way to it.
    done = inside.run(
        state, [sys.executable, "-c", UNREACHABLE.format(address="172.31.0.1")], capture_output=True, text=True
    )
    assert done.stdout == "OSError\n"
    assert mrclab("exec", "h0", "--", "ip", "-4", "route", "show", "default").stdout == ""
    assert not [name for name in os.listdir("/sys/class/net") if name.startswith("mgmt")]
    assert "172.31.0.1 h0" not in pathlib.Path("/etc/hosts").read_text()


@pytest.mark.lab
def test_runs_send_nothing_over_it(lab: RunDir, tmp_path: pathlib.Path) -> None:
    before = [counted(host) for host in ("h0", "h1")]
    settings = ("--set", "iterations=2", "--set", "message_bytes=65536")
    mrclab("run", "write_bw", "--lab", "tiny", "--clock", "real", *settings, "-o", str(tmp_path))
    assert [counted(host) for host in ("h0", "h1")] == before
    sockets = mrclab("exec", "h0", "--", "cat", "/proc/net/packet").stdout
    (row,) = json.loads(mrclab("exec", "h0", "--", "ip", "-j", "link", "show", hostnet.INTERFACE).stdout)
    assert row["ifindex"] not in [int(line.split()[4]) for line in sockets.splitlines()[1:]]


@pytest.mark.lab
@pytest.mark.slow
def test_a_killed_lab_leaves_nothing_of_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    before = interfaces()
    mrclab("up", lab_file(tmp_path, "tiny", **SMALL))
    run = RunDir("tiny")
    first = run.read().first
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    wait_dead(first, 60)
    mrclab("cleanup")
    assert left_behind(before, run.path) == []


# -- variables of programs -----------------------------------------------------------------------------------------


def state_of(pid: int) -> LabState:
    return LabState("tiny", first=Process.of("lab", pid), record=LabRecord(hosts={"h0": 2}))


def test_variables_name_the_library_only_where_the_lab_has_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inside, "LAB_FOLDER", str(tmp_path))
    monkeypatch.setenv("LD_PRELOAD", "libother.so")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    state = state_of(os.getpid())
    device = {"MRC_DEVICE": f"{tmp_path}/h0.verbs"}
    assert inside.environment(state, "h0") == device
    folder = tmp_path / "libmrc"
    folder.mkdir()
    (folder / "libmrc.so.1").touch()
    preload = f"{folder}/libmrc.so.1:libother.so"
    assert inside.environment(state, "h0") == {**device, "LD_LIBRARY_PATH": str(folder), "LD_PRELOAD": preload}
    by_hand = inside.command(state, ["prog"], host="h0", by_hand=True)
    assert f"LD_PRELOAD={preload}" in by_hand
    # What mrclab itself runs in a host needs no library of C.
    assert not [word for word in inside.command(state, ["prog"], host="h0") if word.startswith("LD_")]


@pytest.mark.lab
def test_env_prints_what_exec_sets(lab: RunDir) -> None:
    variables = json.loads(mrclab("env", "h1", "--json").stdout)
    assert variables["MRC_DEVICE"] == "/run/lab/h1.verbs"
    assert mrclab("env", "h1").stdout.splitlines() == [f"export {name}={value}" for name, value in variables.items()]
    seen = dict(
        line.split("=", 1) for line in mrclab("exec", "h1", "--", "env").stdout.splitlines() if line.startswith("MRC_")
    )
    assert seen["MRC_DEVICE"] == variables["MRC_DEVICE"]
    assert "no host 'h7' in lab 'tiny'" in mrclab("env", "h7", code=2).stderr
