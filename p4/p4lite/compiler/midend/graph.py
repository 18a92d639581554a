"""Clean-up of control-flow graphs, and tables that are applied in several places."""

from __future__ import annotations

from itertools import zip_longest

from p4lite.compiler.midend import lir
from p4lite.compiler.midend.lir import (
    ApplyTable,
    BasicBlock,
    Branch,
    Const,
    Field,
    Jump,
    LoweredAssign,
    LoweredSelect,
    LoweredTable,
    Op,
    reachable,
    successors,
)
from p4lite.compiler.midend.report import unsupported
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
