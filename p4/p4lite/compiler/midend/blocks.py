"""The blocks of a package, lowered one by one; what an architecture makes of them is in the module of its name."""

from __future__ import annotations

from abc import ABC, abstractmethod

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.architecture import block_at
from p4lite.compiler.midend import graph, lir
from p4lite.compiler.midend.arguments import unsupported
from p4lite.compiler.midend.calls import CallLowering
from p4lite.compiler.midend.emitter import Env
from p4lite.compiler.midend.exprs import ExpressionLowering
from p4lite.compiler.midend.externs import Externs
from p4lite.compiler.midend.lir import BasicBlock
from p4lite.compiler.midend.objects import Instances
from p4lite.compiler.midend.parsers import ParserLowering, selects_for_branches
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.stmts import StatementLowering
from p4lite.compiler.midend.values import Value


class Blocks:
    """Lowers blocks by their names in the architecture."""

    USER_METADATA = "userMetadata"

    instances: Instances
    statements: StatementLowering
    calls: CallLowering
    parsers: ParserLowering

    def __init__(
        self, code: Places, exprs: ExpressionLowering, main: ast.Instance, decls: list[ast.Declaration]
    ) -> None:
        self.code = code
        self.exprs = exprs
        self.main = main
        self.decls = decls

    def instance(self, name: str) -> ast.Instance:
        """Return what the program gives for a block."""
        path = self.code.architecture.blocks[name]
        found = block_at(self.main, path)
        if found is None:
            raise unsupported(self.main.pos, f"the argument '{path[-1]}' of {self.main.decl.name}")
        return found

    def control(self, name: str) -> ast.ControlDecl:
        """Return the declaration of a block that is a control."""
        decl = self.instance(name).decl
        assert isinstance(decl, ast.ControlDecl)
        return decl

    @staticmethod
    def type_of(param: ast.Param) -> t.Type:
        """Return the type of a block's parameter."""
        assert param.type is not None
        return t.strip_newtypes(param.type)

    def environment(self, name: str, values: list[Value]) -> Env:
        """Return the environment of a block: its parameters, and its constructor's."""
        instance = self.instance(name)
        decl = instance.decl
        assert isinstance(decl, (ast.ParserDecl, ast.ControlDecl))
        env = Env(self.code.globals, decl.name)
        if len(decl.params) != len(values):
            package, arch = self.main.decl.name, self.code.architecture.name
            raise unsupported(decl.pos, f"a {package} other than {arch}'s")
        for param, value in zip(decl.params, values, strict=True):
            env.bind(param, value)
        for param in decl.ctor_params:
            argument = instance.args.get(param.name)
            if argument is not None:
                env.bind(param, self.exprs.constant(argument, param.type, param.pos))
        return env

    def lower_parser(self, name: str, region: str, values: list[Value]) -> None:
        """Lower a parser."""
        decl = self.instance(name).decl
        assert isinstance(decl, ast.ParserDecl)
        entry = self.code.enter("parser", region, self.environment(name, values))
        entry.name = None
        self.parsers.whole(decl)
        graph.simplify(entry)
        if any(isinstance(b.term, lir.Branch) for b in lir.reachable(entry)):
            selects_for_branches(entry, self.code.temp(1, hint="branch"))
        self.code.out.parsers.append(lir.LoweredParser(name, entry))

    def _lower_control(self, kind: str, name: str, values: list[Value]) -> tuple[BasicBlock, ast.ControlDecl]:
        decl = self.control(name)
        entry = self.code.enter(kind, name, self.environment(name, values))
        assert decl.body is not None
        self.calls.declare_locals(decl.locals)
        self.statements.run(decl.body.stmts)
        self.code.leave()
        return entry, decl

    def lower_pipeline(self, name: str, values: list[Value]) -> None:
        """Lower a control with tables."""
        entry, decl = self._lower_control("control", name, values)
        self.code.out.pipelines.append(lir.LoweredPipeline(name, entry, self.code.loc(decl)))

    def lower_deparser(self, name: str, values: list[Value]) -> tuple[BasicBlock, ast.ControlDecl]:
        """Return the graph of a deparser, in which `emit` is a primitive, and its declaration."""
        entry, decl = self._lower_control("deparser", name, values)
        graph.simplify(entry)
        return entry, decl


class ArchitectureLowering(ABC):
    """What an architecture makes of a program: `externs` lowers its externs, `lower` all blocks."""

    externs: Externs

    def __init__(self, blocks: Blocks) -> None:
        self.blocks = blocks

    @abstractmethod
    def lower(self) -> None:
        """Lower the program."""
