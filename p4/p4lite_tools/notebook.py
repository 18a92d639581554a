"""P4 in Jupyter and IPython: `%load_ext p4lite_tools.notebook`, then `%%p4 NAME` and `%p4_packet HEX`."""

from __future__ import annotations

import argparse
import html
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.display import HTML, SVG, display

from p4lite.compiler import Compiled, architecture, compile_text
from p4lite.compiler.diagnostics import CompileError
from p4lite.errors import P4liteError
from p4lite.scratch import scratch
from p4lite_tools import graph

DEFAULT_NAME = "p4"


@dataclass(frozen=True)
class _Cell:
    """A program of a notebook, with the text that it has in its cell."""

    text: str
    compiled: Compiled
    include_dirs: tuple[str, ...]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}\n{self.format_usage()}")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        raise UsageError(message or "")


@magics_class
class P4Magics(Magics):
    """The magics; the programs of a notebook by name."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self.programs: dict[str, _Cell] = {}
        #: The program of the last cell, whether or not it could be compiled.
        self.last = DEFAULT_NAME

    @cell_magic
    def p4(self, line: str, cell: str) -> None:
        """Compile the cell and draw its parser; its errors name lines of the cell. The BMv2 JSON is in NAME."""
        parser = _Parser(prog="%%p4", add_help=False)
        parser.add_argument("name", nargs="?", default=DEFAULT_NAME, metavar="NAME")
        parser.add_argument("-I", dest="include_dirs", metavar="DIR", action="append", default=[])
        parser.add_argument("-b", "--block", action="append", choices=sorted(architecture.BLOCKS), default=[])
        parser.add_argument("--no-graph", action="store_true")
        arguments = parser.parse_args(shlex.split(line))
        name = arguments.name
        if not name.isidentifier():
            raise UsageError(f"%%p4: '{name}' is not a name of a variable")
        self.last = name
        # Notebooks count the line of the magic, too.
        text = f"\n{cell}"
        try:
            compiled = compile_text(text, f"<{name}>", arguments.include_dirs)
        except CompileError as error:
            print(error, file=sys.stderr)
            self.programs.pop(name, None)
            return
        self.programs[name] = _Cell(text, compiled, tuple(arguments.include_dirs))
        self.shell.user_ns[name] = compiled
        for warning in compiled.warnings:
            print(warning, file=sys.stderr)
        tables = [table["name"] for pipeline in compiled.bmv2["pipelines"] for table in pipeline["tables"]]
        shown = [each for each in tables if not each.startswith("tbl_")]
        print(f"{name}: compiled; tables: {', '.join(shown) or 'none'}")
        if not arguments.no_graph:
            self._draw(compiled, arguments.block or ["parser"])

    def _draw(self, compiled: Compiled, blocks: Sequence[str]) -> None:
        with scratch("graph") as folder:
            path = Path(folder) / "graph.svg"
            try:
                graph.render(graph.to_dot(compiled.program, blocks), path)
            except graph.GraphError as error:
                print(str(error).removeprefix(f"{path}: "), file=sys.stderr)
                return
            display(SVG(data=path.read_text(encoding="utf-8")))

    @line_magic
    def p4_packet(self, line: str) -> list[tuple[int, str]] | None:
        """Send a packet through a program and show what happened, line by line; return (port, packet in hex)."""
        parser = _Parser(prog="%p4_packet", add_help=False)
        parser.add_argument("packet", metavar="HEX")
        parser.add_argument("--program", metavar="NAME")
        parser.add_argument("--port", type=int, default=1, metavar="N")
        parser.add_argument("--entries", action="append", default=[], metavar="FILE")
        arguments = parser.parse_args(shlex.split(line))
        digits = re.sub(r"[\s:]", "", arguments.packet).removeprefix("0x")
        if not re.fullmatch(r"(?:[0-9a-fA-F]{2})+", digits):
            raise UsageError(f"%p4_packet: '{arguments.packet}': expected an even number of hexadecimal digits")
        name = self.last if arguments.program is None else arguments.program
        cell = self.programs.get(name)
        if cell is None:
            known = f"; there is: {', '.join(sorted(self.programs))}" if self.programs else ""
            raise UsageError(f"%p4_packet: there is no compiled program '{name}': run %%p4 first{known}")
        try:
            sent, events = _send(cell, arguments.port, bytes.fromhex(digits), arguments.entries)
        except P4liteError as error:
            print(error, file=sys.stderr)
            return None
        rows = "".join(
            f"<tr><td style='text-align:left'>{html.escape(place)}</td>"
            f"<td style='text-align:left;white-space:pre'>{html.escape(text)}</td></tr>"
            for place, text in events
        )
        display(HTML(f"<table><tr><th>line</th><th>what happens</th></tr>{rows}</table>"))
        return [(port, data.hex()) for port, data in sent]


def _send(
    cell: _Cell, port: int, data: bytes, entries: Sequence[str]
) -> tuple[list[tuple[int, bytes]], list[tuple[str, str]]]:
    """Return what comes out and the trace: (line, text)."""
    # The interpreter is loaded when the first packet is sent, because it takes as long as the compiler.
    from p4lite import api
    from p4lite.api.switch import ALL_PORTS
    from p4lite_tools import trace
    from p4lite_tools.entries import load_entries

    recorder = trace.Recorder()
    program = api.compile(f"{cell.text}\n", include_dirs=cell.include_dirs)
    with api.Switch(program, ports=ALL_PORTS, observers=[recorder]) as switch:
        for path in entries:
            load_entries(Path(path), switch.control, switch.replication)
        sent = switch.send(port, data)
    told = trace.Lines().told(recorder.take())
    return sent, [("" if e is None or e.where is None else str(e.where.line), text) for e, text in told]


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register the magics: `%load_ext p4lite_tools.notebook`."""
    shell.register_magics(P4Magics)
