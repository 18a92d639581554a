"""The P4_16 compiler for v1model and PSA: from source to BMv2 JSON and P4Info.

Front end::

    frontend.load(path, include_dirs=(), defines=()) -> TypedProgram     # raises diagnostics.CompileError

preprocess (pcpp) → lex and parse (lark) → `ast.SourceProgram` → resolve and type-check → `TypedProgram`:

* `program.decls`: all top-level declarations in order (`ast.Declaration`), also of core.p4 and v1model.p4 or psa.p4
* `program.main`: `ast.Instance` of the package `main`; `main.decl.name` is "V1Switch"; `main.args["p"]` (and vr, ig,
  eg, ck, dep) are `ast.Instance` with the user's `ParserDecl`/`ControlDecl` as `decl`, constructor arguments as `args`
* `program.errors`: members of `error` in order of declaration; `program.match_kinds` likewise
* `program.diagnostics`: warnings, as `diagnostics.Diagnostic`
* `program.source_name`: the file given

What holds for a typed program:

* every `Expr` has `.type` (`types.Type`), and `.const` when it is a compile-time constant (int, bool, str, EnumValue,
  ErrorValue, ListValue, StructValue, Instance). Constructor parameters of a parser or control are not constants in
  its body; `constfold.evaluate(expr, env)` with `env: {Param: Value}` gives the value for one instance.
* every `Name` has `.decl`: Param, VarDecl, ConstDecl, Instantiation, ActionDecl, TableDecl, ValueSetDecl, ...
  A name of an action, table, instance: `.type` is ActionType, TableType, ExternType/ParserType/ControlType.
* every `Call` has `.kind`, `.target`, `.method`, `.types`, and `.args` in parameter order (see `ast.Call`).
* operands of `Binary` have one type (implicit casts are `Cast(implicit=True)`), except shifts and `++`; the right
  operand of a shift is a constant `int` or unsigned. Literals have the type their context gives, `.value` in range.
* `ListExpr` is left only where the type is a tuple or list (`hash(..., {a, b}, ...)`: TupleType).
* `Instantiation.call` is its constructor call; an anonymous constructor argument is a `Call` of kind CONSTRUCTOR.
* `Transition.target` and `SelectCase.target` are the states; `ast.ACCEPT` and `ast.REJECT` are singletons.
* names are not made unique: two blocks may declare a variable of the same name (different `decl`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from p4lite.compiler.check import TypedProgram
    from p4lite.compiler.diagnostics import Diagnostic
    from p4lite.compiler.frontend import Defines, StrPath

__all__ = ["Compiled", "compile_program", "compile_text"]


@dataclass
class Compiled:
    """A compiled program: `bmv2` is the BMv2 JSON as a dict, `p4info` the P4Info in protobuf's text format."""

    program: TypedProgram
    bmv2: dict[str, Any]
    warnings: list[Diagnostic] = field(default_factory=list)

    @property
    def reached(self) -> set[str]:
        """The names of the tables that packets reach."""
        return {table["name"] for pipeline in self.bmv2["pipelines"] for table in pipeline["tables"]}

    @cached_property
    def p4info_message(self) -> Any:
        """The P4Info as a message, `p4.config.v1.p4info_pb2.P4Info`."""
        from p4lite.compiler import p4info

        return p4info.generate(self.program, self.reached)

    @cached_property
    def p4info(self) -> str:
        """The P4Info in protobuf's text format."""
        from google.protobuf import text_format

        return str(text_format.MessageToString(self.p4info_message))


def compile_program(path: StrPath, include_dirs: Sequence[StrPath] = (), defines: Defines = ()) -> Compiled:
    """Compile a P4_16 file; `defines`: NAME, NAME=VALUE or a mapping. Raises only `CompileError`."""
    from p4lite.compiler import frontend

    return _compile(frontend.load(path, include_dirs, defines))


def compile_text(
    text: str, path: StrPath = "program.p4", include_dirs: Sequence[StrPath] = (), defines: Defines = ()
) -> Compiled:
    """Compile `text`, as if it were the content of `path`. Raises only `CompileError`."""
    from p4lite.compiler import frontend

    return _compile(frontend.load_text(text, path, include_dirs, defines))


def _compile(program: TypedProgram) -> Compiled:
    from p4lite import terminal
    from p4lite.compiler import backend, frontend

    terminal.step(f"{program.source_name}: generating BMv2 JSON")
    with frontend.guarded(program.reporter, program.source_name):
        bmv2 = backend.generate(program, program.reporter)
    program.reporter.check()
    return Compiled(program, bmv2, program.reporter.diagnostics)
