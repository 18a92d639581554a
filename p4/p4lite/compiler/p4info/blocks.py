"""The blocks of a package as the control plane sees them.

Each parser or control given to the package is flattened: the objects of a sub-block stand where its instance was
declared, named by the path of instances. What is left out, as p4c leaves it out: sub-blocks and tables that are never
applied, actions that no table lists and no statement of a control calls.
"""

# ruff: noqa: N802 - the methods of a visitor are named after the classes of nodes

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field

from p4lite.compiler import ast, constfold
from p4lite.compiler import types as t
from p4lite.compiler.architecture import ARCHITECTURES
from p4lite.compiler.midend.names import control_plane_name, qualified

Kind = ast.CallKind
DIRECT = frozenset(
    name
    for each in ARCHITECTURES
    for name, extern in each.externs.items()
    if extern.kind in ("direct_counter", "direct_meter")
)
Bindings = dict[ast.Declaration, ast.Value | None]


@dataclass(eq=False)
class Extern:
    """An extern object: `args` are its constructor's arguments by parameter, `notes` where its annotations stand.

    `type` is its type's name, which the architecture knows.
    """

    type: str
    name: str
    args: dict[str, ast.Value | None]
    types: tuple[t.Type, ...]
    notes: ast.Declaration | None

    def number(self, name: str) -> int:
        """Return a numeric argument; 0 without one."""
        value = self.args.get(name)
        return int(value) if isinstance(value, int) else 0


@dataclass(eq=False)
class BlockItem:
    """A table, action or value set, its control-plane name, and the block it was declared in.

    `inlined`: an action that no table lists.
    """

    decl: ast.TableDecl | ast.ActionDecl | ast.ValueSetDecl
    name: str
    home: BlockInstance | None
    inlined: bool = False


@dataclass(eq=False)
class BlockInstance:
    """An instance of a parser or control. `consts`: its constructor parameters; `externs`: objects known in it."""

    decl: ast.ParserDecl | ast.ControlDecl
    path: str
    outer: dict[ast.Declaration, Extern]
    consts: Bindings = field(default_factory=dict)
    externs: dict[ast.Declaration, Extern] = field(default_factory=dict)
    passed: dict[ast.Declaration, BlockInstance] = field(default_factory=dict)
    children: dict[ast.Declaration, BlockInstance] = field(default_factory=dict)
    anonymous: dict[ast.Declaration, list[Extern]] = field(default_factory=dict)
    used: set[ast.Declaration] = field(default_factory=set)
    called: list[ast.ActionDecl] = field(default_factory=list)
    extern_calls: list[ast.Call] = field(default_factory=list)

    def extern(self, decl: ast.Declaration | None) -> Extern | None:
        """Return the extern object that a declaration names here."""
        if decl is None:
            return None
        return self.externs.get(decl) or self.outer.get(decl)

    def constant(self, expr: ast.Expr | None) -> ast.Value | None:
        """Return the value of an expression in this instance; None if it is not constant."""
        return None if expr is None else constfold.evaluate(expr, self.consts)


@dataclass(eq=False)
class Flat:
    """A flattened block of the package: `items` in order of declaration; `calls` of extern functions in its body."""

    block: BlockInstance
    items: list[BlockItem | Extern]
    calls: list[ast.Call]


def make_extern(call: ast.Call, name: str, notes: ast.Declaration | None, consts: Bindings) -> Extern:
    """Return the object that a constructor call makes."""
    args = {
        a.param.name: constfold.evaluate(a.expr, consts) if a.expr is not None else None for a in call.args if a.param
    }
    ty = call.type
    types = ty.args if isinstance(ty, t.Nominal) else ()
    return Extern(ty.name if isinstance(ty, t.Nominal) else "", name, args, types, notes)


def top_externs(decls: Iterable[ast.Declaration]) -> dict[ast.Declaration, Extern]:
    """Return the extern objects declared outside of any block."""
    found: dict[ast.Declaration, Extern] = {}
    for decl in decls:
        if isinstance(decl, ast.Instantiation) and isinstance(decl.type, t.ExternType) and decl.call is not None:
            found[decl] = make_extern(decl.call, control_plane_name(decl).lstrip("."), decl, {})
    return found


def flatten(instance: ast.Instance, outer: dict[ast.Declaration, Extern], tables: Set[str]) -> Flat | None:
    """Return a parser or control of the package with those tables only; None if the instance is something else."""
    decl = instance.decl
    if not isinstance(decl, ast.ParserDecl | ast.ControlDecl):
        return None
    block = BlockInstance(decl, decl.name, outer)
    for param in decl.ctor_params:
        value = instance.args.get(param.name)
        if isinstance(value, ast.Instance):
            given = outer.get(value.site) if value.site is not None else None
            if given is not None:
                block.externs[param] = given
            elif isinstance(value.type, t.ExternType):
                name = qualified(decl.name, param.name)
                block.externs[param] = Extern(value.type.name, name, value.args, value.type.args, None)
        else:
            block.consts[param] = value
    _enter(block)
    _drop_tables(block, tables)
    flat = Flat(block, list(_items(block)), block.extern_calls)
    if isinstance(decl, ast.ControlDecl):
        flat.items[:0] = _global_actions(flat)
    return flat


def _drop_tables(block: BlockInstance, kept: Set[str]) -> None:
    """Take tables with other names, and the direct counters and meters of these alone, from a block and those in it."""
    local = [each for each in block.decl.locals if isinstance(each, ast.TableDecl)]
    gone = {each for each in local if qualified(block.path, control_plane_name(each)) not in kept}
    block.used -= gone
    used = {name for each in local if each not in gone for name in _named(each)}
    for table in gone:
        for direct in _named(table) - used:
            if direct in block.externs and block.externs[direct].type in DIRECT:
                del block.externs[direct]
    for child in [*block.children.values(), *block.passed.values()]:
        _drop_tables(child, kept)


def _named(table: ast.TableDecl) -> set[ast.Declaration]:
    """Return the objects that a table's properties name."""
    values = [each.value for each in table.properties]
    return {each.decl for each in values if isinstance(each, ast.Name) and each.decl is not None}


# -- what is used -------------------------------------------------------------------------------------------------


def _enter(block: BlockInstance) -> None:
    """Declare the instances of a block and note what its body uses."""
    for local in block.decl.locals:
        if isinstance(local, ast.ConstDecl):
            block.consts[local] = local.const if local.const is not None else block.constant(local.value)
        elif isinstance(local, ast.Instantiation) and local.call is not None and isinstance(local.type, t.ExternType):
            name = qualified(block.path, control_plane_name(local))
            block.externs[local] = make_extern(local.call, name, local, block.consts)
    if isinstance(block.decl, ast.ControlDecl):
        if block.decl.body is not None:
            _Uses(block).visit(block.decl.body)
    else:
        for state in _reachable(block.decl):
            _Uses(block).visit(state)


def _reachable(parser: ast.ParserDecl) -> list[ast.ParserState]:
    """Return the states that the start state leads to, in order of declaration."""
    states = parser.states or []
    seen: set[ast.ParserState] = set()
    todo = [state for state in states if state.name == "start"]
    while todo:
        state = todo.pop()
        if state in seen:
            continue
        seen.add(state)
        transition = state.transition
        if transition is not None:
            cases = transition.select.cases if transition.select is not None else []
            targets = [transition.target, *(case.target for case in cases)]
            todo.extend(each for each in targets if each is not None)
    return [state for state in states if state in seen]


class _Uses(ast.Visitor):
    """Notes what the live statements of a block apply and call; enters the sub-blocks that they apply."""

    def __init__(self, block: BlockInstance, in_action: bool = False) -> None:
        self.block = block
        self.in_action = in_action
        self.functions: set[ast.Declaration] = set()

    def visit_Block(self, node: ast.Block) -> None:
        for stmt in node.stmts:
            self.visit(stmt)
            if self.ends(stmt):
                return

    def ends(self, stmt: ast.Stmt) -> bool:
        """Return whether no statement after this one is executed."""
        if isinstance(stmt, ast.If):
            cond = self.block.constant(stmt.cond)
            ends = self.ends(stmt.then), stmt.other is not None and self.ends(stmt.other)
            return all(ends) if cond is None else ends[0] if cond else ends[1]
        if isinstance(stmt, ast.Block):
            return any(self.ends(each) for each in stmt.stmts)
        return isinstance(stmt, ast.Return | ast.Exit | ast.Break | ast.Continue)

    def visit_If(self, node: ast.If) -> None:
        cond = self.block.constant(node.cond)
        self.visit(node.cond)
        if cond is not False:
            self.visit(node.then)
        if cond is not True and node.other is not None:
            self.visit(node.other)

    def visit_ConditionalExpr(self, node: ast.ConditionalExpr) -> None:
        cond = self.block.constant(node.cond)
        self.visit(node.cond)
        if cond is not False:
            self.visit(node.then)
        if cond is not True:
            self.visit(node.other)

    def visit_Binary(self, node: ast.Binary) -> None:
        self.visit(node.left)
        decided = {"&&": False, "||": True}.get(node.op)
        if decided is None or self.block.constant(node.left) is not decided:
            self.visit(node.right)

    def visit_Instantiation(self, node: ast.Instantiation) -> None:
        if node.call is not None and isinstance(node.type, t.ExternType):
            name = qualified(self.block.path, control_plane_name(node))
            self.block.externs[node] = make_extern(node.call, name, node, self.block.consts)

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.decl, ast.ValueSetDecl):
            self.block.used.add(node.decl)

    def visit_Call(self, node: ast.Call) -> None:
        target = node.target
        if node.kind is Kind.TABLE_APPLY and isinstance(target, ast.TableDecl):
            self.block.used.add(target)
            for key in target.keys or []:
                self.visit(key.expr)
        elif node.kind in (Kind.CONTROL_APPLY, Kind.PARSER_APPLY):
            receiver = node.receiver
            if isinstance(receiver, ast.Name) and receiver.decl is not None:
                self.apply(receiver.decl)
        elif node.kind is Kind.ACTION and isinstance(target, ast.ActionDecl):
            if self.in_action:
                self.once(target, target.body)
            elif target not in self.block.called:
                self.block.called.append(target)
        elif node.kind is Kind.FUNCTION and isinstance(target, ast.FunctionDecl) and target.body is not None:
            self.once(target, target.body)
        elif node.kind is Kind.EXTERN_FUNCTION and node.method != "static_assert":
            self.block.extern_calls.append(node)
        for arg in node.args:
            if arg.expr is not None:
                self.visit(arg.expr)
        if node.receiver is not None:
            self.visit(node.receiver)

    def once(self, target: ast.Declaration, body: ast.Block) -> None:
        """Visit the body of a function, or of an action called by an action, once: it becomes part of the caller."""
        if target not in self.functions:
            self.functions.add(target)
            self.visit(body)

    def apply(self, site: ast.Declaration) -> None:
        """Visit a sub-block that is applied: an instance declared here, or one given to the constructor."""
        given = self.block.passed.get(site)
        if given is not None:
            _start(given)
            return
        if site in self.block.children or not isinstance(site, ast.Instantiation):
            return
        child = _child(self.block, site)
        if child is not None:
            self.block.children[site] = child
            _start(child)
            self.block.extern_calls.extend(child.extern_calls)


def _start(block: BlockInstance) -> None:
    if block.decl not in block.used:
        # The declaration itself marks a block whose body was visited.
        block.used.add(block.decl)
        _enter(block)


def _child(parent: BlockInstance, site: ast.Instantiation) -> BlockInstance | None:
    call = site.call
    if call is None or not isinstance(call.target, ast.ParserDecl | ast.ControlDecl):
        return None
    path = qualified(parent.path, control_plane_name(site))
    child = BlockInstance(call.target, path, parent.outer)
    for arg in call.args:
        if arg.param is None or arg.expr is None:
            continue
        expr = arg.expr
        given = parent.extern(expr.decl) if isinstance(expr, ast.Name) else None
        if given is not None:
            child.externs[arg.param] = given
        elif isinstance(expr, ast.Call) and expr.kind is Kind.CONSTRUCTOR and isinstance(expr.type, t.ExternType):
            made = make_extern(expr, qualified(parent.path, arg.param.name), None, parent.consts)
            child.externs[arg.param] = made
            parent.anonymous.setdefault(site, []).append(made)
        elif isinstance(expr, ast.Name) and isinstance(expr.decl, ast.Instantiation | ast.Param):
            inner = parent.passed.get(expr.decl) or parent.children.get(expr.decl)
            if inner is None and isinstance(expr.decl, ast.Instantiation):
                inner = _child(parent, expr.decl)
                if inner is not None:
                    parent.children[expr.decl] = inner
            if inner is not None:
                child.passed[arg.param] = inner
            else:
                child.consts[arg.param] = parent.constant(expr)
        else:
            child.consts[arg.param] = parent.constant(expr)
    return child


# -- objects in order ---------------------------------------------------------------------------------------------


def _items(block: BlockInstance) -> Iterator[BlockItem | Extern]:
    listed = _listed(block)
    actions = listed | set(block.called)
    seen: set[ast.Declaration] = set()
    for local in block.decl.locals:
        seen.add(local)
        if isinstance(local, ast.ActionDecl):
            if local in actions:
                yield BlockItem(local, qualified(block.path, control_plane_name(local)), block, local not in listed)
        elif isinstance(local, ast.TableDecl | ast.ValueSetDecl):
            if local in block.used:
                yield BlockItem(local, qualified(block.path, control_plane_name(local)), block)
        elif isinstance(local, ast.Instantiation):
            yield from _instance_items(block, local)
    for site in [*block.externs, *block.children]:
        # Instances among the statements of the body, and direct applications of a type.
        if site not in seen and isinstance(site, ast.Instantiation):
            yield from _instance_items(block, site)


def _instance_items(block: BlockInstance, site: ast.Instantiation) -> Iterator[BlockItem | Extern]:
    yield from block.anonymous.get(site, [])
    made = block.externs.get(site)
    if made is not None:
        yield made
    child = block.children.get(site)
    if child is not None and child.decl in child.used:
        yield from _items(child)


def references(table: ast.TableDecl) -> list[ast.ActionRef]:
    """Return the actions that a table names, in the order of the source; an implied default action last."""
    found = [*(table.actions or []), *(entry.action for entry in table.entries or [])]
    if table.default_action is not None and not table.default_implicit:
        found.append(table.default_action)
    found.sort(key=lambda reference: (reference.pos.line, reference.pos.col))
    if table.default_action is not None and table.default_implicit:
        found.append(table.default_action)
    return found


def _listed(block: BlockInstance) -> set[ast.ActionDecl]:
    """Return the actions that applied tables list."""
    found: set[ast.ActionDecl] = set()
    for local in block.decl.locals:
        if isinstance(local, ast.TableDecl) and local in block.used:
            found.update(reference.decl for reference in references(local) if reference.decl is not None)
    return found


def _global_actions(flat: Flat) -> list[BlockItem | Extern]:
    """Return actions declared outside of controls that the block uses: they come before its own."""
    wanted: list[ast.ActionDecl] = []
    blocks = [flat.block]
    for item in flat.items:
        if isinstance(item, BlockItem) and isinstance(item.decl, ast.TableDecl):
            wanted.extend(reference.decl for reference in references(item.decl) if reference.decl is not None)
    listed = set(wanted)
    while blocks:
        block = blocks.pop(0)
        wanted.extend(block.called)
        blocks.extend(block.children.values())
    own = {item.decl for item in flat.items if isinstance(item, BlockItem)}
    found: list[BlockItem | Extern] = []
    for action in wanted:
        if action not in own:
            own.add(action)
            found.append(BlockItem(action, control_plane_name(action).lstrip("."), None, action not in listed))
    return found


def calls_in_action(action: ast.ActionDecl, home: BlockInstance | None) -> list[ast.Call]:
    """Return the calls of extern functions in an action, and in the actions and functions that it calls."""
    scratch = BlockInstance(
        home.decl if home is not None else ast.ControlDecl(action.pos, "", [], [], [], None),
        "",
        {},
        dict(home.consts) if home is not None else {},
    )
    _Uses(scratch, in_action=True).visit(action.body)
    return scratch.extern_calls
