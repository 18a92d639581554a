"""Makes the syntax tree while the parser reduces: one method for each rule or alias of grammar.lark."""

from __future__ import annotations

from typing import Any

import lark

from p4lite.compiler import ast
from p4lite.compiler.diagnostics import Reporter
from p4lite.compiler.lexer import Token, annotation_of, parse_number, unquote
from p4lite.compiler.position import NOWHERE, Pos

Children = list[Any]

_LEVELS = (
    ("||",), ("&&",), ("==", "!="), ("<", ">", "<=", ">="), ("|",), ("^",), ("&",), ("<<", ">>"),
    ("+", "-", "++", "|+|", "|-|"), ("*", "/", "%"),
)  # fmt: skip
PRECEDENCE = {op: level for level, ops in enumerate(_LEVELS) for op in ops}


def _nodes(ch: Children) -> Children:
    """Return the sub-trees among the children, without tokens and without what a syntax error left out."""
    return [c for c in ch if isinstance(c, ast.Node)]


def _take_annotations(ch: Children) -> list[ast.Annotation]:
    """Remove a leading list of annotations from the children."""
    if ch and isinstance(ch[0], list) and ch[0] and isinstance(ch[0][0], ast.Annotation):
        found: list[ast.Annotation] = ch.pop(0)
        return found
    return []


def _arrays(type_node: ast.TypeNode, sizes: list[ast.Expr]) -> ast.TypeNode:
    """Return the type of a declared array: `T x[a][b]` is an array of a arrays of b."""
    for size in reversed(sizes):
        type_node = ast.StackTypeNode(type_node.pos, type_node, size)
    return type_node


def _span(first: Pos, last: Pos, extra: int = 0) -> Pos:
    """Return the span from the start of `first` to the end of `last` plus `extra` characters, if on one line."""
    if first.line != last.line or first.file != last.file or last.col < first.col:
        return first
    return first._replace(length=last.col + last.length + extra - first.col)


class TreeBuilder(lark.Transformer[Any, Any]):
    """See the module's text. Each method gets the children: tokens, nodes, lists of nodes."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(visit_tokens=False)
        self.reporter = reporter

    # -- program, annotations

    def start(self, ch: Children) -> list[ast.Declaration]:
        return _nodes(ch)

    def annos(self, ch: Children) -> Children:
        return ch

    def annotation(self, ch: Children) -> ast.Annotation:
        return annotation_of(ch[0])

    def annotation_exprs(self, ch: Children) -> ast.Annotation:
        return ast.Annotation(ch[0].pos, ch[0].value, exprs=ch[2] if len(ch) > 2 else [], structured=True)

    def annotation_pairs(self, ch: Children) -> ast.Annotation:
        return ast.Annotation(ch[0].pos, ch[0].value, pairs=_nodes(ch[1:]), structured=True)

    def annotated(self, ch: Children) -> Any:
        annotations = _take_annotations(ch)
        node = ch[0]
        if annotations and isinstance(node, ast.Declaration | ast.Block | ast.For | ast.ForIn):
            node.annotations[:0] = annotations
        return node

    def bad(self, ch: Children) -> None:
        return None

    # -- declarations

    def const_decl(self, ch: Children) -> ast.ConstDecl:
        name, sizes = ch[2]
        return ast.ConstDecl(name.pos, name.value, _arrays(ch[1], sizes), ch[4])

    def typedef_decl(self, ch: Children) -> ast.TypedefDecl:
        name, sizes = ch[2]
        return ast.TypedefDecl(name.pos, name.value, _arrays(ch[1], sizes), ch[0].type == "TYPE")

    def typedef_bodied(self, ch: Children) -> Any:
        return ch[1]

    def struct_decl(self, ch: Children) -> ast.StructDecl:
        params = ch[2] if isinstance(ch[2], list) else []
        fields = [f for f in ch[2:] if isinstance(f, ast.FieldDecl)]
        return ast.StructDecl(ch[1].pos, ch[1].value, ch[0].value, fields, type_params=params)

    def field(self, ch: Children) -> ast.FieldDecl:
        annotations = _take_annotations(ch)
        name, sizes = ch[1]
        return ast.FieldDecl(name.pos, name.value, _arrays(ch[0], sizes), annotations=annotations)

    def enum_decl(self, ch: Children) -> ast.EnumDecl:
        base = ch.pop(1) if isinstance(ch[1], ast.TypeNode) else None
        return ast.EnumDecl(ch[1].pos, ch[1].value, base, _nodes(ch))

    def error_decl(self, ch: Children) -> ast.ErrorDecl:
        return ast.ErrorDecl(ch[0].pos, "error", _nodes(ch))

    def match_kind_decl(self, ch: Children) -> ast.MatchKindDecl:
        return ast.MatchKindDecl(ch[0].pos, "match_kind", _nodes(ch))

    def extern_decl(self, ch: Children) -> ast.ExternDecl:
        params = ch[2] if len(ch) > 2 and isinstance(ch[2], list) else []
        return ast.ExternDecl(ch[1].pos, ch[1].value, _nodes(ch), type_params=params)

    def extern_function(self, ch: Children) -> ast.FunctionDecl:
        return self._function(ch[1:], None)

    def function_decl(self, ch: Children) -> ast.FunctionDecl:
        return self._function(ch[:-1], ch[-1])

    def _function(self, ch: Children, body: ast.Block | None) -> ast.FunctionDecl:
        result, name = ch[0], ch[1]
        lists = [c for c in ch[2:] if isinstance(c, list)]
        type_params = lists[0] if len(lists) > 1 else []
        return ast.FunctionDecl(name.pos, name.value, result, lists[-1], body, type_params=type_params)

    def method(self, ch: Children) -> ast.Method:
        annotations = _take_annotations(ch)
        abstract = isinstance(ch[0], Token)
        if abstract:
            ch = ch[1:]
        f = self._function(ch, None)
        return ast.Method(
            f.pos, f.name, f.result, f.params, abstract, type_params=f.type_params, annotations=annotations
        )

    def constructor(self, ch: Children) -> ast.Method:
        annotations = _take_annotations(ch)
        return ast.Method(ch[0].pos, ch[0].value, None, ch[-1], annotations=annotations)

    def package_decl(self, ch: Children) -> ast.PackageDecl:
        lists = [c for c in ch if isinstance(c, list)]
        return ast.PackageDecl(ch[1].pos, ch[1].value, lists[-1], type_params=lists[0] if len(lists) > 1 else [])

    def instantiation(self, ch: Children) -> ast.Instantiation:
        name = ch[3]
        body = ch[4] if len(ch) > 4 else []
        return ast.Instantiation(name.pos, name.value, ch[0], ch[2], body=body)

    def obj_init(self, ch: Children) -> Children:
        return _nodes(ch)

    def action_decl(self, ch: Children) -> ast.ActionDecl:
        return ast.ActionDecl(ch[1].pos, ch[1].value, ch[3], ch[4])

    def type_params(self, ch: Children) -> list[ast.TypeParam]:
        return [ast.TypeParam(t.pos, t.value) for t in ch if t.type == "ID"]

    def params(self, ch: Children) -> list[ast.Param]:
        return _nodes(ch)

    def param(self, ch: Children) -> ast.Param:
        annotations = _take_annotations(ch)
        direction = ""
        if isinstance(ch[0], Token):
            direction = ch[0].value
            ch = ch[1:]
        name, sizes = ch[1]
        default = ch[3] if len(ch) > 3 else None
        return ast.Param(name.pos, name.value, _arrays(ch[0], sizes), direction, default, annotations=annotations)

    def declarator(self, ch: Children) -> tuple[Token, list[ast.Expr]]:
        return ch[0], _nodes(ch)

    # -- parsers

    def parser_type(self, ch: Children) -> ast.ParserDecl:
        type_params, params = self._head(ch)
        return ast.ParserDecl(ch[1].pos, ch[1].value, params, [], [], None, type_params=type_params)

    def _head(self, ch: Children) -> tuple[list[ast.TypeParam], list[ast.Param]]:
        lists = [c for c in ch[2:5] if isinstance(c, list)]
        if isinstance(ch[2], list):
            return lists[0], lists[1]
        return [], lists[0]

    def parser_decl(self, ch: Children) -> ast.ParserDecl:
        type_params, params = self._head(ch)
        states = [c for c in ch if isinstance(c, ast.ParserState)]
        local = [c for c in ch if isinstance(c, ast.Declaration) and not isinstance(c, ast.ParserState)]
        return ast.ParserDecl(ch[1].pos, ch[1].value, params, self._ctor(ch), local, states, type_params=type_params)

    def _ctor(self, ch: Children) -> list[ast.Param]:
        return next((list(c) for c in ch if isinstance(c, tuple)), [])

    def ctor_params(self, ch: Children) -> tuple[ast.Param, ...]:
        return tuple(ch[1])

    def value_set(self, ch: Children) -> ast.ValueSetDecl:
        name = ch[-1]
        nodes = _nodes(ch)
        return ast.ValueSetDecl(name.pos, name.value, nodes[0], nodes[1])

    def state(self, ch: Children) -> ast.ParserState:
        annotations = _take_annotations(ch)
        transition = ch[-1] if isinstance(ch[-1], ast.Transition) else None
        stmts = [c for c in ch if isinstance(c, ast.Stmt)]
        return ast.ParserState(ch[1].pos, ch[1].value, stmts, transition, annotations=annotations)

    def bad_state(self, ch: Children) -> None:
        return None

    def transition(self, ch: Children) -> ast.Transition:
        return ast.Transition(ch[1].pos, ch[1].value)

    def transition_select(self, ch: Children) -> ast.Transition:
        select = ast.Select(ch[1].pos, ch[3] if isinstance(ch[3], list) else [], _nodes(ch))
        return ast.Transition(ch[0].pos, None, select)

    def select_case(self, ch: Children) -> ast.SelectCase:
        keys = ch[0]
        return ast.SelectCase(keys[0].pos, keys, ch[1].value)

    def keyset(self, ch: Children) -> Children:
        return _nodes(ch)

    def keyset_tuple(self, ch: Children) -> Children:
        return _nodes(ch)

    def mask(self, ch: Children) -> ast.Mask:
        return ast.Mask(ch[0].pos, ch[0], ch[2])

    def range(self, ch: Children) -> ast.RangeExpr:
        return ast.RangeExpr(ch[0].pos, ch[0], ch[2])

    def dont_care(self, ch: Children) -> ast.DontCare:
        return ast.DontCare(ch[0].pos)

    # -- controls, tables

    def control_type(self, ch: Children) -> ast.ControlDecl:
        type_params, params = self._head(ch)
        return ast.ControlDecl(ch[1].pos, ch[1].value, params, [], [], None, type_params=type_params)

    def control_decl(self, ch: Children) -> ast.ControlDecl:
        type_params, params = self._head(ch)
        body = ch[-1]
        if not isinstance(body, ast.Block):
            self.reporter.error(ch[1].pos, f"control '{ch[1].value}' has no apply block")
            body = ast.Block(ch[1].pos, [])
        local = [c for c in ch if isinstance(c, ast.Declaration)]
        return ast.ControlDecl(ch[1].pos, ch[1].value, params, self._ctor(ch), local, body, type_params=type_params)

    def apply_block(self, ch: Children) -> ast.Block:
        annotations = _take_annotations(ch)
        block: ast.Block = ch[-1]
        block.annotations[:0] = annotations + _take_annotations(ch[1:])
        return block

    def table_decl(self, ch: Children) -> ast.TableDecl:
        table = ast.TableDecl(ch[1].pos, ch[1].value, None, None)
        for prop in ch[2:]:
            if isinstance(prop, _Property):
                self._table_property(table, prop)
            elif isinstance(prop, ast.TableProperty):
                if table.property(prop.name) is not None:
                    self.reporter.error(prop.pos, f"table '{table.name}' has a second property '{prop.name}'")
                elif prop.name == "default_action":
                    if table.default_action is not None:
                        self.reporter.error(prop.pos, f"table '{table.name}' has a second default_action")
                    table.default_action = self._action_ref(prop.value, prop.annotations)
                    table.default_const = prop.is_const
                else:
                    table.properties.append(prop)
        return table

    def _table_property(self, table: ast.TableDecl, prop: _Property) -> None:
        if getattr(table, prop.kind) is not None:
            self.reporter.error(prop.pos, f"table '{table.name}' has a second property '{prop.word}'")
            return
        setattr(table, prop.kind, prop.items)
        if prop.kind == "keys" and table.entries is not None:
            self.reporter.error(prop.pos, f"table '{table.name}': key must come before entries")
        if prop.kind == "entries":
            table.entries_const = prop.const

    def table_key(self, ch: Children) -> _Property:
        return _Property("keys", "key", ch[0].pos, _nodes(ch))

    def table_actions(self, ch: Children) -> _Property:
        return _Property("actions", "actions", ch[0].pos, _nodes(ch))

    def table_entries(self, ch: Children) -> _Property:
        _take_annotations(ch)
        const = ch[0].type == "CONST"
        return _Property("entries", "entries", ch[0].pos, _nodes(ch), const)

    def table_property(self, ch: Children) -> ast.TableProperty:
        annotations = _take_annotations(ch)
        const = ch[0].type == "CONST"
        if const:
            ch = ch[1:]
        return ast.TableProperty(ch[0].pos, ch[0].value, ch[2], const, annotations=annotations)

    def key_element(self, ch: Children) -> ast.KeyElement:
        annotations = ch[2] if len(ch) > 2 else []
        return ast.KeyElement(ch[0].pos, ch[0], ast.Name(ch[1].pos, ch[1].value), annotations=annotations)

    def _action_ref(self, expr: ast.Expr, annotations: list[ast.Annotation]) -> ast.ActionRef:
        args = None
        name = expr
        if isinstance(expr, ast.Call) and not expr.type_args:
            name, args = expr.func, expr.args
        if not isinstance(name, ast.Name):
            self.reporter.error(expr.pos, "expected the name of an action, with or without arguments")
            name = ast.Name(expr.pos, "NoAction")
        return ast.ActionRef(expr.pos, name, args, annotations=annotations)

    def action_ref(self, ch: Children) -> ast.ActionRef:
        annotations = _take_annotations(ch)
        return self._action_ref(ch[0], annotations)

    def entry(self, ch: Children) -> ast.EntryDecl:
        const = isinstance(ch[0], Token)
        if const:
            ch = ch[1:]
        priority = None
        if isinstance(ch[0], tuple):
            priority = ch[0][0]
            ch = ch[1:]
        annotations = ch[2] if len(ch) > 2 else []
        keys = ch[0]
        return ast.EntryDecl(keys[0].pos, keys, self._action_ref(ch[1], []), const, priority, annotations=annotations)

    def priority(self, ch: Children) -> tuple[ast.Expr]:
        last = ch[-1]
        return (self.int_literal([last]) if isinstance(last, Token) else last,)

    # -- statements

    def block(self, ch: Children) -> ast.Block:
        return ast.Block(ch[0].pos, _nodes(ch))

    def empty(self, ch: Children) -> ast.Empty:
        return ast.Empty(NOWHERE)

    def assign(self, ch: Children) -> ast.Assign:
        return ast.Assign(ch[0].pos, ch[0], ch[2])

    def op_assign(self, ch: Children) -> ast.Assign:
        return ast.Assign(ch[0].pos, ch[0], ch[2], ch[1].value[:-1])

    assign_step = assign
    op_assign_step = op_assign

    def call_stmt(self, ch: Children) -> ast.CallStmt:
        return ast.CallStmt(ch[0].pos, ch[0])

    call_step = call_stmt

    def if_stmt(self, ch: Children) -> ast.If:
        then = ch[3] or ast.Empty(ch[0].pos)
        other = ch[5] if len(ch) > 5 else None
        return ast.If(ch[0].pos, ch[2], then, other)

    def switch_stmt(self, ch: Children) -> ast.SwitchStmt:
        cases = [c for c in ch if isinstance(c, ast.SwitchCase)]
        return ast.SwitchStmt(ch[0].pos, ch[2], cases)

    def switch_case(self, ch: Children) -> ast.SwitchCase:
        return ast.SwitchCase(ch[0].pos, ch[0], ch[1] if len(ch) > 1 else None)

    def switch_default(self, ch: Children) -> ast.SwitchCase:
        return ast.SwitchCase(ch[0].pos, None, ch[1] if len(ch) > 1 else None, is_default=True)

    def return_stmt(self, ch: Children) -> ast.Return:
        return ast.Return(ch[0].pos, ch[1] if len(ch) > 1 else None)

    def exit_stmt(self, ch: Children) -> ast.Exit:
        return ast.Exit(ch[0].pos)

    def break_stmt(self, ch: Children) -> ast.Break:
        return ast.Break(ch[0].pos)

    def continue_stmt(self, ch: Children) -> ast.Continue:
        return ast.Continue(ch[0].pos)

    def var_decl(self, ch: Children) -> ast.VarDecl:
        annotations = _take_annotations(ch)
        name, sizes = ch[1]
        init = ch[3] if len(ch) > 3 else None
        return ast.VarDecl(name.pos, name.value, _arrays(ch[0], sizes), init, annotations=annotations)

    for_var = var_decl

    def for_init(self, ch: Children) -> Children:
        return _nodes(ch)

    for_update = for_init

    def for_stmt(self, ch: Children) -> ast.For:
        parts = [c for c in ch[2:] if not isinstance(c, Token)]
        init = parts.pop(0) if isinstance(parts[0], list) else []
        cond = parts.pop(0)
        update = parts.pop(0) if parts and isinstance(parts[0], list) else []
        return ast.For(ch[0].pos, init, cond, update, parts[0] or ast.Empty(ch[0].pos))

    def for_in(self, ch: Children) -> ast.ForIn:
        rest = ch[2:]
        annotations = _take_annotations(rest)
        var = ast.VarDecl(rest[1].pos, rest[1].value, rest[0], annotations=annotations)
        return ast.ForIn(ch[0].pos, var, rest[3], rest[4] or ast.Empty(ch[0].pos))

    def for_in_name(self, ch: Children) -> ast.ForIn:
        var = ch[2]
        if not isinstance(var, ast.Name):
            self.reporter.error(var.pos, "the variable of a for-in loop must be a plain name")
            var = ast.Name(var.pos, "")
        return ast.ForIn(ch[0].pos, var, ch[4], ch[5] or ast.Empty(ch[0].pos))

    def collection(self, ch: Children) -> ast.Expr:
        expr: ast.Expr = ch[0]
        return expr

    # -- types

    def base_type(self, ch: Children) -> ast.TypeNode:
        return ast.BaseTypeNode(ch[0].pos, ch[0].value)

    def sized_type(self, ch: Children) -> ast.TypeNode:
        return ast.BaseTypeNode(ch[0].pos, ch[0].value, ch[2])

    def tuple_type(self, ch: Children) -> ast.TypeNode:
        return ast.TupleTypeNode(ch[0].pos, _nodes(ch), ch[0].value)

    def named_type(self, ch: Children) -> ast.TypeNode:
        return ast.NamedTypeNode(ch[-1].pos, ch[-1].value, absolute=len(ch) > 1)

    def generic_type(self, ch: Children) -> ast.TypeNode:
        absolute = ch[0].type == "DOT_PREFIX"
        name = ch[1] if absolute else ch[0]
        return ast.NamedTypeNode(name.pos, name.value, args=_nodes(ch), absolute=absolute)

    def stack_type(self, ch: Children) -> ast.TypeNode:
        return ast.StackTypeNode(ch[0].pos, ch[0], ch[2])

    # -- expressions

    def args(self, ch: Children) -> list[ast.Arg]:
        return _nodes(ch)

    def arg(self, ch: Children) -> ast.Arg:
        return ast.Arg(ch[0].pos, ch[0])

    def arg_dont_care(self, ch: Children) -> ast.Arg:
        return ast.Arg(ch[0].pos, ast.DontCare(ch[0].pos))

    def named_arg(self, ch: Children) -> ast.Arg:
        return ast.Arg(ch[0].pos, ch[2], ch[0].value)

    def named_arg_dont_care(self, ch: Children) -> ast.Arg:
        return ast.Arg(ch[0].pos, ast.DontCare(ch[2].pos), ch[0].value)

    def expr_list(self, ch: Children) -> Children:
        return _nodes(ch)

    def kv(self, ch: Children) -> ast.NamedExpr:
        return ast.NamedExpr(ch[0].pos, ch[0].value, ch[2])

    def ternary(self, ch: Children) -> ast.Expr:
        return ast.ConditionalExpr(ch[0].pos, ch[0], ch[2], ch[3])

    def binary(self, ch: Children) -> ast.Expr:
        """Apply operator precedence to a flat sequence operand (operator operand)*."""
        if len(ch) == 3:
            return ast.Binary(_span(ch[0].pos, ch[2].pos), ch[1].value, ch[0], ch[2])
        operands: list[ast.Expr] = [ch[0]]
        operators: list[str] = []

        def reduce() -> None:
            right = operands.pop()
            left = operands.pop()
            operands.append(ast.Binary(_span(left.pos, right.pos), operators.pop(), left, right))

        for i in range(1, len(ch), 2):
            op = ch[i].value
            level = PRECEDENCE[op]
            while operators and PRECEDENCE[operators[-1]] >= level:
                reduce()
            operators.append(op)
            operands.append(ch[i + 1])
        while operators:
            reduce()
        return operands[0]

    def unary(self, ch: Children) -> ast.Expr:
        return ast.Unary(_span(ch[0].pos, ch[1].pos), ch[0].value, ch[1])

    def cast(self, ch: Children) -> ast.Expr:
        return ast.Cast(ch[0].pos, ch[1], ch[2])

    def parens(self, ch: Children) -> ast.Expr:
        expr: ast.Expr = ch[1]
        return expr

    def int_literal(self, ch: Children) -> ast.Expr:
        t: Token = ch[0]
        value, width, signed = parse_number(t.value) or (0, None, False)
        return ast.IntLiteral(t.pos, value, width, signed, t.value)

    def string_literal(self, ch: Children) -> ast.Expr:
        return ast.StringLiteral(ch[0].pos, unquote(ch[0].value))

    def bool_literal(self, ch: Children) -> ast.Expr:
        return ast.BoolLiteral(ch[0].pos, ch[0].type == "TRUE")

    def invalid(self, ch: Children) -> ast.Expr:
        return ast.InvalidExpr(ch[0].pos)

    def ellipsis(self, ch: Children) -> ast.Expr:
        return ast.DefaultExpr(ch[0].pos)

    def this(self, ch: Children) -> ast.Expr:
        return ast.This(ch[0].pos)

    def name(self, ch: Children) -> ast.Expr:
        return ast.Name(ch[0].pos, ch[0].value)

    def absolute_name(self, ch: Children) -> ast.Expr:
        return ast.Name(ch[1].pos, ch[1].value, absolute=True)

    def list_expr(self, ch: Children) -> ast.Expr:
        items: list[ast.Expr] = list(ch[1]) if len(ch) > 1 and isinstance(ch[1], list) else []
        ellipsis = bool(items) and isinstance(items[-1], ast.DefaultExpr)
        return ast.ListExpr(ch[0].pos, items[:-1] if ellipsis else items, ellipsis)

    def struct_expr(self, ch: Children) -> ast.Expr:
        ellipsis = isinstance(ch[-1], Token) and ch[-1].type == "ELLIPSIS"
        return ast.StructExpr(ch[0].pos, _nodes(ch), ellipsis)

    def type_member(self, ch: Children) -> ast.Expr:
        return ast.Member(_span(ch[0].pos, ch[1].pos), ast.TypeExpr(ch[0].pos, ch[0]), ch[1].value, name_pos=ch[1].pos)

    def member(self, ch: Children) -> ast.Expr:
        return ast.Member(_span(ch[0].pos, ch[1].pos), ch[0], ch[1].value, name_pos=ch[1].pos)

    def enum_member(self, ch: Children) -> ast.EnumMember:
        annotations = _take_annotations(ch)
        value = ch[2] if len(ch) > 2 else None
        return ast.EnumMember(ch[0].pos, ch[0].value, value, annotations=annotations)

    def index(self, ch: Children) -> ast.Expr:
        return ast.Index(_span(ch[0].pos, ch[2].pos, 1), ch[0], ch[2])

    def slice(self, ch: Children) -> ast.Expr:
        return ast.Slice(_span(ch[0].pos, ch[3].pos, 1), ch[0], ch[2], ch[3])

    def plus_slice(self, ch: Children) -> ast.Expr:
        return ast.PlusSlice(_span(ch[0].pos, ch[4].pos, 1), ch[0], ch[2], ch[4])

    def call(self, ch: Children) -> ast.Call:
        return ast.Call(ch[0].pos, ch[0], ch[2])

    def generic_call(self, ch: Children) -> ast.Call:
        types = [c for c in ch[1:] if isinstance(c, ast.TypeNode)]
        return ast.Call(ch[0].pos, ch[0], ch[-1], type_args=types)

    def constructor_call(self, ch: Children) -> ast.Call:
        return ast.Call(ch[0].pos, ast.TypeExpr(ch[0].pos, ch[0]), ch[2])


class _Property:
    """One of the built-in table properties, on its way into the table."""

    def __init__(self, kind: str, word: str, pos: Pos, items: Children, const: bool = False) -> None:
        self.kind, self.word, self.pos, self.items, self.const = kind, word, pos, items, const
