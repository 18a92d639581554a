"""`mrclab workshop`: exercises, from `list` to `grade`."""

from __future__ import annotations

import contextlib
import json
import pathlib
import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from mrc_topo.base.document import printable
from mrc_topo.base.files import write_whole
from mrc_topo.base.interruption import interruptible
from mrc_topo.base.plain import encode
from mrc_topo.shipped import shipped
from mrc_workshop import exercise as exercises
from mrc_workshop import grade as grading
from mrc_workshop import judge, learner, recorded, verify
from mrc_workshop.classroom import cli as classroom
from mrc_workshop.classroom import handin
from mrc_workshop.exercise import Exercise, WorkshopError
from mrc_workshop.grade import Grade
from mrc_workshop.judge import CheckLine, Report
from mrc_workshop.kinds import catalogue
from mrclab.cli.progress import steps
from mrclab.results.terminal import Terminal

WIDTH = 110

app = typer.Typer(
    help="Learn MRC with exercises that check your own code in simulated time.",
    no_args_is_help=True,
    add_completion=False,
)
app.add_typer(classroom.app, name="class")

Number = Annotated[str, typer.Argument(help="number or name of an exercise")]
SomeNumber = Annotated[
    str | None,
    typer.Argument(metavar="[NUMBER]", help="an exercise or a folder of one (default: the exercise of this folder)"),
]
Folder = Annotated[str | None, typer.Argument(metavar="[DIR]", help="the learner's folder")]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]


@app.command("list")
def list_exercises(as_json: Json = False) -> None:
    """List the exercises."""
    progress = learner.Progress()
    found = [exercises.load(folder) for folder in exercises.known().values()]
    if as_json:
        rows = [
            {
                "number": each.number,
                "name": each.name,
                "title": each.content.title,
                "minutes": each.content.minutes,
                "edit": each.content.edit,
                "language": each.content.language,
                "passed": progress.of(each.name).passed,
            }
            for each in found
        ]
        typer.echo(json.dumps(rows, indent=1))
        return
    table = Table(box=None)
    for column in ("", "exercise", "what it is about", "edit", "minutes", ""):
        table.add_column(column)
    for each in found:
        state = "passed" if progress.of(each.name).passed else ""
        content = each.content
        table.add_row(str(each.number), each.name, content.title, content.language, str(content.minutes), state)
    Terminal().print(table)


@contextlib.contextmanager
def _where_possible() -> Iterator[None]:
    """Warn if progress cannot be recorded, as in a home that is read-only; the verb has done what it was asked for."""
    try:
        yield
    except OSError as error:
        place, reason = printable(str(error.filename)), error.strerror
        text = f"warning: progress is not recorded: {place}: {reason}; set MRCLAB_WORKSHOP to another file"
        typer.echo(text, err=True)


@app.command()
def start(number: Number, folder: Folder = None) -> None:
    """Copy the starter of an exercise into a new folder (default: ./NN-name)."""
    exercise = exercises.find(number)
    place = pathlib.Path(exercise.name if folder is None else folder)
    names = learner.copy_exercise(exercise, place, exercise.starter)
    with _where_possible():
        learner.Progress().note(exercise.name, folder=str(place.absolute()))
    typer.echo(f"{exercise.name}: {exercise.content.title} (about {exercise.content.minutes} minutes)")
    typer.echo(f"{place}: {', '.join(names)}")
    typer.echo(f"Read {place}/README.md; edit {', '.join(exercise.content.edit)}")
    typer.echo(f"Then: mrclab workshop check {exercise.number}")


@app.command()
def check(
    number: SomeNumber = None,
    folder: Folder = None,
    as_json: Json = False,
    keep: Annotated[bool, typer.Option(help="write a small capture and a report into DIR/check")] = True,
) -> None:
    """Check your files in simulated time. Exit with 1 if a check fails.

    Each check is printed as soon as it is judged; meanwhile, standard error has the run that has begun.
    """
    progress = learner.Progress()
    exercise, place = _meant(number, folder, progress)
    if not as_json:
        typer.echo(f"{exercise.name}: {exercise.content.title}\n")
    kept = place / "check" if keep else None
    with interruptible(), contextlib.ExitStack() as status:
        tell = status.enter_context(steps("preparing", lines=not as_json))

        def judged(line: CheckLine) -> None:
            if not as_json:
                status.close()  # rich would take the lines to standard error
                _show_line(line)

        report = judge.check(exercise, place, keep_in=kept, progress=tell, judged=judged)
    with _where_possible():
        progress.checked(exercise.name, passed=report.passed)
    standing = progress.of(exercise.name)
    if as_json:
        typer.echo(json.dumps(report.document(), indent=1))
    else:
        _show(exercise, report, standing.hints)
    raise typer.Exit(0 if report.passed else 1)


@app.command()
def hint(number: SomeNumber = None) -> None:
    """Print the next hint of an exercise."""
    progress = learner.Progress()
    exercise = exercises.find(number) if number else _meant(None, None, progress)[0]
    hints = exercise.content.hints
    shown = min(progress.of(exercise.name).hints + 1, len(hints))
    with _where_possible():
        progress.note(exercise.name, hints=shown)
    _wrapped(f"Hint {shown} of {len(hints)}: {hints[shown - 1]}")
    if shown == len(hints):
        typer.echo(
            f"That was the last one; `mrclab workshop solution {exercise.number}` copies a solution to a folder."
        )


@app.command()
def solution(number: Number, folder: Folder = None) -> None:
    """Copy a solution into a new folder (default: ./NN-name-solution), where `check` runs on it."""
    exercise = exercises.find(number)
    place = pathlib.Path(f"{exercise.name}-solution" if folder is None else folder)
    names = learner.copy_exercise(exercise, place, exercise.solution, readme=False)
    typer.echo(f"{place}: {', '.join(names)}; mrclab workshop check {exercise.number} {place}")


@app.command()
def reset(number: SomeNumber = None, folder: Folder = None) -> None:
    """Put the starter's files back into your folder; yours stay beside them as FILE.mine."""
    progress = learner.Progress()
    exercise, place = _meant(number, folder, progress)
    names = learner.reset(exercise, place)
    with _where_possible():
        progress.note(exercise.name, passed=False, hints=0)
    typer.echo(f"{place}: {', '.join(names)} as in the beginning; what you had is in FILE.mine")


@app.command("hand-in")
def hand_in(
    number: SomeNumber = None,
    folder: Folder = None,
    student: Annotated[str | None, typer.Option("--as", help="your id in the roster, for the file's name")] = None,
    output: Annotated[str | None, typer.Option("-o", "--output", help="the file (default: [ID-]NN-name.zip)")] = None,
) -> None:
    """Write a file to hand in, with your files of an exercise."""
    exercise, place = _meant(number, folder, learner.Progress())
    name = exercise.name if student is None else f"{student}-{exercise.name}"
    path = pathlib.Path(output if output is not None else f"{name}.zip")
    handin.write(exercise, place, path)
    typer.echo(f"{path}: {', '.join(exercise.content.edit)}")


@app.command("progress")
def show_progress(as_json: Json = False) -> None:
    """Show your progress in each exercise."""
    progress = learner.Progress()
    found = [exercises.load(folder) for folder in exercises.known().values()]
    if as_json:
        typer.echo(json.dumps({each.name: progress.of(each.name).model_dump() for each in found}, indent=1))
        return
    for each in found:
        standing = progress.of(each.name)
        state = "passed" if standing.passed else "started" if standing.folder or standing.checks else "-"
        rest = f"{standing.checks} checks, {standing.hints} of {len(each.content.hints)} hints" if state != "-" else ""
        typer.echo(f"{each.name:<24} {state:<8} {rest}".rstrip())
    passed = sum(progress.of(each.name).passed for each in found)
    typer.echo(f"{passed} of {len(found)} passed")


@app.command()
def kinds() -> None:
    """List the kinds of checks that an exercise can be made of."""
    for name, each in catalogue.all_kinds().items():
        typer.echo(f"{name:<24} {each.about}")
        for key, field in each.params.model_fields.items():
            typer.echo(f"{'':<24}   {key}: {'required' if field.is_required() else repr(field.default)}")


@app.command()
def new(folder: Annotated[str, typer.Argument(metavar="DIR", help="folder to create, named NN-name")]) -> None:
    """Make a new exercise from the template, for `mrclab workshop verify`."""
    place = pathlib.Path(folder)
    if exercises.FOLDER_NAME.match(place.name) is None:
        raise WorkshopError(
            f"{printable(folder)}: an exercise's folder is named like 12-ecn: two digits, '-', lower-case words"
        )
    if place.exists():
        raise WorkshopError(f"{place}: is there already")
    shutil.copytree(shipped("workshop") / "TEMPLATE", place)
    typer.echo(f"{place}: change what is in it; then: mrclab workshop verify {place.absolute()}")


@app.command("verify")
def verify_exercise(
    number: Annotated[
        str | None, typer.Argument(help="number, name or folder of an exercise (default: all)", metavar="N")
    ] = None,
    runs: Annotated[
        int, typer.Option("--runs", min=1, help="repeat it this many times; all must give the same result")
    ] = 1,
    hash_seeds: Annotated[
        int,
        typer.Option("--hash-seeds", min=1, help="number of values of PYTHONHASHSEED that the repetitions use in turn"),
    ] = 1,
    answer: Annotated[
        list[str] | None, typer.Option("--answer", help="check only this answer; may be given several times")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check that the starter fails, the solution passes, and each wrong answer gets its own message.

    Exit with 1 if one of them does not.
    """
    many = runs > 1 or hash_seeds > 1
    if many and as_json:
        raise WorkshopError("--json prints the results of one run; leave --runs and --hash-seeds out")
    chosen = [exercises.find(number)] if number is not None else list(map(exercises.load, exercises.known().values()))
    held = True
    documents = []
    for exercise in chosen:
        if many:
            held &= _again_and_again(exercise, max(runs, hash_seeds), hash_seeds, answer or ())
            continue
        if number is None and not as_json:
            typer.echo(exercise.name)
        for trial in verify.trials(exercise, only=answer or ()):
            held &= trial.holds
            documents.append(trial.row())
            if not as_json:
                _wrapped(f"{'ok  ' if trial.holds else 'FAIL'}  {_times(documents[-1])}  {trial.text()}", "      ")
    if as_json:
        typer.echo(json.dumps(encode(documents)))
    raise typer.Exit(0 if held else 1)


@app.command()
def record(number: Number) -> None:
    """Write what the hosts of an exercise's recorded run saw into its starter: events.csv and hosts.csv.

    For teachers, after a change of the run in exercise.yaml: another failure, or another seed.
    """
    exercise = exercises.find(number)
    for name, text in recorded.record(exercise).items():
        write_whole(exercise.starter / name, text)
        typer.echo(f"{exercise.starter / name}: {text.count(chr(10)) - 1} rows")


def _times(trial: verify.TrialRow) -> str:
    return f"{trial.cpu_s:5.1f} s CPU {trial.wall_s:5.1f} s"


def _again_and_again(exercise: Exercise, runs: int, hash_seeds: int, answers: Sequence[str]) -> bool:
    """Print a line per run and where it differs from the first; return whether all are as they must be."""
    results: list[list[verify.TrialRow]] = []
    for result in verify.repeated(exercise, runs, hash_seeds, answers):
        results.append(result)
        wrong = [each.text for each in result if not each.holds]
        wrong += verify.differences([results[0], result]) if len(results) > 1 else []
        worst = max(result, key=lambda each: each.wall_s)
        told = f"run {len(results)} of {runs}: {len(result)} answers; longest: {worst.name} {_times(worst)}"
        _wrapped(f"{'FAIL' if wrong else 'ok  '}  {exercise.name}  {told}", "      ")
        for text in wrong:
            _wrapped(f"      {text}", "      ")
        if wrong:
            return False
    return True


Submissions = Annotated[str, typer.Argument(metavar="DIR", help="a folder with a sub-folder for each submission")]
Only = Annotated[str | None, typer.Option("--exercise", help="one exercise (default: all)")]
Seeds = Annotated[
    list[int] | None, typer.Option("--seed", help="a hidden seed of your own; may be given several times")
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="checks in parallel (default: one per core)")]


@app.command("grade")
def grade_class(
    submissions: Submissions,
    output: Annotated[
        str, typer.Option("-o", "--output", help="CSV file; submissions that it already grades are skipped")
    ] = "grades.csv",
    number: Only = None,
    seed: Seeds = None,
    jobs: Jobs = None,
    as_json: Json = False,
) -> None:
    """Grade a class: check each submission in a sandbox and write grades with reasons to a CSV file."""
    made = _graded(submissions, output, number, seed, jobs, as_json)
    if as_json:
        typer.echo(json.dumps([asdict(each) for each in made], indent=1))
        return
    missing = sum(each.grade is None for each in made)
    tail = f"; {missing} not graded; the same command tries again" if missing else ""
    typer.echo(f"{output}: {len(made) - missing} grades, {sum(each.passed for each in made)} passed{tail}")


def _teller(quiet: bool) -> Callable[[Grade, int, int], None]:
    """Print each grade as it is made."""

    def tell(made: Grade, done: int, total: int) -> None:
        if not quiet:
            grade = "" if made.grade is None else f"{made.grade:.2f}: "
            word = "passed" if made.passed else f"{grade}{made.reason}"
            _wrapped(f"{done} of {total}  {made.submission} {made.exercise}: {word}", " " * 8)

    return tell


def _graded(
    submissions: str, output: str, number: str | None, seed: list[int] | None, jobs: int | None, quiet: bool
) -> list[Grade]:
    only = None if number is None else exercises.find(number)
    place, path = pathlib.Path(submissions), pathlib.Path(output)
    with interruptible():
        return grading.grade(place, path, only=only, seeds=seed or (), jobs=jobs, progress=_teller(quiet))


def _meant(number: str | None, folder: str | None, progress: learner.Progress) -> tuple[Exercise, pathlib.Path]:
    """Return the selected exercise and folder; a lone folder may stand in the number's place."""
    if number is not None and folder is None and not number.isdigit() and pathlib.Path(number).is_dir():
        number, folder = None, number
    exercise = None if number is None else exercises.find(number)
    return learner.locate(exercise, folder, progress)


def _wrapped(text: str, indent: str = "") -> None:
    typer.echo(textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False))


def _show_line(line: CheckLine) -> None:
    words = {True: "ok", False: "FAIL", None: "-"}
    measured = f": {line.measured}" if line.measured else ""
    _wrapped(f"  {words[line.passed]:<5} {line.what}{measured}", " " * 8)


def _show(exercise: Exercise, report: Report, hints: int) -> None:
    """Print what follows the lines of the checks."""
    first = report.first_failure
    if first is None:
        typer.echo("\nPassed." + ("" if report.score is None else f" Score: {report.score:.3f}"))
        return
    typer.echo("")
    _explain(first)
    if report.output.strip():
        typer.echo("\nYour code printed:")
        typer.echo(textwrap.indent(_plain(report.output[-2000:]), "  "))
    shown = max(hints, 1)
    text = first.hint if first.hint and hints == 0 else exercise.content.hints[shown - 1]
    typer.echo("")
    _wrapped(f"Hint: {text}")
    typer.echo(f"`mrclab workshop hint {exercise.number}` has more.")
    if report.files:
        typer.echo(f"To look at: {', '.join(report.files)}")


def _explain(line: CheckLine) -> None:
    if line.mistake:
        for part in _plain(line.mistake).splitlines():
            _wrapped(part)
    if line.where:
        typer.echo(f"Seen in run {line.where}{':' if line.evidence else '.'}")
    for each in line.evidence:
        typer.echo(textwrap.indent(_plain(each), "  "))


def _plain(text: str) -> str:
    """Return the text without characters that control a terminal."""
    return "".join(
        each if each.isprintable() or each == "\n" else each.encode("unicode_escape").decode() for each in text
    )
