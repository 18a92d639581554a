"""Print what mrclab and its tests need of PyPI, one requirement a line: `python -m platforms.needs`."""

from __future__ import annotations

import pathlib
import tomllib

PROJECT = pathlib.Path(__file__).parents[2] / "pyproject.toml"
#: Extras of pyproject.toml whose packages the tests in an emulated root import.
EXTRAS = ("dev",)
#: Tools that no test in there runs.
UNUSED = ("ruff", "codespell", "import-linter", "grpc-stubs")


def requirements() -> list[str]:
    """Return the requirements of the project, of `EXTRAS` and of the build of an editable installation."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    found = [*project["dependencies"], *(each for extra in EXTRAS for each in project["optional-dependencies"][extra])]
    return [*(each for each in found if not each.startswith(UNUSED)), "editables"]


if __name__ == "__main__":
    print("\n".join(requirements()))
