"""The checked syntax tree as text, for `p4lite compile --dump-ast`."""

from __future__ import annotations

from p4lite.compiler import ast
from p4lite.compiler.architecture import ARCHITECTURES
from p4lite.compiler.check import TypedProgram
from p4lite.compiler.preprocessor import INCLUDE_DIR

SHIPPED = ("core.p4", *(each.file for each in ARCHITECTURES))
_SKIP = {"pos", "annotations", "const"}


def dump_program(program: TypedProgram) -> str:
    """Return all declarations of the user's files, one node a line, indented by depth: class, attributes, `type`,
    constant."""
    lines: list[str] = []
    for d in program.decls:
        if INCLUDE_DIR.name not in d.pos.file.split("/") or not d.pos.file.endswith(SHIPPED):
            _dump(d, 0, "", lines)
    return "\n".join(lines)


def _dump(node: ast.Node, depth: int, label: str, lines: list[str]) -> None:
    stack = [(node, depth, label)]
    while stack:
        n, d, name = stack.pop()
        attributes = []
        for key in n.__dataclass_fields__:
            value = getattr(n, key)
            if key not in _SKIP and isinstance(value, str | int | bool) and value != "":
                attributes.append(f"{key}={value!r}")
        if isinstance(n, ast.Expr) and n.type is not None:
            attributes.append(f": {n.type}")
            if n.const is not None and not isinstance(n.const, ast.Instance):
                attributes.append(f"= {n.const}")
        head = f"{name}: " if name else ""
        lines.append(
            "  " * d + f"{head}{type(n).__name__} {' '.join(attributes)}".rstrip() + f"  [{n.pos.line}:{n.pos.col}]"
        )
        stack.extend((c, d + 1, "") for c in reversed(list(ast.children(n))))
