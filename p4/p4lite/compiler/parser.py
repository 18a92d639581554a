"""The parser: tokens to `ast.SourceProgram`, with several syntax errors per run, in P4's words, and hints at what
their author meant.

lark makes the LALR(1) tables of grammar.lark; they are kept in the user's cache directory, because making them takes
longer than compiling a program. After a syntax error the parser pops to the closest construct that may be left out
(grammar terminal BAD: a declaration, a statement, a property, ...), skips to its end, and goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import re
import sys
import threading
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lark
from lark.exceptions import UnexpectedToken
from lark.lexer import Lexer
from lark.parsers.lalr_analysis import Shift

from p4lite.compiler import ast
from p4lite.compiler.builder import TreeBuilder
from p4lite.compiler.diagnostics import Reporter
from p4lite.compiler.lexer import Token, address_error, tokenize
from p4lite.compiler.position import Pos
from p4lite.compiler.preprocessor import SourceMap
from p4lite.files import FolderError, is_private_file, make_private, write_whole


@dataclass(frozen=True)
class _Opened:
    """A `{`, and the column of the line on which what it belongs to begins: the head may have several lines."""

    brace: Token
    column: int


def unclosed(tokens: list[Token], at: int) -> tuple[Token, Token] | None:
    """Return the `{` before the syntax error at `tokens[at]` that lacks its `}`, and what the `}` must stand before.

    None if the error has other causes. Braces tell only that one is missing. Which one, the indentation tells: a `}`
    at the start of a line that stands further left than the head of its `{` closes what is around it, or else the
    line of the error does.
    """
    if _balance(tokens) <= 0:
        return None
    first = _first_of_lines(tokens)
    stack: list[_Opened] = []
    for t, head in _with_heads(tokens[:at]):
        if t.type == "LBRACE":
            stack.append(_Opened(t, first[head.pos.file, head.pos.line].pos.col))
        elif t.type == "_RBRACE" and stack:
            opened = stack.pop()
            if first[t.pos.file, t.pos.line] is t and t.pos.col < opened.column:
                return opened.brace, t
    if not stack:
        return None
    error, last = tokens[at], stack[-1]
    if error.type == "$END" or error.pos.file != last.brace.pos.file:
        return last.brace, error
    if error.pos.line == last.brace.pos.line:
        here = [t for t in tokens if (t.pos.file, t.pos.line) == (error.pos.file, error.pos.line)]
        return (last.brace, error) if _balance(here) > 0 else None
    start = first[error.pos.file, error.pos.line]
    return (last.brace, start) if start.pos.col <= last.column else None


def early_brace(tokens: list[Token], at: int) -> tuple[Token, Token | None] | None:
    """Return the `}` at or before the syntax error at `tokens[at]` that is one too many, and the `{` that it closes.

    None if the error has other causes. The indentation tells: a `}` at the start of a line that stands further right
    than the head of its `{` belongs to something else.
    """
    if not superfluous_close(tokens):
        return None
    stack: list[_Opened] = []
    first = _first_of_lines(tokens)
    for t, head in _with_heads(tokens[: at + 1]):
        if t.type == "LBRACE":
            stack.append(_Opened(t, first[head.pos.file, head.pos.line].pos.col))
        elif t.type == "_RBRACE":
            if not stack:
                return t, None
            opened = stack.pop()
            if first[t.pos.file, t.pos.line] is t and t.pos.col > opened.column:
                return t, opened.brace
    return None


def superfluous_close(tokens: list[Token]) -> bool:
    """Return whether there are more `}` than `{`."""
    return _balance(tokens) < 0


def _first_of_lines(tokens: list[Token]) -> dict[tuple[str, int], Token]:
    first: dict[tuple[str, int], Token] = {}
    for t in tokens:
        first.setdefault((t.pos.file, t.pos.line), t)
    return first


def superfluous(tokens: list[Token], at: int) -> bool:
    """Return whether `tokens[at]` is a `{` that no `}` closes."""
    if tokens[at].type != "LBRACE":
        return False
    depth = 0
    for t in tokens[at:]:
        depth += (t.type == "LBRACE") - (t.type == "_RBRACE")
        if depth == 0:
            return False
    return True


def _with_heads(tokens: list[Token]) -> Iterator[tuple[Token, Token]]:
    """Yield each token with the first one of the declaration or statement that it is in, which begins behind a `;`,
    `{` or `}` that is not in parentheses."""
    head: Token | None = None
    depth = 0
    for t in tokens:
        if head is None:
            head = t
        yield t, head
        depth = max(0, depth + (t.type == "LPAREN") - (t.type == "_RPAREN"))
        if t.type in ("LBRACE", "_RBRACE"):
            depth, head = 0, None
        elif t.type == "_SEMI" and depth == 0:
            head = None


def _balance(tokens: list[Token]) -> int:
    """Return how many braces are open after the tokens."""
    return sum((t.type == "LBRACE") - (t.type == "_RBRACE") for t in tokens)


#: What other languages write, and P4 writes otherwise.
_OPERATORS = {"and": "&&", "or": "||", "not": "!"}
#: Where one of these can stand, a keyword is a wrong expression or statement rather than a name.
_MORE_THAN_NAMES = frozenset({"INT", "IF", "BIT", "CONST", "ACTION", "TABLE", "STATE"})
_ELSE_IF = frozenset({"elif", "elsif", "elseif"})
_C_TYPES = {f"uint{width}_t": f"bit<{width}>" for width in (8, 16, 32, 64)}
_C_TYPES |= {f"int{width}_t": f"int<{width}>" for width in (8, 16, 32, 64)}
_C_TYPES |= {"char": "bit<8>", "short": "int<16>", "long": "int<64>", "unsigned": "bit<32>"}
_FILES = dict.fromkeys(("packet_in", "packet_out"), "core.p4")
_FILES |= dict.fromkeys(
    ("standard_metadata_t", "register", "counter", "direct_counter", "meter", "direct_meter", "action_profile",
     "action_selector", "V1Switch"), "v1model.p4"
)  # fmt: skip


def syntax_hint(tokens: list[Token], i: int, accepted: Collection[str], begins: Collection[str]) -> str:
    """Return `; ...` for the error at a token; empty if there is nothing to say.

    Args:
        accepted: the terminals that the parser accepts there.
        begins: those with which a statement or a declaration begins, and nothing else goes on.
    """
    t, before = tokens[i], tokens[i - 1] if i else None
    keyword = t.value.isidentifier() and t.type not in ("ID", "TYPE_ID")
    if keyword and "ID" in accepted and not _MORE_THAN_NAMES & set(accepted):
        return f"; '{t.value}' is a reserved word of P4: choose another name"
    told = _instead(tokens, i, accepted) or _of_other_languages(t)
    told = told or (_of_other_languages(before) if before is not None else "")
    if told:
        return told
    if "ASSIGN" in accepted and (t.value == "++" or (t.value == "-" and tokens[i + 1].value == "-")):
        return f"; P4 has no '{2 * t.value[0]}': write x = x {t.value[0]} 1"
    if t.type == "ID" and "TYPE_ID" in accepted and "ID" not in accepted:
        return f"; '{t.value}' is not a type declared before{type_hint(t.value)}"
    if before is not None and before.type == "TYPE_ID":
        return f"; '{before.value}' is the name of a type"
    if t.type == "TYPE_ID":
        return f"; '{t.value}' is the name of a type"
    if t.value == "=" and _within_condition(tokens, i):
        return "; '=' assigns, '==' compares"
    if superfluous(tokens, i):
        return "; no '}' closes it: remove it"
    if t.type == "_RBRACE" and "CONTROL" in accepted:
        return ""
    if before is not None and t.pos.line >= before.pos.line and "_SEMI" in accepted and t.type in begins:
        return f"; is a ';' missing before '{t.value}'?"
    return ""


def type_hint(name: str) -> str:
    """Return `; ...` for a type that is not declared; empty if there is nothing to say."""
    width = re.fullmatch(r"(bit|int)_?(\d+)", name)
    if width is not None:
        return f"; P4 writes '{width[1]}<{width[2]}>' for '{name}'"
    if name in _C_TYPES:
        return f"; P4 writes '{_C_TYPES[name]}' for '{name}'"
    return f"; {_FILES[name]} declares it: #include <{_FILES[name]}>" if name in _FILES else ""


def _instead(tokens: list[Token], i: int, accepted: Collection[str]) -> str:
    """Return what P4 writes in the place of a token that other languages have there."""
    t, before = tokens[i], tokens[i - 1] if i else None
    if before is None:
        return ""
    if t.value == "," and "_SEMI" in accepted:
        return "; each ends in ';' here, not ','"
    if t.value == ":" and "ASSIGN" in accepted:
        return f"; P4 writes '{before.value} =' here"
    if t.value == ";" and "_COLON" in accepted and _within_key(tokens, i):
        return f"; a key has a kind of match: write {before.value}: exact;"
    if t.value == "=" and "_COLON" in accepted and tokens[i + 1].value == ">":
        return "; P4 writes ':' for '=>'"
    if t.value == "{" and "_SEMI" in accepted and _called(tokens, i) == "while":
        return "; P4 has no 'while': a loop is written for (bit<8> i in 0 .. 3)"
    if before.value in ("accept", "reject") and t.value == ";":
        return f"; write transition {before.value};"
    for j in range(i, max(i - 6, 2), -1):
        if tokens[j - 2].value in ("bit", "int") and tokens[j - 1].value == "(" and tokens[j].type == "INT":
            return f"; a width stands in <>: write {tokens[j - 2].value}<{tokens[j].value}>"
    return ""


def _within_key(tokens: list[Token], i: int) -> bool:
    """Return whether a token is in the braces of `key = { ... }`."""
    opened = next((j for j in range(i, 1, -1) if tokens[j].type == "LBRACE"), 0)
    return opened > 1 and tokens[opened - 2].value == "key"


def _called(tokens: list[Token], i: int) -> str:
    """Return the name before the parentheses that end before a token, empty if there are none."""
    depth = 0
    for j in range(i - 1, max(i - 200, 0), -1):
        depth += (tokens[j].type == "_RPAREN") - (tokens[j].type == "LPAREN")
        if depth == 0:
            return tokens[j - 1].value if j < i - 1 else ""
    return ""


def _of_other_languages(t: Token) -> str:
    """Return what P4 writes for a word of other languages."""
    if t.type not in ("ID", "TYPE_ID"):
        return ""
    if t.value in _OPERATORS:
        return f"; P4 writes '{_OPERATORS[t.value]}' for '{t.value}'"
    return f"; P4 writes 'else if' for '{t.value}'" if t.value in _ELSE_IF else ""


def _within_condition(tokens: list[Token], i: int) -> bool:
    """Return whether a token is in the parentheses of an `if`."""
    depth = 0
    for j in range(i - 1, max(i - 200, 0), -1):
        depth += (tokens[j].type == "_RPAREN") - (tokens[j].type == "LPAREN")
        if depth < 0:
            return tokens[j - 1].type == "IF"
    return False


GRAMMAR = Path(__file__).with_name("grammar.lark")
MAX_DEPTH = 400
"""Levels of the syntax tree: bounds the recursion of every later pass."""

MAX_SYNTAX_ERRORS = 20

_WORDS = {
    "ID": "a name", "TYPE_ID": "a type", "DOT_PREFIX": "", "INT": "a number", "STRING": "a string",
    "ANNO": "an annotation", "ANNO_STRUCT": "", "BAD": "", "$END": "the end of the program",
    "_SEMI": "';'", "_COMMA": "','", "_DOT": "'.'", "_COLON": "':'", "QUESTION": "'?'", "LPAREN": "'('",
    "_RPAREN": "')'", "LBRACK": "'['", "_RBRACK": "']'", "LBRACE": "'{'", "_RBRACE": "'}'", "LANGLE": "'<'",
    "_RANGLE": "'>'", "PLUSCOLON": "'+:'", "ASSIGN": "'='", "ASSIGN_OP": "an assignment operator",
    "BINOP": "an operator", "PLUS": "", "MINUS": "", "NOT": "", "TILDE": "", "MASK": "'&&&'", "RANGE": "'..'",
    "INVALID": "", "ELLIPSIS": "", "THIS": "", "DONTCARE": "'_'", "INT_KW": "'int'", "STRING_KW": "'string'",
}  # fmt: skip
# Sets of terminals that messages describe by one notion.
_NOTIONS = (
    ({"INT", "STRING", "TRUE", "FALSE", "ID", "LPAREN", "LBRACE", "TYPE_ID", "BIT"}, "an expression"),
    ({"BIT", "INT_KW", "VARBIT", "BOOL", "TYPE_ID"}, "a type"),
    ({"CONST", "STRUCT", "HEADER", "CONTROL", "PARSER", "EXTERN"}, "a declaration"),
    ({"IF", "SWITCH", "RETURN", "EXIT"}, "a statement"),
)
_TYPE_WORDS = {"BIT", "INT_KW", "VARBIT", "BOOL", "TYPE_ID", "ERROR", "STRING_KW", "VOID", "TUPLE", "LIST"}
_TYPE_WORDS |= {"MATCH_KIND", "DOT_PREFIX"}
_EXPR_WORDS = _TYPE_WORDS | {"INT", "STRING", "TRUE", "FALSE", "ID", "LPAREN", "LBRACE", "THIS", "INVALID", "ELLIPSIS"}
_EXPR_WORDS |= {"PLUS", "MINUS", "NOT", "TILDE"}
_DECL_WORDS = {"CONST", "TYPEDEF", "TYPE", "ENUM", "HEADER", "HEADER_UNION", "STRUCT", "EXTERN", "PACKAGE", "PARSER"}
_DECL_WORDS |= {"CONTROL", "ACTION", "ANNO"} | _TYPE_WORDS
_STMT_WORDS = {"IF", "SWITCH", "FOR", "RETURN", "EXIT", "BREAK", "CONTINUE", "CONST", "ID", "THIS", "LPAREN", "LBRACE"}
_STMT_WORDS |= {"ANNO", "_SEMI"} | _TYPE_WORDS
#: What a statement or declaration begins with, and what nothing else goes on with.
_BEGINS = _STMT_WORDS | _DECL_WORDS | {"_RBRACE", "TABLE", "STATE", "TRANSITION"}
_COVERED = (_EXPR_WORDS, _TYPE_WORDS, _DECL_WORDS, _STMT_WORDS)


class _NoLexer(Lexer):
    """lark requires a lexer; here tokens are fed to the parser instead."""

    def __init__(self, lexer_conf: Any) -> None:
        pass

    def lex(self, lexer_state: Any, parser_state: Any) -> Iterator[Any]:
        return iter(())


def _cache_file(grammar: str) -> Path:
    key = hashlib.sha256(f"{lark.__version__} {sys.version_info[:2]} {grammar}".encode()).hexdigest()[:20]
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "p4lite" / f"grammar-{key}.pickle"


def load_tables() -> Any:
    """Return lark's serialized tables from the cache, or make them and keep them where the cache can be written."""
    grammar = GRAMMAR.read_text(encoding="utf-8")
    cache = _cache_file(grammar)
    try:
        # A user who can write a pickle that this process loads can run any code.
        folder: Path | None = make_private(cache.parent)
    except FolderError:
        folder = None
    try:
        if folder is not None:
            with cache.open("rb") as f:
                if is_private_file(os.fstat(f.fileno())):
                    return pickle.load(f)
    except (OSError, EOFError, pickle.UnpicklingError, AttributeError, ValueError, ImportError, LookupError, TypeError):
        pass  # missing or damaged: built again
    maker = lark.Lark(grammar, parser="lalr", lexer=_NoLexer, maybe_placeholders=False)
    data, memo = maker.memo_serialize([lark.lexer.TerminalDef, lark.grammar.Rule])
    tables = {"data": data, "memo": memo}
    if folder is None:
        return tables
    with contextlib.suppress(OSError):  # a read-only home only costs time
        write_whole(cache, pickle.dumps(tables, protocol=pickle.HIGHEST_PROTOCOL), mode=0o600)
    return tables


_per_thread = threading.local()


def _parser() -> tuple[lark.Lark, TreeBuilder]:
    """Return lark's parser and the builder bound to it, one per thread, as the builder holds the run's reporter."""
    made: tuple[lark.Lark, TreeBuilder] | None = getattr(_per_thread, "parser", None)
    if made is None:
        builder = TreeBuilder(Reporter())
        parser: Any = lark.Lark.__new__(lark.Lark)
        parser._load(load_tables(), transformer=builder)
        made = _per_thread.parser = (parser, builder)
    return made


def parse(text: str, smap: SourceMap, reporter: Reporter) -> ast.SourceProgram:
    """Parse preprocessed text. Syntax errors are reported; raises `CompileError` if there were any."""
    return parse_what_can_be(text, smap, reporter, complete=True)


def parse_what_can_be(text: str, smap: SourceMap, reporter: Reporter, *, complete: bool = False) -> ast.SourceProgram:
    """Parse preprocessed text and leave out constructs with errors, which are reported; `complete` raises then."""
    tokens = tokenize(text, smap, reporter)
    parser, builder = _parser()
    builder.reporter = reporter
    end = tokens[-1].pos if tokens else smap.pos(0)
    end = Pos(end.file, end.line, end.col + end.length)
    tokens.append(Token("$END", "", end))
    decls = _Driver(parser, tokens, reporter).run()
    if complete:
        reporter.check()
    program = ast.SourceProgram(tokens[0].pos, decls)
    _check_depth(program, tokens, reporter)
    return program


class _Driver:
    """Feeds the tokens, and recovers from syntax errors."""

    def __init__(self, parser: lark.Lark, tokens: list[Token], reporter: Reporter) -> None:
        self.ip: Any = parser.parse_interactive("")
        self.tokens = tokens
        self.reporter = reporter

    def run(self) -> list[ast.Declaration]:
        ip, tokens = self.ip, self.tokens
        state = ip.parser_state
        feed = state.feed_token
        i, errors = 0, 0
        deepest = 4 * MAX_DEPTH
        while True:
            t = tokens[i]
            try:
                value = feed(t, t.type == "$END")
            except UnexpectedToken:
                errors += 1
                self.report(t, i)
                i = self.recover(i) if errors < MAX_SYNTAX_ERRORS else len(tokens)
                if i >= len(tokens):
                    self.reporter.check()
                continue
            if len(state.state_stack) > deepest:
                raise self.reporter.fatal(t.pos, f"nested deeper than {MAX_DEPTH} levels: simplify the program")
            i += 1
            if i == len(tokens):
                result: list[ast.Declaration] = value
                return result

    def report(self, t: Token, i: int) -> None:
        brace = unclosed(self.tokens, i)
        if brace is not None:
            # What follows is inside of a construct that it does not belong to: errors there would mean nothing.
            opened, before = brace
            what = f"this '{{' is not closed: add its '}}' before {_shown(before)} at {before.pos}"
            raise self.reporter.fatal(opened.pos, f"syntax error: {what}")
        early = early_brace(self.tokens, i)
        if early is not None:
            closing, opener = early
            closed = "nothing" if opener is None else f"the '{{' at {opener.pos}"
            what = f"this '}}' closes {closed}: remove it, or add the '{{' that it belongs to"
            raise self.reporter.fatal(closing.pos, f"syntax error: {what}")
        accepted = self.ip.accepts()
        if t.type != "$END" and address_error(t.pos, self.reporter):
            return
        hint = syntax_hint(self.tokens, i, accepted, _BEGINS)
        message = f"syntax error: unexpected {_shown(t)}{_expected(accepted)}{hint}"
        if accepted == {"LBRACE"} and superfluous_close(self.tokens):
            # What follows is outside of a construct that it belongs to.
            raise self.reporter.fatal(t.pos, message)
        self.reporter.error(t.pos, message)

    def recover(self, i: int) -> int:
        """Pop to a state where BAD can stand, and put it there; return the index of the next token."""
        state = self.ip.parser_state
        states = state.parse_conf.states
        while state.state_stack:
            action = states[state.state_stack[-1]].get("BAD")
            if action is not None and action[0] is Shift:
                break
            state.state_stack.pop()
            if state.value_stack:
                state.value_stack.pop()
        if not state.state_stack:
            return len(self.tokens)
        state.feed_token(Token("BAD", "", self.tokens[i].pos))
        depth = 0
        n = len(self.tokens)
        while i < n:
            kind = self.tokens[i].type
            if kind in ("LBRACE", "LPAREN", "LBRACK"):
                depth += 1
            elif kind in ("_RBRACE", "_RPAREN", "_RBRACK"):
                if kind == "_RBRACE" and depth <= 0 and "_RBRACE" in self.ip.accepts():
                    return i
                depth = max(0, depth - 1)
                if kind == "_RBRACE" and depth == 0:
                    return i + 1
            elif kind == "_SEMI" and depth == 0:
                return i + 1
            elif kind == "$END":
                return i if "$END" in self.ip.accepts() else n
            i += 1
        return n


def _shown(t: Token) -> str:
    return "end of file" if t.type == "$END" else f"'{t.value}'"


def _expected(accepts: set[str]) -> str:
    """Return `, expected X or Y` for the acceptable terminals."""
    rest = {a for a in accepts if a.isupper() or a.startswith(("_", "$"))}
    words: list[str] = []
    for (some, word), covered in zip(_NOTIONS, _COVERED, strict=True):
        if some <= rest:
            words.append(word)
            rest -= covered
    if {"ID", "TYPE_ID"} <= rest:
        rest.discard("TYPE_ID")  # any name will do, also that of a type
    if len(rest) > 12:
        rest = {r for r in rest if r in _WORDS}
    words += sorted({_WORDS.get(r, f"'{r.lower()}'") for r in rest} - {""}, key=lambda w: (w[0] == "'", w))
    if not words:
        return ""
    return ", expected " + (words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1])


def _check_depth(program: ast.SourceProgram, tokens: list[Token], reporter: Reporter) -> None:
    """Refuse a tree deeper than MAX_DEPTH; search it only if a long stretch of tokens makes that possible."""
    run = longest = elses = 0
    for t in tokens:
        run = 0 if t.type in ("_SEMI", "LBRACE", "_RBRACE") else run + 1
        longest = max(longest, run)
        elses += t.type == "ELSE"
    if longest < MAX_DEPTH // 2 and elses < MAX_DEPTH // 4:
        return
    stack: list[tuple[ast.Node, int]] = [(program, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise reporter.fatal(node.pos, f"nested deeper than {MAX_DEPTH} levels: simplify or split this")
        stack.extend((c, depth + 1) for c in ast.children(node))
