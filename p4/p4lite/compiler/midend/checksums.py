"""The checksum controls: calls of verify_checksum and update_checksum, each with the condition to get there."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler.midend import arith, lir
from p4lite.compiler.midend.arguments import bindings, rebind
from p4lite.compiler.midend.calls import CallLowering
from p4lite.compiler.midend.emitter import Env, Frame
from p4lite.compiler.midend.exprs import ExpressionLowering
from p4lite.compiler.midend.externs import Externs
from p4lite.compiler.midend.instances import Instances
from p4lite.compiler.midend.lir import BasicBlock, Field
from p4lite.compiler.midend.objects import ControlInstance
from p4lite.compiler.midend.places import Places
from p4lite.compiler.midend.report import unsupported
from p4lite.compiler.midend.values import Data, Object

CHECKSUMS = {
    "verify_checksum": (True, False),
    "verify_checksum_with_payload": (True, True),
    "update_checksum": (False, False),
    "update_checksum_with_payload": (False, True),
}


class Checksums:
    """Lowers checksum controls, which hold nothing else."""

    def __init__(
        self, code: Places, exprs: ExpressionLowering, instances: Instances, calls: CallLowering, externs: Externs
    ) -> None:
        self.code = code
        self.exprs = exprs
        self.instances = instances
        self.calls = calls
        self.externs = externs

    def lower(self, decl: ast.ControlDecl, env: Env, verify: bool) -> None:
        """Lower the control that verifies or updates checksums."""
        self.code.env = env
        self._control(decl, verify, lir.Bool(True))

    def _control(self, decl: ast.ControlDecl, verify: bool, holds: lir.Expr) -> None:
        """Collect the calls of a checksum control, or of a control that it applies; `holds` is the condition to get
        there.
        """
        assert decl.body is not None
        variables = [d for d in decl.locals if isinstance(d, ast.VarDecl)]
        if variables:
            raise unsupported(variables[0].pos, "a variable in a checksum control")
        self.code.env.declared.update(decl.locals)
        for local in decl.locals:
            if isinstance(local, ast.Instantiation):
                self.instances.instance(local)
        self._statement(decl.body, verify, holds)

    def _statement(self, stmt: ast.Stmt, verify: bool, holds: lir.Expr) -> None:
        scratch = self.code.scratch("checksum")
        self.code.frame = Frame(None, BasicBlock())
        if isinstance(stmt, ast.Block):
            for inner in stmt.stmts:
                self._statement(inner, verify, holds)
        elif isinstance(stmt, ast.If):
            cond = self.exprs.eval_truth(stmt.cond)
            self._statement(stmt.then, verify, arith.logical_and(holds, cond))
            if stmt.other is not None:
                self._statement(stmt.other, verify, arith.logical_and(holds, arith.logical_not(cond)))
        elif isinstance(stmt, ast.CallStmt) and stmt.call.method in CHECKSUMS:
            self._checksum(stmt.call, verify, holds)
        elif isinstance(stmt, ast.CallStmt) and stmt.call.kind is ast.CallKind.CONTROL_APPLY:
            self._apply(stmt.call, verify, holds)
        elif not isinstance(stmt, (ast.Empty, ast.ConstDecl)):
            raise unsupported(stmt.pos, "anything but calls of verify_checksum or update_checksum here")
        if scratch.ops or scratch.term is not None:
            raise unsupported(stmt.pos, "computations in a checksum control")

    def _apply(self, call: ast.Call, verify: bool, holds: lir.Expr) -> None:
        assert call.receiver is not None
        receiver = self.exprs.eval(call.receiver)
        control = receiver.what if isinstance(receiver, Object) else None
        if not isinstance(control, ControlInstance):
            raise unsupported(call.pos, "apply() of this expression")
        frame = Frame(None, BasicBlock())
        self.calls.bind_arguments(rebind(bindings(call.args), control.decl.params), control.env, frame, set())
        if frame.copy_outs:
            raise unsupported(call.pos, "arguments that must be copied, in a checksum control")
        saved = self.code.env
        self.code.env = control.env
        self._control(control.decl, verify, holds)
        self.code.env = saved

    def _checksum(self, call: ast.Call, verify: bool, holds: lir.Expr) -> None:
        is_verify, payload = CHECKSUMS[call.method]
        if is_verify != verify:
            raise unsupported(call.pos, f"'{call.method}' in this block")
        cond, data, target, algo = self.externs.arguments(call)
        place = self.exprs.eval(target)
        if not isinstance(place, Data) or not isinstance(place.expr, Field):
            raise unsupported(target.pos, "a checksum anywhere but in a field")
        inputs = self.externs.hash_input(self.exprs.eval(data), data.pos, simple=True)
        name = self.externs.calculation(self.externs.enum_member(algo), inputs, payload=payload)
        number = len(self.code.out.checksums)
        label = f"cksum_{number}" if number else "cksum"
        holds = arith.logical_and(holds, self.exprs.eval_truth(cond))
        self.code.out.checksums.append(lir.Checksum(label, place.expr, name, verify, holds, self.code.loc(call)))
