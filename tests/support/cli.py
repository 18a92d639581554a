"""Whether a documented command could be typed: verb, options and names are put to the real parsers; nothing runs."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import pathlib
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import typer

import p4lite.cli
from mrc_host.workloads import WORKLOADS
from mrc_topo.labfile import builtin_labs, load_lab
from mrc_topo.topology import UnknownElement
from mrclab.cli.app import app
from mrclab.cli.common import parse_settings
from mrclab.lab.faults import kinds
from mrclab.lab.faults.action import Action, FailureError
from mrclab.lab.switches import forwarders
from mrclab.runs import compare, experiment
from mrclab.studies.figures import catalogue
from mrclab.studies.sweeps import spec

ROOT = pathlib.Path(__file__).parents[2]
OTHERS = {"tshark", "nbgrader", "mkdir", "vagrant", "git", "cd", "cp", "echo", "pip", "pre-commit", "sed", "socat", "."}
"""Programs of others: their files are looked up, their options are not."""


class Parsed(BaseException):
    """The arguments were understood."""


def problem(words: Sequence[str], *, loosely: bool = False) -> str | None:
    """Why a command cannot be typed like this; None if it can.

    Args:
        words: of one simple command, without variables and redirections.
        loosely: only verbs and options count, for what is mentioned in passing or has placeholders.
    """
    program, *arguments = words
    if program in OTHERS:
        return _missing_file(arguments)
    checks: dict[str, Callable[[list[str], bool], str | None]] = {
        "mrclab": _mrclab,
        "p4lite": _p4lite,
        "python": _python,
        "python3": _python,
        "make": _make,
        "pytest": _pytest,
    }
    program = pathlib.PurePath(program).name
    if program not in checks:
        return f"no program '{program}' here"
    return checks[program](arguments, loosely)


def _mrclab(arguments: list[str], loosely: bool) -> str | None:
    command: Any = typer.main.get_command(app)
    path = "mrclab"
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        if loosely and name == "...":
            return None
        if name not in command.commands and hasattr(command, "default_verb"):
            name, arguments = command.default_verb, [name, *arguments]
        if name not in command.commands:
            return f"'{path}' has no verb '{name}'"
        command, path = command.commands[name], f"{path} {name}"
    if hasattr(command, "commands") or loosely:
        known = [option for each in command.params for option in each.opts if option.startswith("-")]
        return None if command.ignore_unknown_options else _unknown_option(arguments, [*known, "--help"], path)
    try:
        context = command.make_context(path, list(arguments))
    except Exception as error:  # noqa: BLE001 - the parser's own classes have no public name
        return f"{path}: {getattr(error, 'message', '') or error}"
    return _unknown_name(path.removeprefix("mrclab "), context.params)


def _unknown_name(verb: str, given: dict[str, Any]) -> str | None:
    """Return what is named and is not there: labs, experiments, figures, elements of a lab."""

    def is_file(name: str) -> bool:
        return name.endswith((".yaml", ".yml", ".json"))

    names: dict[str, Sequence[str]] = {
        "lab": list(builtin_labs()),
        "clock": ("real", "virtual"),
        "transport": ("mrc", "roce"),
        "switch": forwarders.FORWARDERS,
        "compiler": forwarders.COMPILERS,
    }
    if verb == "run":
        if given["name"] is None and given["again"] is None:
            return "mrclab run: it names neither an experiment, nor a workload, nor results to repeat"
        names["name"] = [*experiment.known_experiments(), *WORKLOADS]
    if verb == "compare":
        names["name"] = list(compare.known_comparisons())
    if verb == "sweep run":
        names["name"] = list(spec.known_sweeps())
    if verb in ("p4sh", "topo show", "trace"):
        names["switch"] = ["", *(each.name for each in load_lab("default").switches)]
    for key, known in names.items():
        value = given.get(key)
        if isinstance(value, str) and not is_file(value) and value not in known:
            return f"mrclab {verb}: no {key} '{value}'; known: {', '.join(known)}"
    if verb == "figures" and (unknown := set(given["names"] or ()) - set(catalogue.FIGURES)):
        return f"mrclab figures: no figure {', '.join(sorted(unknown))}"
    if verb == "fail":
        return _impossible_failure(given)
    return None


def _impossible_failure(given: dict[str, Any]) -> str | None:
    """Why a failure can be done to none of the labs that come with the project; what is said of `default`."""
    said = None
    for name in ("default", *builtin_labs()):
        try:
            settings = parse_settings(given["setting"] or ())
            kinds.check(
                load_lab(name), Action("fail", given["target"], given["kind"] or "", given["direction"], settings)
            )
        except (FailureError, UnknownElement) as error:
            said = said or str(error)
        else:
            return None
    return f"mrclab fail: {said}"


def _p4lite(arguments: list[str], loosely: bool) -> str | None:
    if not arguments or arguments[0] not in p4lite.cli.verbs():
        return f"'p4lite' has no verb '{' '.join(arguments[:1])}'"
    if loosely:
        known = _printed(lambda: p4lite.cli.main([arguments[0], "--help"]))
        return _unknown_option(arguments[1:], re.findall(r"(?<![\w-])-{1,2}[A-Za-z][\w-]*", known), "p4lite")
    return _understood(lambda: p4lite.cli.main(arguments))


def _python(arguments: list[str], loosely: bool) -> str | None:
    if arguments[:1] == ["-m"]:
        module = arguments[1]
        if module == "benchmarks":
            known = {path.stem.removeprefix("bench_") for path in (ROOT / "benchmarks").glob("bench_*.py")}
            unknown = set(arguments[2:]) - known - {"--smoke"}
            return f"no benchmark {', '.join(sorted(unknown))}" if unknown else None
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            return f"no module '{module}'"
        source = pathlib.Path(spec.origin)
        files = source.parent.glob("*.py") if source.name == "__init__.py" else [source]
        run: Callable[[], object] = lambda: runpy.run_module(module, run_name="__main__", alter_sys=True)  # noqa: E731
    else:
        source = ROOT / arguments[0]
        if not source.is_file():
            return f"no file '{arguments[0]}'"
        files = [source]
        run = lambda: runpy.run_path(str(source), run_name="__main__")  # noqa: E731
    if not ROOT.joinpath(source).is_relative_to(ROOT) or not any("argparse" in each.read_text() for each in files):
        return None
    rest = [each for each in arguments[1 + (arguments[0] == "-m") :] if each[0] not in "[<" and each[-1] not in "]>"]
    with mock.patch.object(sys, "argv", [str(source), *(_number(each) if loosely else each for each in rest)]):
        return _understood(run)


def _number(word: str) -> str:
    """Return a placeholder of one letter stands for a number."""
    return "1" if re.fullmatch("[A-Z]", word) else word


def _understood(run: Callable[[], object]) -> str | None:
    """Why the program's parser refuses its arguments; it does not get further than that."""
    original = argparse.ArgumentParser.parse_args

    def parse(self: argparse.ArgumentParser, args: Any = None, namespace: Any = None) -> Any:
        original(self, args, namespace)
        raise Parsed

    said = io.StringIO()
    with mock.patch.object(argparse.ArgumentParser, "parse_args", parse), contextlib.redirect_stderr(said):
        try:
            code = run()
        except Parsed:
            return None
        except SystemExit as end:
            code = end.code
    assert code, "it ran: this program does not parse its arguments by parse_args"
    return " ".join(said.getvalue().split())[-300:]


def _printed(run: Callable[[], object]) -> str:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        run()
    return said.getvalue()


def _unknown_option(arguments: Sequence[str], known: Sequence[str], path: str) -> str | None:
    for each in arguments:
        option = each.strip("[]").partition("=")[0]
        if re.fullmatch(r"-{1,2}[A-Za-z][\w-]*", option) and option not in known:
            return f"'{path}' has no option '{option}'"
    return None


def _make(arguments: list[str], loosely: bool) -> str | None:
    targets = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(), re.M))
    unknown = [each for each in arguments if "=" not in each and not each.startswith("-") and each not in targets]
    return f"the Makefile has no target '{unknown[0]}'" if unknown else None


def _pytest(arguments: list[str], loosely: bool) -> str | None:
    return _missing_file(arguments)


def _missing_file(arguments: Sequence[str]) -> str | None:
    for each in arguments:
        for name in re.findall(r"(?:docs|tests|extras|vagrant|workshop|experiments|topologies)/[\w./-]+", each):
            if not list(ROOT.glob(name)):
                return f"no file '{name}'"
    return None
