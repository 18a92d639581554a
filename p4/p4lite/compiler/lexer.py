"""The P4_16 lexer (language specification §6.4), with the context that the LALR(1) grammar needs.

P4's grammar is not context free: whether a name is a type, and whether `<` opens type arguments or compares, depends
on declarations before it. One pass over the tokens, `_Classifier`, decides both, so that the parser sees distinct
terminals:

* ID / TYPE_ID: the name of a type in scope (also a name that stands where only a type can: `Foo x`);
* LANGLE, RANGLE: brackets of type parameters and arguments; LT, `>`, `>>` are the operators;
* `apply`, `key`, `actions`, `entries`, `state`, `priority`, `type`, `list` are keywords only where they act as such;
* an annotation `@name` or `@name(...)` is one token, ANNO; `@name[` starts with ANNO_STRUCT.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import NoReturn

from p4lite.compiler import ast
from p4lite.compiler.diagnostics import Reporter
from p4lite.compiler.position import Pos
from p4lite.compiler.preprocessor import HIDDEN_CLASS, QUOTE, SourceMap, unhide

_FORMS = re.compile(
    r"(?<![\w.:])(?:"
    r"(?P<mac>(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2})"
    r"|(?P<v4>\d{1,3}(?:\.\d{1,3}){3})(?:/(?P<bits4>\d+))?(?![\w.])"
    r"|(?P<v6>[0-9A-Fa-f]*:[0-9A-Fa-f:]*:[0-9A-Fa-f]*)(?:/(?P<bits6>\d+))?(?![\w.])"
    r")(?!\w)"
)


def address_at(text: str, column: int) -> tuple[int, str, str] | None:
    """Return the address in a line that a column is in: where it begins, its text, and what P4 has for it.

    Columns count from 1; None if there is no address.
    """
    for found in _FORMS.finditer(text):
        if found.start() < column <= found.end() + 1:
            number = number_of(found[0])
            return None if number is None else (found.start() + 1, found[0], number)
    return None


def number_of(text: str) -> str | None:
    """Return how P4 writes an address, or a prefix with its mask; None if the text is no address."""
    found = _FORMS.fullmatch(text.strip())
    if found is None:
        return None
    if found["mac"]:
        return "0x" + re.sub("[:-]", "", found["mac"]).lower()
    try:
        address = ipaddress.ip_address(found["v4"] or found["v6"])
        width = address.max_prefixlen
        number = f"0x{int(address):0{width // 4}x}"
        bits = found["bits4"] or found["bits6"]
        if bits is None:
            return number
        mask = int(ipaddress.ip_network((address, int(bits)), strict=False).netmask)
        return f"{number} &&& 0x{mask:0{width // 4}x}"
    except ValueError:
        return None


_NUMBER = re.compile(r"(?:([0-9]+)([ws]))?(?:0[xX]([0-9a-fA-F_]+)|0[oO]([0-7_]+)|0[bB]([01_]+)|(?:0[dD])?([0-9_]+))")
_BASES = ((3, 16), (4, 8), (5, 2), (6, 10))
MAX_WIDTH = 1 << 16
"""The widest `bit<W>` the compiler takes; a wider literal is a slip of the pen."""


def parse_number(text: str) -> tuple[int, int | None, bool] | None:
    """Return (value, width or None, signed) of an integer literal; None if `text` is not one."""
    m = _NUMBER.fullmatch(text)
    if m is None:
        return None
    for group, base in _BASES:
        digits = m.group(group)
        if digits is not None:
            digits = digits.replace("_", "")
            if not digits or len(digits) > MAX_WIDTH:
                return None
            value = _decimal(digits) if base == 10 else int(digits, base)
            if m.group(1) and len(m.group(1)) > 6:
                return None
            return value, int(m.group(1)) if m.group(1) else None, m.group(2) == "s"
    return None


def _decimal(digits: str) -> int:
    # int() refuses more than 4300 digits at once.
    value = 0
    for i in range(0, len(digits), 4000):
        part = digits[i : i + 4000]
        value = value * 10 ** len(part) + int(part)
    return value


MAX_NESTING = 200
"""Brackets inside brackets; far more than any program has, far less than would exhaust the later passes."""


class Token:
    """A token: terminal name, text, place. (Not lark's Token: that is a str, and slow to make.)"""

    __slots__ = ("body", "pos", "type", "value")

    def __init__(self, type_: str, value: str, pos: Pos, body: list[Token] | None = None) -> None:
        self.type = type_
        self.value = value
        self.pos = pos
        self.body = body

    def __repr__(self) -> str:
        return f"{self.type}:{self.value!r}"


KEYWORDS = {
    "abstract": "ABSTRACT", "action": "ACTION", "bool": "BOOL", "bit": "BIT", "break": "BREAK", "const": "CONST",
    "continue": "CONTINUE", "control": "CONTROL", "default": "DEFAULT", "else": "ELSE", "enum": "ENUM",
    "error": "ERROR", "exit": "EXIT", "extern": "EXTERN", "false": "FALSE", "for": "FOR", "header": "HEADER",
    "header_union": "HEADER_UNION", "if": "IF", "in": "IN", "inout": "INOUT", "int": "INT_KW",
    "match_kind": "MATCH_KIND", "out": "OUT", "parser": "PARSER", "package": "PACKAGE", "return": "RETURN",
    "select": "SELECT", "string": "STRING_KW", "struct": "STRUCT", "switch": "SWITCH", "table": "TABLE",
    "this": "THIS", "transition": "TRANSITION", "true": "TRUE", "tuple": "TUPLE", "typedef": "TYPEDEF",
    "varbit": "VARBIT", "value_set": "VALUE_SET", "void": "VOID", "_": "DONTCARE",
}  # fmt: skip

OPERATORS = {
    ";": "_SEMI", ",": "_COMMA", ".": "_DOT", ":": "_COLON", "?": "QUESTION", "(": "LPAREN", ")": "_RPAREN",
    "[": "LBRACK", "]": "_RBRACK", "{": "LBRACE", "}": "_RBRACE", "=": "ASSIGN", "<": "LT", ">": "GT",
    "+": "PLUS", "-": "MINUS", "!": "NOT", "~": "TILDE", "...": "ELLIPSIS", "..": "RANGE", "&&&": "MASK",
    "{#}": "INVALID", "+:": "PLUSCOLON", "@": "AT",
    "*": "BINOP", "/": "BINOP", "%": "BINOP", "|+|": "BINOP", "|-|": "BINOP", "<<": "BINOP", "<=": "BINOP",
    ">=": "BINOP", "==": "BINOP", "!=": "BINOP", "&": "BINOP", "|": "BINOP", "^": "BINOP", "++": "BINOP",
    "&&": "BINOP", "||": "BINOP",
    "+=": "ASSIGN_OP", "-=": "ASSIGN_OP", "*=": "ASSIGN_OP", "/=": "ASSIGN_OP", "%=": "ASSIGN_OP",
    "&=": "ASSIGN_OP", "|=": "ASSIGN_OP", "^=": "ASSIGN_OP", "<<=": "ASSIGN_OP", ">>=": "ASSIGN_OP",
    "|+|=": "ASSIGN_OP", "|-|=": "ASSIGN_OP",
}  # fmt: skip

_TOKEN = re.compile(
    r"""
      (?P<ws>[\s"""
    + HIDDEN_CLASS
    + r"""]+)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>[0-9][0-9a-zA-Z_]*)
    | (?P<string>"(?:[^"\\]|\\.)*"|"""
    + rf"{QUOTE}(?:[^{QUOTE}\\]|\\.)*{QUOTE}"
    + r""")
    | (?P<op>"""
    + "|".join(re.escape(o) for o in sorted(OPERATORS, key=len, reverse=True))
    + r""")
    """,
    re.X | re.S,
)


_OPEN = {"LPAREN": "_RPAREN", "LBRACK": "_RBRACK", "LBRACE": "_RBRACE"}
_CLOSE = {v: k for k, v in _OPEN.items()}
_ANGLE_KEYWORDS = {"BIT", "INT_KW", "VARBIT", "TUPLE", "VALUE_SET", "LIST"}
# A type can end with one of these; a name after it is what is declared with that type.
_TYPE_ENDS = {"BIT", "INT_KW", "VARBIT", "BOOL", "ERROR", "STRING_KW", "VOID", "TYPE_ID", "_RANGLE", "MATCH_KIND"}
_ARGUMENT_TOKENS = {
    "BIT", "INT_KW", "VARBIT", "BOOL", "ERROR", "STRING_KW", "VOID", "TUPLE", "DONTCARE", "ID", "_COMMA", "_DOT",
    "MATCH_KIND", "LBRACK", "_RBRACK",
}  # fmt: skip


#: A statement or declaration begins behind one of these.
_STARTS = {"LBRACE", "_RBRACE", "_SEMI", "ANNO", ""}


@dataclass
class _Scope:
    """What a brace opened: kind "table", "parser", "control" or "", and the names declared inside."""

    kind: str
    names: dict[str, bool]


def address_error(pos: Pos, reporter: Reporter) -> bool:
    """Report an address as people write it, if one stands at a place; return whether it does."""
    lines = reporter.sources.get(pos.file, [])
    found = address_at(lines[pos.line - 1], pos.col) if 0 < pos.line <= len(lines) else None
    if found is not None:
        column, text, number = found
        place = Pos(pos.file, pos.line, column, len(text))
        reporter.error(place, f"syntax error: P4 has no such addresses: write {number} for {text}")
    return found is not None


def tokenize(text: str, smap: SourceMap, reporter: Reporter) -> list[Token]:
    """Return tokens of the preprocessed `text`, classified, without an end marker."""
    raw: list[Token] = []
    offset, end = 0, len(text)
    match, pos_of = _TOKEN.match, smap.pos
    while offset < end:
        m = match(text, offset)
        if m is None:
            pos = pos_of(offset)
            if text[offset] == '"':
                reporter.error(pos, "unterminated string: no closing '\"'")
                nl = text.find("\n", offset)
                offset = end if nl < 0 else nl
            else:
                reporter.error(pos, f"unexpected character {text[offset]!r}")
                offset += 1
            continue
        kind = m.lastgroup
        start, offset = offset, m.end()
        if kind == "ws":
            continue
        value = m.group()
        pos = pos_of(start, offset - start)
        if kind == "name":
            raw.append(Token(KEYWORDS.get(value, "ID"), value, pos))
        elif kind == "op":
            raw.append(Token(OPERATORS[value], value, pos))
        elif kind == "string":
            raw.append(Token("STRING", unhide(value), pos))
        else:
            if parse_number(value) is None:
                if not address_error(pos, reporter):
                    reporter.error(pos, f"malformed number '{value[:40]}'")
                value = "0"
            raw.append(Token("INT", value, pos))
    return _Classifier(_annotations(raw, reporter), reporter).run()


def _annotations(raw: list[Token], reporter: Reporter) -> list[Token]:
    """Fold annotations into one token each."""
    if not any(t.type == "AT" for t in raw):
        return raw
    out: list[Token] = []
    i, n = 0, len(raw)
    while i < n:
        t = raw[i]
        if t.type != "AT":
            out.append(t)
            i += 1
            continue
        if i + 1 >= n or not (raw[i + 1].value[:1].isalpha() or raw[i + 1].value[:1] == "_"):
            reporter.error(t.pos, "expected the name of an annotation after '@'")
            i += 1
            continue
        name = raw[i + 1]
        i += 2
        if name.value == "pragma":
            # An old-style pragma reaches to the end of its line.
            body = []
            while i < n and raw[i].pos.file == t.pos.file and raw[i].pos.line == t.pos.line:
                body.append(raw[i])
                i += 1
            if body:
                out.append(Token("ANNO", body[0].value, t.pos, body[1:]))
            continue
        if i < n and raw[i].type == "LBRACK":
            out.append(Token("ANNO_STRUCT", name.value, t.pos))
            continue
        if i >= n or raw[i].type != "LPAREN":
            out.append(Token("ANNO", name.value, t.pos))
            continue
        depth, start = 0, i + 1
        while i < n:
            depth += (raw[i].type == "LPAREN") - (raw[i].type == "_RPAREN")
            if depth == 0:
                break
            i += 1
        if i >= n:
            reporter.error(t.pos, f"no ')' that closes the annotation @{name.value}(")
        out.append(Token("ANNO", name.value, t.pos, raw[start:i]))
        i += 1
    return out


class _Classifier:
    """See the module's text. Scopes follow the braces; `pending` holds the names of a declaration's head."""

    def __init__(self, tokens: list[Token], reporter: Reporter) -> None:
        self.toks = tokens
        self.reporter = reporter
        self.scopes = [_Scope("", {})]
        self.pending: dict[str, bool] = {}
        self.brackets: list[str] = []
        self.out: list[Token] = []
        self.next_scope = ""

    def is_type(self, name: str) -> bool | None:
        """Return True for a type, False for another thing, None if not declared."""
        if name in self.pending:
            return self.pending[name]
        for scope in reversed(self.scopes):
            if name in scope.names:
                return scope.names[name]
        return None

    def peek(self, i: int) -> str:
        return self.toks[i].type if i < len(self.toks) else "$END"

    def run(self) -> list[Token]:
        toks, out = self.toks, self.out
        i, n = 0, len(toks)
        while i < n:
            t = toks[i]
            handler = _HANDLERS.get(t.type)
            i = handler(self, i, t) if handler is not None else i
            out.append(t)
            i += 1
        return out

    # -- brackets

    def open(self, i: int, t: Token) -> int:
        if t.type == "LBRACE":
            if self.brackets and self.brackets[-1] != "LBRACE":
                # A list among arguments or parameters, in the head of a declaration.
                self.scopes.append(_Scope("list", {}))
            else:
                self.scopes.append(_Scope(self.next_scope, self.pending))
                self.pending, self.next_scope = {}, ""
        self.brackets.append(t.type)
        if len(self.brackets) > MAX_NESTING:
            self.too_deep(t)
        return i

    def too_deep(self, t: Token) -> NoReturn:
        raise self.reporter.fatal(t.pos, f"nested deeper than {MAX_NESTING} levels of brackets: simplify the program")

    def close(self, i: int, t: Token) -> int:
        want = _CLOSE[t.type]
        while self.brackets and self.brackets[-1] == "LANGLE":
            self.brackets.pop()
        if self.brackets and self.brackets[-1] == want:
            self.brackets.pop()
        elif want in self.brackets:
            while self.brackets.pop() != want:
                pass
        if t.type == "_RBRACE":
            closed = self.scopes.pop() if len(self.scopes) > 1 else None
            if closed is None or closed.kind != "list":
                self.pending = {}
        return i

    def semi(self, i: int, t: Token) -> int:
        while self.brackets and self.brackets[-1] == "LANGLE":
            self.brackets.pop()
        # In `for (a; b; c)` nothing is pending that matters.
        self.pending = {}
        self.next_scope = ""
        return i

    def less(self, i: int, t: Token) -> int:
        prev = self.out[-1].type if self.out else ""
        # A value that is declared as such compares, as in p4c; of any other name what follows decides.
        generic = prev == "ID" and self.is_type(self.out[-1].value) is not False and self.opens_arguments(i)
        if prev in _ANGLE_KEYWORDS or prev == "TYPE_ID" or generic:
            t.type = "LANGLE"
            self.brackets.append("LANGLE")
            if len(self.brackets) > MAX_NESTING:
                self.too_deep(t)
        else:
            t.type = "BINOP"
        return i

    def opens_arguments(self, i: int) -> bool:
        """Return whether `<` at i starts `<types> (`; it cannot be a comparison then, because a bool has no order."""
        end = self.arguments_end(i)
        return end >= 0 and self.peek(end + 1) in ("LPAREN", "LBRACE")

    def arguments_end(self, i: int) -> int:
        """Return the index of the `>` that closes type arguments which `<` at i opens; -1 if it opens none."""
        depth = 0
        j = i
        while True:
            kind = self.peek(j)
            if kind == "LT":
                depth += 1
            elif kind == "GT":
                depth -= 1
                if depth == 0:
                    return j
            elif kind in ("BIT", "INT_KW", "VARBIT") and self.peek(j + 1) == "LT":
                # A width may be any expression.
                j = self.skip_width(j + 2)
                continue
            elif kind == "INT":
                # Numbers stand in widths (`bit<8>`) and sizes (`T[4]`) only.
                if self.peek(j - 1) not in ("LT", "LBRACK"):
                    return -1
            elif kind == "LPAREN":
                if self.peek(j - 1) != "LT":
                    return -1
                level = 0
                while j < len(self.toks):
                    level += (self.toks[j].type == "LPAREN") - (self.toks[j].type == "_RPAREN")
                    if level == 0:
                        break
                    j += 1
            elif kind not in _ARGUMENT_TOKENS:
                return -1
            j += 1

    def skip_width(self, j: int) -> int:
        """Return the index after the `>` that closes a width which starts at j."""
        level = 0
        while self.peek(j) not in ("_SEMI", "LBRACE", "_RBRACE", "$END"):
            level += (self.peek(j) == "LPAREN") - (self.peek(j) == "_RPAREN")
            if level == 0 and self.peek(j) == "GT":
                return j + 1
            j += 1
        return j

    def greater(self, i: int, t: Token) -> int:
        if self.brackets and self.brackets[-1] == "LANGLE":
            self.brackets.pop()
            t.type = "_RANGLE"
            return i
        t.type = "BINOP"
        nxt = self.toks[i + 1] if i + 1 < len(self.toks) else None
        if (
            nxt is not None
            and nxt.type == "GT"
            and nxt.pos.line == t.pos.line
            and nxt.pos.col in (t.pos.col + 1, t.pos.col)
        ):
            t.value, t.pos = ">>", t.pos._replace(length=2)
            return i + 1
        return i

    def greater_assign(self, i: int, t: Token) -> int:
        # `bit<8>=`, `list<bit<8>>=`: unusual, but `>=` and `>>=` after type arguments would hide a bracket.
        if t.value == ">=" and self.brackets and self.brackets[-1] == "LANGLE":
            self.brackets.pop()
            t.type, t.value = "_RANGLE", ">"
            self.toks.insert(i + 1, Token("ASSIGN", "=", t.pos))
        return i

    # -- names

    def declare_type(self, i: int) -> None:
        """Declare the name token at i as a type in the current scope."""
        if self.peek(i) == "ID":
            self.scopes[-1].names[self.toks[i].value] = True

    def type_params(self, i: int) -> None:
        """Declare `<A, B>` at i as types until the end of the declaration."""
        if self.peek(i) != "LT":
            return
        j = i + 1
        while self.peek(j) == "ID":
            self.pending[self.toks[j].value] = True
            self.toks[j].type = "ID_DECL"
            j += 1
            if self.peek(j) != "_COMMA":
                break
            j += 1
        self.toks[i].type = "LT_PARAMS"

    def params_open(self, i: int, t: Token) -> int:
        t.type = "LANGLE"
        self.brackets.append("LANGLE")
        return i

    def named_type(self, i: int, t: Token) -> int:
        """Declare the name after struct, header, header_union, parser, control or package: NAME [<params>]."""
        if self.peek(i + 1) == "ID":
            self.declare_type(i + 1)
            self.toks[i + 1].type = "ID_DECL"
            self.type_params(i + 2)
        self.next_scope = t.value if t.type in ("PARSER", "CONTROL") else "fields"
        return i

    def extern(self, i: int, t: Token) -> int:
        if self.peek(i + 1) == "ID":
            j = i + 2
            if self.peek(j) == "LT":
                while self.peek(j) in ("LT", "ID", "_COMMA"):
                    j += 1
                j += 1
            if self.peek(j) in ("LBRACE", "_SEMI"):
                self.declare_type(i + 1)
                self.toks[i + 1].type = "ID_DECL"
                self.type_params(i + 2)
        return i

    def enum(self, i: int, t: Token) -> int:
        j = i + 1
        while self.peek(j) not in ("LBRACE", "_SEMI", "$END", "_RBRACE"):
            j += 1
        if self.peek(j) == "LBRACE" and self.peek(j - 1) == "ID":
            self.declare_type(j - 1)
            self.toks[j - 1].type = "ID_DECL"
        return i

    def typedef(self, i: int, t: Token) -> int:
        j = i + 1
        while self.peek(j) not in ("_SEMI", "LBRACE", "_RBRACE", "$END"):
            # The declared name is a type from here on; what comes before it is looked up first.
            j += 1
        if self.peek(j) == "_SEMI" and self.peek(j - 1) == "ID" and j - 1 > i + 1:
            self.toks[j - 1].type = "TYPEDEF_NAME"
        return i

    def typedef_name(self, i: int, t: Token) -> int:
        t.type = "ID"
        self.scopes[-1].names[t.value] = True
        return i

    def declared(self, i: int, t: Token) -> int:
        t.type = "ID"
        return i

    def named_thing(self, i: int, t: Token) -> int:
        """Declare the name of an action or table, which is not a type inside this scope."""
        if self.peek(i + 1) == "ID":
            name = self.toks[i + 1]
            if self.is_type(name.value):
                self.scopes[-1].names[name.value] = False
            name.type = "ID_DECL"
        if t.type == "TABLE":
            self.next_scope = "table"
        return i

    def name(self, i: int, t: Token) -> int:
        value = t.value
        prev = self.out[-1].type if self.out else ""
        nxt = self.peek(i + 1)
        if prev == "_DOT":
            return i
        if value in _SOFT and self.soft(i, t, prev, nxt):
            return i
        known = self.is_type(value)
        after_type = prev in _TYPE_ENDS or (
            prev == "_RBRACK" and nxt in ("_SEMI", "ASSIGN", "_COMMA", "_RPAREN", "LPAREN")
        )
        if after_type and prev != "_RBRACK" and nxt in ("_SEMI", "ASSIGN", "_COMMA", "_RPAREN", "LBRACK", "IN"):
            # A declarator: no type from here on, even if a type of the same name is in scope.
            in_angles = self.brackets and self.brackets[-1] == "LANGLE"
            if not in_angles and self.scopes[-1].kind != "fields":
                target = self.pending if self.brackets and self.brackets[-1] == "LPAREN" else self.scopes[-1].names
                target[value] = False
            return i
        if after_type and prev != "_RBRACK" and nxt in ("LPAREN", "LT") and not known:
            # A function or method: its type parameters are types to its end.
            if nxt == "LT":
                self.type_params(i + 1)
            return i
        if known and prev == "_RPAREN" and nxt == "_SEMI":
            # An instance, `C() C;`: a cast would need an operand that is not a type.
            self.scopes[-1].names[value] = False
        elif known or (not known and self.must_be_type(i, prev, nxt, declared=known is False)):
            t.type = "TYPE_ID"
        return i

    def must_be_type(self, i: int, prev: str, nxt: str, *, declared: bool) -> bool:
        """Return whether a name that is no type must be one, so that the checker can report it better than the
        parser; `declared`: a value has that name."""
        if declared:
            return nxt == "ID" and prev in _STARTS and self.toks[i + 1].value != "apply"
        if self.brackets and self.brackets[-1] == "LANGLE" and nxt in ("_COMMA", "GT", "LT"):
            k = len(self.out) - 1
            depth = 0
            while k >= 0:
                kind = self.out[k].type
                depth += (kind == "_RANGLE") - (kind == "LANGLE")
                if depth < 0:
                    return self.out[k - 1].type not in ("BIT", "INT_KW", "VARBIT")
                k -= 1
            return False
        if prev in ("AT", "TRANSITION", "_COLON", "_DOT", "ACTION", "TABLE", "STATE"):
            return False
        if nxt == "ID" and self.toks[i + 1].value not in ("apply",):
            return True
        if nxt == "LT":
            # `Foo<...> name`. `x < 3 || x > y` has what no type arguments have, and `f(x < a, b > c)` is a call.
            end = -1 if prev in ("LPAREN", "_COMMA") else self.arguments_end(i + 1)
            return end >= 0 and self.peek(i + 2) != "INT" and self.peek(end + 1) == "ID"
        if nxt == "LBRACK":
            # `Foo[4] name`.
            j, depth = i + 1, 0
            while self.peek(j) not in ("_SEMI", "LBRACE", "_RBRACE", "$END", "ASSIGN"):
                kind = self.peek(j)
                depth += (kind == "LBRACK") - (kind == "_RBRACK")
                if depth == 0:
                    return self.peek(j + 1) == "ID"
                j += 1
        return False

    def soft(self, i: int, t: Token, prev: str, nxt: str) -> bool:
        """Turn a word that is a keyword only in its place into that keyword; return whether it was one."""
        word, kind = t.value, self.scopes[-1].kind
        starts = prev in ("LBRACE", "_RBRACE", "_SEMI", "ANNO", "", "CONST", "_RBRACK", "_RPAREN")
        if word == "apply":
            hit = kind == "control" and nxt in ("LBRACE", "ANNO") and starts
        elif word in ("key", "actions", "entries"):
            hit = kind == "table" and nxt == "ASSIGN" and starts
        elif word == "state":
            hit = kind == "parser" and nxt == "ID" and self.peek(i + 2) == "LBRACE" and starts
            if hit:
                self.toks[i + 1].type = "ID_DECL"
        elif word == "priority":
            hit = nxt == "ASSIGN" and starts and self.priority_of_entry(i + 2)
        elif word == "list":
            hit = nxt == "LT"
        else:
            hit = starts and nxt not in ("_DOT", "ASSIGN", "_SEMI", "LPAREN", "LBRACK", "ASSIGN_OP", "_COMMA")
            if hit:
                self.typedef(i, t)
        if hit:
            t.type = word.upper()
        return hit

    def priority_of_entry(self, j: int) -> bool:
        if self.peek(j) == "INT":
            return self.peek(j + 1) == "_COLON"
        depth = 0
        while self.peek(j) not in ("_SEMI", "$END"):
            depth += (self.peek(j) == "LPAREN") - (self.peek(j) == "_RPAREN")
            if depth == 0:
                return self.peek(j) == "_RPAREN" and self.peek(j + 1) == "_COLON"
            j += 1
        return False

    def dot(self, i: int, t: Token) -> int:
        """Mark a `.` that no operand precedes as the start of a global name."""
        prev = self.out[-1] if self.out else None
        operand = prev is not None and (
            prev.type in ("ID", "TYPE_ID", "_RPAREN", "_RBRACK", "_RBRACE", "_RANGLE", "THIS", "ERROR", "STRING", "INT")
        )
        if not operand and self.peek(i + 1) == "ID":
            t.type = "DOT_PREFIX"
            name = self.toks[i + 1]
            if self.scopes[0].names.get(name.value):
                name.type = "TYPE_ID"
            else:
                name.type = "ID_DECL"
        return i


_SOFT = {"apply", "key", "actions", "entries", "state", "priority", "type", "list"}
_HANDLERS = {
    "LPAREN": _Classifier.open,
    "LBRACK": _Classifier.open,
    "LBRACE": _Classifier.open,
    "_RPAREN": _Classifier.close,
    "_RBRACK": _Classifier.close,
    "_RBRACE": _Classifier.close,
    "_SEMI": _Classifier.semi,
    "LT": _Classifier.less,
    "LT_PARAMS": _Classifier.params_open,
    "GT": _Classifier.greater,
    "STRUCT": _Classifier.named_type,
    "HEADER": _Classifier.named_type,
    "HEADER_UNION": _Classifier.named_type,
    "PARSER": _Classifier.named_type,
    "CONTROL": _Classifier.named_type,
    "PACKAGE": _Classifier.named_type,
    "EXTERN": _Classifier.extern,
    "ENUM": _Classifier.enum,
    "TYPEDEF": _Classifier.typedef,
    "TYPEDEF_NAME": _Classifier.typedef_name,
    "ID_DECL": _Classifier.declared,
    "ACTION": _Classifier.named_thing,
    "TABLE": _Classifier.named_thing,
    "ID": _Classifier.name,
    "_DOT": _Classifier.dot,
    "BINOP": _Classifier.greater_assign,
}


def unquote(text: str) -> str:
    """Return the value of a string literal: without quotes, `\\"` and `\\\\` resolved."""
    return text[1:-1].replace('\\"', '"').replace("\\\\", "\\") if "\\" in text else text[1:-1]


def annotation_of(token: Token) -> ast.Annotation:
    """Return the annotation of an ANNO token."""
    if token.body is None:
        return ast.Annotation(token.pos, token.value)
    texts = [t.value for t in token.body]
    args: list[str | int] = []
    for t in token.body:
        if t.type == "STRING":
            args.append(unquote(t.value))
        elif t.type == "INT":
            number = parse_number(t.value)
            args.append(number[0] if number else 0)
        elif t.type != "_COMMA":
            args = []
            break
    return ast.Annotation(token.pos, token.value, " ".join(texts), tokens=texts, args=args)
