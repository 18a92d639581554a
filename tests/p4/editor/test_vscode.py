"""The extension for Visual Studio Code: its files agree, its grammar knows P4's words, and its client works."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from p4lite.compiler.lexer import KEYWORDS, OPERATORS

FOLDER = Path(__file__).parents[3] / "p4/editors/vscode"

#: Runs the extension with an editor of which only what it calls exists, and prints what the editor was given.
EDITOR = """
const Module = require("module");
const [extension, python, text] = process.argv.slice(2);
const shown = {}, providers = {};
const event = () => ({ dispose() {} });
class Holder { constructor(...given) { this.given = given; } }
const register = (kind) => (selector, provider) => { providers[kind] = provider; return event(); };
const settings = {
  command: [python, "-c", "from p4lite.cli import main; main()", "lsp"], includeDirs: [], defines: [],
};
const document = {
  languageId: "p4", version: 1, uri: { toString: () => "file:///tmp/none/prog.p4" }, getText: () => text,
};
const vscode = {
  Range: Holder, Hover: Holder, MarkdownString: Holder, Location: Holder, TextEdit: Holder, CompletionItem: Holder,
  Diagnostic: Holder, DocumentSymbol: Holder, WorkspaceEdit: Holder,
  Uri: { parse: (text) => text },
  window: { showErrorMessage: (text) => { shown.error = text; } },
  workspace: {
    getConfiguration: () => ({ get: (name) => settings[name] }), textDocuments: [document],
    onDidOpenTextDocument: event, onDidChangeTextDocument: event, onDidSaveTextDocument: event,
    onDidCloseTextDocument: event,
  },
  languages: new Proxy({}, { get: (_, name) => name === "createDiagnosticCollection"
    ? () => ({ set: (uri, found) => { shown.diagnostics = found.map((d) => d.given); checked(); } })
    : register(name) }),
};
const load = Module._load;
Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
const context = { subscriptions: [] };
require(extension).activate(context);
async function checked() {
  const hover = await providers.registerHoverProvider.provideHover(document, { line: 0, character: 8 });
  const outline = await providers.registerDocumentSymbolProvider.provideDocumentSymbols(document);
  shown.hover = hover.given[0].given[0];
  shown.outline = outline.map((s) => [s.given[0], s.given[2], s.children.map((c) => c.given[0])]);
  console.log(JSON.stringify(shown));
  context.subscriptions.forEach((each) => each.dispose && each.dispose());
}
"""


def read(name: str) -> Any:
    return json.loads((FOLDER / name).read_text(encoding="utf-8"))


def rules(node: Any) -> Iterator[dict[str, Any]]:
    """Yield every rule of a grammar."""
    if isinstance(node, dict):
        yield node
        for value in node.values():
            yield from rules(value)
    elif isinstance(node, list):
        for value in node:
            yield from rules(value)


def test_manifest_names_files_that_exist() -> None:
    manifest = read("package.json")
    contributed = manifest["contributes"]
    (language,), (grammar,) = contributed["languages"], contributed["grammars"]
    for path in (manifest["main"], language["configuration"], grammar["path"]):
        assert (FOLDER / path).is_file()
    assert language["id"] == grammar["language"] == "p4"
    assert manifest["activationEvents"] == ["onLanguage:p4"]
    assert read(grammar["path"])["scopeName"] == grammar["scopeName"]
    assert re.fullmatch(r"[a-z0-9-]+", manifest["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version"])
    settings = set(contributed["configuration"]["properties"])
    used = set(re.findall(r'settings\.get\("(\w+)"\)', (FOLDER / "extension.js").read_text(encoding="utf-8")))
    assert settings == {f"p4lite.{name}" for name in used}


def test_grammar_compiles_and_its_references_exist() -> None:
    grammar = read("syntaxes/p4.tmLanguage.json")
    for rule in rules(grammar):
        for key in ("match", "begin", "end"):
            if isinstance(rule.get(key), str):
                re.compile(rule[key])
        include = rule.get("include")
        assert include is None or include.removeprefix("#") in grammar["repository"]
    for key in ("increaseIndentPattern", "decreaseIndentPattern"):
        re.compile(read("language-configuration.json")["indentationRules"][key])


def scopes(kind: str, text: str) -> str | None:
    """Return the scope that a group of rules gives to the whole of `text`."""
    for rule in rules(read("syntaxes/p4.tmLanguage.json")["repository"][kind]):
        if "match" in rule and re.fullmatch(rule["match"], text):
            return str(rule["name"])
    return None


@pytest.mark.parametrize("word", sorted(KEYWORDS))
def test_grammar_knows_every_keyword_of_the_lexer(word: str) -> None:
    assert scopes("keywords", word)


def test_grammar_knows_the_operators_and_numbers() -> None:
    punctuation = set("()[]{};,.@") | {"{#}", "+:"}
    for operator in set(OPERATORS) - punctuation:
        pattern = read("syntaxes/p4.tmLanguage.json")["repository"]["operators"]["match"]
        assert "".join(re.findall(pattern, operator)) == operator
    for number in ("0", "10", "8w0xFF", "4s7", "0b1010_1010", "0o17", "16w0d10"):
        assert scopes("numbers", number) == "constant.numeric.p4"
    assert scopes("keywords", "selector") is None


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.skipif(importlib.util.find_spec("pygls") is None, reason="needs the extra p4lite[lsp]")
def test_client_connects_the_editor_with_the_server(tmp_path: Path) -> None:
    (tmp_path / "editor.js").write_text(EDITOR, encoding="utf-8")
    text = "header h_t { bit<8> a; }\nconst bit<8> K = 256;\n"
    done = subprocess.run(
        ["node", str(tmp_path / "editor.js"), str(FOLDER / "extension.js"), sys.executable, text],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    shown = json.loads(done.stdout.splitlines()[0])
    assert [d[2] for d in shown["diagnostics"]] == [1, 2], "a constant that does not fit, and no `main`"
    assert "header h_t {" in shown["hover"]
    assert shown["outline"] == [["h_t", 22, ["a"]], ["K", 13, []]]
