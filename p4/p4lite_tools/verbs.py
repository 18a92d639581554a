"""Verbs of the tools in `p4lite --help`."""

from __future__ import annotations

from p4lite.cli import Verb

VERBS = {
    "stf": Verb("run a test written in p4c's STF language", "p4lite_tools.cli.stf"),
    "format": Verb("format P4 programs, or check that they are", "p4lite_tools.cli.format"),
    "graph": Verb("draw parsers and control flow as SVG", "p4lite_tools.cli.graph"),
    "lsp": Verb("serve editors by the Language Server Protocol", "p4lite_tools.cli.lsp"),
    "trace": Verb("show what a program does with a packet, by source line", "p4lite_tools.cli.trace"),
    "debug": Verb("run packets through a program with breakpoints", "p4lite_tools.cli.debug"),
    "coverage": Verb("measure which parts of a program packets reach", "p4lite_tools.cli.coverage"),
    "diff": Verb("send the same packets through two programs, show the first difference", "p4lite_tools.cli.diff"),
    "lint": Verb("show warnings, and what packets never reach", "p4lite_tools.cli.lint"),
    "wrappers": Verb("write p4c's and BMv2's commands, served by p4lite, into a folder", "p4lite_tools.cli.wrappers"),
}
