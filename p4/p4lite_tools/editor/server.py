"""The language server: what editors ask about P4 programs, over the Language Server Protocol (by pygls)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata

from lsprotocol import types as lsp
from pygls import uris
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from p4lite.compiler import ast
from p4lite.compiler.lexer import KEYWORDS
from p4lite.compiler.position import Pos
from p4lite.compiler.preprocessor import read_source
from p4lite.errors import P4liteError
from p4lite_tools.editor.analysis import Analysis, Use, analyse, shipped
from p4lite_tools.editor.describe import hover, proposals
from p4lite_tools.editor.format import format_text

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


class RenameError(P4liteError):
    """A name that cannot be changed, or not to the one given; says why."""

    code = "no_rename"


def rename(
    analysis: Analysis, line: int, col: int, name: str, include_dirs: Sequence[str] = (), defines: Sequence[str] = ()
) -> list[Use]:
    """Return the places to write `name` at, for the name at a place (from 1). Raises RenameError."""
    use = analysis.use_at(line, col)
    if use is None:
        raise RenameError("there is no name here that the program declares")
    old = use.decl.name
    if not _NAME.match(name) or name in KEYWORDS:
        raise RenameError(f"'{name}' is not a name: expected letters, digits and '_', and no keyword")
    if shipped(use.decl.pos):
        raise RenameError(f"'{old}' is declared by the architecture, in {use.decl.pos.file}")
    if analysis.failed:
        raise RenameError("the program has errors: correct them first, so that every use of the name is known")
    uses = analysis.uses_of(use.decl)
    others = sorted({each.pos.file for each in uses} - {analysis.path})
    if others:
        raise RenameError(f"'{old}' is also named in {', '.join(others)}: rename it there by hand")
    lines = analysis.text.split("\n")
    for each in uses:
        found = lines[each.pos.line - 1][each.pos.col - 1 :][: len(old)]
        if found != old:
            raise RenameError(f"line {each.pos.line}: '{old}' is named by a macro there: rename it by hand")
    changed = analyse(replaced(analysis.text, uses, name), analysis.path, include_dirs, defines)
    if changed.failed:
        first = next(d for d in changed.diagnostics if d.severity == "error" and d.pos.line)
        raise RenameError(f"'{name}' would be an error in line {first.pos.line}: {first.message}")
    if _meaning(analysis) != _meaning(changed):
        raise RenameError(f"'{name}' is declared already where '{old}' is used: choose another name")
    return uses


def replaced(text: str, uses: Sequence[Use], name: str) -> str:
    """Return the text with another name at these places."""
    lines = text.split("\n")
    for each in sorted(uses, key=lambda use: (use.pos.line, use.pos.col), reverse=True):
        line, at = lines[each.pos.line - 1], each.pos.col - 1
        lines[each.pos.line - 1] = line[:at] + name + line[at + len(each.decl.name) :]
    return "\n".join(lines)


def _meaning(analysis: Analysis) -> list[int]:
    """Return which declaration each use names: the number of its first use, in the order of the file."""
    own = sorted((u for u in analysis.uses if u.pos.file == analysis.path), key=lambda u: (u.pos.line, u.pos.col))
    order = {id(use.decl): i for i, use in reversed(list(enumerate(own)))}
    return [order[id(use.decl)] for use in own]


PAUSE_S = 0.2
"""How long a text stays unchanged before it is checked."""

_SEVERITY = {"error": lsp.DiagnosticSeverity.Error, "warning": lsp.DiagnosticSeverity.Warning}
_SYMBOLS: tuple[tuple[type[ast.Declaration], lsp.SymbolKind], ...] = (
    (ast.StructDecl, lsp.SymbolKind.Struct),
    (ast.FieldDecl, lsp.SymbolKind.Field),
    (ast.EnumDecl, lsp.SymbolKind.Enum),
    (ast.EnumMember, lsp.SymbolKind.EnumMember),
    (ast.ConstDecl, lsp.SymbolKind.Constant),
    (ast.TypedefDecl, lsp.SymbolKind.TypeParameter),
    (ast.ParserDecl, lsp.SymbolKind.Class),
    (ast.ControlDecl, lsp.SymbolKind.Class),
    (ast.ExternDecl, lsp.SymbolKind.Interface),
    (ast.PackageDecl, lsp.SymbolKind.Package),
    (ast.TableDecl, lsp.SymbolKind.Object),
    (ast.ActionDecl, lsp.SymbolKind.Function),
    (ast.FunctionDecl, lsp.SymbolKind.Function),
    (ast.Method, lsp.SymbolKind.Method),
    (ast.ParserState, lsp.SymbolKind.Event),
    (ast.Instantiation, lsp.SymbolKind.Variable),
    (ast.VarDecl, lsp.SymbolKind.Variable),
)
_COMPLETION = {
    lsp.SymbolKind.TypeParameter: lsp.CompletionItemKind.TypeParameter,
    lsp.SymbolKind.Object: lsp.CompletionItemKind.Value,
    lsp.SymbolKind.Package: lsp.CompletionItemKind.Module,
    lsp.SymbolKind.Event: lsp.CompletionItemKind.Event,
}


@dataclass
class _Known:
    """What is known of an open document; `good` is the last analysis whose declarations were all understood."""

    version: int | None = None
    now: Analysis | None = None
    good: Analysis | None = None


@dataclass
class Programs:
    """The open documents and how they are preprocessed."""

    include_dirs: list[str] = field(default_factory=list)
    defines: list[str] = field(default_factory=list)
    known: dict[str, _Known] = field(default_factory=dict)

    def analysis(self, uri: str, text: str, version: int | None) -> Analysis:
        """Return the analysis of a document's present text."""
        entry = self.known.setdefault(uri, _Known())
        if entry.now is None or entry.version != version or entry.now.text != text:
            entry.now = analyse(text, path_of(uri), self.include_dirs, self.defines)
            entry.version = version
            if entry.now.own() and not entry.now.failed:
                entry.good = entry.now
        return entry.now

    def understood(self, uri: str, text: str, version: int | None) -> Analysis:
        """Return the present analysis, or the last good one while an open brace hides most declarations."""
        now, good = self.analysis(uri, text, version), self.known[uri].good
        return good if good is not None and len(now.own()) < len(good.own()) else now


def path_of(uri: str) -> str:
    """Return the path of a document; of one that was never saved, a name for messages."""
    return uris.to_fs_path(uri) or uri


def units(line: str, col: int) -> int:
    """Return the column of the protocol (UTF-16 units, from 0) for ours (characters, from 1)."""
    return len(line[: max(col - 1, 0)].encode("utf-16-le")) // 2


def column(line: str, character: int) -> int:
    """Return our column (from 1) for the protocol's."""
    return len(line.encode("utf-16-le")[: 2 * character].decode("utf-16-le", errors="ignore")) + 1


def span(lines: Sequence[str], pos: Pos, length: int) -> lsp.Range:
    """Return the range of `length` characters at a place."""
    number = max(pos.line - 1, 0)
    line = lines[number] if number < len(lines) else ""
    start = units(line, pos.col)
    end = units(line, min(pos.col + max(length, 1), len(line) + 1))
    return lsp.Range(lsp.Position(number, start), lsp.Position(number, max(end, start)))


def diagnostics(analysis: Analysis) -> list[lsp.Diagnostic]:
    """Return the errors and warnings of a document; those of an included file stand at the first line."""
    lines = analysis.text.split("\n")
    found = []
    for d in analysis.diagnostics:
        here = d.pos.file == analysis.path
        message = d.message if here or not d.pos.line else f"{d.pos}: {d.message}"
        place = span(lines, d.pos if here else Pos(analysis.path, 1, 1), d.pos.length)
        # What concerns the whole file is that it has no `main`, which is right for one that others include.
        severity = _SEVERITY.get(d.severity) if d.pos.line else lsp.DiagnosticSeverity.Information
        found.append(lsp.Diagnostic(place, message, severity=severity, source="p4lite"))
    return found


def symbols(analysis: Analysis) -> list[lsp.DocumentSymbol]:
    """Return the outline of a document."""
    lines = analysis.text.split("\n")
    return [s for decl in analysis.own() if (s := _symbol(decl, lines)) is not None]


def _symbol(decl: ast.Declaration, lines: Sequence[str]) -> lsp.DocumentSymbol | None:
    kind = kind_of(decl)
    if kind is None or not decl.name:
        return None
    place = span(lines, decl.pos, len(decl.name))
    inner = [s for each in _parts(decl) if (s := _symbol(each, lines)) is not None]
    end = max([place.end, *(s.range.end for s in inner)], key=lambda p: (p.line, p.character))
    return lsp.DocumentSymbol(decl.name, kind, lsp.Range(place.start, end), place, children=inner)


def _parts(decl: ast.Declaration) -> Sequence[ast.Declaration]:
    match decl:
        case ast.StructDecl():
            return decl.fields
        case ast.EnumDecl():
            return decl.members
        case ast.ParserDecl():
            return [*decl.locals, *(decl.states or ())]
        case ast.ControlDecl():
            return decl.locals
        case ast.ExternDecl():
            return decl.methods
    return ()


def kind_of(decl: ast.Declaration) -> lsp.SymbolKind | None:
    """Return what a declaration is in the protocol's terms."""
    return next((kind for type_, kind in _SYMBOLS if isinstance(decl, type_)), None)


class _Service:
    """Answers an editor."""

    def __init__(self, server: LanguageServer, programs: Programs) -> None:
        self.server = server
        self.programs = programs

    def document(self, uri: str) -> tuple[str, int | None]:
        """Return text and version of a document that is open, or that can be read."""
        found = self.server.workspace.get_text_document(uri)
        try:
            return found.source.replace("\r\n", "\n"), found.version
        except (OSError, ValueError) as error:
            raise JsonRpcInvalidParams(f"{uri}: it is not open, and cannot be read: {error}") from None

    def analysed(self, uri: str) -> Analysis:
        return self.programs.analysis(uri, *self.document(uri))

    def understood(self, uri: str) -> Analysis:
        return self.programs.understood(uri, *self.document(uri))

    def publish(self, uri: str) -> None:
        """Send the diagnostics of a document."""
        analysis = self.analysed(uri)
        version = self.programs.known[uri].version
        self.server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(uri, diagnostics(analysis), version=version)
        )

    def place(self, analysis: Analysis, position: lsp.Position) -> tuple[int, int]:
        """Return our line and column of a position."""
        lines = analysis.text.split("\n")
        line = lines[position.line] if position.line < len(lines) else ""
        return position.line + 1, column(line, position.character)

    def initialize(self, params: lsp.InitializeParams) -> None:
        """Take the editor's include folders and macros."""
        given = params.initialization_options
        if isinstance(given, dict):
            self.programs.include_dirs += [str(each) for each in given.get("includeDirs") or ()]
            self.programs.defines += [str(each) for each in given.get("defines") or ()]

    def did_open(self, params: lsp.DidOpenTextDocumentParams) -> None:
        """Check a document that was opened."""
        self.publish(params.text_document.uri)

    async def did_change(self, params: lsp.DidChangeTextDocumentParams) -> None:
        """Check a document when it has not changed for a moment."""
        uri, version = params.text_document.uri, params.text_document.version
        await asyncio.sleep(PAUSE_S)
        if uri in self.server.workspace.text_documents and self.document(uri)[1] == version:
            self.publish(uri)

    def did_save(self, params: lsp.DidSaveTextDocumentParams) -> None:
        """Check all documents again: an include of theirs may have changed."""
        for uri in list(self.programs.known):
            self.programs.known[uri].now = None
            self.publish(uri)

    def did_close(self, params: lsp.DidCloseTextDocumentParams) -> None:
        """Forget a document."""
        self.programs.known.pop(params.text_document.uri, None)
        self.server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(params.text_document.uri, []))

    def definition(self, params: lsp.DefinitionParams) -> lsp.Location | None:
        """Return where a name is declared."""
        analysis = self.understood(params.text_document.uri)
        use = analysis.use_at(*self.place(analysis, params.position))
        if use is None:
            return None
        pos = use.decl.pos
        if pos.file == analysis.path:
            lines, uri = analysis.text.split("\n"), params.text_document.uri
        else:
            lines, uri = read_source(pos.file).split("\n"), uris.from_fs_path(os.path.abspath(pos.file)) or ""
        return lsp.Location(uri, span(lines, pos, len(use.decl.name)))

    def references(self, params: lsp.ReferenceParams) -> list[lsp.Location]:
        """Return where a name of the document is used in it."""
        analysis = self.understood(params.text_document.uri)
        use = analysis.use_at(*self.place(analysis, params.position))
        lines = analysis.text.split("\n")
        uses = [] if use is None else analysis.uses_of(use.decl)
        return [
            lsp.Location(params.text_document.uri, span(lines, each.pos, len(each.decl.name)))
            for each in uses
            if each.pos.file == analysis.path and (params.context.include_declaration or not each.declares)
        ]

    def show(self, params: lsp.HoverParams) -> lsp.Hover | None:
        """Return what is known of a name."""
        analysis = self.understood(params.text_document.uri)
        use = analysis.use_at(*self.place(analysis, params.position))
        if use is None:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, hover(use.decl)))

    def complete(self, params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        """Return what can be typed at a place."""
        uri = params.text_document.uri
        lines = self.document(uri)[0].split("\n")
        line = lines[params.position.line] if params.position.line < len(lines) else ""
        before = line[: column(line, params.position.character) - 1]
        items = []
        for each in proposals(self.understood(uri), params.position.line + 1, before):
            kind = None if each.decl is None else kind_of(each.decl)
            name = lsp.CompletionItemKind.Keyword if each.decl is None else lsp.CompletionItemKind.Variable
            if kind is not None:
                name = _COMPLETION.get(kind) or getattr(lsp.CompletionItemKind, kind.name)
            items.append(lsp.CompletionItem(each.word, kind=name, detail=each.note))
        return items

    def change_name(self, params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        """Return the edits of a new name; an error says why there are none."""
        uri = params.text_document.uri
        analysis = self.analysed(uri)
        where = self.place(analysis, params.position)
        try:
            uses = rename(analysis, *where, params.new_name, self.programs.include_dirs, self.programs.defines)
        except RenameError as error:
            raise JsonRpcInvalidParams(str(error)) from None
        lines = analysis.text.split("\n")
        edits = [lsp.TextEdit(span(lines, each.pos, len(each.decl.name)), params.new_name) for each in uses]
        return lsp.WorkspaceEdit(changes={uri: edits})

    def outline(self, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        """Return the declarations of a document."""
        return symbols(self.understood(params.text_document.uri))

    def reformat(self, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        """Return the edit that formats a document."""
        text = self.document(params.text_document.uri)[0]
        after = format_text(text)
        if after == text:
            return []
        lines = text.split("\n")
        end = lsp.Position(len(lines) - 1, units(lines[-1], len(lines[-1]) + 1))
        return [lsp.TextEdit(lsp.Range(lsp.Position(0, 0), end), after)]


def make(include_dirs: Sequence[str] = (), defines: Sequence[str] = ()) -> LanguageServer:
    """Return a server; editors add to `include_dirs` and `defines` by their initialization options."""
    server = LanguageServer("p4lite", metadata.version("p4lite"))
    service = _Service(server, Programs(list(include_dirs), list(defines)))
    for method, handler in (
        (lsp.INITIALIZE, service.initialize),
        (lsp.TEXT_DOCUMENT_DID_OPEN, service.did_open),
        (lsp.TEXT_DOCUMENT_DID_CHANGE, service.did_change),
        (lsp.TEXT_DOCUMENT_DID_SAVE, service.did_save),
        (lsp.TEXT_DOCUMENT_DID_CLOSE, service.did_close),
        (lsp.TEXT_DOCUMENT_DEFINITION, service.definition),
        (lsp.TEXT_DOCUMENT_REFERENCES, service.references),
        (lsp.TEXT_DOCUMENT_HOVER, service.show),
        (lsp.TEXT_DOCUMENT_RENAME, service.change_name),
        (lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL, service.outline),
        (lsp.TEXT_DOCUMENT_FORMATTING, service.reformat),
    ):
        # pygls marks what it is given, which a bound method does not take.
        server.feature(method)(partial(handler))
    options = lsp.CompletionOptions(trigger_characters=["."])
    server.feature(lsp.TEXT_DOCUMENT_COMPLETION, options)(partial(service.complete))
    return server


def serve(include_dirs: Sequence[str] = (), defines: Sequence[str] = ()) -> None:
    """Serve one editor over standard input and output until it ends the session."""
    logging.getLogger("pygls").setLevel(logging.ERROR)
    # pygls closes the streams that it is given.
    make(include_dirs, defines).start_io(os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb"))
