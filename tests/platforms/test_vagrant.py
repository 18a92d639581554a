"""What the Vagrantfile and `vagrant/provision.sh` say agrees with the repository, without Vagrant."""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess

import pytest

from support.platforms.roots import PLATFORMS, Root

ROOT = pathlib.Path(__file__).parents[2]
#: Folders of builds and downloads that a machine makes inside the checkout, besides caches of tools.
MADE = (".venv/", "build/", "controller/mrclab/web/static/vendor/")


def test_second_up_deletes_nothing_that_the_machine_made() -> None:
    found = re.search(r"rsync__exclude: \[(.*?)\]", (ROOT / "Vagrantfile").read_text(encoding="utf-8"), re.S)
    assert found is not None
    excluded = re.findall(r'"([^"]+)"', found[1])
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert set(MADE) <= set(ignored), "the folders are where they were"
    assert {*MADE, "hosts/mrc_host/__compiled__/", "results/"} <= set(excluded)


def test_reference_machine_of_another_architecture_is_refused(tmp_path: pathlib.Path) -> None:
    dpkg = tmp_path / "dpkg"
    dpkg.write_text("#!/bin/sh\necho arm64\n")
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!/bin/sh\ntouch {tmp_path}/installed\nexit 9\n")
    for each in (dpkg, apt):
        each.chmod(0o755)
    command = ["sh", str(ROOT / "vagrant/provision.sh"), "--reference"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert "amd64 only, and this machine is arm64" in done.stderr
    assert not (tmp_path / "installed").exists()


@pytest.mark.root
@pytest.mark.slow
@pytest.mark.long
def test_provisioned_system_runs_the_demonstration(tmp_path: pathlib.Path) -> None:
    """In a bare Debian 12 of debootstrap's: `provision.sh` as root, then what a login of the user `vagrant` does."""
    if shutil.which("debootstrap") is None:
        pytest.skip("debootstrap is not installed")
    folder = tmp_path / "root"
    folder.mkdir(mode=0o755)
    root = Root(folder)
    log = tmp_path / "log"
    with log.open("w", encoding="utf-8") as messages:
        root.make(PLATFORMS["debian-12"], messages, include="ca-certificates")
        root.copy_checkout("/mrclab")
        for words in (
            ["useradd", "--create-home", "--shell", "/bin/bash", "vagrant"],
            ["sh", "-c", "mkdir -p /etc/sudoers.d; echo 'vagrant ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/vagrant"],
            ["sh", "/mrclab/vagrant/provision.sh"],
            ["sudo", "-u", "vagrant", "bash", "-lic", "[ $PWD = /mrclab ] && mrclab --help"],
            ["sudo", "-u", "vagrant", "-i", "make", "-C", "/mrclab", "demo"],
            ["sh", "/mrclab/vagrant/provision.sh"],
        ):
            code = root.run(words, messages)
            assert code == 0, f"{words}: {log.read_text(encoding='utf-8')[-4000:]}"
    shutil.rmtree(folder)
