"""Policies of installed packages: the template in `examples/algorithm`, built and installed beside mrclab."""

from __future__ import annotations

import ast
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from mrc_topo.labfile import LabError, parse_lab

TEMPLATE = pathlib.Path(__file__).parents[2] / "examples" / "algorithm"
COMMAND = [sys.executable, "-c", "from mrclab.cli.entry import main; main()"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Install a wheel of the template into a folder; return the environment in which Python finds it."""
    folder = tmp_path_factory.mktemp("site")
    words = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *words, "--target", str(folder), str(TEMPLATE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip builds no wheel here: {done.stderr.strip().splitlines()[-1]}")
    paths = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": paths}


def test_the_tests_of_the_template_pass(installed: dict[str, str], tmp_path: pathlib.Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(TEMPLATE / "tests")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=installed, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_template_is_compared_with_ours(installed: dict[str, str], tmp_path: pathlib.Path) -> None:
    words = ["compare", str(TEMPLATE / "compare.yaml"), "--json", "-q"]
    done = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False, env=installed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)["cells"]
    assert [(row["variant"], row["condition"]) for row in cells] == [
        ("mrclab's", "no loss"), ("mrclab's", "1 % loss"), ("mine", "no loss"), ("mine", "1 % loss"),
    ]  # fmt: skip
    assert all(row["verified_bytes"] and not row["failure"] for row in cells)
    # Another algorithm gives other times; the same would mean that ours ran twice.
    assert cells[1]["seconds"] != cells[3]["seconds"]


def test_a_name_that_no_package_offers() -> None:
    with pytest.raises(LabError, match=r"@nothing: no installed package offers it; offered: "):
        parse_lab("{name: x, policies: {ev: '@nothing'}}", "x.yaml", pathlib.Path())
    with pytest.raises(LabError, match="'@NAME' of an installed package"):
        parse_lab("{name: x, policies: {ev: '@no thing'}}", "x.yaml", pathlib.Path())


def test_the_page_lists_each_attribute_that_a_policy_sees() -> None:
    table = (
        (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "policies.md")
        .read_text(encoding="utf-8")
        .partition("## Methods")[0]
    )
    found: dict[str, set[str]] = {}
    current = ""
    for row in re.findall(r"^\| (`(\w+)`)? ?\| (`[^|]*`) \|", table, re.MULTILINE):
        current = row[1] or current
        found.setdefault(current, set()).update(re.findall(r"`(\w+)`", row[2]))
    for name, attributes in found.items():
        assert attributes == attributes_of(name), name
    assert set(found) == {"CongestionControl", "WindowPolicy", "EvSet", "LossDetector"}


def attributes_of(name: str) -> set[str]:
    """Return the public attributes that a class sets, by its source, because a compiled class does not tell."""
    tree = ast.parse(SOURCES[name].read_text(encoding="utf-8"))
    cls = next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)
    names = {
        each.attr
        for each in ast.walk(cls)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    return {each for each in names if not each.startswith("_")}


HOST = pathlib.Path(__file__).parents[2] / "hosts" / "mrc_host"
SOURCES = {
    "CongestionControl": HOST / "proto" / "congestion" / "control.py",
    "WindowPolicy": HOST / "policy.py",
    "EvSet": HOST / "proto" / "paths" / "ev.py",
    "LossDetector": HOST / "proto" / "reliability" / "recovery.py",
}
