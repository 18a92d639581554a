"""A class of students of mixed ability, collected and graded while other work takes the machine's cores.

    PYTHONPATH=tests python -m support.workshop.simulated --students 30 --load 4 --seed 1

Each student hands in something whose grade is known: right, wrong in a way that the exercise knows, broken, endless,
too slow, asleep, missing, equal to another's, or late. A line for each says what was expected and what came; exit code
1 if any differs. Load must not change a grade: limits count CPU time, and time without work, not the clock's.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import yaml

from mrc_workshop import exercise as exercises
from mrc_workshop import verify
from mrc_workshop.classroom import classfile, collecting, standing
from mrc_workshop.classroom.standing import Standing, State
from mrc_workshop.classroom.store import ClassStore
from mrc_workshop.exercise import Exercise

DUE_S = 1_800_000_000
#: Instead of the two minutes of the exercises, so that endless answers end sooner. Right ones take a sixth of it.
CPU_S, WALL_S = 30, 30


class Kind(StrEnum):
    """What a student hands in."""

    RIGHT = "right"
    WRONG = "wrong"
    BROKEN = "broken"
    ENDLESS = "endless loop"
    SLOW = "too slow"
    ASLEEP = "asleep"
    MISSING = "missing"
    COPIED = "copied"
    LATE = "late"


#: Ten students; the next ten are the same again, with other wrong answers.
MIX = (
    Kind.RIGHT, Kind.WRONG, Kind.COPIED, Kind.LATE, Kind.BROKEN, Kind.ENDLESS, Kind.RIGHT, Kind.SLOW, Kind.WRONG,
    Kind.MISSING,
)  # fmt: skip
#: What may be done to Python only, and what the first line of a hostile file is.
HOSTILE = {
    Kind.ENDLESS: "while True:\n    pass\n",
    Kind.SLOW: "for _ in range(10**9):\n    sum(range(1000))\n",
    Kind.ASLEEP: "import time\n\ntime.sleep(3600)\n",
}
SAID = {
    Kind.ENDLESS: "of CPU time, which is the limit",
    Kind.SLOW: "of CPU time, which is the limit",
    Kind.ASLEEP: "without computing, which is the limit",
    Kind.MISSING: ": is missing",
}


@dataclass(frozen=True)
class Member:
    """A student: the files, and what must come of them. `equals`: the student whose files these are."""

    id: str
    kind: Kind
    exercise: Exercise
    files: dict[str, str]
    passes: bool
    expected_text: str = ""
    equals: str = ""

    @property
    def late(self) -> bool:
        return self.kind is Kind.LATE


@dataclass(frozen=True)
class Row:
    """A student and what came of the work. `problem`: how it differs from what was expected; empty if it does not."""

    member: Member
    standing: Standing
    problem: str


def members(known: Sequence[Exercise], number: int, seed: int, mix: Sequence[Kind] = MIX) -> list[Member]:
    """Return the class; the same one for the same seed."""
    chance = random.Random(seed)
    made: list[Member] = []
    for index in range(number):
        kind = mix[index % len(mix)]
        if index >= len(mix) and kind is Kind.SLOW:
            kind = Kind.ASLEEP
        fitting = [each for each in known if kind not in HOSTILE or each.content.language == "Python"]
        before = [each for each in made if each.kind is Kind.RIGHT]
        member = _member(f"s{index + 1:02}", kind, chance.choice(fitting), chance)
        if kind is Kind.COPIED and before:
            other = chance.choice(before)
            files = {file: _disguised(text, file) for file, text in other.files.items()}
            member = replace(other, id=member.id, kind=kind, equals=other.id, files=files)
        made.append(member)
    return made


def _member(name: str, kind: Kind, exercise: Exercise, chance: random.Random) -> Member:
    files = {each: (exercise.solution / each).read_text(encoding="utf-8") for each in exercise.content.edit}
    first = next(iter(files))
    # An own declaration, for right answers of two students are not equal.
    own = f"const bit<32> OF_{name.upper()} = 1;\n" if first.endswith(".p4") else f"OF_{name.upper()} = 1\n"
    if kind in (Kind.RIGHT, Kind.LATE, Kind.COPIED):
        files[first] = _with(files[first], own, first)
        return Member(name, kind, exercise, files, passes=True)
    if kind is Kind.WRONG:
        wrong = chance.choice(verify.load(exercise).wrong)
        for each in wrong.replace:
            files[each.file] = files[each.file].replace(each.old, each.new)
        return Member(name, kind, exercise, files, passes=False, expected_text=wrong.expected_text)
    if kind is Kind.BROKEN:
        files[first] = "}} this is no program\n" + files[first]
        return Member(name, kind, exercise, files, passes=False, expected_text=f"{first}:1")
    if kind is Kind.MISSING:
        files = {f"old-{each}": text for each, text in files.items()}
    else:
        files[first] = HOSTILE[kind] + files[first]
    return Member(name, kind, exercise, files, passes=False, expected_text=SAID[kind])


def _with(text: str, own: str, name: str) -> str:
    """Put a declaration where each language allows it: at the end of Python, before the first parser of P4."""
    if name.endswith(".py"):
        return f"{text}\n\n{own}"
    at = re.search(r"^(parser|control|header|struct)\b", text, re.MULTILINE)
    assert at is not None, "a P4 program has a parser"
    return text[: at.start()] + own + text[at.start() :]


def _disguised(text: str, name: str) -> str:
    mark = "//" if name.endswith(".p4") else "#"
    return f"{mark} all my own work\n\n{text}\n{mark} the end\n"


def quicker(folder: pathlib.Path, numbers: Sequence[int]) -> list[Exercise]:
    """Copy exercises of the project with smaller limits."""
    made = []
    for number in numbers:
        source = exercises.known()[number]
        place = folder / source.name
        shutil.copytree(source, place)
        path = place / exercises.FILE
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
        document["limits"] = {"cpu_s": CPU_S, "wall_s": WALL_S}
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        made.append(exercises.load(place))
    return made


@contextlib.contextmanager
def busy(number: int) -> Iterator[None]:
    """Keep this many cores busy with other work."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


def run(
    folder: pathlib.Path,
    known: Sequence[Exercise],
    people: Sequence[Member],
    tell: Callable[[str], None] = lambda text: None,
) -> list[Row]:
    """Let the class hand in, collect it, grade it, and compare."""
    names = [os.path.relpath(each.folder, folder) for each in known]
    due = classfile.shown_time(DUE_S)
    entries = [{"name": f"./{each}", "due": due, "points": 10} for each in names]
    text = yaml.safe_dump({"title": "Simulated", "exercises": entries, "late_factor": 0.5})
    (folder / classfile.FILE).write_text(text, encoding="utf-8")
    roster = "".join(f"{each.id},Student {each.id},work/{each.id}\n" for each in people)
    (folder / classfile.ROSTER).write_text(f"id,name,folder\n{roster}", encoding="utf-8")
    classroom = classfile.read_class(folder)
    store = ClassStore(classroom)
    with store.changing():
        for late in (False, True):
            for each in people:
                if each.late == late:
                    place = folder / "work" / each.id / each.exercise.name
                    place.mkdir(parents=True)
                    for name, content in each.files.items():
                        (place / name).write_text(content, encoding="utf-8")
            collecting.collect(classroom, store, DUE_S + 60.0 if late else DUE_S - 60.0)
        standing.grade_class(
            classroom, store, progress=lambda made, done, total: tell(f"{made.exercise}: {done} of {total}")
        )
    found = {(each.student, each.exercise): each for each in standing.standings(classroom, store)}
    return [Row(each, found[each.id, each.exercise.name], _problem(each, found)) for each in people]


def _problem(member: Member, found: dict[tuple[str, str], Standing]) -> str:
    got = found[member.id, member.exercise.name]
    checks = {
        "not graded": got.state is not State.WAITING,
        f"state {got.state}": (got.state is State.PASSED) == member.passes,
        "the reason": " ".join(member.expected_text.split()) in " ".join(got.reason.split()),
        "lateness": got.late == member.late,
        f"points {got.points}": not member.passes or got.points == (5 if member.late else 10),
        f"equals {got.equals}": member.equals in got.equals if member.equals else not (member.late and got.equals),
    }
    return ", ".join(what for what, holds in checks.items() if not holds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a class and print its table; return 1 if a grade is not the expected one."""
    parser = argparse.ArgumentParser(description="Grade a simulated class under load.")
    parser.add_argument("--students", type=int, default=30)
    parser.add_argument("--load", type=int, default=2 * (os.cpu_count() or 1), help="processes that compute meanwhile")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exercises", type=int, nargs="+", default=[1, 7], help="one of them in Python")
    given = parser.parse_args(arguments)
    begin, cpu = time.monotonic(), os.times()
    with tempfile.TemporaryDirectory() as name, busy(given.load):
        folder = pathlib.Path(name)
        known = quicker(folder / "exercises", given.exercises)
        people = members(known, given.students, given.seed)
        rows = run(folder, known, people, lambda text: print(text, file=sys.stderr))
    print(f"{'id':<4} {'hands in':<13} {'exercise':<10} {'state':<8} {'points':>6}  {'':<5} {'equals':<8} reason")
    for row in rows:
        got, points = row.standing, "-" if row.standing.points is None else f"{row.standing.points:g}"
        late = "late" if got.late else ""
        print(
            f"{got.student:<4} {row.member.kind:<13} {got.exercise:<10} {got.state:<8} {points:>6}  {late:<5} "
            f"{' '.join(got.equals):<8} {got.reason[:70]}"
        )
        if row.problem:
            print(f"     NOT AS EXPECTED: {row.problem}; expected to say: {row.member.expected_text}")
    wrong = sum(bool(row.problem) for row in rows)
    used = os.times()
    cpu_s = used.children_user + used.children_system - cpu.children_user - cpu.children_system
    print(
        f"{len(rows)} students, {len(rows) - wrong} graded as expected, {wrong} not; {given.load} busy processes, seed "
        f"{given.seed}; {time.monotonic() - begin:.0f} s, {cpu_s:.0f} s of CPU with those"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
