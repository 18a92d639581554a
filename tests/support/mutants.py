"""Mutants of functions, each run by the tests that reach it: `python -m support.mutants PART`.

Tests are collected once, and run once under coverage, which says which of them reach a line. A mutant is a child of
that process: its function's code is replaced in place, and the tests that reach it run, fastest first. Nothing on disk
changes. Statements of modules and classes are not changed, since they have run when the tests are collected.

With `--table` all mutants of the protocol's state, calls, comparisons and arguments run, and `tests/proto/reasons.csv`
says for each which test fails. What is there and has not changed is not run again.
"""

from __future__ import annotations

import argparse
import ast
import csv
import dataclasses
import enum
import functools
import gc
import hashlib
import os
import pathlib
import pickle
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, Final, Generic, Protocol, TypeVar

import pytest
from _pytest.runner import runtestprotocol

from p4lite.scratch import scratch

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
#: Share of mutants that tests must notice.
FLOOR: Final = 0.9
#: Seconds that the tests of one mutant may take beyond three times what they take without it.
GRACE_S: Final = 15.0
#: Where the results of all mutants of state, calls, comparisons and arguments of the protocol are kept.
TABLE: Final = ROOT / "tests/proto/reasons.csv"
#: What a row of the table says where no test fails.
NOTHING: Final = "nothing"


@dataclasses.dataclass(frozen=True)
class Part:
    """Modules (glob patterns below the repository) and the tests that must notice a change in them."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]

    def paths(self) -> list[pathlib.Path]:
        """Return the modules' files."""
        return sorted({path for pattern in self.modules for path in ROOT.glob(pattern)})


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
        ("controller/mrclab/results/verdict.py", "controller/mrclab/results/expectation.py"),
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


class Kind(enum.StrEnum):
    """Kinds of changes."""

    STATE = "state"
    CALL = "call"
    COMPARISON = "comparison"
    ARGUMENT = "argument"
    CONDITION = "condition"
    ARITHMETIC = "arithmetic"
    NUMBER = "number"


#: Kinds of which the table has every mutant.
REASONED: Final = frozenset({Kind.STATE, Kind.CALL, Kind.COMPARISON, Kind.ARGUMENT})
#: Methods of containers that change them.
CHANGING: Final = frozenset((
    "add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popleft", "remove", "setdefault",
    "update",
))  # fmt: skip
OPPOSITE: Final[Mapping[type, type]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of a function: a node's field, or an item of it, gets another value."""

    path: pathlib.Path
    function: str
    line: int
    kind: Kind
    before: str
    after: str
    number: int
    digest: str

    @property
    def lines(self) -> list[tuple[str, int]]:
        """See `Reached`."""
        return [(str(self.path), self.line)]

    @property
    def key(self) -> tuple[str, ...]:
        """The identity of the change while its statement is the same, wherever that stands in the file."""
        return (str(self.path.relative_to(ROOT)), self.function, self.kind, self.before, self.after, str(self.number))


@dataclasses.dataclass(frozen=True)
class Change:
    """The new value of a field of a syntax tree's node, or of item `index` of the field."""

    node: ast.AST
    field: str
    index: int | None
    kind: Kind
    new: Any

    def swap(self, value: Any) -> Any:
        """Put a value in place and return what was there."""
        before = getattr(self.node, self.field)
        if self.index is None:
            setattr(self.node, self.field, value)
            return before
        before, before_list = before[self.index], before
        before_list[self.index] = value
        return before


def _last(node: ast.AST) -> str | None:
    """Return the last name of `ev` or `packet.ev`; None for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and _last(node.value) is not None:
        return node.attr
    return None


def _kind_of(statement: ast.AST) -> Kind | None:
    """Return the kind of a statement's removal, if it changes state or is a call for its effect."""
    if isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        parts = [part for target in targets for part in getattr(target, "elts", [target])]
        return Kind.STATE if any(isinstance(part, ast.Attribute | ast.Subscript) for part in parts) else None
    if isinstance(statement, ast.Delete):
        return Kind.STATE
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        called = statement.value.func
        return Kind.STATE if isinstance(called, ast.Attribute) and called.attr in CHANGING else Kind.CALL
    return None


def _changes(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, Change]]:
    """Yield the changes of a function's body, each with the node that stands for it."""
    nodes = [node for statement in function.body for node in ast.walk(statement)]
    similar: dict[str, dict[str, ast.AST]] = defaultdict(dict)
    for node in nodes:
        last = _last(node)
        if last and isinstance(getattr(node, "ctx", None), ast.Load):
            similar[last][ast.unparse(node)] = node
    # A local that is a short name for an attribute is the same object as this.
    same = {frozenset((ast.unparse(node.targets[0]), ast.unparse(node.value)))
            for node in nodes if isinstance(node, ast.Assign) and len(node.targets) == 1}  # fmt: skip
    yield from _removals(function)
    for node in nodes:
        yield from _removals(node)
        yield from _operators(node)
        if isinstance(node, ast.Call):
            yield from _arguments(node, similar, same)


def _removals(node: ast.AST) -> Iterator[tuple[ast.AST, Change]]:
    for field in ("body", "orelse", "finalbody"):
        block = getattr(node, field, None)
        for index, statement in enumerate(block if isinstance(block, list) else ()):
            kind = _kind_of(statement)
            if kind:
                # Without effect, and still there for the compiler, which would else find other variables.
                never = ast.If(ast.Constant(0), [statement], [])
                yield statement, Change(node, field, index, kind, ast.copy_location(never, statement))


def _operators(node: ast.AST) -> Iterator[tuple[ast.AST, Change]]:
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            yield node, Change(node, "ops", index, Kind.COMPARISON, OPPOSITE[type(operator)]())
    elif isinstance(node, ast.BoolOp):
        yield node, Change(node, "op", None, Kind.CONDITION, OPPOSITE[type(node.op)]())
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPPOSITE:
        yield node, Change(node, "op", None, Kind.ARITHMETIC, OPPOSITE[type(node.op)]())
    elif isinstance(node, ast.If | ast.While | ast.IfExp):
        negated = ast.copy_location(ast.UnaryOp(ast.Not(), node.test), node.test)
        yield node.test, Change(node, "test", None, Kind.CONDITION, negated)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield node, Change(node, "value", None, Kind.NUMBER, node.value + 1)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        yield node, Change(node.func, "id", None, Kind.ARITHMETIC, "max" if node.func.id == "min" else "min")


def _arguments(
    call: ast.Call, similar: Mapping[str, Mapping[str, ast.AST]], same: Container[frozenset[str]]
) -> Iterator[tuple[ast.AST, Change]]:
    """Yield calls with another EV, peer or transmission of the function: an expression that ends in the same name."""
    places: list[tuple[ast.AST, str, int | None, ast.expr]]
    places = [(call, "args", index, value) for index, value in enumerate(call.args)]
    places += [(keyword, "value", None, keyword.value) for keyword in call.keywords]
    for holder, field, index, value in places:
        texts = similar.get(_last(value) or "", {})
        own = ast.unparse(value)
        others = [other for text, other in texts.items() if text != own and frozenset((text, own)) not in same]
        for other in others[:1]:
            yield call, Change(holder, field, index, Kind.ARGUMENT, other)


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    for inner in getattr(node, "body", ()):
        if isinstance(inner, ast.ClassDef):
            yield from _functions(inner, f"{prefix}{inner.name}.")
        elif isinstance(inner, ast.FunctionDef):
            yield prefix + inner.name, inner


def mutants_of(path: pathlib.Path) -> Iterator[tuple[Mutant, Callable[[], Sequence[CodeType]]]]:
    """Yield all mutants of a file's functions, each with what compiles it: to nothing where the code stays the same."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    before = dict(codes_of(compile(tree, str(path), "exec")))
    for name, function in _functions(tree, ""):
        digest = hashlib.sha256(ast.unparse(function).encode()).hexdigest()[:8]
        seen: Counter[tuple[str, ...]] = Counter()
        for node, change in _changes(function):
            text = ast.unparse(node)
            old = change.swap(change.new)
            after = "" if change.kind in (Kind.STATE, Kind.CALL) else ast.unparse(node)
            if node is getattr(change.new, "operand", None):
                after = f"not ({text})"
            change.swap(old)
            number = seen[change.kind, text, after]
            seen[change.kind, text, after] += 1
            line: int = getattr(node, "lineno", function.lineno)

            def compiled(change: Change = change, name: str = name) -> Sequence[CodeType]:
                old = change.swap(change.new)
                try:
                    module = compile(ast.fix_missing_locations(tree), str(path), "exec")
                finally:
                    change.swap(old)
                code = dict(codes_of(module))[name]
                return () if code == before[name] else (code,)

            yield Mutant(path, name, line, change.kind, text, after, number, digest), compiled


def reasoned(path: pathlib.Path) -> Iterator[Mutant]:
    """Yield the mutants of a file that the table has: of state, calls, comparisons and arguments, but of `__init__`."""
    for mutant, _ in mutants_of(path):
        if mutant.kind in REASONED and not mutant.function.endswith("__init__"):
            yield mutant


def codes_of(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Yield the functions' code of a module and its classes by qualified name; the last one of a name counts."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner.co_qualname, inner
            yield from codes_of(inner)


class Reached(Protocol):
    """A mutant that the tests notice which reach one of its lines."""

    @property
    def lines(self) -> Sequence[tuple[str, int]]:
        """Files and lines; the first that any test reaches says which tests run."""


M = TypeVar("M", bound=Reached)


@dataclasses.dataclass
class Outcome(Generic[M]):
    """The test that notices a mutant (NOTHING: none does), and the number of those that reach it."""

    mutant: M
    killer: str
    tests: int


class Bench(Generic[M]):
    """The pytest plugin that runs mutants instead of the tests that were collected."""

    def __init__(self, folder: pathlib.Path, paths: Sequence[pathlib.Path], limit_s: float, workers: int) -> None:
        self.folder, self.paths, self.limit_s, self.workers = folder, paths, limit_s, workers
        self.outcomes: list[Outcome[M]] = []
        self.shown: Callable[[Outcome[M]], None] = lambda _: None
        #: How the tests begin that run before all others.
        self.first = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the mutants; the tests themselves run once, in a child."""
        self.items = {item.nodeid: item for item in session.items}
        reached = self.folder / "reached"
        if self._wait(self._fork(lambda: self._measure(reached)), None) != 0:
            raise pytest.UsageError("tests fail without a mutant, or leave coverage: run them alone")
        lines, self.seconds = pickle.loads(reached.read_bytes())
        running: dict[int, tuple[M, int, float, pathlib.Path]] = {}
        for number, (mutant, compiled) in enumerate(self.places()):
            codes = compiled()
            tests = self._chosen(next(filter(None, (lines.get(line) for line in mutant.lines)), ()))
            if not codes:
                continue
            if not tests:
                self._end(Outcome(mutant, NOTHING, 0))
                continue
            while len(running) >= self.workers:
                self._reap(running)
            answer = self.folder / str(number)
            usual = sum(self.seconds[test] for test in tests)
            pid = self._fork(functools.partial(self._try, codes, tests, answer))
            running[pid] = (mutant, len(tests), time.monotonic() + 3 * usual + GRACE_S, answer)
        while running:
            self._reap(running)
        return True

    def places(self) -> Iterator[tuple[M, Callable[[], Sequence[CodeType]]]]:
        """Yield the mutants in the order in which they run, each with what compiles the functions that it changes."""
        raise NotImplementedError

    def _chosen(self, tests: Sequence[str]) -> list[str]:
        chosen: list[str] = []
        # Each kind has the time that there is, or the many short tests would leave none for the others.
        for those in (True, False):
            kind = [test for test in tests if bool(self.first and test.startswith(self.first)) is those]
            left = self.limit_s
            for test in sorted(kind, key=lambda test: (self.seconds[test], test)):
                left -= self.seconds[test]
                if left < 0 and chosen:
                    break
                chosen.append(test)
        return chosen

    def _fork(self, work: Callable[[], None]) -> int:
        sys.stdout.flush()
        pid = os.fork()
        if pid:
            return pid
        code = 1
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(null, number)
            work()
            code = 0
        finally:
            os._exit(code)

    def _wait(self, pid: int, deadline: float | None) -> int | None:
        """Wait for a child; -1 if it was killed at its deadline."""
        while True:
            ended, status = os.waitpid(pid, 0 if deadline is None else os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if deadline is not None and time.monotonic() > deadline:
                os.killpg(pid, signal.SIGKILL)
                deadline = None
            else:
                return None

    def _reap(self, running: dict[int, tuple[M, int, float, pathlib.Path]]) -> None:
        for pid, (mutant, tests, deadline, answer) in list(running.items()):
            status = self._wait(pid, deadline)
            if status is not None:
                del running[pid]
                killer = answer.read_text() if answer.exists() else "an end of the process, or none in time"
                self._end(Outcome(mutant, killer, tests))
        time.sleep(0.002)

    def _end(self, outcome: Outcome[M]) -> None:
        self.outcomes.append(outcome)
        self.shown(outcome)

    def _measure(self, reached: pathlib.Path) -> None:
        import coverage

        watch = coverage.Coverage(data_file=None, include=[str(path) for path in self.paths])
        watch.start()
        seconds = {}
        items = list(self.items.values())
        for item, following in zip(items, [*items[1:], None], strict=True):
            watch.switch_context(item.nodeid)
            begin = time.monotonic()
            failed = [each for each in runtestprotocol(item, log=False, nextitem=following) if each.failed]
            if failed:
                (self.folder / "failed").write_text(f"{item.nodeid}\n{failed[0].longreprtext}")
                os._exit(1)
            seconds[item.nodeid] = time.monotonic() - begin
        watch.stop()
        data = watch.get_data()
        lines = {
            (str(path), line): tuple(filter(None, tests))
            for path in self.paths
            for line, tests in data.contexts_by_lineno(str(path)).items()
        }
        reached.write_bytes(pickle.dumps((lines, seconds)))

    def _try(self, codes: Sequence[CodeType], tests: Sequence[str], answer: pathlib.Path) -> None:
        functions = [each for each in gc.get_objects() if isinstance(each, FunctionType)]
        for code in codes:
            place = code.co_filename, code.co_qualname
            live = [each for each in functions if (each.__code__.co_filename, each.__code__.co_qualname) == place]
            assert live, code
            for function in live:
                function.__code__ = code
        items = [self.items[test] for test in tests]
        for item, following in zip(items, [*items[1:], None], strict=True):
            if any(report.failed for report in runtestprotocol(item, log=False, nextitem=following)):
                answer.write_text(item.nodeid)
                return
        answer.write_text(NOTHING)


class Sampled(Bench[Mutant]):
    """Runs all mutants of functions that are wanted, or a sample of them."""

    def __init__(self, folder: pathlib.Path, paths: Sequence[pathlib.Path], limit_s: float, workers: int) -> None:
        super().__init__(folder, paths, limit_s, workers)
        self.wanted: Callable[[Mutant], bool] = lambda _: True
        self.later: Callable[[Mutant], bool] = lambda _: False
        #: How many, each of another line, and the seed.
        self.sample: tuple[int, int] | None = None

    def places(self) -> Iterator[tuple[Mutant, Callable[[], Sequence[CodeType]]]]:
        """See `Bench`."""
        places = [(mutant, code) for path in self.paths for mutant, code in mutants_of(path) if self.wanted(mutant)]
        places.sort(key=lambda place: self.later(place[0]))
        if self.sample:
            number, seed = self.sample
            rng = random.Random(seed)
            by_line: dict[tuple[pathlib.Path, int], list[Any]] = defaultdict(list)
            for place in places:
                by_line[place[0].path, place[0].line].append(place)
            places = [rng.choice(by_line[line]) for line in rng.sample(sorted(by_line), min(number, len(by_line)))]
        yield from places


def read_table() -> dict[tuple[str, ...], tuple[str, str]]:
    """Return digest of the function, and the test that fails or a reason, by key of the mutant."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        return {tuple(row[:6]): (row[6], row[7]) for row in rows}


def write_table(rows: Mapping[tuple[str, ...], tuple[str, str]]) -> None:
    """Write the table, sorted by key."""
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["file", "function", "kind", "before", "after", "number", "digest", "noticed by"])
        writer.writerows([*key, *values] for key, values in sorted(rows.items()))


def options(part: Part) -> list[str]:
    """Return pytest's options for the tests of a part."""
    arguments = ["-p", "no:cacheprovider", "-p", "no:xdist"]
    arguments += ["-m", "not lab and not netns and not root and not slow"]
    # One compares the compiled core with the interpreted one, and here there is no compiled one; one reads the table.
    arguments += [f"--ignore={ROOT / 'tests/proto' / name}" for name in ("test_native.py", "test_reasons.py")]
    return [*arguments, *(str(ROOT / test) for test in part.tests)]


def run(part: Part, bench: Bench[M]) -> list[Outcome[M]]:
    """Run the mutants of a part that the bench wants.

    Raises:
        RuntimeError: a test fails without any mutant.
    """
    status = pytest.main(options(part), plugins=[bench])
    if status != pytest.ExitCode.OK and status != pytest.ExitCode.NO_TESTS_COLLECTED:
        failed = bench.folder / "failed"
        raise RuntimeError(f"tests fail without a mutant: {failed.read_text() if failed.exists() else status}")
    return bench.outcomes


def main(arguments: Sequence[str]) -> int:
    """Print every mutant that survives and the share that was killed; exit with 1 below `FLOOR`."""
    parser = argparse.ArgumentParser(prog="python -m support.mutants", description=__doc__)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--sample", type=int, default=100, help="mutants, each of another line (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="which of them (default: 1)")
    parser.add_argument("--table", action="store_true", help="all that the table of the protocol lacks, into the table")
    parser.add_argument("--again", action="store_true", help="with --table: those that nothing notices, too")
    parser.add_argument("--seconds", type=float, default=20.0, help="of tests for each mutant (default: 20)")
    parser.add_argument("--first", default="", help="tests that begin so run first, in seconds of their own")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="at a time (default: one per core)")
    given = parser.parse_args(arguments)
    part = PARTS[given.part]
    os.environ["MRCLAB_PURE"] = "1"
    with scratch("mutants") as folder:
        os.environ["TMPDIR"] = str(folder)
        bench = Sampled(folder, part.paths(), given.seconds, given.workers)
        bench.shown, bench.first = _show, given.first
        if not given.table:
            bench.sample = (given.sample, given.seed)
            outcomes = run(part, bench)
        else:
            known = read_table() if TABLE.exists() else {}
            open_ones = {key for key, (_, noticed) in known.items() if noticed == NOTHING and given.again}
            there = {mutant.key for path in part.paths() for mutant in reasoned(path)}
            bench.wanted = lambda mutant: (
                mutant.key in there and (known.get(mutant.key, ("",))[0] != mutant.digest or mutant.key in open_ones)
            )
            bench.later = lambda mutant: mutant.key in open_ones
            try:
                run(part, bench)
            finally:  # what was found until a signal is kept, too
                outcomes = bench.outcomes
                found = {outcome.mutant.key: (outcome.mutant.digest, outcome.killer) for outcome in outcomes}
                write_table({key: value for key, value in (known | found).items() if key in there})
    killed = sum(outcome.killer != NOTHING for outcome in outcomes)
    print(f"{given.part}: {killed} of {len(outcomes)} mutants killed", flush=True)
    return 0 if killed >= FLOOR * len(outcomes) else 1


def _show(outcome: Outcome[Mutant]) -> None:
    if outcome.killer == NOTHING:
        mutant = outcome.mutant
        reason = f"survived {outcome.tests} tests" if outcome.tests else "no test reaches it"
        place = f"{mutant.path.relative_to(ROOT)}:{mutant.line}"
        print(f"{place}: {reason}\n-{mutant.before}\n+{mutant.after}\n", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
