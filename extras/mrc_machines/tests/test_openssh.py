"""One lab on two machines that OpenSSH leads to: its client and its server, keys, and a remote shell.

The machines are two network namespaces with a cable between them. An `sshd -i` in the machine's namespace is what the
client's ProxyCommand talks to, so nothing listens anywhere.
"""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator

import psutil
import pytest
import yaml

from mrclab.results.record import RunResult
from support.lab import users
from support.lab.users import mrclab
from support.namespaces import lab_processes, run

#: sshd changes to users that a user namespace does not have.
pytestmark = pytest.mark.root
SSHD = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin")
#: Separation of privileges wants a folder that only root can write to; it is compiled into sshd.
SEPARATION = pathlib.Path("/run/sshd")
WAIT_S = 60.0
LAB = {
    "name": "ssh",
    "planes": 1,
    "t0_per_plane": 2,
    "t1_per_plane": 1,
    "hosts": 2,
    "hosts_per_t0": 1,
    "path_mtu": 2048,
    "links": {"host": {"rate": "2Mbps"}, "fabric": {"rate": "2Mbps"}},
    "ev": {"size": 8, "active": 4, "min_active": 1},
    "cc": {"base_rtt": "80ms"},
}
PARTS = {
    "one": {"hosts": ["h0"], "switches": ["p0-t0.0", "p0-t1.0"]},
    "two": {"hosts": ["h1"], "switches": ["p0-t0.1"]},
}


def _namespaces(prefix: str) -> None:
    for k in (1, 2):
        run("ip", "netns", "add", f"{prefix}{k}")
        run("ip", "-n", f"{prefix}{k}", "link", "set", "lo", "up")
    run("ip", "-n", f"{prefix}1", "link", "add", "net0", "type", "veth", "peer", "name", "net0", "netns", f"{prefix}2")
    for k in (1, 2):
        run("ip", "-n", f"{prefix}{k}", "addr", "add", f"10.7.1.{k}/24", "dev", "net0")
        run("ip", "-n", f"{prefix}{k}", "link", "set", "net0", "up")


def _server(folder: pathlib.Path) -> None:
    """Write the server's configuration, its key, and the key that it lets in."""
    for name in ("host_key", "user_key"):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized_keys\nPidFile none\nUsePAM no\n"
        "StrictModes no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\nLogLevel ERROR\n"
    )


def _client(folder: pathlib.Path, prefix: str) -> None:
    """Write the client's configuration: a host `machine-k` is the server in namespace k."""
    key = (folder / "host_key.pub").read_text()
    (folder / "known_hosts").write_text("".join(f"machine-{k} {key}" for k in (1, 2)))
    blocks = [
        f"Host machine-{k}\n  User root\n  IdentityFile {folder}/user_key\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {folder}/known_hosts\n"
        f"  ProxyCommand ip netns exec {prefix}{k} {SSHD} -i -f {folder}/sshd_config\n"
        for k in (1, 2)
    ]
    (folder / "ssh_config").write_text("".join(blocks))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[pathlib.Path]:
    if SSHD is None or shutil.which("ssh") is None:
        pytest.skip("OpenSSH is not installed (apt-get install openssh-server openssh-client)")
    SEPARATION.mkdir(mode=0o755, exist_ok=True)
    folder = tmp_path_factory.mktemp("ssh")
    prefix = f"os{os.getpid() % 100000}m"
    try:
        _namespaces(prefix)
        _server(folder)
        _client(folder, prefix)
        machines = {
            name: {"ssh": f"machine-{k}", "address": f"10.7.1.{k}", **part}
            for k, (name, part) in enumerate(PARTS.items(), 1)
        }
        (folder / "ssh.yaml").write_text(yaml.safe_dump({**LAB, "machines": machines}, sort_keys=False))
        (folder / "run").mkdir(mode=0o700)
        # What a machine has in its PATH. A shell that ssh starts has no variables of ours.
        script = folder / "mrclab"
        script.write_text(f'#!/bin/sh\nMRCLAB_RUN={folder}/run exec {shlex.join(users.MRCLAB)} "$@"\n')
        script.chmod(0o755)
        with pytest.MonkeyPatch.context() as patch:
            options = "-T -o BatchMode=yes -o ServerAliveInterval=5 -o ServerAliveCountMax=6"
            patch.setenv("MRCLAB_CONNECT", f"ssh -F {folder}/ssh_config {options} -- {{ssh}} {script}")
            patch.setenv("MRCLAB_RUN", str(folder / "run"))
            patch.setenv("COLUMNS", "250")
            patch.chdir(folder)
            yield folder
            subprocess.run([*users.MRCLAB, "down", "ssh"], capture_output=True, check=False)
    finally:
        for k in (1, 2):
            run("ip", "netns", "del", f"{prefix}{k}", check=False)


def _clients(folder: pathlib.Path) -> list[psutil.Process]:
    """Return the processes of OpenSSH that belong to this folder."""
    found = []
    for each in psutil.process_iter():
        try:
            words = each.cmdline()
        except psutil.Error:
            continue
        if words[:1] == ["ssh"] and f"{folder}/ssh_config" in words:
            found.append(each)
    return found


def _left(folder: pathlib.Path) -> list[str]:
    """Return what is left of the lab after a moment."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = [*map(str, _clients(folder)), *lab_processes(folder).values()]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


def test_an_experiment_runs_on_machines_behind_ssh(folder: pathlib.Path) -> None:
    said = mrclab("up", str(folder / "ssh.yaml")).stdout
    assert "lab ssh is up on 2 machines: 2 hosts, 3 switches" in said
    assert len(_clients(folder)) == 2
    document = {
        "name": "plain",
        "title": "All to all behind ssh",
        "lab": str(folder / "ssh.yaml"),
        "clock": "real",
        "workload": {"name": "all_to_all", "params": {"block_bytes": 6000}, "duration": 2},
        "expect": {"valid": False},
    }
    (folder / "plain.yaml").write_text(yaml.safe_dump(document))
    mrclab("run", str(folder / "plain.yaml"), "-o", str(folder / "plain"))
    result = RunResult.load(folder / "plain")
    assert result.ranks == ["h0", "h1"]
    assert not result.failures
    mrclab("down", "ssh")
    assert not _left(folder)
    assert not (folder / "run" / "ssh").exists()


def test_a_connection_that_ends_is_named(folder: pathlib.Path) -> None:
    mrclab("up", str(folder / "ssh.yaml"))
    second = next(each for each in _clients(folder) if "machine-2" in each.cmdline())
    second.kill()
    deadline = time.monotonic() + WAIT_S
    while "is lost" not in (said := _status()):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    assert "two" in said
    mrclab("down", "ssh")
    assert not _left(folder)


def _status() -> str:
    done = subprocess.run([*users.MRCLAB, "status"], capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def test_a_machine_that_ssh_does_not_know_is_named(folder: pathlib.Path) -> None:
    lab = yaml.safe_load((folder / "ssh.yaml").read_text())
    lab["machines"]["two"]["ssh"] = "machine-3.invalid"
    (folder / "wrong.yaml").write_text(yaml.safe_dump(lab, sort_keys=False))
    said = mrclab("up", str(folder / "wrong.yaml"), code=1).stderr
    assert "machine two: is lost" in said
    assert "machine-3.invalid" in said
    assert not _left(folder)
