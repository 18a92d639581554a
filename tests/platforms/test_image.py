"""The Containerfile, the dev container and the Makefile name the same packages; `make image-check` builds the image."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

from support.platforms import image
from support.platforms.roots import PLATFORMS, RootError

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "Containerfile").read_text(encoding="utf-8")


def stages(text: str) -> dict[str, str]:
    """Return the instructions of each stage by its name; the last stage's name is empty."""
    parts = re.split(r"^FROM (\S+)(?: AS (\w+))?\n", text, flags=re.M)[1:]
    return {name or "": f"FROM {base}\n{body}" for base, name, body in zip(*[iter(parts)] * 3, strict=True)}


def packages(stage: str) -> set[str]:
    """Return the Debian packages that a stage installs."""
    joined = stage.replace("\\\n", " ")
    return {
        word
        for part in re.findall(r"apt-get install((?: +[\w.-]+)+)", joined)
        for word in part.split()
        if word[0] != "-"
    }


def makefile_packages() -> set[str]:
    found = re.search(r"^APT_PACKAGES := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert found is not None
    return set(found[1].split())


def test_dev_stage_has_every_package_that_make_setup_would_install() -> None:
    found = stages(TEXT)
    assert makefile_packages() - packages(found["base"]) - packages(found["dev"]) == set()


def test_missing_package_is_noticed() -> None:
    found = stages(TEXT.replace(" graphviz", ""))
    assert makefile_packages() - packages(found["base"]) - packages(found["dev"]) == {"graphviz"}


def test_image_is_used_by_an_ordinary_user() -> None:
    last = stages(TEXT)[""]
    assert re.findall(r"^USER (\S+)$", last, re.M) == ["mrclab"]
    assert "--chown=mrclab" in last
    assert last.startswith("FROM base\n"), "the image has neither pip nor the packages of the dev container"


def test_dev_container_is_the_stage_dev() -> None:
    text = (ROOT / ".devcontainer/devcontainer.json").read_text(encoding="utf-8")
    document = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M))
    build = document["build"]
    assert (ROOT / ".devcontainer" / build["dockerfile"]).resolve() == ROOT / "Containerfile"
    assert (ROOT / ".devcontainer" / build["context"]).resolve() == ROOT
    assert "USER " + document["remoteUser"] in stages(TEXT)[build["target"]]


def test_base_image_of_the_check_is_the_one_that_is_named() -> None:
    assert image.release(TEXT) in {each.suite for each in PLATFORMS.values()}
    with pytest.raises(RootError, match="ARG BASE"):
        image.release("FROM scratch\n")


def test_build_context_leaves_out_what_git_ignores() -> None:
    left_out = set((ROOT / ".dockerignore").read_text(encoding="utf-8").split())
    assert {".git", ".venv", "build", "results", "hosts/mrc_host/__compiled__", "**/__pycache__"} <= left_out
