"""Clean-up of control-flow graphs: tables that are applied in several places, and what inlining leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import cast

from p4lite.compiler.midend import lir
from p4lite.compiler.midend.arguments import unsupported
from p4lite.compiler.midend.lir import (
    ApplyTable,
    Arg,
    BasicBlock,
    Branch,
    Const,
    Expr,
    Field,
    Jump,
    LOp,
    LoweredAssign,
    LoweredSelect,
    LoweredTable,
    Op,
    Prim,
    RuntimeParam,
    reachable,
    successors,
)
from p4lite.compiler.midend.storage import SCALARS, SCALARS_TYPE
from p4lite.compiler.position import NOWHERE, Pos


def _retarget(block: BasicBlock, resolve: dict[int, BasicBlock]) -> None:
    def to(b: BasicBlock) -> BasicBlock:
        return resolve.get(id(b), b)

    term = block.term
    if isinstance(term, Jump):
        term.to = to(term.to)
    elif isinstance(term, Branch):
        term.then, term.other = to(term.then), to(term.other)
        if term.then is term.other:
            block.term = Jump(term.then)
    elif isinstance(term, ApplyTable):
        term.targets = {k: to(b) for k, b in term.targets.items()}
        term.default = to(term.default)
    elif isinstance(term, LoweredSelect):
        for case in term.cases:
            if case.to is not None:
                case.to = to(case.to)


def simplify(entry: BasicBlock) -> None:
    """Skip empty blocks and join a block with its only successor where that has no other predecessor."""
    changed = True
    while changed:
        changed = _thread(entry)
        changed |= _join(entry)


def _thread(entry: BasicBlock) -> bool:
    blocks = reachable(entry)
    resolve: dict[int, BasicBlock] = {}
    for block in blocks:
        target, seen = block, {id(block)}
        while not target.ops and isinstance(target.term, Jump) and target.name is None:
            target = target.term.to
            if id(target) in seen:
                break
            seen.add(id(target))
        if target is not block:
            resolve[id(block)] = target
    if not resolve:
        return False
    before = [[id(s) for s in successors(b.term)] for b in blocks]
    for block in blocks:
        _retarget(block, resolve)
    return before != [[id(s) for s in successors(b.term)] for b in blocks]


def _join(entry: BasicBlock) -> bool:
    blocks = reachable(entry)
    predecessors: dict[int, int] = {id(entry): 1}
    for block in blocks:
        for successor in successors(block.term):
            predecessors[id(successor)] = predecessors.get(id(successor), 0) + 1
    changed = False
    for block in blocks:
        while isinstance(block.term, Jump):
            following = block.term.to
            if following is block or following.name is not None or predecessors[id(following)] != 1:
                break
            block.ops.extend(following.ops)
            block.term = following.term
            following.ops, following.term = [], None
            changed = True
    return changed


def second_place(first: ApplyTable, second: ApplyTable) -> Pos | None:
    """Return where a table is applied again: the first call on the way there that is not on the way to the first."""
    pairs = zip_longest(first.calls, second.calls)
    fallback = second.calls[-1] if second.calls else None
    return next((new for old, new in pairs if new is not None and new != old), fallback)


def applied_again(entry: BasicBlock) -> tuple[ApplyTable, ApplyTable] | None:
    """Return two applications of a table, the second of which can follow the first, if there are any."""
    for block in reachable(entry):
        if not isinstance(block.term, ApplyTable):
            continue
        for following in successors(block.term):
            for later in reachable(following):
                if isinstance(later.term, ApplyTable) and later.term.table is block.term.table:
                    return block.term, later.term
    return None


def merge_sites(entry: BasicBlock, site: Field) -> None:
    """Give each table one node; where it is applied in several places, `site` decides where to continue.

    Raises:
        Unsupported: one place branches on hit or miss and another on the action.
    """
    sites: dict[int, list[BasicBlock]] = {}
    tables: dict[int, LoweredTable] = {}
    for block in reachable(entry):
        if isinstance(block.term, ApplyTable):
            tables[id(block.term.table)] = block.term.table
            sites.setdefault(id(block.term.table), []).append(block)
    for key, blocks in sites.items():
        terms = [b.term for b in blocks if isinstance(b.term, ApplyTable)]
        first = terms[0]
        if len(terms) == 1 or all(t.targets == first.targets and t.default is first.default for t in terms):
            continue
        labels = {label for t in terms for label in t.targets}
        hit_miss = labels & {lir.HIT, lir.MISS}
        if hit_miss and labels - hit_miss:
            by_hit = [bool(term.targets.keys() & {lir.HIT, lir.MISS}) for term in terms]
            other = next(term for term, hit in zip(terms, by_hit, strict=True) if term.targets and hit != by_hit[0])
            what = "in several places, once for its hit and once for its action"
            raise unsupported(second_place(first, other) or NOWHERE, f"applying table '{tables[key].name}' {what}")
        targets = {label: _dispatch(site, [t.targets.get(label, t.default) for t in terms]) for label in sorted(labels)}
        default = _dispatch(site, [t.default for t in terms])
        for number, block in enumerate(blocks):
            block.ops.append(LoweredAssign(site, Const(number, site.width)))
            block.term = ApplyTable(tables[key], dict(targets), default, terms[number].calls)


def _dispatch(site: Field, targets: list[BasicBlock]) -> BasicBlock:
    """Return a block that continues at the target numbered by `site`."""
    if all(b is targets[0] for b in targets):
        return targets[0]
    otherwise = targets[-1]
    for number in range(len(targets) - 2, -1, -1):
        cond = Op("==", site, Const(number, site.width))
        otherwise = BasicBlock(term=Branch(cond, targets[number], otherwise))
    return otherwise


def fields_used(program: lir.LoweredProgram) -> set[Field]:
    """Return fields read or written by anything outside of the graphs: keys, lists, calculations, checksums, meters."""
    used: set[Field] = set()
    for block in _graph_blocks(program):
        if isinstance(block.term, ApplyTable):
            used.update(k.target for k in block.term.table.keys)
            if block.term.table.profile is not None:
                used.update(block.term.table.profile.inputs)
    for calculation in program.calculations:
        used.update(f for f in calculation.inputs if isinstance(f, Field))
    for checksum in program.checksums:
        used.add(checksum.target)
    for listed in (*program.field_lists, *program.learn_lists):
        used.update(f for f in listed.elements if isinstance(f, Field))
    used.update(m.result for m in program.meters if m.result is not None)
    return used


def _graph_blocks(program: lir.LoweredProgram) -> list[BasicBlock]:
    out: list[BasicBlock] = []
    for pipeline in program.pipelines:
        out.extend(reachable(pipeline.entry))
    return out


DESTINATIONS = {
    "modify_field_with_hash_based_offset": 0,
    "modify_field_rng_uniform": 0,
    "register_read": 0,
    "execute_meter": 2,
    "assign_VL": 0,
}
"""Which argument of a primitive is a field that it writes."""

KEEPS_HEADERS = frozenset(DESTINATIONS) | {
    "register_write",
    "count",
    "log_msg",
    "truncate",
    "assert",
    "assume",
    "generate_digest",
    "resubmit",
    "recirculate",
    "clone_ingress_pkt_to_egress",
    "clone_egress_pkt_to_egress",
}
"""Primitives that change no header but for their destination."""


def fields_in(arg: Arg) -> Iterator[Field]:
    """Yield all fields that an expression reads."""
    if isinstance(arg, Field):
        yield arg
    else:
        for child in lir.children(arg):
            yield from fields_in(child)


def _rewrite(arg: Arg, known: dict[Field, Expr]) -> Arg:
    """Return the expression with known fields replaced."""
    if isinstance(arg, Field):
        return known.get(arg, arg)
    if isinstance(arg, lir.Op):
        left = None if arg.left is None else _expr(arg.left, known)
        return replace(arg, left=left, right=_expr(arg.right, known))
    if isinstance(arg, lir.LoweredConditional):
        return lir.LoweredConditional(_expr(arg.cond, known), _expr(arg.then, known), _expr(arg.other, known))
    if isinstance(arg, (lir.ElemField, lir.ElemRef)):
        return replace(arg, index=_expr(arg.index, known))
    if isinstance(arg, lir.Valid) and isinstance(arg.target, lir.ElemRef):
        return lir.Valid(replace(arg.target, index=_expr(arg.target.index, known)))
    if isinstance(arg, lir.SameHeader):
        left_ref, right_ref = _rewrite(arg.left, known), _rewrite(arg.right, known)
        assert isinstance(left_ref, (lir.HeaderRef, lir.ElemRef))
        assert isinstance(right_ref, (lir.HeaderRef, lir.ElemRef))
        return lir.SameHeader(left_ref, right_ref)
    if isinstance(arg, lir.Vector):
        if arg.kind == "field_list":  # BMv2 takes fields only
            return arg
        return replace(arg, items=tuple(_expr(item, known) for item in arg.items))
    return arg


def _expr(expr: Expr, known: dict[Field, Expr]) -> Expr:
    return cast(Expr, _rewrite(expr, known))


def _result(op: Prim) -> int | None:
    """Return which argument of a primitive is a field that it writes."""
    return op.result if op.result is not None else DESTINATIONS.get(op.op)


def operands(op: LOp) -> Iterator[Arg]:
    """Yield what an operation reads."""
    if isinstance(op, LoweredAssign):
        yield op.value
        if isinstance(op.target, lir.ElemField):
            yield op.target.index
    elif isinstance(op, Prim):
        written = _result(op)
        yield from (a for i, a in enumerate(op.args) if i != written)
    elif isinstance(op, lir.Extract):
        if op.length is not None:
            yield op.length
    elif isinstance(op, lir.Advance):
        yield op.bits
    else:
        yield from (op.cond, op.error)


def written_field(op: LOp) -> Field | None:
    """Return the field that an operation writes, if it is a single one."""
    if isinstance(op, LoweredAssign):
        return op.target if isinstance(op.target, Field) else None
    written = _result(op) if isinstance(op, Prim) else None
    if isinstance(op, Prim) and written is not None:
        target = op.args[written]
        return target if isinstance(target, Field) else None
    return None


def _terminator_reads(block: BasicBlock) -> Iterator[Field]:
    term = block.term
    if isinstance(term, lir.Branch):
        yield from fields_in(term.cond)
    elif isinstance(term, lir.LoweredSelect):
        yield from (k for k in term.keys if isinstance(k, Field))


def _map_operands(op: LOp, known: dict[Field, Expr]) -> LOp:
    if isinstance(op, LoweredAssign):
        target = op.target
        if isinstance(target, lir.ElemField):
            target = replace(target, index=_expr(target.index, known))
        return replace(op, target=target, value=_expr(op.value, known))
    if isinstance(op, Prim):
        written = _result(op)
        args = tuple(a if i == written else _rewrite(a, known) for i, a in enumerate(op.args))
        return replace(op, args=args)
    if isinstance(op, lir.Extract):
        return op if op.length is None else replace(op, length=_expr(op.length, known))
    if isinstance(op, lir.Verify):
        return lir.Verify(_expr(op.cond, known), _expr(op.error, known), op.loc)
    if isinstance(op, lir.Advance):
        bits = _expr(op.bits, known)
        return lir.Advance(bits, op.loc) if isinstance(bits, (Const, Field)) else op
    return op


class _Known:
    """The values of fields: which field is a copy of which other."""

    def __init__(self) -> None:
        self.values: dict[Field, Expr] = {}
        self._copies: dict[Field, set[Field]] = {}

    def add(self, target: Field, value: Expr) -> None:
        self.values[target] = value
        if isinstance(value, Field):
            self._copies.setdefault(value, set()).add(target)

    def forget(self, written: Field) -> None:
        """Drop the value of a field that was written, and its copies."""
        self._drop(written)
        for copy in list(self._copies.get(written, ())):
            self._drop(copy)

    def forget_headers(self) -> None:
        """Drop the copies of all header fields, because any header may have changed."""
        for source in [f for f in self._copies if f.header != SCALARS]:
            for copy in list(self._copies[source]):
                self._drop(copy)

    def _drop(self, target: Field) -> None:
        value = self.values.pop(target, None)
        if isinstance(value, Field):
            copies = self._copies[value]
            copies.discard(target)
            if not copies:
                del self._copies[value]


def _propagate(block: BasicBlock, removable: set[Field]) -> None:
    """Use the source of a copy in place of the copy, as long as neither is written."""
    facts = _Known()
    known = facts.values
    for i, op in enumerate(block.ops):
        made = _map_operands(op, known)
        block.ops[i] = made
        target = written_field(made)
        if target is not None:
            facts.forget(target)
        elif not (isinstance(made, (lir.Verify, lir.Advance)) or (isinstance(made, Prim) and made.op in KEEPS_HEADERS)):
            facts.forget_headers()
        if isinstance(made, LoweredAssign) and made.target in removable and isinstance(made.target, Field):
            value, target_field = made.value, made.target
            same_type = isinstance(value, Field) and (value.width, value.signed) == (
                target_field.width,
                target_field.signed,
            )
            if (isinstance(value, (Const, RuntimeParam)) or same_type) and value != target_field:
                facts.add(target_field, value)
    term = block.term
    if isinstance(term, lir.Branch):
        term.cond = _expr(term.cond, known)
    elif isinstance(term, lir.LoweredSelect):
        term.keys = [new if isinstance(new := _rewrite(k, known), (Field, lir.LastField)) else k for k in term.keys]


def _eliminate(entry: BasicBlock, removable: set[Field]) -> bool:
    """Drop stores to fields of `removable` that nothing reads afterwards; return whether there were any."""
    blocks = reachable(entry)
    live_in: dict[int, set[Field]] = {id(b): set() for b in blocks}
    changed = True
    while changed:
        changed = False
        for block in reversed(blocks):
            live = _live_out(block, live_in)
            for op in reversed(block.ops):
                _step(op, live, removable)
            if live != live_in[id(block)]:
                live_in[id(block)] = live
                changed = True
    removed = False
    for block in blocks:
        live = _live_out(block, live_in)
        kept: list[LOp] = []
        for op in reversed(block.ops):
            target = written_field(op)
            dead = isinstance(op, LoweredAssign) and target in removable and target not in live
            if dead and isinstance(op, LoweredAssign) and not isinstance(op.value, lir.Lookahead):
                removed = True
                continue
            _step(op, live, removable)
            kept.append(op)
        kept.reverse()
        block.ops = kept
    return removed


def _live_out(block: BasicBlock, live_in: dict[int, set[Field]]) -> set[Field]:
    live: set[Field] = set()
    for successor in lir.successors(block.term):
        live |= live_in[id(successor)]
    live.update(_terminator_reads(block))
    return live


def _step(op: LOp, live: set[Field], removable: set[Field]) -> None:
    target = written_field(op)
    if target is not None:
        live.discard(target)
    for arg in operands(op):
        live.update(f for f in fields_in(arg) if f in removable)


def _graph_fields(entry: BasicBlock) -> set[Field]:
    out: set[Field] = set()
    for block in reachable(entry):
        out.update(_terminator_reads(block))
        for op in block.ops:
            for arg in operands(op):
                out.update(fields_in(arg))
            target = written_field(op)
            if target is not None:
                out.add(target)
    return out


def optimise(program: lir.LoweredProgram, keep: Callable[[Field], bool]) -> None:
    """Simplify all graphs of a program; `keep` are the scalars of the user."""
    entries = [p.entry for p in program.pipelines] + [a.body for a in program.actions]
    entries += [p.entry for p in program.parsers] + [d.body for d in program.deparsers]
    outside = fields_used(program)
    uses: dict[Field, int] = {}
    for entry in entries:
        for found in _graph_fields(entry):
            uses[found] = uses.get(found, 0) + 1
    removable = {f for f, n in uses.items() if n == 1 and f.header == SCALARS and f not in outside and not keep(f)}
    for entry in entries:
        while True:
            for block in reachable(entry):
                _propagate(block, removable)
            if not _eliminate(entry, removable):
                break
    _drop_unused(program, entries, outside, keep)


def _drop_unused(
    program: lir.LoweredProgram, entries: list[BasicBlock], outside: set[Field], keep: Callable[[Field], bool]
) -> None:
    """Remove fields of `scalars` that are not used any more."""
    used = set(outside)
    for entry in entries:
        used |= _graph_fields(entry)
    for checksum in program.checksums:
        used.update(fields_in(checksum.cond))
    names = {f.name for f in used if f.header == SCALARS}
    scalars = program.header_types[SCALARS_TYPE]
    scalars.fields = [f for f in scalars.fields if f.name in names or keep(Field(SCALARS, f.name, f.width, f.signed))]
