"""The GitHub workflows, pre-commit hooks and lock file name what the repository has."""

from __future__ import annotations

import pathlib
import re
import tomllib
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = pathlib.Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
TARGETS = frozenset(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def commands(document: dict[str, Any]) -> list[str]:
    """Return every command line of every job of a workflow."""
    steps = [step for job in document["jobs"].values() for step in job["steps"]]
    return [line for step in steps for line in step.get("run", "").splitlines()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_runs_existing_targets(path: pathlib.Path) -> None:
    lines = commands(yaml.safe_load(path.read_text(encoding="utf-8")))
    targets = [match[1] for line in lines if (match := re.match(r"make ([a-z-]+)", line))]
    assert targets or ".ci/run" in lines, "this workflow checks nothing"
    assert set(targets) <= TARGETS
    assert ".ci/run" not in lines or (ROOT / ".ci/run").is_file()


def test_pre_commit_runs_every_tool_of_make_lint() -> None:
    recipe = MAKEFILE.split("\nlint: setup\n", 1)[1].split("\n\n", 1)[0]
    linted = set(re.findall(r"\$\(BIN\)/([a-z-]+)", recipe))
    document = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooked = {
        hook["entry"].split()[0].removeprefix(".venv/bin/") for repo in document["repos"] for hook in repo["hooks"]
    }
    assert hooked == linted


def test_lock_file_fulfils_every_dependency() -> None:
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^([\w.-]+)==([\w.]+)", lock, re.MULTILINE)
    locked = {canonicalize_name(name): version for name, version in pins}
    extras = document["project"]["optional-dependencies"]
    own = document["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
    p4lite = tomllib.loads((ROOT / "p4/pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    assert "p4lite" not in locked, "`make setup` installs p4lite from the checkout"
    chosen = [each for name in ("dev", "dot", "scale", "web", "docs", "notebook") for each in extras[name]]
    wanted = [Requirement(each) for each in (*own, *p4lite, *chosen)]
    for requirement in (each for each in wanted if each.name != "mrclab"):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not locked; run `make lock`"
        assert version in requirement.specifier, f"{requirement} is locked to {version}; run `make lock`"
    blocks = re.split(r"^(?=[\w.-]+==)", lock, flags=re.MULTILINE)[1:]
    assert all("--hash=sha256:" in block for block in blocks)
