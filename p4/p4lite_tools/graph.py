"""A program as a picture, in Graphviz's language: parser states, and the flow of control through tables.

    to_dot(program, blocks=("parser", "ingress", ...)) -> str        # dot source
    render(dot, path)                                                # .svg, .png, .pdf by Graphviz's `dot`, or .dot

One column per block of the package. States list what they extract and their edges what is selected; tables list
keys and actions; sub-controls are boxes with their own flow inside; every node names its line in the source.
"""

from __future__ import annotations

import html
import shutil
import subprocess
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from p4lite.compiler import ast, unparse
from p4lite.compiler.architecture import V1MODEL, find_architecture
from p4lite.compiler.check import TypedProgram
from p4lite.compiler.midend.names import control_plane_name
from p4lite.errors import P4liteError
from p4lite.files import write_whole

SUFFIXES = (".svg", ".png", ".pdf", ".dot")
MAX_TEXT = 60
MAX_LINES = 8
MAX_VALUES = 4
DOT_SECONDS = 120

Loose = list[tuple[str, str]]
"""Edges whose end is not known yet: the node they leave, and their label."""

_STYLE = """  graph [fontname="Helvetica,Arial,sans-serif", fontsize=16, ranksep=0.45, nodesep=0.35, compound=true];
  node [fontname="Helvetica,Arial,sans-serif", fontsize=11, shape=plain];
  edge [fontname="Helvetica,Arial,sans-serif", fontsize=10, color="#475569", fontcolor="#1e3a8a", arrowsize=0.7];
"""
_COLOURS = {
    "state": ("#dbeafe", "#1d4ed8"),
    "table": ("#fef3c7", "#b45309"),
    "statements": ("#f8fafc", "#64748b"),
    "condition": ("#ede9fe", "#6d28d9"),
    "begin": ("#e2e8f0", "#334155"),
    "accept": ("#dcfce7", "#15803d"),
    "reject": ("#fee2e2", "#b91c1c"),
}
_KEYWORDS = {"hit": "#15803d", "true": "#15803d", "miss": "#b91c1c", "false": "#b91c1c", "exit": "#b91c1c"}


class GraphError(P4liteError):
    """A picture that cannot be made; the message says why, and what helps."""

    code = "no_graph"


def to_dot(program: TypedProgram, blocks: Collection[str] = ()) -> str:
    """Return the program in Graphviz's language; `blocks` names those to draw (all that are not empty, if none is
    named). Raises GraphError for a block that the program's architecture has not.
    """
    architecture = find_architecture(program.main) or V1MODEL
    for name in blocks:
        if name not in architecture.blocks:
            raise GraphError(f"{architecture.name} has no block '{name}'; it has {', '.join(architecture.blocks)}")
    drawing = _Drawing()
    for name, instance in architecture.instances(program.main):
        if blocks and name not in blocks:
            continue
        decl = instance.decl
        if isinstance(decl, ast.ParserDecl):
            drawing.parser(name, decl)
        elif isinstance(decl, ast.ControlDecl) and (blocks or (decl.body is not None and decl.body.stmts)):
            drawing.pipeline(name, decl)
    title = html.escape(Path(program.source_name).name)
    return f'digraph "{title}" {{\n{_STYLE}' + "\n".join(drawing.lines) + "\n}\n"


def render(dot: str, path: Path) -> None:
    """Write the picture; the suffix of `path` selects the format. Raises `GraphError`."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise GraphError(f"{path}: unknown kind of picture '{suffix}'; known are {', '.join(SUFFIXES)}")
    data = dot.encode()
    if suffix != ".dot":
        program = shutil.which("dot")
        if program is None:
            raise GraphError(f"{path}: Graphviz's 'dot' is not installed: install graphviz, or write a .dot file")
        try:
            done = subprocess.run(
                [program, f"-T{suffix[1:]}"], input=data, capture_output=True, timeout=DOT_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise GraphError(f"{path}: Graphviz did not finish in {DOT_SECONDS} s: draw fewer blocks") from None
        if done.returncode != 0:
            reason = done.stderr.decode(errors="replace").strip().splitlines()
            raise GraphError(f"{path}: Graphviz failed: {reason[-1] if reason else done.returncode}")
        data = done.stdout
    try:
        write_whole(path, data)
    except OSError as error:
        raise GraphError(f"{path}: cannot write: {error.strerror}") from None


def _short(text: str, length: int = MAX_TEXT) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def _cell(text: str, *, align: str = "left", bold: bool = False, extra: str = "") -> str:
    shown = html.escape(_short(text)) or " "
    if bold:
        shown = f"<b>{shown}</b>"
    return f'<tr><td align="{align}"{extra}>{shown}</td></tr>'


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Drawing:
    """Collects nodes and edges. `ends` are the nodes where `return` and `exit` lead, the innermost block's last."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0
        self.ends: list[str] = []
        self.final = ""
        self.loops: list[tuple[str, Loose]] = []
        self.drawn: list[ast.ControlDecl | ast.ParserDecl] = []

    # -- nodes and edges ----------------------------------------------------------------------------------

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def box(self, kind: str, title: str, line: int, sections: Sequence[Sequence[str]] = ()) -> str:
        """Return a node with a coloured head and sections of lines."""
        name = self.fresh()
        fill, frame = _COLOURS[kind]
        where = f'  <font color="{frame}" point-size="9">line {line}</font>' if line else ""
        rows = [f'<tr><td bgcolor="{fill}"><b>{html.escape(_short(title))}</b>{where}</td></tr>']
        for section in sections:
            rows.extend(_cell(text, extra=' balign="left"') for text in _limited(section))
            if section is not sections[-1]:
                rows.append("<hr/>")
        if sections:
            rows.insert(1, "<hr/>")
        self.lines.append(
            f'  {name} [label=<<table border="1" color="{frame}" cellborder="0" cellspacing="0" cellpadding="3" '
            f'style="rounded" bgcolor="white">{"".join(rows)}</table>>];'
        )
        return name

    def shape(self, kind: str, text: str, shape: str, line: int = 0) -> str:
        """Return a node of one text."""
        name = self.fresh()
        fill, frame = _COLOURS[kind]
        label = _short(text) + (f"\nline {line}" if line else "")
        self.lines.append(
            f"  {name} [label={_quoted(label)}, shape={shape}, style=filled, fillcolor={_quoted(fill)}, "
            f'color={_quoted(frame)}, margin="0.12,0.05"];'.replace("\n", "\\n")
        )
        return name

    def edge(self, source: str, target: str, label: str = "", more: str = "") -> None:
        colour = _KEYWORDS.get(label)
        shown = f"label={_quoted(' ' + label + ' ')}".replace("\n", "\\n") if label else ""
        attributes = [a for a in (shown, f'fontcolor="{colour}"' if colour else "", more) if a]
        self.lines.append(f"  {source} -> {target}" + (f" [{', '.join(attributes)}]" if attributes else "") + ";")

    def join(self, loose: Loose, target: str) -> None:
        for source, label in loose:
            self.edge(source, target, label)

    def open(self, title: str, line: int, colour: str) -> None:
        self.lines.append(f"  subgraph cluster_{self.fresh()} {{")
        self.lines.append(
            f'  label={_quoted(f"{title}  (line {line})")}; labeljust=l; style="rounded,filled"; '
            f'fillcolor={_quoted(colour)}; color="#94a3b8"; margin=12;'
        )

    def close(self) -> None:
        self.lines.append("  }")

    # -- parsers ------------------------------------------------------------------------------------------

    def parser(self, block: str, decl: ast.ParserDecl) -> None:
        self.open(f"{block}: {decl.name}", decl.pos.line, "#f8fbff")
        ends = {"accept": self.shape("accept", "accept", "doubleoctagon")}
        self.states(decl, ends)
        self.close()

    def states(self, decl: ast.ParserDecl, ends: dict[str, str]) -> str:
        """Draw the states of a parser; return the start state's node. `ends`: nodes of accept and, once drawn,
        reject.
        """
        nodes = {state: self.state(state) for state in decl.states or []}
        for state, node in nodes.items():
            labels: dict[ast.ParserState | None, list[str]] = {}
            transition = state.transition
            if transition is None:
                labels[ast.REJECT] = ["no transition"]
            elif transition.select is None:
                labels[transition.target] = []
            else:
                for case in transition.select.cases:
                    labels.setdefault(case.target, []).append(_keyset(case.keys))
                if not any(_catches_all(case.keys) for case in transition.select.cases):
                    labels.setdefault(ast.REJECT, []).append("no match")
            for target, values in labels.items():
                self.edge(node, self.target(target, nodes, ends), "\n".join(_limited(values, MAX_VALUES)))
        return next((node for state, node in nodes.items() if state.name == "start"), "")

    def target(self, state: ast.ParserState | None, nodes: dict[ast.ParserState, str], ends: dict[str, str]) -> str:
        if state is not None and state in nodes:
            return nodes[state]
        name = "accept" if state is ast.ACCEPT else "reject"
        if name not in ends:
            ends[name] = self.shape("reject", "reject", "octagon")
        return ends[name]

    def state(self, state: ast.ParserState) -> str:
        lines = [text for stmt in state.stmts for text in _parser_lines(stmt)]
        sections = [lines] if lines else []
        if state.transition is not None and state.transition.select is not None:
            exprs = ", ".join(unparse.expression(e) for e in state.transition.select.exprs)
            sections.append([f"select ({exprs})"])
        return self.box("state", state.name, state.pos.line, sections)

    # -- controls -----------------------------------------------------------------------------------------

    def pipeline(self, block: str, decl: ast.ControlDecl) -> None:
        self.open(f"{block}: {decl.name}", decl.pos.line, "#fffdf7")
        begin = self.shape("begin", "begin", "oval")
        self.final = self.shape("begin", "end", "oval")
        self.ends.append(self.final)
        self.join(self.body(decl, [(begin, "")]), self.ends.pop())
        self.close()

    def body(self, decl: ast.ControlDecl, loose: Loose) -> Loose:
        self.drawn.append(decl)
        if decl.body is not None:
            loose = self.sequence(decl.body.stmts, loose)
        self.drawn.pop()
        return loose

    def sequence(self, stmts: Iterable[ast.Stmt], loose: Loose) -> Loose:
        """Return statements one after the other; simple ones share a box."""
        simple: list[tuple[str, int]] = []

        def flush() -> None:
            nonlocal loose
            if simple and loose:
                node = self.box("statements", "statements", simple[0][1], [[text for text, _ in simple]])
                self.join(loose, node)
                loose = [(node, "")]
            simple.clear()

        for stmt in stmts:
            text = None if _has_flow(stmt) else unparse.statement(stmt)
            if text is not None:
                simple.append((text, stmt.pos.line))
                continue
            flush()
            loose = self.statement(stmt, loose)
        flush()
        return loose

    def statement(self, stmt: ast.Stmt, loose: Loose) -> Loose:
        """Draw a statement with control flow of its own; unreachable statements are left out."""
        if not loose or isinstance(stmt, ast.Empty):
            return loose
        if isinstance(stmt, ast.Block):
            return self.sequence(stmt.stmts, loose)
        if isinstance(stmt, ast.If):
            return self.branch(stmt, loose)
        if isinstance(stmt, ast.SwitchStmt):
            return self.switch(stmt, loose)
        if isinstance(stmt, ast.For | ast.ForIn):
            return self.loop(stmt, loose)
        if isinstance(stmt, ast.Exit | ast.Return):
            exits = isinstance(stmt, ast.Exit)
            word = "exit" if exits else "return"
            target = self.final if exits else self.ends[-1]
            for source, label in loose:
                self.edge(source, target, f"{label}: {word}" if label else word, 'style="dashed"')
            return []
        if isinstance(stmt, ast.Break | ast.Continue) and self.loops:
            head, leaving = self.loops[-1]
            if isinstance(stmt, ast.Break):
                leaving.extend(loose)
            else:
                self.join(loose, head)
            return []
        return self.applications(stmt, loose)

    def applications(self, node: ast.Node, loose: Loose) -> Loose:
        """Draw the tables and sub-controls that a statement or condition applies, then the statement's own text."""
        for found in ast.walk(node):
            if isinstance(found, ast.Call) and found.kind in (
                ast.CallKind.TABLE_APPLY, ast.CallKind.CONTROL_APPLY, ast.CallKind.PARSER_APPLY,
            ):  # fmt: skip
                loose = self.application(found, loose)
        text = unparse.statement(node) if isinstance(node, ast.Stmt) and not isinstance(node, ast.CallStmt) else None
        if text is not None and loose:
            box = self.box("statements", "statements", node.pos.line, [[text]])
            self.join(loose, box)
            loose = [(box, "")]
        return loose

    def application(self, call: ast.Call, loose: Loose) -> Loose:
        if isinstance(call.target, ast.TableDecl):
            node = self.table(call.target)
            self.join(loose, node)
            return [(node, "")]
        if isinstance(call.target, ast.ControlDecl) and call.target not in self.drawn:
            receiver = call.receiver
            site = receiver.decl if isinstance(receiver, ast.Name) else None
            title = call.target.name if site is None else control_plane_name(site)
            self.open(
                title if title == call.target.name else f"{title}: {call.target.name}", call.target.pos.line, "#f0fdf4"
            )
            end = self.shape("begin", "", "point")
            self.ends.append(end)
            self.join(self.body(call.target, loose), self.ends.pop())
            self.close()
            return [(end, "")]
        return loose

    def table(self, decl: ast.TableDecl) -> str:
        keys = [f"{unparse.expression(k.expr)} : {k.match_kind.name}" for k in decl.keys or []]
        actions = [f"▸ {unparse.action_reference(a)}" for a in decl.actions or []]
        default = decl.default_action
        if default is not None:
            const = "const " if decl.default_const else ""
            actions.append(f"{const}default: {unparse.action_reference(default)}")
        if decl.entries:
            actions.append(f"{'const ' if decl.entries_const else ''}entries: {len(decl.entries)}")
        return self.box("table", f"table {decl.name}", decl.pos.line, [s for s in (keys, actions) if s])

    def branch(self, stmt: ast.If, loose: Loose) -> Loose:
        tested = _tested_table(stmt.cond)
        if tested is not None:
            call, word, other = tested
            loose = self.application(call, loose)
            source = loose[0][0]
        else:
            loose = self.applications(stmt.cond, loose)
            source = self.shape("condition", unparse.expression(stmt.cond), "hexagon", stmt.pos.line)
            self.join(loose, source)
            word, other = "true", "false"
        after = self.statement_or_block(stmt.then, [(source, word)])
        if stmt.other is None:
            return [*after, (source, other)]
        return after + self.statement_or_block(stmt.other, [(source, other)])

    def statement_or_block(self, stmt: ast.Stmt, loose: Loose) -> Loose:
        return self.sequence(stmt.stmts if isinstance(stmt, ast.Block) else [stmt], loose)

    def switch(self, stmt: ast.SwitchStmt, loose: Loose) -> Loose:
        expr = stmt.expr
        call = expr.expr if isinstance(expr, ast.Member) and expr.name == "action_run" else None
        if isinstance(call, ast.Call) and call.kind is ast.CallKind.TABLE_APPLY:
            loose = self.application(call, loose)
            source = loose[0][0]
        else:
            loose = self.applications(expr, loose)
            source = self.shape("condition", f"switch ({unparse.expression(expr)})", "hexagon", stmt.pos.line)
            self.join(loose, source)
        after: Loose = []
        labels: list[str] = []
        for case in stmt.cases:
            labels.append("default" if case.is_default or case.label is None else unparse.expression(case.label))
            if case.body is not None:
                after += self.sequence(case.body.stmts, [(source, "\n".join(labels))])
                labels = []
        if not any(case.is_default for case in stmt.cases):
            after.append((source, "otherwise"))
        return after

    def loop(self, stmt: ast.For | ast.ForIn, loose: Loose) -> Loose:
        if isinstance(stmt, ast.For):
            loose = self.sequence(stmt.init, loose)
            text = f"while {unparse.expression(stmt.cond)}"
        else:
            text = f"for {stmt.var.name} in {unparse.expression(stmt.collection)}"
        head = self.shape("condition", text, "hexagon", stmt.pos.line)
        self.join(loose, head)
        leaving: Loose = [(head, "done")]
        self.loops.append((head, leaving))
        again = self.statement_or_block(stmt.body, [(head, "each")])
        if isinstance(stmt, ast.For):
            again = self.sequence(stmt.update, again)
        self.loops.pop()
        self.join(again, head)
        return leaving


def _limited(lines: Sequence[str], most: int = MAX_LINES) -> list[str]:
    if len(lines) <= most:
        return list(lines)
    return [*lines[: most - 1], f"… {len(lines) - most + 1} more"]


def _keyset(keys: Sequence[ast.Expr]) -> str:
    if len(keys) == 1:
        return "default" if isinstance(keys[0], ast.DontCare) else unparse.expression(keys[0])
    return "(" + ", ".join(unparse.expression(k) for k in keys) + ")"


def _catches_all(keys: Sequence[ast.Expr]) -> bool:
    return all(isinstance(k, ast.DontCare) for k in keys)


def _parser_lines(stmt: ast.Stmt) -> list[str]:
    if isinstance(stmt, ast.CallStmt) and stmt.call.method == "extract" and stmt.call.args:
        return ["extract " + ", ".join(unparse.expression(a.expr) for a in stmt.call.args if a.expr is not None)]
    text = unparse.statement(stmt)
    if text is not None:
        return [text]
    if isinstance(stmt, ast.If):
        lines = [f"if ({unparse.expression(stmt.cond)})"]
        lines += ["  " + text for text in _parser_lines(stmt.then)]
        return lines + (["else", *("  " + text for text in _parser_lines(stmt.other))] if stmt.other else [])
    if isinstance(stmt, ast.Block):
        return [text for each in stmt.stmts for text in _parser_lines(each)]
    return []


def _has_flow(stmt: ast.Stmt) -> bool:
    """Return whether a statement applies something or changes the control flow."""
    if isinstance(stmt, ast.Break | ast.Continue):
        return True
    applies = (ast.CallKind.TABLE_APPLY, ast.CallKind.CONTROL_APPLY, ast.CallKind.PARSER_APPLY)
    return any(isinstance(node, ast.Call) and node.kind in applies for node in ast.walk(stmt))


def _tested_table(cond: ast.Expr) -> tuple[ast.Call, str, str] | None:
    """Return the application in `t.apply().hit` (or miss, negated or not), and the words for both outcomes."""
    negated = False
    while isinstance(cond, ast.Unary) and cond.op == "!":
        cond, negated = cond.expr, not negated
    if not isinstance(cond, ast.Member) or cond.name not in ("hit", "miss"):
        return None
    call = cond.expr
    if not isinstance(call, ast.Call) or call.kind is not ast.CallKind.TABLE_APPLY:
        return None
    words = ("hit", "miss") if (cond.name == "hit") is not negated else ("miss", "hit")
    return call, *words
