"""The wheel in an environment of its own, without the checkout: it carries all that the commands need."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from mrc_topo.shipped import CHECKOUT
from mrc_web import assets

ROOT = pathlib.Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(*command: str | pathlib.Path, cwd: pathlib.Path) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=kept, capture_output=True, text=True)
    assert not done.returncode, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder, ROOT, cwd=folder)
    return next(folder.glob("mrclab-*.whl"))


@pytest.fixture(scope="module")
def commands(wheel: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Folder of the commands of a fresh environment with the wheel in it.

    Its other packages are those of this environment: added to its path as plain folders, so that the path file of our
    editable installation in one of them has no effect.
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    ours = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    others = [each for each in sys.path if each.endswith(("site-packages", "dist-packages"))]
    (ours / "others.pth").write_text("\n".join(others))
    assert run(python, "-c", "import mrc_cli; print(mrc_cli.__file__)", cwd=folder).startswith(str(ours))
    return folder / "bin"


def test_everything_that_the_folders_hold_is_in_the_wheel(wheel: pathlib.Path) -> None:
    carried = {f"mrc_topo/data/{kind}": folder for kind, folder in CHECKOUT.items()}
    carried |= {each: f"p4/{each}" for each in ("p4lite/switch/core", "p4lite/compiler/include")}
    wanted = {"p4lite/compiler/grammar.lark", "mrc_topo/data/mrc.lua"}
    for inside, folder in carried.items():
        files = [path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert files, folder
        wanted |= {f"{inside}/{path}" for path in files}
    # The live view's page; its two libraries with their licences, where `make web-assets` has fetched them.
    static = ROOT / "controller" / "mrc_web" / "static"
    wanted |= {f"mrc_web/static/{path.relative_to(static)}" for path in static.rglob("*") if path.is_file()}
    assert not assets.installed() or "mrc_web/static/vendor/cytoscape.LICENSE.txt" in wanted
    with zipfile.ZipFile(wheel) as archive:
        assert wanted - set(archive.namelist()) == set()
        assert not [name for name in archive.namelist() if "__compiled__" in name or name.endswith(".so")]


def test_commands_know_what_is_shipped_from_any_folder(commands: pathlib.Path, tmp_path: pathlib.Path) -> None:
    listed = run(commands / "mrclab", "experiments", cwd=tmp_path)
    for folder in sorted((ROOT / "experiments").iterdir()):
        for name in [path.stem for path in folder.glob("*.yaml")] if folder.name == "sweeps" else [folder.name]:
            assert name in listed
    assert run(commands / "mrclab", "topo", "show", "default", cwd=tmp_path).startswith("default: ")
    verdict = json.loads(run(commands / "mrclab", "run", "lossy-link", "--json", cwd=tmp_path))
    assert verdict["passed"]
    assert (tmp_path / verdict["folder"] / "report.html").is_file()
    assert pathlib.Path(verdict["folder"]).parts[0] == "results"
