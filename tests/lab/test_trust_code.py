"""Policies on the real clock: whose files are run, when nobody's are, and what of it `status` and `deny` see."""

from __future__ import annotations

import json
import os
import pathlib

import pytest

from mrc_topo.labfile import load_lab, parse_lab
from mrc_topo.topology import Topology
from mrclab.lab import policies
from mrclab.lab.policies import PolicyRefused
from mrclab.lab.records.rundir import RunError
from mrclab.lab.requested import LabRequest
from support.lab import users
from support.lab.users import NOBODY

LAB = """\
name: own
planes: 2
t0_per_plane: 1
t1_per_plane: 0
hosts: 2
hosts_per_t0: 2
path_mtu: 1024
agents: {processes: per-host}
ev: {size: 8, active: 4}
"""
SMALL_WINDOW = """\
from mrc_host.policy import WindowPolicy


class Small(WindowPolicy):
    def on_sack(self, now, newly, rtt_ns, ce, penalty, restore, whole=True):
        self.cwnd = 2 * self.mtu
"""
BLUNT = """\
from mrclab.lab.management.clustermapper import Finding


class Blunt:
    def locate(self, topology, views):
        return [Finding("p1-t0.0", "dead", ())]
"""


@pytest.fixture
def lab(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Topology:
    """Return a lab that names a policy in a file of ours."""
    monkeypatch.setattr(policies, "is_machine_root", lambda: False)
    tmp_path.chmod(0o700)
    (tmp_path / "own.py").write_text(SMALL_WINDOW)
    (tmp_path / "own.py").chmod(0o600)
    (tmp_path / "own.yaml").write_text(LAB + "policies: {congestion: own:Small}\n")
    return load_lab(tmp_path / "own.yaml")


def test_code_is_run_where_somebody_says_so(lab: Topology, monkeypatch: pytest.MonkeyPatch) -> None:
    policies.check(lab, "real", "mrc", trust_code=True)
    with pytest.raises(PolicyRefused, match=r"policies.congestion: .*own.py:Small: .*--clock virtual.*--trust-code"):
        policies.check(lab, "real", "mrc")
    monkeypatch.setattr(policies, "is_machine_root", lambda: True)
    with pytest.raises(PolicyRefused, match="root runs no code that a file names"):
        policies.check(lab, "real", "mrc", trust_code=True)
    policies.check(lab, "virtual", "mrc")


def test_files_that_others_can_change_are_refused(lab: Topology, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "own.py"

    def refused(said: str) -> None:
        with pytest.raises(PolicyRefused, match=said):
            policies.check(lab, "real", "mrc", trust_code=True)

    path.chmod(0o666)
    refused(f"policies.congestion: {path}: .*`chmod go-w {path}`")
    path.chmod(0o620)
    os.chown(path, -1, 12345 if os.geteuid() == 0 else os.getegid())
    if os.geteuid() == 0:
        refused("chmod go-w")
    path.chmod(0o600)
    tmp_path.chmod(0o777)
    refused(f"{tmp_path}: others can write to it; `chmod go-w {tmp_path}`")
    tmp_path.chmod(0o700)
    path.rename(tmp_path / "other.py")
    path.symlink_to(tmp_path / "other.py")
    refused("own.py: is a link; name the file itself")
    path.unlink()
    refused("own.py: No such file or directory")
    if os.geteuid() == 0:
        (tmp_path / "other.py").rename(path)
        os.chown(path, NOBODY, NOBODY)
        refused("must be a plain file of yours")


def test_a_lab_keeps_what_was_trusted(lab: Topology, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies beside the copy of its file, which later commands take without being told again."""
    monkeypatch.setenv("MRCLAB_RUN", str(tmp_path / "run"))
    kept = tmp_path / "run" / "own"
    kept.parent.mkdir(mode=0o700)
    kept.mkdir(mode=0o700)
    files = policies.read(lab)
    policies.place(files, kept)
    text = policies.copied((tmp_path / "own.yaml").read_text(), files)
    up = parse_lab(text, "own", kept)
    assert up.lab.policies.named == {"congestion": f"{kept}/policies/congestion/own.py:Small"}
    assert up.lab.model_copy(update={"policies": lab.lab.policies}) == lab.lab
    policies.check(up, "real", "mrc")
    (tmp_path / "run").chmod(0o777)
    with pytest.raises(RunError, match=r"run is open to others"):
        policies.check(up, "real", "mrc")
    (tmp_path / "run").chmod(0o700)
    assert policies.same(lab, up)
    (tmp_path / "own.py").write_text(SMALL_WINDOW + "\n")
    assert not policies.same(lab, up)
    assert not policies.same(parse_lab(LAB), up)


def test_root_brings_no_such_lab_up(lab: Topology, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "is_machine_root", lambda: True)
    with pytest.raises(PolicyRefused, match="ordinary user's --trust-code"):
        LabRequest.of(str(tmp_path / "own.yaml"), trust_code=True, clock="real")


@pytest.mark.root
@pytest.mark.lab
@pytest.mark.slow
def test_an_ordinary_users_policies_on_the_real_clock() -> None:
    if not users.can_read_our_code(NOBODY):
        pytest.skip("other users cannot read our code")
    with users.home(NOBODY) as home:

        def write(name: str, text: str) -> None:
            (home / name).write_text(text)
            os.chown(home / name, NOBODY, NOBODY)

        def mrclab(*words: str) -> tuple[int, str, str]:
            done = users.run(NOBODY, home, *users.MRCLAB, *words)
            assert "Traceback" not in done.stderr, done.stderr
            return done.returncode, done.stdout, done.stderr

        write("window.py", SMALL_WINDOW)
        write("find.py", BLUNT)
        write("own.yaml", LAB + "policies: {congestion: window:Small, localiser: find:Blunt}\n")
        code, _, told = mrclab("up", "own.yaml")
        assert (code, "--trust-code" in told) == (2, True), told
        code, _, told = mrclab("up", "own.yaml", "--trust-code")
        assert code == 0, told
        try:
            # The lab that is up has been trusted; the file that is not its copy has not.
            words = ("run", "write_bw", "--set", "iterations=20", "--json", "-o", "result")
            code, output, told = mrclab(*words)
            assert code == 0, output + told
            result = json.loads((home / "result" / "result.json").read_text())
            windows = [peer["cc"]["cwnd"] for each in result["statistics"].values() for peer in each["peers"]]
            assert windows
            assert min(windows) < 4096
            assert mrclab(*words, "--lab", "own.yaml", "--clock", "real")[0] == 2
            write("window.py", SMALL_WINDOW + "\n")
            code, _, told = mrclab(*words, "--lab", "own.yaml", "--clock", "real", "--trust-code")
            assert (code, "up with other policies" in told) == (2, True), told
            # What is broken is what the lab's own localiser says.
            health = json.loads(mrclab("status", "--json")[1])["health"]
            assert health == [{"element": "p1-t0.0", "hosts": "dead", "truth": "healthy"}]
            assert mrclab("deny")[1].startswith("denied: p1-t0.0; ")
        finally:
            mrclab("down")
        # A mistake ends its agent, and the run says what it was.
        write("window.py", SMALL_WINDOW.replace("2 * self.mtu", "-1"))
        write("own.yaml", LAB + "policies: {congestion: window:Small}\n")
        code, output, told = mrclab(*words, "--lab", "own.yaml", "--clock", "real", "--trust-code")
        assert code == 1
        assert "window.py:5: Small.on_sack: cwnd is -1 bytes" in output + told
