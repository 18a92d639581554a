"""The whole program: v1model's six blocks, their parameters, and the sections around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import graph, lir
from p4lite.compiler.midend.callees import Callees
from p4lite.compiler.midend.calls import KINDS, Calls
from p4lite.compiler.midend.checksums import Checksums
from p4lite.compiler.midend.emitter import Env
from p4lite.compiler.midend.exprs import Expressions
from p4lite.compiler.midend.externs import Externs
from p4lite.compiler.midend.field_lists import FieldLists
from p4lite.compiler.midend.hidden import HiddenTables
from p4lite.compiler.midend.instances import Instances, count_apply_sites
from p4lite.compiler.midend.lir import Block, Prim
from p4lite.compiler.midend.optimise import optimise
from p4lite.compiler.midend.parsers import Parsers, selects_for_branches
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.stmts import Statements
from p4lite.compiler.midend.tables import Tables
from p4lite.compiler.midend.values import Object, Value

if TYPE_CHECKING:
    from p4lite.compiler.check import TypedProgram
    from p4lite.compiler.diagnostics import Reporter

PARSER_PARAMS = 4
USER_METADATA = "userMetadata"


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
        self.code = code = Places(self.out, program.reporter.sources, reporter)
        callees = Callees()
        self.exprs = exprs = Expressions(code, callees, self.error_codes)
        self.instances = instances = Instances(code, exprs, sites)
        self.hidden = hidden = HiddenTables(code)
        self.statements = statements = Statements(code, exprs, callees, instances, hidden)
        self.calls = calls = Calls(code, exprs, instances, statements, hidden)
        self.field_lists = FieldLists(code, exprs, decls)
        self.externs = externs = Externs(code, exprs, self.field_lists)
        self.parsers = Parsers(code, exprs, statements, calls)
        self.checksums = Checksums(code, exprs, instances, calls, externs)
        tables = Tables(code, exprs, instances, statements, calls, decls)
        callees.instances, callees.tables = instances, tables
        callees.add(calls, *KINDS)
        callees.add(externs, ast.CallKind.EXTERN_FUNCTION, ast.CallKind.EXTERN_METHOD)
        callees.add(tables, ast.CallKind.TABLE_APPLY)
        callees.add(self.parsers, ast.CallKind.PARSER_APPLY)

    def run(self) -> lir.LoweredProgram:
        """Return the lowered program."""
        main = self.program.main
        if main.decl.name != "V1Switch":
            raise unsupported(
                main.pos, f"package '{main.decl.name}': the architecture is v1model, so main is a V1Switch"
            )
        blocks = main.args
        self._declare_enums()
        self.code.globals.declared.update(d for d in self.decls if isinstance(d, (ast.ActionDecl, ast.Instantiation)))
        for decl in self.decls:
            if isinstance(decl, ast.Instantiation) and isinstance(decl.type, t.ExternType):
                self.instances.instance(decl)
        parser = self._decl(blocks, "p")
        assert isinstance(parser, ast.ParserDecl)
        if len(parser.params) != PARSER_PARAMS:
            raise unsupported(parser.pos, "a V1Switch other than v1model's")
        types = [p.type for p in parser.params]
        headers_type, meta_type, standard_type = types[1], types[2], types[3]
        assert headers_type is not None
        assert meta_type is not None
        standard_type = t.strip_newtypes(standard_type) if standard_type is not None else None
        assert isinstance(standard_type, t.StructType)
        headers = self.code.storage.allocate(headers_type, "", parser.params[1].pos)
        meta = self.code.storage.allocate(meta_type, USER_METADATA, parser.params[2].pos)
        standard = self.externs.standard_metadata = self.code.storage.standard_metadata(standard_type)
        self.field_lists.declare(meta_type, meta)
        values: list[Value] = [Object("packet_in"), headers, meta, standard]
        self._lower_parser(parser, self._block_env(parser, blocks, "p", values))
        for key, name in (("ig", "ingress"), ("eg", "egress")):
            control = self._control(blocks, key)
            self._lower_pipeline(control, self._block_env(control, blocks, key, [headers, meta, standard]), name)
        deparser = self._control(blocks, "dep")
        self._lower_deparser(deparser, self._block_env(deparser, blocks, "dep", [Object("packet_out"), headers]))
        for key, verify in (("ck", False), ("vr", True)):
            control = self._control(blocks, key)
            self.checksums.lower(control, self._block_env(control, blocks, key, [headers, meta]), verify)
        self._finish()
        return self.out

    # --- the pieces ---

    def _declare_enums(self) -> None:
        self.out.errors = [(name, code) for name, code in self.error_codes.items()]
        for decl in self.decls:
            if isinstance(decl, ast.EnumDecl) and not decl.pos.file.endswith("v1model.p4"):
                if isinstance(decl.type, t.SerEnumType):
                    continue
                self.out.enums.append((decl.name, [(m.name, i) for i, m in enumerate(decl.members)]))

    def _decl(self, blocks: dict[str, ast.Value | None], key: str) -> ast.Declaration:
        instance = blocks.get(key)
        if not isinstance(instance, ast.Instance):
            raise unsupported(self.program.main.pos, f"the argument '{key}' of V1Switch")
        return instance.decl

    def _control(self, blocks: dict[str, ast.Value | None], key: str) -> ast.ControlDecl:
        decl = self._decl(blocks, key)
        assert isinstance(decl, ast.ControlDecl)
        return decl

    def _block_env(
        self,
        decl: ast.ParserDecl | ast.ControlDecl,
        blocks: dict[str, ast.Value | None],
        key: str,
        values: list[Value],
    ) -> Env:
        """Return the environment of one of the package's blocks: its parameters, and its constructor's."""
        instance = blocks[key]
        assert isinstance(instance, ast.Instance)
        env = Env(self.code.globals, decl.name)
        for param, value in zip(decl.params, values, strict=True):
            env.bind(param, value)
        for param in decl.ctor_params:
            argument = instance.args.get(param.name)
            if argument is not None:
                env.bind(param, self.exprs.constant(argument, param.type, param.pos))
        return env

    def _lower_parser(self, decl: ast.ParserDecl, env: Env) -> None:
        entry = self.code.enter("parser", "parser", env)
        entry.name = None
        self.parsers.states(decl, Block(term=lir.End()), "")
        graph.simplify(entry)
        if any(isinstance(b.term, lir.Branch) for b in lir.reachable(entry)):
            selects_for_branches(entry, self.code.temp(1, hint="branch"))
        self.out.parser = entry

    def _lower_control(self, kind: str, decl: ast.ControlDecl, env: Env, region: str) -> Block:
        entry = self.code.enter(kind, region, env)
        assert decl.body is not None
        self.calls.declare_locals(decl.locals)
        self.statements.run(decl.body.stmts)
        self.code.leave()
        return entry

    def _lower_pipeline(self, decl: ast.ControlDecl, env: Env, name: str) -> None:
        entry = self._lower_control("control", decl, env, name)
        self.out.pipelines.append(lir.Pipeline(name, entry, self.code.loc(decl)))

    def _lower_deparser(self, decl: ast.ControlDecl, env: Env) -> None:
        entry = self._lower_control("deparser", decl, env, "deparser")
        graph.simplify(entry)
        if not isinstance(entry.term, lir.End):
            raise unsupported(decl.pos, "conditions in a deparser")
        for op in entry.ops:
            if isinstance(op, Prim) and op.op == "emit":
                target = op.args[0]
                assert isinstance(target, lir.HeaderRef)
                self.out.deparse_order.append(target.name)
            elif isinstance(op, Prim) and op.op in ("log_msg", "assert", "assume"):
                self.out.deparse_ops.append(op)
            else:
                raise unsupported(decl.pos, "computations in a deparser")
        self.out.deparse_loc = self.code.loc(decl)

    # --- the end ---

    def _finish(self) -> None:
        self.hidden.rename()
        for pipeline in self.out.pipelines:
            graph.simplify(pipeline.entry)
            self._merge_sites(pipeline.entry)
            graph.simplify(pipeline.entry)
        for action in self.out.actions:
            graph.simplify(action.body)
        optimise(self.out, lambda f: f.name.startswith(USER_METADATA + "."))
        for entry in (*(p.entry for p in self.out.pipelines), *(a.body for a in self.out.actions)):
            graph.simplify(entry)

    def _merge_sites(self, entry: Block) -> None:
        count: dict[int, int] = {}
        for block in lir.reachable(entry):
            if isinstance(block.term, lir.ApplyTable):
                count[id(block.term.table)] = count.get(id(block.term.table), 0) + 1
        if all(n == 1 for n in count.values()):
            return
        again = graph.applied_again(entry)
        if again is not None:
            pos = (
                self.program.main.pos
                if again.loc is None
                else ast.Pos(again.loc.filename, again.loc.line, again.loc.column)
            )
            raise unsupported(
                pos, f"applying table '{again.name}' twice in a row; one of its places must exclude the other"
            )
        try:
            graph.merge_sites(entry, self.code.temp(8, hint="apply_site"))
        except ValueError as error:
            raise unsupported(
                self.program.main.pos,
                f"applying table '{error}' in several places, once for its hit and once for its action",
            ) from None


def lower(program: TypedProgram, reporter: Reporter | None = None) -> lir.LoweredProgram:
    """Lower a typed program.

    Raises:
        Unsupported: at the first construct that BMv2 cannot express.
    """
    return Lowering(program, reporter).run()
