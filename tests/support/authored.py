"""Mutants that an author wrote as text, run by the tests that reach them: `python -m support.authored TABLE`.

A mutant of functions runs like those of `support.mutants`. One that changes a statement of a module or a class runs in
a process of its own, in which the module is imported with the change.
"""

from __future__ import annotations

import argparse
import inspect
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from types import CodeType
from typing import Final

import pytest

from p4lite.scratch import scratch
from support.conform.mutant import PROTO, Mutant, install, table
from support.mutants import FLOOR, NOTHING, PARTS, Bench, Outcome, Part, codes_of, options, run

PART: Final = Part(("hosts/mrc_host/proto/*.py", "hosts/mrc_host/proto/*/*.py"), PARTS["proto"].tests)
#: Seconds that the tests of one mutant may take in a process of its own.
LIMIT_S: Final = 600.0


class Text(Mutant):
    """A mutant with the lines that it changes."""

    @property
    def path(self) -> pathlib.Path:
        """The file that it changes."""
        return PROTO / self.file

    @property
    def lines(self) -> list[tuple[str, int]]:
        """The lines of its text, then those of the functions that it changes."""
        text = self.path.read_text(encoding="utf-8")
        first = text[: text.index(self.old)].count("\n") + 1
        own = [(str(self.path), first + number) for number in range(self.old.count("\n") + 1)]
        before, _ = self.compiled()
        around = [code for code in before.values() if code.co_qualname in {each.co_qualname for each in self.codes()}]
        return own + [(str(self.path), line) for code in around for _, _, line in code.co_lines() if line is not None]

    def compiled(self) -> tuple[dict[str, CodeType], dict[str, CodeType]]:
        """Return the module's code by qualified name (the module's own below ""), without and with the change.

        Functions in functions are part of these.
        """
        text = self.path.read_text(encoding="utf-8")
        modules = (compile(each, str(self.path), "exec") for each in (text, self.apply(text)))
        before, after = (
            {"": module, **{name: code for name, code in codes_of(module) if "<locals>" not in name}}
            for module in modules
        )
        return before, after

    def codes(self) -> tuple[CodeType, ...]:
        """Return the functions that it changes; none if it changes more than functions."""
        before, after = self.compiled()
        changed = [name for name in after if name not in before or _essence(before[name]) != _essence(after[name])]
        in_functions = before.keys() == after.keys() and all(
            before[name].co_flags & inspect.CO_OPTIMIZED and before[name].co_freevars == after[name].co_freevars
            for name in changed
        )
        return tuple(after[name] for name in changed) if in_functions else ()


def _essence(code: CodeType) -> tuple[object, ...]:
    """Return what a code does, without its place in the file; of a module or a class without the functions in it."""
    inner = code.co_flags & inspect.CO_OPTIMIZED
    constants = tuple(
        (type(each), _essence(each) if isinstance(each, CodeType) else each)
        for each in code.co_consts
        if inner or not isinstance(each, CodeType)
    )
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars


class Authored(Bench[Text]):
    """Runs the mutants of a table that change functions only."""

    def __init__(self, mutants: Sequence[Text], folder: pathlib.Path, limit_s: float, workers: int) -> None:
        super().__init__(folder, PART.paths(), limit_s, workers)
        self.mutants = mutants

    def places(self) -> Iterator[tuple[Text, Callable[[], Sequence[CodeType]]]]:
        """See `Bench`."""
        for mutant in self.mutants:
            yield mutant, mutant.codes


def _alone(name: str, mutant: Text) -> Outcome[Text]:
    """Run all tests in a process that imports the module with the change."""
    command = [sys.executable, "-m", "support.authored", name, "--child", mutant.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return Outcome(mutant, "none in time", 0)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return Outcome(mutant, NOTHING if done.returncode == 0 else (failed or ["an end of the process"])[0], 0)


def main(arguments: Sequence[str]) -> int:
    """Print what notices each mutant and the share that was killed; exit with 1 below `FLOOR`."""
    parser = argparse.ArgumentParser(prog="python -m support.authored", description=__doc__)
    parser.add_argument("table", help="a YAML file: name, file, old, new of each mutant")
    parser.add_argument("--only", default="", help="mutants whose names begin so")
    parser.add_argument("--seconds", type=float, default=60.0, help="of tests for each mutant (default: 60)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at a time (default: one per core)")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    os.environ["MRCLAB_PURE"] = "1"
    mutants = [Text(*each) for each in table(given.table) if each.name.startswith(given.only)]
    if given.child:
        install(next(mutant for mutant in mutants if mutant.name == given.child))
        return int(pytest.main([*options(PART), "-x", "-q", "--tb=no", "-rfE"]))
    with scratch("mutants") as folder:
        os.environ["TMPDIR"] = str(folder)
        bench = Authored([mutant for mutant in mutants if mutant.codes()], folder, given.seconds, given.workers)
        bench.shown = _show
        outcomes = run(PART, bench) if bench.mutants else []
        for mutant in mutants:
            if not mutant.codes():
                outcomes.append(_alone(given.table, mutant))
                _show(outcomes[-1])
    killed = sum(outcome.killer != NOTHING for outcome in outcomes)
    print(f"{given.table}: {killed} of {len(outcomes)} mutants killed", flush=True)
    return 0 if killed >= FLOOR * len(outcomes) else 1


def _show(outcome: Outcome[Text]) -> None:
    verdict = "SURVIVES" if outcome.killer == NOTHING else "killed"
    print(f"{verdict:9} {outcome.mutant.name:40} {outcome.tests:5} tests: {outcome.killer}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
