"""What the build backend asks of mrclab itself: its requirement of `p4lite`, and the compiled core in wheels."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


def _module(path: Path) -> ModuleType:
    """Load a module by its file: neither folder is on the path of the build backend."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class SameVersion(MetadataHookInterface):
    """Adds to the dependencies of `tool.hatch.metadata.hooks.custom` the `p4lite` that belongs to this version.

    In a source distribution PKG-INFO names all of them, and this hook changes nothing.
    """

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """See hatchling."""
        if "dependencies" in metadata:
            return
        versions = _module(Path(self.root) / "release" / "version.py")
        metadata["dependencies"] = [versions.requirement(metadata["version"]), *self.config["dependencies"]]


class WheelContents(BuildHookInterface[Any]):
    """Puts the change log into a wheel, and the compiled core where it can be built and `MRCLAB_PURE` is not set.

    A wheel with the core is for this Python and this kind of machine. Without a C compiler, or Python's headers, it is
    the wheel for all of them.
    """

    PLUGIN_NAME = "custom"

    def _build(self, option: str) -> str:
        """Return the last line of the core's build, whose messages go to where pip shows them."""
        # pip's isolated builds find what they installed by PYTHONPATH, so it has to remain. They also take the folders
        # of an editable installation off sys.path again, so that the command adds the project's own itself.
        before = os.environ.get("PYTHONPATH")
        folders = [str(Path(self.root) / each) for each in ("hosts", "topologies")]
        found = os.pathsep.join([*folders, *([before] if before else [])])
        # mypyc goes over sets of strings, whose order then is the same in each build.
        environment = {**os.environ, "PYTHONPATH": found, "PYTHONHASHSEED": "0"}
        code = (
            f"import runpy, sys; sys.path[:0] = {folders}; "
            "runpy.run_module('mrc_host.build', run_name='__main__', alter_sys=True)"
        )
        command = [sys.executable, "-c", code, option]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            raise RuntimeError("the protocol core cannot be compiled, as said above; MRCLAB_PURE=1 builds without it")
        return done.stdout.strip().rpartition("\n")[2]

    def dependencies(self) -> list[str]:
        """Return what the translation to C needs; see hatchling."""
        return [] if self._build("--lacking") else list(self.config["needs"])

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling."""
        if self.target_name != "wheel" or version == "editable":
            return
        # `sources` of pyproject.toml moves folders only; its `force-include` copies into editable installations, too.
        build_data["force_include"][str(Path(self.root) / "CHANGELOG.md")] = "mrc_topo/data/CHANGELOG.md"
        if lacking := self._build("--lacking"):
            self.app.display_warning(f"wheel without the compiled core: {lacking}")
            return
        folder = Path(self._build("--folder"))
        if not folder.is_dir():
            raise RuntimeError("the protocol core was not compiled: the build lacks mypy or setuptools")
        for file in sorted(folder.iterdir()):
            build_data["force_include"][str(file)] = f"mrc_host/__compiled__/{folder.name}/{file.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
