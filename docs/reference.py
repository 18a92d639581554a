"""Reference pages as Markdown, made from the program: commands, lab files, experiment files, failures, workloads.

python docs/reference.py              prints the names of the pages
python docs/reference.py cli          prints one of them
"""

from __future__ import annotations

import argparse
import contextlib
import enum
import inspect
import io
import pathlib
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import typer
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

import mrclab
import p4lite.cli
from mrc_conform import wire
from mrc_conform.case import Basis, catalogue
from mrc_host.workloads import WORKLOADS
from mrc_topo import schema
from mrc_topo.units import format_rate, format_size, format_time
from mrc_workshop.exercise import known, load
from mrclab.cli.app import app
from mrclab.lab.faults.kinds import KINDS
from mrclab.runs.compare import Comparison
from mrclab.runs.experiment import Experiment
from mrclab.studies.chaos.schedule import Schedule
from mrclab.studies.sweeps import measure
from mrclab.studies.sweeps.cluster import ClusterSpec
from mrclab.studies.sweeps.spec import Range, SweepSpec
from mrclab.studies.sweeps.sweep import SweepResult

UNITS: dict[str, tuple[str, Callable[[int], str]]] = {
    "parse_rate_bps": ("rate", format_rate),
    "parse_time_ns": ("time", format_time),
    "parse_size_bytes": ("size", format_size),
    "parse_depth": ("size, time, or share of the base RTT", format_size),
}
SIZES_WRITTEN = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
UNITS_WRITTEN = {
    "rate": ((10**9, "Gbps"), (10**6, "Mbps"), (10**3, "kbps"), (1, "bps")),
    "time": ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns")),
    "size": SIZES_WRITTEN,
    "size, time, or share of the base RTT": SIZES_WRITTEN,
}


def written(value: int, *steps: tuple[int, str]) -> str:
    """Return a number as a lab file may say it, exactly: with the largest unit of which it is a whole number."""
    factor, unit = next((step for step in steps if value % step[0] == 0 and value), steps[-1])
    return f"{value // factor}{unit}"


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Text as code in a cell."""
    return f"`{cell(text)}`" if text else ""


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """Return a table's lines, or none without rows."""
    if not rows:
        return []
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(row)} |" for row in lines] + [""]


# --- commands ---------------------------------------------------------------------------------------------------


def cli() -> str:
    """Every verb of `mrclab` and `p4lite`, as the programs themselves tell."""
    lines = ["# Commands", ""]
    lines += ["Look up here every command, argument and option. The page is made from the programs themselves.", ""]
    lines += ["## mrclab", ""]
    root: Any = typer.main.get_command(app)
    for path, command in _verbs(root, "mrclab"):
        lines += [f"### {path}", "", *_synopsis(path, command), str(command.help or "").strip(), ""]
        lines += _parameters(command)
    lines += ["## p4lite", ""]
    for name, verb in p4lite.cli.verbs().items():
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit), _width(100):
            p4lite.cli.main([name, "--help"])
        lines += [
            f"### p4lite {name}",
            "",
            f"{verb.text[0].upper()}{verb.text[1:]}.",
            "",
            "```text",
            said.getvalue().rstrip(),
        ]
        lines += ["```", ""]
    return "\n".join(lines)


@contextlib.contextmanager
def _width(columns: int) -> Iterator[None]:
    """Help texts of this many columns, whatever the terminal has."""
    original = argparse.HelpFormatter.__init__

    def fixed(self: argparse.HelpFormatter, prog: str, *_: Any, **__: Any) -> None:
        original(self, prog, 2, 28, columns)

    argparse.HelpFormatter.__init__ = fixed  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.HelpFormatter.__init__ = original  # type: ignore[method-assign]


def _verbs(command: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, each in command.commands.items():
        if hasattr(each, "commands"):
            yield from _verbs(each, f"{path} {name}")
        else:
            yield f"{path} {name}", each


def _synopsis(path: str, command: Any) -> list[str]:
    words = [path]
    for each in command.params:
        if each.param_type_name == "argument":
            name = f"{(each.metavar or each.name).upper()}{'...' if each.nargs == -1 else ''}"
            words.append(name if each.required else f"[{name}]")
    if any(each.param_type_name == "option" for each in command.params):
        words.append("[OPTIONS]")
    return ["```text", " ".join(words), "```", ""]


def _parameters(command: Any) -> list[str]:
    rows = []
    for each in command.params:
        if each.param_type_name == "argument":
            rows.append([code((each.metavar or each.name).upper()), cell(each.help or ""), ""])
            continue
        names = ", ".join([*each.opts, *each.secondary_opts])
        given = each.default
        shown = "" if given is None or given is False or given == "" or callable(given) else str(given)
        rows.append([code(names), cell(each.help or ""), code(shown)])
    return table(["argument, option", "what", "default"], rows)


# --- files ------------------------------------------------------------------------------------------------------


def lab_file() -> str:
    """Every key of a lab file."""
    head = """# Lab file

Look up here every key of a lab file, with its default and range. The page is made from the schema that reads the files
(`mrc_topo/schema.py`). [Topologies](../topology.md) says how labs are shaped and named. Rates, times and sizes are
written with units, `20Mbps`, `100us`, `64KiB`, or as whole numbers of bits per second, nanoseconds and bytes.

"""
    return head + "\n".join(_models(schema.Lab, "A lab"))


def experiment_file() -> str:
    """Every key of an experiment, a comparison, a sweep and a schedule of chaos."""
    head = """# Experiment file

Look up here every key of an experiment, a comparison, a sweep and a schedule of chaos, with its default and range. The
page is made from the schemas that read the files. [Experiments](experiments.md#experiments) says what the keys mean
together, and [Results of a run](results.md) what a run writes.

"""
    lines = ["## Experiments", "", *_models(Experiment, "An experiment", 3)]
    lines += ["## Workloads", "", "`workload.name`, and what `workload.params` may say of it.", ""]
    for name, kind in sorted(WORKLOADS.items()):
        lines += [f"### {name}", "", _summary(kind), ""]
        rows = [[code(key), code(_number(value))] for key, value in vars(kind.parameters()).items()]
        lines += table(["parameter", "default"], rows)
    lines += ["## Failures", "", "`kind` of a step, and of `mrclab fail`; `settings` are those of the last column.", ""]
    rows = [
        [code(name), cell(kind.summary), cell(kind.wanted), ", ".join(code(each) for each in sorted(kind.takes))]
        for name, kind in KINDS.items()
    ]
    lines += table(["kind", "what happens", "to", "settings"], rows)
    lines += ["## Comparisons", "", *_models(Comparison, "A comparison", 3)]
    lines += ["## Sweeps", "", "What the keys mean together: [Run a sweep](../sweeps.md).", ""]
    lines += _models(SweepSpec, "A sweep", 3)
    lines += ["### A span of a grid", "", *_models(Range, "A span of a grid", 3)[2:]]
    lines += ["## Clusters", "", *_models(ClusterSpec, "A cluster", 3)]
    lines += ["## Schedules of chaos", "", *_models(Schedule, "A schedule", 3)]
    return head + "\n".join(lines)


def _number(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _summary(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())


def _models(model: type[BaseModel], title: str, level: int = 2) -> list[str]:
    """Return a model's keys and, each under its own heading, those of the models in it."""
    lines: list[str] = []
    todo = [(model, title)]
    seen = {model}
    while todo:
        current, name = todo.pop(0)
        rows = []
        for key, info in current.model_fields.items():
            rows.append([code(key), _type(info), code(_default(info)), _range(info)])
            for inner in _inner(info.annotation):
                if inner not in seen:
                    seen.add(inner)
                    todo.append((inner, f"{name}: {key}" if current is model else f"{name}.{key}"))
        lines += [f"{'#' * level} {name.removeprefix(f'{title}: ')}", "", _text(current), ""]
        lines += table(["key", "what it takes", "default", "range"], rows)
    return lines


def _text(model: type[BaseModel]) -> str:
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(model) or "").split("\n\n"))


def _inner(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in typing.get_args(annotation):
        yield from _inner(each)


def _unit(info: FieldInfo) -> tuple[str, Callable[[int], str]] | None:
    """Return the unit of a number, by the function that reads it."""
    for each in _validators(info.annotation, info.metadata):
        if found := UNITS.get(getattr(each, "__name__", "")):
            return found
    return None


def _validators(annotation: Any, metadata: list[Any]) -> Iterator[Any]:
    for each in (*metadata, *getattr(annotation, "__metadata__", ())):
        if hasattr(each, "func"):
            yield each.func
    for each in typing.get_args(annotation):
        yield from _validators(each, [])


def _type(info: FieldInfo) -> str:
    if unit := _unit(info):
        return unit[0] + (" or null" if type(None) in typing.get_args(info.annotation) else "")
    return _name(info.annotation)


def _name(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is type(None):
        return "null"
    if origin is typing.Literal:
        return ", ".join(code(str(each)) for each in arguments)
    if origin is typing.Annotated:
        return _name(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(_name(each) for each in arguments)
    if origin is list:
        return f"list of: {_name(arguments[0])}"
    if origin is dict:
        return "mapping" if arguments[1] is Any else f"mapping of {_name(arguments[1])}"
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return ", ".join(code(str(each.value)) for each in annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "keys, below"
    words = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    return words.get(annotation, str(annotation))


def _default(info: FieldInfo) -> str:
    value = info.get_default(call_default_factory=True)
    if value is PydanticUndefined:
        return "(required)"
    if isinstance(value, BaseModel | list | dict):
        return "" if isinstance(value, BaseModel) or not value else str(value)
    if isinstance(value, enum.Enum):
        return str(value.value)
    unit = _unit(info)
    if unit and isinstance(value, int):
        return written(value, *UNITS_WRITTEN[unit[0]])
    return '""' if value == "" else _number(value)


def _range(info: FieldInfo) -> str:
    unit = _unit(info)
    said = []
    for each in _bounds(info.annotation, info.metadata):
        for sign, words in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<")):
            bound = getattr(each, sign, None)
            if bound is not None and not (bound == 0 and sign == "ge"):
                said.append(f"{words} {unit[1](bound) if unit else f'{bound:g}' if bound < 10**7 else bound}")
        for attribute, words in (("min_length", "at least"), ("max_length", "at most")):
            if (bound := getattr(each, attribute, None)) is not None:
                said.append(f"{words} {bound} {'characters' if info.annotation is str else 'of them'}")
        if (bound := getattr(each, "multiple_of", None)) is not None:
            said.append(f"a multiple of {bound}")
    return ", ".join(dict.fromkeys(said))


def _bounds(annotation: Any, metadata: list[Any]) -> Iterator[Any]:
    yield from metadata
    for each in getattr(annotation, "__metadata__", ()):
        yield from each.metadata if isinstance(each, FieldInfo) else (each,)
    if typing.get_origin(annotation) in (typing.Union, types.UnionType, typing.Annotated):
        for each in typing.get_args(annotation):
            yield from _bounds(each, [])


def sweep_measures() -> str:
    """Return the columns that the runs of a sweep measure."""
    lines = ["# Measures of a sweep", ""]
    lines += ["Look up here what the measured columns of a sweep mean. The page is made from the program.", ""]
    lines += ["A run of an experiment has one row, a run of a comparison one row for each variant and condition.", ""]
    for kind, columns in measure.METRICS.items():
        lines += [f"## Of a run of {'an' if kind[0] in 'aeiou' else 'a'} {kind}", ""]
        lines += table(["measure", "meaning"], [[code(name), cell(each.text)] for name, each in columns.items()])
    return "\n".join(lines)


# --- the conformance kit ----------------------------------------------------------------------------------------


def conformance_cases() -> str:
    """Return the catalogue of `mrclab conform`: each case with its rule and the rule's source."""
    cases = catalogue()
    ours = sum(each.basis is Basis.OURS for each in cases)
    lines = ["# Cases of the conformance kit", ""]
    lines += [
        "Look up here which rules `mrclab conform` tests and where each stands. The page is made from the program."
    ]
    lines += ["[Test an endpoint](../howto/test-an-endpoint.md) says how to run them.", ""]
    lines += [f"There are {len(cases)} cases. {ours} rules are only our reading: an endpoint of others that does not"]
    lines += [
        "follow one is *different*, and does not fail. `§` is a section of the [protocol notes](mrc-protocol.md).",
        "",
    ]
    mistakes: dict[str, list[str]] = {each.name: [] for each in cases}
    made = pathlib.Path(__file__).parents[1] / "tests/support/conform/mutants.yaml"
    for mutant in yaml.safe_load(made.read_text(encoding="utf-8")):
        for name in mutant["cases"]:
            mistakes[name].append(mutant["name"].replace("-", " "))
    lines += ["A *mistake* was made in our endpoint on purpose, and the case noticed it.", ""]
    for area in dict.fromkeys(each.area for each in cases):
        name = area.value
        lines += [f"## {name[0].upper()}{name[1:]}", "", f"`mrclab conform --only {area.name.lower()}`", ""]
        rows = [
            [
                code(each.name), cell(each.rule), cell(f"{each.basis.value}, {each.clause}"),
                "; ".join(mistakes[each.name]),
            ]
            for each in cases
            if each.area is area
        ]  # fmt: skip
        lines += table(["case", "rule", "source", "mistakes"], rows)
    return "\n".join(lines)


def wire_format() -> str:
    """Return the machine-readable description of the wire format."""
    lines = ["# The wire format, for programs", ""]
    lines += [
        "Look up here the description of MRC's packets from which the conformance kit makes and reads them. It is"
    ]
    lines += ["the file `extras/mrc_conform/wire.yaml`; [Protocol](mrc-protocol.md) explains the fields.", ""]
    return "\n".join([*lines, "```yaml", wire.text().rstrip(), "```", ""])


# --- the workshop -----------------------------------------------------------------------------------------------


def exercises() -> str:
    """Return what there is to learn, how long it takes, and what the checks say of typical mistakes."""
    lines = ["# The exercises", ""]
    lines += [
        "Look up here what each exercise teaches, what you edit, and what its check says of typical mistakes.",
        "",
    ]
    rows, mistakes = [], []
    for number, folder in sorted(known().items()):
        said = load(folder).content
        link = f"[{said.title}](../../workshop/{folder.name}/README.md)"
        files = ", ".join(code(each) for each in said.edit)
        rows.append([str(number), link, cell(said.learn), f"{said.language}: {files}", str(said.minutes)])
        if not (folder / "wrong.yaml").is_file():
            continue
        wrong = yaml.safe_load((folder / "wrong.yaml").read_text(encoding="utf-8"))
        mistakes += [f"### {number}: {said.title}", ""]
        cases = [
            ["the starter as it is", wrong["starter"]],
            *([each["name"], each["expected_text"]] for each in wrong["wrong"]),
        ]
        mistakes += table(["mistake", "what the check says of it"], [[cell(name), cell(text)] for name, text in cases])
    lines += table(["#", "exercise", "what one can do afterwards", "edits", "minutes"], rows)
    lines += ["## Typical mistakes", "", "A test makes each of them and compares what is said.", "", *mistakes]
    return "\n".join(lines)


# --- Python -----------------------------------------------------------------------------------------------------


def python() -> str:
    """Return the classes that `from mrclab import ...` gives, with their methods and properties."""
    lines = [
        "# Python",
        "",
        "Look up here every class, method and property of `from mrclab import Lab`. The page is made",
    ]
    lines += ["from the docstrings. [Your first lab in Python](../howto/python.md) shows them in use.", ""]
    kinds = [getattr(mrclab, name) for name in mrclab.__all__]
    for kind in [*kinds, SweepResult]:
        lines += [f"## {kind.__name__}", "", *_documented(kind)]
        if "__init__" in vars(kind) and kind.__name__ in ("Lab", "Sweep"):
            lines += ["```python", f"{kind.__name__}{_signature(kind.__init__)}", "```", ""]
        rows = []
        for name in dir(kind):
            member = inspect.getattr_static(kind, name)
            if name.startswith("_") or not inspect.getdoc(member):
                continue
            if isinstance(member, classmethod):
                member = member.__func__
            shown = name if isinstance(member, property) else f"{name}{_signature(member)}"
            rows.append([code(shown), cell(inspect.getdoc(member) or "")])
        lines += table(["member", "what"], rows)
    return "\n".join(lines)


def _documented(kind: type) -> list[str]:
    """Return a class's docstring as Markdown; its sections of arguments and errors are lists."""
    lines = []
    for line in (inspect.getdoc(kind) or "").splitlines():
        entry = re.match(r"    (\w+(?:, \w+)*): (.*)", line)
        lines.append(f"* `{entry[1]}`: {entry[2]}" if entry else line.replace("    ", "  ", 1))
        if line in ("Args:", "Raises:"):
            lines.append("")
    return [*lines, ""]


def _signature(function: Any) -> str:
    """Return the parameters without `self`, with their types as the source has them."""
    signature = inspect.signature(function)
    given = [each for name, each in signature.parameters.items() if name not in ("self", "cls")]
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(signature.replace(parameters=given)))


API = {
    "Topologies": [
        "mrc_topo.labfile",
        "mrc_topo.schema",
        "mrc_topo.topology",
        "mrc_topo.paths",
        "mrc_topo.ev",
        "mrc_topo.capacity",
        "mrc_topo.plan",
        "mrc_topo.rules",
    ],
    "Protocol": [
        "mrc_host.proto.endpoint",
        "mrc_host.proto.config",
        "mrc_host.proto.events",
        "mrc_host.proto.congestion.control",
        "mrc_host.proto.congestion.nscc",
        "mrc_host.proto.paths.ev",
        "mrc_host.proto.paths.ev_profile",
        "mrc_host.proto.wire.codec",
        "mrc_host.workloads.base",
        "mrc_host.scapy_mrc",
    ],
    "Runs": [
        "mrclab.runs.experiment",
        "mrclab.runs.compare",
        "mrclab.results.record",
        "mrclab.results.resultdir",
        "mrclab.lab.session.virtual",
    ],
    "Compiler and switch": [
        "p4lite.compiler",
        "p4lite.switch.fabric.fabric",
        "p4lite.switch.fabric.switch",
        "p4lite.switch.fabric.port",
        "p4lite.switch.fabric.values",
        "p4lite.switch.targetapi.client",
    ],
}
"""What programs of others may import; a page each, for mkdocstrings."""


def api(title: str) -> str:
    """Return a page that mkdocstrings fills from docstrings."""
    lines = [f"# {title}", "", "Look up here what programs may import. The page is made from the docstrings.", ""]
    for module in API[title]:
        lines += [f"## {module}", "", f"::: {module}", ""]
    return "\n".join(lines)


def file_name(title: str) -> str:
    """Of a page of `API`, without its ending."""
    return f"api-{re.sub('[^a-z]+', '-', title.lower())}"


PAGES: dict[str, tuple[str, Callable[[], str]]] = {
    "cli": ("Commands", cli),
    "lab-file": ("Lab file", lab_file),
    "experiment-file": ("Experiment file", experiment_file),
    "conformance-cases": ("Cases of the conformance kit", conformance_cases),
    "wire-format": ("The wire format, for programs", wire_format),
    "python": ("Python", python),
    "sweep-measures": ("Measures of a sweep", sweep_measures),
    "exercises": ("The exercises", exercises),
}
"""Name, title, and what makes it."""


def main(arguments: list[str]) -> int:
    """Print a page, or the list of pages."""
    parser = argparse.ArgumentParser(description="Print a page that is made from the program.")
    parser.add_argument("page", nargs="?", choices=PAGES, help="which one (default: list them)")
    page: str | None = parser.parse_args(arguments).page
    print("\n".join(PAGES) if page is None else PAGES[page][1]())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
