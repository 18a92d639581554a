"""The front end: source file to typed program."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from p4lite import terminal
from p4lite.compiler import ast
from p4lite.compiler.check import TypedProgram, check_program
from p4lite.compiler.diagnostics import Reporter, Unsupported
from p4lite.compiler.parser import parse
from p4lite.compiler.position import Pos
from p4lite.compiler.preprocessor import preprocess, read_source
from p4lite.recursion import deep_recursion

StrPath: TypeAlias = str | os.PathLike[str]
Defines: TypeAlias = Sequence[str] | Mapping[str, str]
"""Macros: NAME or NAME=VALUE each, or a mapping from names to values."""


@contextmanager
def guarded(reporter: Reporter, path: str) -> Iterator[None]:
    """Run a pass with room to recurse; a refusal or too deep a nesting becomes a `CompileError`."""
    with deep_recursion():
        try:
            yield
        except Unsupported as e:
            raise reporter.fatal(e.pos, str(e)) from None
        except RecursionError:
            raise reporter.fatal(Pos(path, 0, 0), "the program is nested too deeply: simplify it") from None


def parse_file(
    path: StrPath, include_dirs: Sequence[StrPath] = (), defines: Defines = ()
) -> tuple[ast.SourceProgram, Reporter]:
    """Return the syntax tree of a file. Raises `CompileError`."""
    return parse_text(read_source(os.fspath(path)), path, include_dirs, defines)


def parse_text(
    text: str, path: StrPath, include_dirs: Sequence[StrPath] = (), defines: Defines = ()
) -> tuple[ast.SourceProgram, Reporter]:
    """Return the syntax tree of `text`, the content of `path`. Raises `CompileError`."""
    reporter = Reporter()
    name = os.fspath(path)
    if isinstance(defines, Mapping):
        defines = [f"{macro}={value}" for macro, value in defines.items()]
    terminal.step(f"{name}: preprocessing")
    expanded, smap = preprocess(name, text, [os.fspath(d) for d in include_dirs], defines, reporter)
    terminal.step(f"{name}: parsing {len(expanded) // 1000} kB after preprocessing")
    return parse(expanded, smap, reporter), reporter


def load(path: StrPath, include_dirs: Sequence[StrPath] = (), defines: Defines = ()) -> TypedProgram:
    """Return the typed program of a file; `defines`: NAME, NAME=VALUE or a mapping. Raises only `CompileError`."""
    return load_text(read_source(os.fspath(path)), path, include_dirs, defines)


def load_text(
    text: str, path: StrPath = "program.p4", include_dirs: Sequence[StrPath] = (), defines: Defines = ()
) -> TypedProgram:
    """Return the typed program of `text`, as if it were the content of `path`. Raises `CompileError`, and nothing
    else.
    """
    program, reporter = parse_text(text, path, include_dirs, defines)
    terminal.step(f"{os.fspath(path)}: checking")
    with guarded(reporter, os.fspath(path)):
        return check_program(program, os.fspath(path), reporter)
