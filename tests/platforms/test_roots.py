"""The parts of `make roots-check` that need neither root nor a network."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest
from packaging.requirements import Requirement

from platforms import needs
from support.platforms import check, install
from support.platforms.roots import (
    CHECKOUT,
    ENTER,
    PLATFORMS,
    Root,
    RootError,
    configuration,
    settings,
    shared_folders,
    vendored,
)

LISTED = "global.extra-index-url='file:///a/simple\\nfile:///b/simple'\nglobal.cert='/none'\n:env:.cert='/else'\n"


def test_pips_settings_come_from_its_files_and_from_the_environment() -> None:
    found = settings(LISTED, {"PIP_CERT": "/else", "PIP_DEFAULT_TIMEOUT": "9", "HOME": "/x", "PIP_CONFIG_FILE": "/y"})
    assert found == {
        "extra-index-url": "file:///a/simple\nfile:///b/simple",
        "cert": "/else",
        "default-timeout": "9",
    }


def test_files_of_settings_are_copied_and_folders_are_shared(tmp_path: pathlib.Path) -> None:
    (tmp_path / "authority.crt").write_text("text")
    (tmp_path / "mirror" / "simple").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    (tmp_path / "root").mkdir()
    found = {
        "cert": str(tmp_path / "authority.crt"),
        "index-url": f"file://{tmp_path}/mirror/simple",
        "find-links": f"{tmp_path}/wheels /nowhere",
        "timeout": "9",
    }
    text = configuration(found, tmp_path / "root")
    assert "cert = /check/cert\n" in text
    assert "timeout = 9\n" in text
    assert (tmp_path / "root/check/cert").read_text() == "text"
    assert shared_folders(found) == [tmp_path / "mirror", tmp_path / "wheels"]


def test_release_with_an_older_python_names_its_newer_one_to_make() -> None:
    assert PLATFORMS["debian-12"].words() == []
    python, packages, needed = PLATFORMS["ubuntu-22.04"].words()
    assert python == "PYTHON=/usr/bin/python3.11"
    assert "python3.11-venv gcc" in packages
    assert "python3.11-dev" in packages
    assert needed == "APT_NEEDED=python3.11-venv gcc libc6-dev"


def test_steps_are_targets_of_the_makefile() -> None:
    makefile = (CHECKOUT / "Makefile").read_text(encoding="utf-8").splitlines()
    for step in check.STEPS:
        assert any(line.startswith(f"{step}:") for line in makefile), step
    assert check.script("root", ["demo"]) == ["make", "-C", "/root/mrclab", "demo"]
    assert check.script("user", ["demo"])[:3] == ["runuser", "-u", "learner"]


def test_missing_debootstrap_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with (tmp_path / "log").open("w") as log, pytest.raises(RootError, match="apt-get install debootstrap"):
        Root(tmp_path).make(PLATFORMS["debian-13"], log)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with (tmp_path / "log").open("w") as log, pytest.raises(RootError, match="sudo"):
        Root(tmp_path).make(PLATFORMS["debian-13"], log)


@pytest.mark.root
def test_root_is_entered_with_a_root_of_its_own_and_may_make_user_namespaces(tmp_path: pathlib.Path) -> None:
    """The machine's folders stand for a root of debootstrap's."""
    place = tmp_path / "root"
    for name in ("proc", "sys", "dev", "etc", "usr"):
        (place / name).mkdir(parents=True)
    for name in ("bin", "lib", "lib64", "sbin"):
        if pathlib.Path("/", name).is_symlink():
            (place / name).symlink_to(pathlib.Path("/", name).readlink())
    enter = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "sh", str(ENTER)]
    script = "ls / | tr '\\n' ' '; unshare --user true; cat /proc/self/comm"
    command = [*enter, str(place), "/usr=/usr", "--", "sh", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert "tmp" not in done.stdout.split()
    assert done.stdout.endswith("cat\n")


def test_emulated_root_gets_the_requirements_of_both_distributions() -> None:
    names = {Requirement(each).name for each in needs.requirements()}
    assert {"numpy", "lark", "pcpp", "grpcio", "pytest", "hypothesis", "editables"} <= names
    assert names.isdisjoint(needs.UNUSED)


def test_each_way_installs_both_files_of_dist(tmp_path: pathlib.Path) -> None:
    for name in ("p4lite-1-py3-none-any.whl", "p4lite-1.tar.gz", "mrclab-1-py3-none-any.whl", "mrclab-1.tar.gz"):
        (tmp_path / name).touch()
    texts = dict(install.steps("sdist", install.WAYS["sdist"], tmp_path))
    assert texts["pip install"].endswith("/dist/p4lite-1.tar.gz '/home/learner/dist/mrclab-1.tar.gz[dev]'")
    assert "--clock virtual" in texts["demo"]
    with pytest.raises(RootError, match=r"0 files mrclab-.* run `make release-check` first"):
        install.steps("mininet", install.WAYS["mininet"], tmp_path)


def test_root_without_a_network_is_set_up_from_the_vendored_folder(tmp_path: pathlib.Path) -> None:
    assert "--net" in Root(tmp_path, offline=True).command(["true"])
    assert "--net" not in Root(tmp_path).command(["true"])
    with pytest.raises(RootError, match="run `make vendor` first"):
        vendored(tmp_path)
    for name in ("debs", "wheels"):
        (tmp_path / "vendor" / name).mkdir(parents=True)
    assert vendored(tmp_path) == tmp_path / "vendor"


@pytest.mark.parametrize("missing", ["make", "sudo", ""])
def test_kept_root_gets_what_the_steps_need(missing: str, tmp_path: pathlib.Path) -> None:
    for name in {"make", "sudo", "apt-get"} - {missing}:
        (tmp_path / name).write_text("#!/bin/sh\necho $1\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    command = ["/bin/sh", "-c", check.COMPLETE]
    done = subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout == ("update\ninstall\n" if missing else "")
