"""Print what mrclab and its tests need of PyPI, one requirement a line: `python -m platforms.needs`."""

from __future__ import annotations

import pathlib
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
#: Extras of pyproject.toml whose packages the tests in an emulated root import.
EXTRAS = ("dev",)
#: Tools that no test in there runs.
UNUSED = ("ruff", "codespell", "import-linter", "grpc-stubs")


def requirements() -> list[str]:
    """Return the requirements of both distributions, of `EXTRAS` and of the build of an editable installation."""
    project, p4lite = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8")) for folder in (".", "p4")
    )
    found = [
        *project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["dependencies"],
        *p4lite["project"]["dependencies"],
        *(each for extra in EXTRAS for each in project["project"]["optional-dependencies"][extra]),
        "editables",
    ]
    return sorted({each for each in found if not each.startswith(UNUSED)})


if __name__ == "__main__":
    print("\n".join(requirements()))
