"""The whole program: the parts of the lowering, its architecture's blocks, and the sections around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.architecture import PSA, V1MODEL, architecture
from p4lite.compiler.midend import graph, lir
from p4lite.compiler.midend.arguments import Callees, unsupported
from p4lite.compiler.midend.blocks import ArchitectureLowering, Blocks
from p4lite.compiler.midend.calls import KINDS, CallLowering
from p4lite.compiler.midend.exprs import ExpressionLowering
from p4lite.compiler.midend.graph import optimise
from p4lite.compiler.midend.hidden import HiddenTables
from p4lite.compiler.midend.lir import BasicBlock
from p4lite.compiler.midend.objects import Instances, count_apply_sites
from p4lite.compiler.midend.parsers import ParserLowering
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.psa import PsaLowering
from p4lite.compiler.midend.stmts import StatementLowering
from p4lite.compiler.midend.tables import TableLowering
from p4lite.compiler.midend.v1model import V1ModelLowering

if TYPE_CHECKING:
    from p4lite.compiler.check import TypedProgram
    from p4lite.compiler.diagnostics import Reporter

TARGETS: dict[str, type[ArchitectureLowering]] = {V1MODEL.name: V1ModelLowering, PSA.name: PsaLowering}


class Lowering:
    """Lowers one program: connects the parts, and hands each block of the package to the part that lowers it."""

    def __init__(self, program: TypedProgram, reporter: Reporter | None) -> None:
        self.program = program
        self.decls = decls = list(program.decls)
        self.error_codes = {name: code for code, name in enumerate(program.errors)}
        sites: dict[ast.Node, int] = {}
        for decl in decls:
            if isinstance(decl, (ast.ControlDecl, ast.ParserDecl)):
                for site, count in count_apply_sites(decl).items():
                    sites[site] = sites.get(site, 0) + count
        self.out = lir.LoweredProgram(program=program.source_name)
        self.architecture = architecture(program.main)
        self.code = code = Places(self.out, self.architecture, program.reporter.sources, reporter)
        callees = Callees()
        exprs = ExpressionLowering(code, callees, self.error_codes)
        blocks = Blocks(code, exprs, program.main, decls)
        self.target = target = TARGETS[self.architecture.name](blocks)
        self.instances = blocks.instances = instances = Instances(code, exprs, sites, target.externs.add)
        self.hidden = hidden = HiddenTables(code)
        blocks.statements = statements = StatementLowering(code, exprs, callees, instances, hidden)
        blocks.calls = calls = CallLowering(code, exprs, instances, statements, hidden)
        blocks.parsers = ParserLowering(code, exprs, statements, calls)
        tables = TableLowering(code, exprs, instances, statements, calls, decls)
        callees.instances, callees.tables = instances, tables
        callees.add(calls, *KINDS)
        callees.add(target.externs, ast.CallKind.EXTERN_FUNCTION, ast.CallKind.EXTERN_METHOD)
        callees.add(tables, ast.CallKind.TABLE_APPLY)
        callees.add(blocks.parsers, ast.CallKind.PARSER_APPLY)

    def run(self) -> lir.LoweredProgram:
        """Return the lowered program."""
        self._declare_enums()
        self.code.globals.declared.update(d for d in self.decls if isinstance(d, (ast.ActionDecl, ast.Instantiation)))
        for decl in self.decls:
            if isinstance(decl, ast.Instantiation) and isinstance(decl.type, t.ExternType):
                self.instances.instance(decl)
        self.target.lower()
        self._finish()
        return self.out

    def _declare_enums(self) -> None:
        self.out.errors = [(name, code) for name, code in self.error_codes.items()]
        for decl in self.decls:
            if isinstance(decl, ast.EnumDecl) and not self.architecture.declares(decl):
                if isinstance(decl.type, t.SerEnumType):
                    continue
                self.out.enums.append((decl.name, [(m.name, i) for i, m in enumerate(decl.members)]))

    # --- the end ---

    def _finish(self) -> None:
        self.hidden.rename()
        for pipeline in self.out.pipelines:
            graph.simplify(pipeline.entry)
            self._merge_sites(pipeline.entry)
            graph.simplify(pipeline.entry)
        for action in self.out.actions:
            graph.simplify(action.body)
        optimise(self.out, lambda f: f.name.startswith(Blocks.USER_METADATA + "."))
        for entry in (*(p.entry for p in self.out.pipelines), *(a.body for a in self.out.actions)):
            graph.simplify(entry)

    def _merge_sites(self, entry: BasicBlock) -> None:
        count: dict[int, int] = {}
        for block in lir.reachable(entry):
            if isinstance(block.term, lir.ApplyTable):
                count[id(block.term.table)] = count.get(id(block.term.table), 0) + 1
        if all(n == 1 for n in count.values()):
            return
        again = graph.applied_again(entry)
        if again is not None:
            first, second = again
            raise unsupported(
                graph.second_place(first, second) or self.program.main.pos,
                f"applying table '{first.table.name}' twice in a row; one of its places must exclude the other",
            )
        graph.merge_sites(entry, self.code.temp(8, hint="apply_site"))


def lower(program: TypedProgram, reporter: Reporter | None = None) -> lir.LoweredProgram:
    """Lower a typed program.

    Raises:
        Unsupported: at the first construct that BMv2 cannot express.
    """
    return Lowering(program, reporter).run()
