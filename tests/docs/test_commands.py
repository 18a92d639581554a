"""Every command in the documentation can be typed, and is run here or says where else or why not.

All are put to the real parsers. Those of `PAGES` that can be typed as they stand are then run in a scratch folder, each
once, unless `ELSEWHERE` or a mark beside them (`<!-- not run: REASON -->`) says why not.
"""

from __future__ import annotations

import contextlib
import io
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
from unittest import mock

import pytest

pytest.importorskip("mrc_conform", reason="the pages have commands of the core and of all extras")

import p4lite.cli
from mrclab.cli.app import main as mrclab_main
from support import cli, docs

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
    *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("experiments/*/README.md")),
]
# The READMEs of exercises are walked through by a test of their own.
EXERCISES = sorted(ROOT.glob("workshop/**/*.md"))

REAL = "needs a lab on the real clock"
WALKED = "the READMEs of the exercises are walked through"
ELSEWHERE: list[tuple[str, str, str]] = [
    # A pattern of whole commands; why they are not run here; where they are ("": nowhere).
    (r"make .*", "sets up, tests or measures everything", ".ci/run"),
    (r"mrclab conform --device agent", REAL, "extras/mrc_conform/tests/test_agent.py"),
    (r"pip install pre-commit.*", "changes the reader's own repository", ""),
    (r"python -m support\.checker .*", "takes minutes of CPU time", "tests/proto/test_checker.py"),
    (r"python -m support\.conform\.sensitivity.*", "takes minutes of CPU time", "extras/mrc_conform/tests/test_kit.py"),
    (r"python -m support\.hostile\.mutations .*", "takes minutes of CPU time", "tests/lab/test_mutations.py"),
    (r"python -m support\.hostile\.surroundings", "takes an hour of CPU time", "tests/lab/test_surroundings.py"),
    (r"python -m support\.lab\.signals .*", "takes an hour of CPU time", "tests/lab/test_signals.py"),
    (r"python -m support\.p4\.differential .*", "takes minutes of CPU time", "tests/p4/test_differential.py"),
    (r"p4lite lsp", "serves an editor, and needs an extra", "tests/p4/editor/test_lsp.py"),
    (
        r"mrclab (up|down|list|status|cleanup|exec|env|sh|capture|deny|allow|fail|restore)( .*)?",
        REAL,
        "tests/lab/test_cli.py",
    ),
    (
        r"mrclab workshop (start|check|hint|solution|reset|new|verify|record|grade).*",
        WALKED,
        "extras/mrc_workshop/tests/test_readmes.py",
    ),
    (r"mrclab workshop (class|hand-in).*", "needs a class of students", "extras/mrc_workshop/tests/test_classroom.py"),
    (r"python docs/slides\.py .*", "fetches a library once", "tests/docs/test_slides.py"),
    (r"mrclab train( .*)?", "needs PyTorch and a lab on the real clock", "extras/mrc_torch/tests/test_train_real.py"),
    (
        r"mrclab perf .*--backend (torch|gloo)",
        "needs PyTorch and a lab on the real clock",
        "extras/mrc_torch/tests/test_train_real.py",
    ),
    (r"mrclab p4sh .*", REAL, "tests/lab/test_inside.py"),
    (r"mrclab trace .*", REAL, "tests/lab/test_inside.py"),
    (r"mrclab run .*--clock real.*", REAL, "tests/lab/test_lab.py"),
    (r"mrclab run ring_all_reduce --duration .*", REAL, "tests/lab/test_lab.py"),
    (r"\. \.venv/bin/activate", "of the shell", ""),
    (r"mrclab run my\.yaml", "a file of the reader's", "tests/docs/test_examples.py"),
    (r"mrclab demo( .*)?", "minutes", "tests/lab/test_demo.py"),
    (r"mrclab run [\w-]+( -o shown)?", "each experiment has a test of its own", "tests/lab/test_experiments.py"),
    (
        r"mrclab run experiments/thousand-ranks/roce\.yaml",
        "minutes",
        "tests/lab/test_large.py",
    ),
    (r"mrclab compare( [\w-]+)?", "minutes", "tests/lab/test_compare.py"),
    (r"mrclab figures(?! --list).*", "minutes to hours", "tests/lab/test_figures.py"),
    (
        r"mrclab validate --(algorithms|causes)",
        "minutes",
        "extras/mrc_fluid/tests/validation/test_controls.py",
    ),
    (r"mrclab validate", "minutes", "extras/mrc_fluid/tests/validation/test_validation.py"),
    (r"mrclab (export|artifact)( .*)?", "writes files, or needs results", "tests/topo/test_export.py"),
    (r"mrclab sweep( .*)?", "minutes, or needs a sweep's folder", "tests/sweeps/test_work.py"),
    (
        r"mrclab (run trace|replay)",
        "lacks a trace or a model, and a fabric",
        "extras/mrc_fluid/tests/scale/test_replay.py",
    ),
    (
        r"mrclab replay .*(--cluster|--lab training-).*",
        "tens of seconds",
        "extras/mrc_fluid/tests/scale/test_replay.py",
    ),
    (
        r"mrclab scale( (--list|--validate|--calibrate|[\w-]+( -o \w+| --days \d+)?))?",
        "the extra `scale`, and minutes",
        "extras/mrc_fluid/tests/scale/test_scale.py",
    ),
    (
        r"mrclab part",
        "a process of a lab on several machines, commanded by its coordinator",
        "extras/mrc_machines/tests/test_lifecycle.py",
    ),
    (r"pytest tests/topo/test_labfile\.py", "a test itself", "tests/topo/test_labfile.py"),
    (r"python -m pytest .*", "a test itself", "tests/platforms/test_mac.py"),
    (r"python docs/screenshots\.py( .*)?", "needs a browser", "tests/web/test_browser.py"),
    (r"mrclab web( .*)?", "serves until it is ended", "tests/web/test_view.py"),
    (r"mrclab chaos.*", "minutes", "tests/lab/test_chaos.py"),
    (r"python docs/redraw\.py .*", "needs a figure that was made", "tests/lab/test_figures.py"),
    (r"python docs/house\.py", "writes into the page; a test compares", "tests/test_architecture.py"),
    (r"python docs/lua\.py .*", "writes into the page; a test compares", "tests/hosts/tools/test_tools.py"),
    (r"python -m mrc_host\.build", "half a minute of two cores, done by `make setup`", "tests/proto/test_native.py"),
    (r"python -m benchmarks( .*)?", "measures for minutes", ""),
    (r".*pytest tests/lab/test_figures\.py", "a test itself, which takes minutes", "tests/lab/test_figures.py"),
    (r"p4lite switch( -i .*)?", "serves until it is ended; -i needs root", "tests/switch/test_switch_cli.py"),
    (r"tshark .*", "needs a capture", "tests/hosts/tools/test_tools.py"),
    (r"python3 -m http\.server .*", "serves until it is ended", ""),
    (r"vagrant .*", "needs a machine that runs virtual machines", ""),
]

MINE = ROOT / "topologies/labs/tiny.yaml"


def found(pages: list[pathlib.Path]) -> list[docs.Command]:
    """Return the commands of pages, each text once."""
    return list({command.text: command for page in reversed(pages) for command in docs.commands(page)[::-1]}.values())


COMMANDS = found([*PAGES, *EXERCISES])


def files() -> dict[str, str]:
    """Return the files that a reader has: `my.yaml`, and what pages have them save, each name once."""
    saved = [block for page in PAGES for block in docs.blocks(page) if block.file is not None]
    assert len({block.file for block in saved}) == len(saved), "two pages save different files under one name"
    return {"my.yaml": MINE.read_text()} | {str(block.file): block.text for block in saved}


def place_of(command: docs.Command) -> str:
    return f"{command.path.relative_to(ROOT)}:{command.line}"


def is_mention(command: docs.Command) -> bool:
    """Return a command named in running text that nobody can type as it is, like `mrclab fail`."""
    return command.inline and any(cli.problem(words) for words in command.parts)


def elsewhere(command: docs.Command) -> tuple[str, str, str] | None:
    """Why it is not run here, whatever is set in front of it."""
    texts = (command.text, re.sub(r"^(\w+=\S+ )+", "", command.text))
    return next((each for each in ELSEWHERE for text in texts if re.fullmatch(each[0], text)), None)


@pytest.mark.parametrize("command", COMMANDS, ids=place_of)
def test_command_of_a_page_is_accepted_by_its_parser(command: docs.Command) -> None:
    loosely = command.is_synopsis or command.inline
    wrong = [problem for words in command.parts if (problem := cli.problem(words, loosely=loosely))]
    assert not wrong, f"{place_of(command)}: {command.text}: {'; '.join(wrong)}"


def to_run() -> list[docs.Command]:
    """Return the commands that are run here."""
    return [
        command
        for command in found(PAGES)
        if not (command.is_synopsis or command.reason or elsewhere(command) or is_mention(command))
    ]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Return a folder that looks like the checkout, and holds what the reader is told to have."""
    folder = tmp_path_factory.mktemp("reader")
    for name in ("p4", "topologies", "experiments", "benchmarks", "tests"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "docs", folder / "docs")
    for name, text in files().items():
        (folder / name).write_text(text)
    return folder


def marked(command: docs.Command) -> object:
    """Return a test's parameter; runs of labs take a few seconds."""
    return pytest.param(command, id=place_of(command), marks=[pytest.mark.slow] if is_lab(command) else [])


def is_lab(command: docs.Command) -> bool:
    """Return whether a lab runs, in simulated time."""
    return bool(re.match("mrclab (run|compare)", command.text))


@pytest.mark.parametrize("command", [marked(command) for command in to_run()])
def test_command_of_a_page_ends_with_success_and_prints_what_the_page_shows(
    command: docs.Command, scratch: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(scratch)
    monkeypatch.setenv("PATH", f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("MRCLAB_RUN", str(scratch / "run"))
    monkeypatch.setenv("MRCLAB_WORKSHOP", str(scratch / "workshop.json"))
    monkeypatch.setenv("COLUMNS", "80")
    code, printed, said = (in_a_shell if is_lab(command) else within)(command.text)
    assert code == 0, f"{place_of(command)}: {command.text}: exit code {code}\n{(said or printed)[-2000:]}"
    # It is run once, and compared with what every page prints for it.
    shown = [each for page in PAGES for each in docs.commands(page) if each.text == command.text]
    for each in shown:
        wrong = None if each.output is None else docs.difference(each.output, printed)
        assert wrong is None, f"{place_of(each)}: {command.text}: {wrong}\n{printed}"


def in_a_shell(text: str) -> tuple[int, str, str]:
    """Exit code and what was printed."""
    done = subprocess.run(
        ["bash", "-c", text], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=1800, check=False
    )
    return done.returncode, done.stdout, done.stderr


def within(text: str) -> tuple[int, str, str]:
    """Return the same in this process, which saves a second of imports, where it is a program of ours that starts
    nothing.
    """
    words = docs.tokens(text)
    mains = {"mrclab": mrclab_main, "p4lite": p4lite.cli.main}
    if set(words) & {"&&", "&", "|", ";", ">"} or (words[0] not in mains and words[:2] != ["python", "-m"]):
        return in_a_shell(text)
    out, error = io.StringIO(), io.StringIO()
    with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        try:
            if words[0] in mains:
                code = mains[words[0]]()  # type: ignore[operator]
            else:
                sys.argv = words[2:]
                code = runpy.run_module(words[2], run_name="__main__", alter_sys=True) and 0
        except SystemExit as end:
            code = end.code
    return int(code or 0), out.getvalue(), error.getvalue()


def test_reasons_for_not_running_a_command_are_all_used() -> None:
    assert len(to_run()) >= 8
    used = {each for command in found(PAGES) if (each := elsewhere(command))}
    assert [row[0] for row in ELSEWHERE if row not in used] == []
    assert [row[2] for row in ELSEWHERE if row[2] and not (ROOT / row[2]).is_file()] == []


def test_environment_variable_of_a_page_is_read_by_the_code() -> None:
    sources = [ROOT / "Makefile", ROOT / "Vagrantfile", ROOT / "conftest.py"]
    for folder in ("p4", "topologies", "controller", "hosts", "extras", "tests", "vagrant", "benchmarks"):
        sources += [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".sh", ".c")]
    known = set(re.findall(r"(?:MRCLAB|P4LITE|SOAK)_[A-Z0-9_]+", "".join(path.read_text() for path in sources)))
    named = {
        (word, page.name)
        for page in [*PAGES, *EXERCISES]
        for word in re.findall(r"\b(?:MRCLAB|P4LITE|SOAK)_[A-Z0-9_]+\b", page.read_text(encoding="utf-8"))
    }
    assert sorted(each for each in named if each[0] not in known) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mrclab run fabric-link", "no name 'fabric-link'"),
        ("mrclab rum fabric-links", "no verb 'rum'"),
        ("mrclab topo plan --radix many", "Input should be a valid integer"),
        ("mrclab fail p9-t0.1", "p9-t0.1"),
        ("p4lite compil x.p4", "no verb 'compil'"),
        ("python -m mrc_host.nothing", "no module"),
        ("make dmo", "no target 'dmo'"),
    ],
)
def test_mistake_in_a_command_is_reported_with_its_cause(text: str, said: str, tmp_path: pathlib.Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\n    {text}\n")
    (command,) = docs.commands(page)
    wrong = [cli.problem(words) for words in command.parts]
    assert wrong[0] is not None
    assert said in wrong[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("mrclab fial TARGET", "no verb 'fial'"),
        ("python -m p4lite_tools.fuzz PROG.json --frame N --sed S", "unrecognized arguments: --sed"),
    ],
)
def test_mistake_in_a_command_of_running_text_is_reported_with_its_cause(
    text: str, said: str, tmp_path: pathlib.Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"# A page\n\nType `{text}`.\n")
    (command,) = docs.commands(page)
    wrong = [cli.problem(words, loosely=True) for words in command.parts]
    assert wrong[0] is not None
    assert said in wrong[0]
