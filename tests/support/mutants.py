"""Change the source at one place at a time and see whether a test notices: `python -m support.mutants PART`.

Cosmic Ray makes the mutants. A part is a few modules and the quick tests that stand for them. One run of these under
coverage says which tests reach which line; a mutant is then given to the tests that reach it, fastest first. Everything
happens in copies of the repository in a temporary folder, with the protocol core interpreted.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import dataclasses
import difflib
import os
import pathlib
import queue
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final
from xml.etree import ElementTree

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
#: Share of mutants that tests must notice.
FLOOR: Final = 0.9
#: Seconds that the tests of one mutant may take beyond three times what they take without it.
GRACE_S: Final = 30.0
#: Seconds of tests that one mutant is given at most, counted as they take without it.
TESTS_S: Final = 60.0


@dataclasses.dataclass(frozen=True)
class Part:
    """Modules (glob patterns below the repository) and the tests that must notice a change in them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


PARTS: Final[Mapping[str, Part]] = {
    "proto": Part(
        ("hosts/mrc_host/proto/*.py", "hosts/mrc_host/proto/[!wr]*/*.py", "hosts/mrc_host/proto/r[!o]*/*.py"),
        ("tests/proto",),
    ),
    "wire": Part(("hosts/mrc_host/proto/wire/*.py",), ("tests/proto",)),
    "roce": Part(("hosts/mrc_host/proto/roce/*.py",), ("tests/proto",)),
    "faults": Part(
        ("controller/mrclab/lab/faults/*.py",),
        ("tests/lab/test_faults.py", "tests/lab/test_fault_effects.py", "tests/lab/test_faults_properties.py"),
    ),
    "verdict": Part(
        (
            "controller/mrclab/results/verdict.py",
            "controller/mrclab/results/verdict.py",
            "controller/mrclab/results/verdict.py",
            "controller/mrclab/results/expectation.py",
        ),
        (
            "tests/lab/test_analysis.py",
            "tests/lab/test_evidence.py",
            "tests/lab/test_report.py",
            "tests/lab/test_verdict.py",
            "tests/lab/test_deaths.py",
        ),
    ),
    "judge": Part(("extras/mrc_workshop/judge.py",), ("extras/mrc_workshop/tests/test_judge.py",)),
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change: where (file, line from 1, column from 0), and Cosmic Ray's name and number for it."""

    path: str
    line: int
    column: int
    operator: str
    occurrence: int


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Whether the tests noticed a mutant, how many of them reach it, and the change as a diff."""

    mutant: Mutant
    killed: bool
    tests: int
    diff: str


def without_effect(source: str) -> set[tuple[int, int]]:
    """Return the positions (line, column) of a module's text that no test can notice: annotations and docstrings."""
    found: set[tuple[int, int]] = set()
    for node in ast.walk(ast.parse(source)):
        nodes: list[ast.AST | None] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            nodes.append(node.annotation)
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            nodes.append(node)
        for each in nodes:
            for inner in ast.walk(each) if each is not None else ():
                if isinstance(inner, ast.expr):
                    lines = range(inner.lineno, (inner.end_lineno or inner.lineno) + 1)
                    for line in lines:
                        begin = inner.col_offset if line == inner.lineno else 0
                        end = (inner.end_col_offset or 0) if line == inner.end_lineno else 200
                        found.update((line, column) for column in range(begin, end))
    return found


def mutants_of(paths: Sequence[pathlib.Path], root: pathlib.Path) -> Iterator[Mutant]:
    """Yield every mutant that Cosmic Ray knows of these modules, except those of annotations and docstrings."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    for path in paths:
        skipped = without_effect(path.read_text(encoding="utf-8"))
        nodes = list(ast_nodes(get_ast_from_path(path)))
        for name in operator_names():
            operator = get_operator(name)
            if operator.arguments():
                continue
            positions = (place for node in nodes for place in operator().mutation_positions(node))
            for occurrence, ((line, column), _) in enumerate(positions):
                if (line, column) not in skipped:
                    yield Mutant(str(path.relative_to(root)), line, column, name, occurrence)


def chosen(mutants: Sequence[Mutant], number: int, rng: random.Random) -> list[Mutant]:
    """Choose `number` places at random, and one mutant of each: a comparison alone has ten."""
    places: dict[tuple[str, int, int], list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        places[mutant.path, mutant.line, mutant.column].append(mutant)
    some = sorted(places)
    rng.shuffle(some)
    return [rng.choice(places[place]) for place in some[:number]]


def environment(tree: pathlib.Path) -> dict[str, str]:
    """Return the environment in which a copy of the repository uses its own sources, interpreted."""
    folders = [str(tree / name) for name in ("p4", "topologies", "controller", "hosts", "extras", "tests")]
    changed = {"PYTHONPATH": os.pathsep.join([*folders, str(tree)]), "MRCLAB_PURE": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    return {**os.environ, **changed}


def copied(folder: pathlib.Path) -> pathlib.Path:
    """Copy the repository's tracked files, as they are now, into a folder."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


@dataclasses.dataclass(frozen=True)
class Coverage:
    """Which tests reach a line, and how many seconds each takes."""

    reached: Mapping[tuple[str, int], frozenset[str]]
    seconds: Mapping[str, float]

    def tests_of(self, mutant: Mutant, limit_s: float) -> list[str]:
        """Return the tests that reach a mutant, fastest first, for at most `limit_s` seconds of them."""
        found: list[str] = []
        left = limit_s
        for test in sorted(
            self.reached.get((mutant.path, mutant.line), ()), key=lambda test: self.seconds.get(test, 0.0)
        ):
            left -= self.seconds.get(test, 0.0)
            if left < 0 and found:
                break
            found.append(test)
        return found


def measured(tree: pathlib.Path, part: Part, paths: Sequence[pathlib.Path]) -> Coverage:
    """Run a part's tests under coverage.

    Raises:
        RuntimeError: a test fails without any mutant.
    """
    import coverage

    report = tree / "mutants.xml"
    sources = sorted({str(path.parent) for path in paths})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile"]
    command += [
        "-m",
        "not lab and not netns and not root and not slow",
        f"--basetemp={tree / 'pytest'}",
        "--cov-context=test",
        "--cov-report=",
    ]
    command += [f"--cov={source}" for source in sources]
    # It compares the compiled core with the interpreted one, and here there is no compiled one.
    command += [f"--ignore={tree / 'tests/proto/test_native.py'}"]
    command += [f"--junitxml={report}", "-o", "junit_family=xunit1", *part.tests]
    done = subprocess.run(command, cwd=tree, env=environment(tree), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"tests fail without a mutant:\n{done.stdout[-3000:]}{done.stderr[-1000:]}")
    data = coverage.CoverageData(str(tree / ".coverage"))
    data.read()
    reached: dict[tuple[str, int], frozenset[str]] = {}
    for path in paths:
        lines = {
            line: frozenset(context.rpartition("|")[0] for context in contexts if context.endswith("|run"))
            for line, contexts in data.contexts_by_lineno(str(path)).items()
        }
        # What runs when a module is imported concerns every test that runs a line of it.
        any_line = frozenset().union(*lines.values())
        reached.update({(str(path.relative_to(tree)), line): tests or any_line for line, tests in lines.items()})
    seconds = {
        f"{case.get('file')}::{case.get('name')}": float(case.get("time", "0"))
        for case in ElementTree.parse(report).iter("testcase")
    }
    return Coverage(reached, seconds)


def tried(tree: pathlib.Path, mutant: Mutant, known: Coverage) -> Outcome:
    """Make a mutant in a copy of the repository, give it to the tests that reach it, and undo it."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    path = tree / mutant.path
    before = path.read_text(encoding="utf-8")
    after = mutate_code(before, get_operator(mutant.operator)(), mutant.occurrence)
    diff = "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), mutant.path, mutant.path, n=1))
    tests = known.tests_of(mutant, TESTS_S)
    if not tests:
        return Outcome(mutant, False, 0, diff)
    usual = sum(known.seconds.get(test, 0.0) for test in tests)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    command += [f"--basetemp={tree / 'pytest'}", *tests]
    path.write_text(after, encoding="utf-8")
    try:
        process = subprocess.Popen(
            command,
            cwd=tree,
            env=environment(tree),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            killed = process.wait(3 * usual + GRACE_S) != 0
        except subprocess.TimeoutExpired:
            killed = True
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    finally:
        path.write_text(before, encoding="utf-8")
    return Outcome(mutant, killed, len(tests), diff)


def outcomes_of(part: Part, number: int, seed: int, workers: int) -> Iterator[Outcome]:
    """Try `number` mutants of a part, `workers` at a time."""
    with tempfile.TemporaryDirectory(prefix="mrclab-mutants-") as name:
        trees = [copied(pathlib.Path(name) / str(worker)) for worker in range(workers)]
        paths = sorted({path for pattern in part.modules for path in trees[0].glob(pattern)})
        known = measured(trees[0], part, paths)
        mutants = chosen(list(mutants_of(paths, trees[0])), number, random.Random(seed))
        free: queue.SimpleQueue[pathlib.Path] = queue.SimpleQueue()
        for tree in trees:
            free.put(tree)

        def attempt(mutant: Mutant) -> Outcome:
            tree = free.get()
            try:
                return tried(tree, mutant, known)
            finally:
                free.put(tree)

        with concurrent.futures.ThreadPoolExecutor(workers) as pool:
            yield from pool.map(attempt, mutants)


def main(arguments: Sequence[str]) -> int:
    """Print every mutant that survives and the share that was killed; exit with 1 below `FLOOR`."""
    parser = argparse.ArgumentParser(prog="python -m support.mutants", description=__doc__)
    parser.add_argument("part", choices=sorted(PARTS), nargs="+")
    parser.add_argument("--sample", type=int, default=100, help="mutants of each part (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="which of them (default: 1)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at a time (default: one per core)")
    given = parser.parse_args(arguments)
    enough = True
    for name in given.part:
        killed = total = 0
        for outcome in outcomes_of(PARTS[name], given.sample, given.seed, given.workers):
            total += 1
            killed += outcome.killed
            if not outcome.killed:
                reason = f"survived {outcome.tests} tests" if outcome.tests else "no test reaches it"
                print(f"{outcome.mutant.path}:{outcome.mutant.line}: {reason}\n{outcome.diff}", flush=True)
        enough = enough and killed >= FLOOR * total
        print(f"{name}: {killed} of {total} mutants killed (seed {given.seed})", flush=True)
    return 0 if enough else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
