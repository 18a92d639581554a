"""Hints at the place of a syntax error: what its author may have meant."""

from __future__ import annotations

import re
from collections.abc import Collection

from p4lite.compiler.braces import superfluous
from p4lite.compiler.lexer import Token

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
