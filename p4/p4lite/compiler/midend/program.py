"""The whole program: v1model's six blocks, their parameters, and the sections around them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from p4lite.compiler import ast
from p4lite.compiler import types as t
from p4lite.compiler.midend import arith, graph, lir
from p4lite.compiler.midend.base import Env, Frame, Routine, bindings, rebind
from p4lite.compiler.midend.instances import ControlInstance, count_apply_sites
from p4lite.compiler.midend.lir import Block, Field, FieldList, Prim
from p4lite.compiler.midend.optimise import optimise
from p4lite.compiler.midend.parsers import Parsers, selects_for_branches
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.values import Boolean, Data, Object, Struct, Value

if TYPE_CHECKING:
    from p4lite.compiler.check import TypedProgram
    from p4lite.compiler.diagnostics import Reporter

PARSER_PARAMS = 4
USER_METADATA = "userMetadata"
CHECKSUMS = {
    "verify_checksum": (True, False),
    "verify_checksum_with_payload": (True, True),
    "update_checksum": (False, False),
    "update_checksum_with_payload": (False, True),
}


class Lowering(Parsers):
    """Lowers one program."""

    def __init__(self, program: TypedProgram, reporter: Reporter | None) -> None:
        super().__init__(program.source_name)
        self.program = program
        self.program_decls = list(program.decls)
        self.reporter = reporter
        self.sources = program.reporter.sources
        self.error_codes = {name: code for code, name in enumerate(program.errors)}
        self.field_list_ids = {}
        self.site_counts = {}
        for decl in self.program_decls:
            if isinstance(decl, (ast.ControlDecl, ast.ParserDecl)):
                for site, count in count_apply_sites(decl).items():
                    self.site_counts[site] = self.site_counts.get(site, 0) + count
        self.globals = Env(None, "")
        self.env = self.globals
        self.frame = Frame(None, Block())
        self._scratch("")

    def warn(self, pos: ast.Pos, message: str) -> None:
        """Report a warning through the front end's reporter."""
        if self.reporter is not None:
            self.reporter.warning(pos, message)

    def _scratch(self, kind: str) -> Block:
        """Emit into a block of its own, to see whether anything is emitted."""
        block = Block()
        self.routine = Routine(kind, block, block)
        return block

    def run(self) -> lir.LoweredProgram:
        """The lowered program."""
        main = self.program.main
        if main.decl.name != "V1Switch":
            raise unsupported(
                main.pos, f"package '{main.decl.name}': the architecture is v1model, so main is a V1Switch"
            )
        blocks = main.args
        self._declare_enums()
        self.globals.declared.update(
            d for d in self.program_decls if isinstance(d, (ast.ActionDecl, ast.Instantiation))
        )
        for decl in self.program_decls:
            if isinstance(decl, ast.Instantiation) and isinstance(decl.type, t.ExternType):
                self.instance(decl)
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
        headers = self.storage.allocate(headers_type, "", parser.params[1].pos)
        meta = self.storage.allocate(meta_type, USER_METADATA, parser.params[2].pos)
        self.standard_metadata = self.storage.standard_metadata(standard_type)
        self._field_lists(meta_type, meta)
        self._lower_parser(parser, self._instance_args(blocks, "p"), headers, meta)
        for key, name in (("ig", "ingress"), ("eg", "egress")):
            decl = self._control(blocks, key)
            env = self._block_env(decl, self._instance_args(blocks, key), [headers, meta, self.standard_metadata])
            self._lower_pipeline(decl, env, name)
        deparser = self._control(blocks, "dep")
        packet_out = Object("packet_out")
        self._lower_deparser(
            deparser, self._block_env(deparser, self._instance_args(blocks, "dep"), [packet_out, headers])
        )
        for key, verify in (("ck", False), ("vr", True)):
            control = self._control(blocks, key)
            self.env = self._block_env(control, self._instance_args(blocks, key), [headers, meta])
            self._checksum_control(control, verify, lir.Bool(True))
        self._finish()
        return self.out

    # --- the pieces ---

    def _declare_enums(self) -> None:
        self.out.errors = [(name, code) for name, code in self.error_codes.items()]
        for decl in self.program_decls:
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

    def _instance_args(self, blocks: dict[str, ast.Value | None], key: str) -> dict[str, ast.Value | None]:
        instance = blocks[key]
        assert isinstance(instance, ast.Instance)
        return instance.args

    def _block_env(
        self, decl: ast.ParserDecl | ast.ControlDecl, args: dict[str, ast.Value | None], values: list[Value]
    ) -> Env:
        env = Env(self.globals, decl.name)
        for param, value in zip(decl.params, values, strict=True):
            env.bind(param, value)
        for param in decl.ctor_params:
            argument = args.get(param.name)
            if argument is not None:
                env.bind(param, self.constant(argument, param.type, param.pos))
        return env

    def _field_lists(self, meta_type: t.Type, meta: Value) -> None:
        """`@field_list(n, ...)` on fields of the user metadata."""
        lists: dict[int, FieldList] = {}
        self._scan_field_lists(t.strip_newtypes(meta_type), meta, lists)
        for index, made in lists.items():
            self.out.field_lists.append(made)
            self.field_list_ids[index] = made.id

    def _scan_field_lists(self, ty: t.Type, value: Value, lists: dict[int, FieldList]) -> None:
        if not isinstance(ty, t.StructType) or not isinstance(value, Struct):
            return
        assert isinstance(ty.decl, ast.StructDecl)
        for decl in ty.decl.fields:
            member = value.fields[decl.name]
            annotation = decl.annotation("field_list")
            if annotation is None:
                self._scan_field_lists(t.strip_newtypes(ty.fields[decl.name]), member, lists)
                continue
            for index in self.annotation_numbers(annotation):
                made = lists.setdefault(index, FieldList(f"field_list{index}", len(lists) + 1, []))
                made.elements.extend(self._listed(member, decl.pos))

    def _listed(self, member: Value, pos: ast.Pos) -> list[Field | lir.Const]:
        fields: list[Field | lir.Const] = []
        for leaf in self.leaves(member, pos):
            if isinstance(leaf, Data) and isinstance(leaf.expr, Field):
                fields.append(leaf.expr)
            elif isinstance(leaf, Boolean) and isinstance(leaf.place, Field):
                fields.append(leaf.place)
        return fields

    def _enter(self, kind: str, region: str, env: Env) -> Block:
        entry = Block()
        self.routine = Routine(kind, entry, entry, region)
        self.frame = Frame(None, Block())
        self.env = env
        return entry

    def _leave(self) -> None:
        self.jump(self.frame.done)
        self.start(self.frame.done)
        self.end()

    def _lower_parser(
        self, decl: ast.ParserDecl, args: dict[str, ast.Value | None], headers: Value, meta: Value
    ) -> None:
        env = self._block_env(decl, args, [Object("packet_in"), headers, meta, self.standard_metadata])
        entry = self._enter("parser", "parser", env)
        entry.name = None
        self.reject = Block(term=lir.End())
        self.parser_body(decl, Block(term=lir.End()), "")
        graph.simplify(entry)
        if any(isinstance(b.term, lir.Branch) for b in lir.reachable(entry)):
            selects_for_branches(entry, self.temp(1, hint="branch"))
        self.out.parser = entry

    def _lower_pipeline(self, decl: ast.ControlDecl, env: Env, name: str) -> None:
        entry = self._enter("control", name, env)
        assert decl.body is not None
        self.declare_locals(decl.locals)
        self.statements(decl.body.stmts)
        self._leave()
        self.out.pipelines.append(lir.Pipeline(name, entry, self.loc(decl)))

    def _lower_deparser(self, decl: ast.ControlDecl, env: Env) -> None:
        entry = self._enter("deparser", "deparser", env)
        assert decl.body is not None
        self.declare_locals(decl.locals)
        self.statements(decl.body.stmts)
        self._leave()
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
        self.out.deparse_loc = self.loc(decl)

    # --- checksums ---

    def _checksum_control(self, decl: ast.ControlDecl, verify: bool, holds: lir.Expr) -> None:
        """The calls of a checksum control, or of a control that it applies; `holds` is the condition to get there."""
        assert decl.body is not None
        variables = [d for d in decl.locals if isinstance(d, ast.VarDecl)]
        if variables:
            raise unsupported(variables[0].pos, "a variable in a checksum control")
        self.env.declared.update(decl.locals)
        for local in decl.locals:
            if isinstance(local, ast.Instantiation):
                self.instance(local)
        self._checksum_statement(decl.body, verify, holds)

    def _checksum_statement(self, stmt: ast.Stmt, verify: bool, holds: lir.Expr) -> None:
        scratch = self._scratch("checksum")
        self.frame = Frame(None, Block())
        if isinstance(stmt, ast.Block):
            for inner in stmt.stmts:
                self._checksum_statement(inner, verify, holds)
        elif isinstance(stmt, ast.If):
            cond = self.eval_truth(stmt.cond)
            self._checksum_statement(stmt.then, verify, arith.logical_and(holds, cond))
            if stmt.other is not None:
                self._checksum_statement(stmt.other, verify, arith.logical_and(holds, arith.logical_not(cond)))
        elif isinstance(stmt, ast.CallStmt) and stmt.call.method in CHECKSUMS:
            self._checksum(stmt.call, verify, holds)
        elif isinstance(stmt, ast.CallStmt) and stmt.call.kind is ast.CallKind.CONTROL_APPLY:
            self._checksum_apply(stmt.call, verify, holds)
        elif not isinstance(stmt, (ast.Empty, ast.ConstDecl)):
            raise unsupported(stmt.pos, "anything but calls of verify_checksum or update_checksum here")
        if scratch.ops or scratch.term is not None:
            raise unsupported(stmt.pos, "computations in a checksum control")

    def _checksum_apply(self, call: ast.Call, verify: bool, holds: lir.Expr) -> None:
        assert call.receiver is not None
        receiver = self.eval(call.receiver)
        control = receiver.what if isinstance(receiver, Object) else None
        if not isinstance(control, ControlInstance):
            raise unsupported(call.pos, "apply() of this expression")
        frame = Frame(None, Block())
        self._bind_arguments(rebind(bindings(call.args), control.decl.params), control.env, frame, set())
        if frame.copy_outs:
            raise unsupported(call.pos, "arguments that must be copied, in a checksum control")
        saved = self.env
        self.env = control.env
        self._checksum_control(control.decl, verify, holds)
        self.env = saved

    def _checksum(self, call: ast.Call, verify: bool, holds: lir.Expr) -> None:
        is_verify, payload = CHECKSUMS[call.method]
        if is_verify != verify:
            raise unsupported(call.pos, f"'{call.method}' in this block")
        cond, data, target, algo = self._args(call)
        place = self.eval(target)
        if not isinstance(place, Data) or not isinstance(place.expr, Field):
            raise unsupported(target.pos, "a checksum anywhere but in a field")
        inputs = self.hash_input(self.eval(data), data.pos, simple=True)
        name = self.calculation(self.enum_member(algo), inputs, payload=payload)
        number = len(self.out.checksums)
        label = f"cksum_{number}" if number else "cksum"
        holds = arith.logical_and(holds, self.eval_truth(cond))
        self.out.checksums.append(lir.Checksum(label, place.expr, name, verify, holds, self.loc(call)))

    # --- the end ---

    def _finish(self) -> None:
        self.rename_hidden()
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
            graph.merge_sites(entry, self.temp(8, hint="apply_site"))
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


__all__ = ["Lowering", "lower"]
