"""Run the conformance kit against one mutant: `MRCLAB_PURE=1 python -m support.conform.mutant FILE NAME [CASE ...]`.

Prints the names of the cases that do not pass, one in a line. The mutant is made by changing the source of one module
as it is imported; no file is written.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import pathlib
import signal
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final, NamedTuple

import yaml

TABLES: Final = pathlib.Path(__file__).parent
PROTO: Final = pathlib.Path(__file__).resolve().parents[3] / "hosts/mrc_host/proto"
#: CPU seconds for one mutant: one that loops for ever is found by that.
LIMIT_S: Final = 60


class Mutant(NamedTuple):
    """One change of the endpoint's source: `old` becomes `new` in `file`; one of `cases` must notice.

    `wire` says whether the change can be seen on the wire, `scenario` when.
    """

    name: str
    file: str
    old: str
    new: str
    cases: Sequence[str] = ()
    wire: bool = True
    scenario: str = ""

    @property
    def module(self) -> str:
        """The module that it changes."""
        return "mrc_host.proto." + self.file.removesuffix(".py").replace("/", ".")

    def apply(self, text: str) -> str:
        """Return the source with the change.

        Raises:
            ValueError: the text to change occurs not once.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: `old` occurs {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def table(name: str) -> list[Mutant]:
    """Return the mutants of a file: beside this one, or by a path."""
    return [Mutant(**entry) for entry in yaml.safe_load((TABLES / name).read_text(encoding="utf-8"))]


class _Changed(importlib.machinery.SourceFileLoader):
    """Loads a module from its source with one change."""

    mutant: Mutant

    def get_code(self, fullname: str):  # type: ignore[no-untyped-def]
        """See `importlib`; bytecode of the unchanged source is not used."""
        text = pathlib.Path(self.path).read_text(encoding="utf-8")
        return compile(self.mutant.apply(text), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the module of the mutant before Python does."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """See `importlib`."""
        if fullname != self._mutant.module:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        assert found is not None
        assert found.origin is not None
        loader = _Changed(fullname, found.origin)
        loader.mutant = self._mutant
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=loader)


def install(mutant: Mutant) -> None:
    """Have the mutant's module imported with its change from now on."""
    sys.meta_path.insert(0, _Finder(mutant))


def main() -> None:
    file, name, *names = sys.argv[1:]
    mutant = next(each for each in table(file) if each.name == name)
    install(mutant)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    from mrc_conform.case import select
    from mrc_conform.devices.kinds import DeviceKind, Target, make
    from mrc_conform.run import Verdict, run_cases

    device = make(Target(DeviceKind.VIRTUAL))

    def show(result) -> None:  # type: ignore[no-untyped-def]
        if result.verdict is not Verdict.PASSED:
            print(result.case.name, flush=True)

    run_cases(select(names), device, 1, show)


if __name__ == "__main__":
    main()
