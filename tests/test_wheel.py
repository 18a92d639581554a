"""The wheels in environments of their own, without the checkout: they carry all that the commands need.

`make release-check` looks at the wheel with the compiled core; here are the wheels that fit every machine.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from mrc_topo.shipped import CHECKOUT
from mrclab.web import assets

ROOT = pathlib.Path(__file__).parents[1]

pytestmark = pytest.mark.slow


def run(*command: str | pathlib.Path, cwd: pathlib.Path) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [*map(str, command)], cwd=cwd, env={**kept, "MRCLAB_PURE": "1"}, capture_output=True, text=True
    )
    assert not done.returncode, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[pathlib.Path]:
    """Build the wheels of `p4lite` and `mrclab`; return them in this order."""
    folder = tmp_path_factory.mktemp("wheel")
    build = (sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", folder)
    run(*build, ROOT / "p4", ROOT, cwd=folder)
    return [next(folder.glob(f"{name}-*.whl")) for name in ("p4lite", "mrclab")]


def environment(folder: pathlib.Path, wheels: list[pathlib.Path]) -> pathlib.Path:
    """Install wheels into a fresh environment; return the folder of its commands.

    Its other packages are those of this environment: added to its path as plain folders, so that the path files of our
    editable installations in one of them have no effect.
    """
    if tuple(map(int, importlib.metadata.version("pip").split(".")[:2])) < (22, 3):
        pytest.skip("`pip --python` needs pip 22.3: python -m pip install -U pip")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", *wheels, cwd=folder)
    ours = pathlib.Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    others = [each for each in sys.path if each.endswith(("site-packages", "dist-packages"))]
    (ours / "others.pth").write_text("\n".join(others))
    assert run(python, "-c", "import p4lite; print(p4lite.__file__)", cwd=folder).startswith(str(ours))
    return folder / "bin"


@pytest.fixture(scope="module")
def commands(wheels: list[pathlib.Path], tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return environment(tmp_path_factory.mktemp("environment"), wheels)


def test_everything_that_the_folders_hold_is_in_the_wheels(wheels: list[pathlib.Path]) -> None:
    carried = {f"mrc_topo/data/{kind}": folder for kind, folder in CHECKOUT.items()}
    carried |= {each: f"p4/{each}" for each in ("p4lite/switch/core", "p4lite/compiler/include")}
    wanted = {"p4lite/compiler/grammar.lark", "mrc_topo/data/mrc.lua", "mrc_topo/data/CHANGELOG.md"}
    for inside, folder in carried.items():
        files = [path.relative_to(ROOT / folder) for path in (ROOT / folder).rglob("*") if path.is_file()]
        assert files, folder
        wanted |= {f"{inside}/{path}" for path in files}
    # The live view's page; its two libraries with their licences, where `make web-assets` has fetched them.
    static = ROOT / "controller" / "mrclab" / "web" / "static"
    wanted |= {f"mrclab/web/static/{path.relative_to(static)}" for path in static.rglob("*") if path.is_file()}
    assert not assets.installed() or "mrclab/web/static/vendor/cytoscape.LICENSE.txt" in wanted
    held = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            held.append(set(archive.namelist()))
    p4lite, mrclab = held
    assert wanted - p4lite - mrclab == set()
    assert not [name for name in p4lite | mrclab if "__compiled__" in name or name.endswith(".so")]
    assert {name.partition("/")[0] for name in p4lite if ".dist-info" not in name} == {"p4lite", "p4lite_tools"}
    assert not [name for name in mrclab if name.startswith(("p4lite/", "p4lite_tools/"))]


def test_p4lite_alone_compiles_a_program_and_switches_packets(
    wheels: list[pathlib.Path], tmp_path: pathlib.Path
) -> None:
    home = tmp_path / "environment"
    home.mkdir()
    p4lite = environment(home, wheels[:1]) / "p4lite"
    seen = run(home / "bin/python", "-c", "import importlib.util as i; print(i.find_spec('mrc_topo'))", cwd=tmp_path)
    assert seen.strip() == "None"
    program, test = ROOT / "p4/programs/fabric.p4", ROOT / "tests/p4/fabric/srv6_shift.stf"
    run(p4lite, "compile", program, "-o", "fabric.json", "--p4info", "fabric.txtpb", cwd=tmp_path)
    assert json.loads((tmp_path / "fabric.json").read_text())["pipelines"]
    said = run(p4lite, "stf", program, test, "--priority-queues", "8", cwd=tmp_path)
    assert said == f"PASS {test} (8 packets in, 8 out)\n"


def test_commands_know_what_is_shipped_from_any_folder(commands: pathlib.Path, tmp_path: pathlib.Path) -> None:
    listed = run(commands / "mrclab", "list", "experiments", "comparisons", "sweeps", cwd=tmp_path)
    for folder in sorted((ROOT / "experiments").iterdir()):
        for name in [path.stem for path in folder.glob("*.yaml")] if folder.name == "sweeps" else [folder.name]:
            assert name in listed
    assert run(commands / "mrclab", "topo", "show", "default", cwd=tmp_path).startswith("default: ")
    verdict = json.loads(
        run(commands / "mrclab", "run", "write_bw", "--lab", "tiny", "--duration", "0.2", "--json", cwd=tmp_path)
    )
    assert verdict["passed"]
    assert (tmp_path / verdict["folder"] / "report.html").is_file()
    assert pathlib.Path(verdict["folder"]).parts[0] == "results"
