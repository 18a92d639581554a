"""What the Vagrantfile and `vagrant/provision.sh` say agrees with the repository, without Vagrant."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).parents[2]
#: Folders of builds and downloads that a machine makes inside the checkout, besides caches of tools.
MADE = (".venv/", "build/", "controller/mrc_web/static/vendor/")


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
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert "amd64 only, and this machine is arm64" in done.stderr
    assert not (tmp_path / "installed").exists()
