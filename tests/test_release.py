"""The two distributions: their version, what they require and hold, and what `make release-check` runs."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from mrc_topo.shipped import CHECKOUT

ROOT = pathlib.Path(__file__).resolve().parents[1]


def load(name: str) -> ModuleType:
    """Load a module of `release`, which is no package: the build backend loads it by its file, too."""
    spec = importlib.util.spec_from_file_location(f"release_{name}", ROOT / "release" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


versions = load("version")


def project(folder: pathlib.Path = ROOT) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))


def git(folder: pathlib.Path, *words: str) -> str:
    identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "tag.gpgSign=false")
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: pathlib.Path) -> pathlib.Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "one")
    return tmp_path


def test_version_of_a_tagged_commit_is_the_tag(repository: pathlib.Path) -> None:
    git(repository, "tag", "v1.2.3")
    assert versions.version(repository) == "1.2.3"
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "two")
    later = versions.version(repository)
    assert later == f"1.2.4.dev1+g{git(repository, 'rev-parse', '--short', 'HEAD')}"
    assert Version("1.2.3") < Version(later) < Version("1.2.4")


def test_version_after_a_release_candidate_precedes_the_release(repository: pathlib.Path) -> None:
    git(repository, "tag", "v1.2.0rc1")
    assert versions.version(repository) == "1.2.0rc1"
    git(repository, "tag", "v1.3.0")
    git(repository, "tag", "--delete", "v1.2.0rc1")
    (repository / "file").write_text("one")
    git(repository, "add", "file")
    assert Version("1.3.0") < Version(versions.version(repository)) < Version("1.3.1"), "a changed file is no release"


def test_version_without_a_tag_precedes_the_first_release(repository: pathlib.Path) -> None:
    found = versions.version(repository)
    assert found == f"{versions.NEXT}.dev0+g{git(repository, 'rev-parse', '--short=8', 'HEAD')}"
    assert Version(found) < Version(versions.NEXT)
    # A source tree within the repository of something else has not its version.
    inner = repository / "inner"
    inner.mkdir()
    git(repository, "tag", "v9.9.9")
    assert versions.version(inner) == f"{versions.NEXT}.dev0"


def test_version_without_git_is_the_development_version(
    repository: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(repository))
    assert versions.version(repository) == f"{versions.NEXT}.dev0"


def test_release_requires_the_same_p4lite_and_a_checkout_any() -> None:
    assert versions.requirement("1.2.3") == "p4lite==1.2.3"
    assert versions.requirement("1.2.3rc1") == "p4lite==1.2.3rc1"
    wanted = Requirement(versions.requirement("1.2.4.dev5+gabcdef12"))
    for installed in ("0.1.0.dev0", "0.1.0.dev0+g12345678", "1.2.4.dev1+g1"):
        assert wanted.specifier.contains(installed, prereleases=True)


def test_p4lite_needs_what_it_imports_and_nothing_of_mrclab() -> None:
    imported = {"lark", "pcpp", "grpc", "google"}
    # Of google protobuf and rpc are imported; p4lite.messages reads p4runtime without importing it.
    distributions = {"lark", "pcpp", "grpcio", "protobuf", "googleapis-common-protos", "p4runtime"}
    text = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "p4").rglob("p4lite*/**/*.py"))
    found = set(re.findall(r"^ *(?:from|import) (\w+)[\w.]*(?= import |$| as )", text, re.MULTILINE))
    outside = found - set(sys.stdlib_module_names) - {"p4lite", "p4lite_tools"}
    # The language server and the notebook's magics are imported by those only who want them.
    optional = {"pygls": "pygls", "lsprotocol": "pygls", "IPython": "ipython"}
    described = project(ROOT / "p4")["project"]
    declared = {Requirement(each).name for each in described["dependencies"]}
    extras = {Requirement(each).name for extra in described["optional-dependencies"].values() for each in extra}
    assert outside == {*imported, *optional}
    assert declared == distributions
    assert set(optional.values()) <= extras


def test_both_distributions_have_the_same_licence_and_python() -> None:
    assert (ROOT / "p4/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    both = [project(folder) for folder in (ROOT, ROOT / "p4")]
    for key in ("requires-python", "license", "license-files", "authors"):
        assert both[0]["project"][key] == both[1]["project"][key], key
    assert both[0]["build-system"] == both[1]["build-system"]
    # What both require they require in the same range.
    mine = {
        Requirement(each).name: each for each in both[0]["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"]
    }
    for each in both[1]["project"]["dependencies"]:
        assert mine.get(Requirement(each).name, each) == each


def test_every_package_and_folder_of_files_is_in_the_wheel() -> None:
    wheel = project()["tool"]["hatch"]["build"]["targets"]["wheel"]
    data = {inside: place for inside, place in wheel["sources"].items() if place.startswith("mrc_topo/data")}
    assert data == {**{folder: f"mrc_topo/data/{kind}" for kind, folder in CHECKOUT.items()}, "docs": "mrc_topo/data"}
    included = set(wheel["only-include"])
    assert {*CHECKOUT.values(), "docs/mrc.lua"} <= included
    packages = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/*mrc*/__init__.py")}
    assert packages <= included
    assert not any("p4lite" in each for each in included)
    assert {wheel["sources"][each] for each in packages} == set(project()["tool"]["check-wheel-contents"]["toplevel"])


def test_make_release_check_runs_the_check_with_the_tools_it_needs() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = makefile.split("\nrelease-check:", 1)[1].split("\n\n", 1)[0]
    assert recipe.endswith("$(RELEASE)/bin/python release/check.py")
    tools = {Requirement(line).name for line in (ROOT / "release/requirements.txt").read_text().splitlines()[1:]}
    hook = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]["custom"]
    assert {Requirement(each).name for each in [*hook["needs"], *project()["build-system"]["requires"]]} <= tools


def test_cibuildwheel_is_asked_for_the_wheels_that_the_check_expects() -> None:
    check = load("check")
    config = project()["tool"]["cibuildwheel"]
    assert set(config["linux"]["archs"]) == {"x86_64", "aarch64"}
    wanted = {
        f"{build.removesuffix('*')}{machine}"
        for build in config["build"].split()
        for machine in config["linux"]["archs"]
    }
    assert wanted == set(check.IDENTIFIERS)


def test_builds_of_the_core_find_what_pip_installed_for_them(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip's isolated builds give the backend the folder of their packages in PYTHONPATH."""
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'found')!r}, 'w').close()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    contents: Any = load("hook").WheelContents
    contents(str(ROOT), {"needs": []}, None, None, "", "wheel").dependencies()
    assert (tmp_path / "found").exists()


def test_builds_of_the_core_find_it_beside_an_editable_installation(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip's isolated builds take the folders of an editable installation off sys.path, as this sitecustomize does."""
    hidden = [str(ROOT / "hosts"), str(ROOT / "topologies")]
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nsys.path[:] = [each for each in sys.path if each not in {hidden}]\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    contents: Any = load("hook").WheelContents
    assert contents(str(ROOT), {"needs": ["mypy"]}, None, None, "", "wheel").dependencies() in ([], ["mypy"])
