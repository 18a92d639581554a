"""`p4lite lsp`, driven over standard input and output as an editor does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pygls", reason="needs the extra p4lite[lsp]")

TYPES = "typedef bit<9> port_t;\nheader h_t { bit<8> a; port_t b; bit<7> pad; }\n"
PROGRAM = """#include <core.p4>
#include <v1model.p4>
#include "types.p4"
struct headers { h_t h; h_t[2] st; }
struct meta { @name("m_") bit<8> m; }
parser P(packet_in pk, out headers hdr, inout meta m, inout standard_metadata_t sm) {
    state start { pk.extract(hdr.h); transition select(hdr.h.a) { 1: more; default: accept; } }
    state more { pk.extract(hdr.st.next); transition accept; }
}
control V(inout headers hdr, inout meta m) { apply { } }
control I(inout headers hdr, inout meta m, inout standard_metadata_t sm) {
    action fwd(port_t port) { sm.egress_spec = port; }
    table t { key = { hdr.h.a: exact; } actions = { fwd; NoAction; } default_action = NoAction(); }
    apply {
        bit<8> x = m.m;
        t.apply();
        hdr.h.a = x;
    }
}
control Eg(inout headers hdr, inout meta m, inout standard_metadata_t sm) { apply { } }
control C(inout headers hdr, inout meta m) { apply { } }
control D(packet_out pk, in headers hdr) { apply { pk.emit(hdr.h); } }
V1Switch(P(), V(), I(), Eg(), C(), D()) main;
"""


class Editor:
    """A client of one server and one document."""

    def __init__(self, folder: Path, started_in: Path) -> None:
        self.uri = (folder / "prog.p4").as_uri()
        self.version = 0
        self.text = ""
        self.requests = 0
        self.process = subprocess.Popen(
            [sys.executable, "-c", "import sys; from p4lite.cli import main; sys.exit(main())", "lsp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=started_in,
        )
        self.ask("initialize", processId=None, rootUri=None, capabilities={})
        self.tell("initialized")

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
        self.process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        stream = self.process.stdout
        assert stream is not None
        length = 0
        while (line := stream.readline().strip()) != b"":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        assert length, "the server has ended"
        message: dict[str, Any] = json.loads(stream.read(length))
        return message

    def tell(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a request; its error as text."""
        self.requests += 1
        self._send({"id": self.requests, "method": method, "params": params})
        while (message := self._receive()).get("id") != self.requests:
            pass
        return message["error"]["message"] if "error" in message else message["result"]

    def diagnostics(self) -> list[dict[str, Any]]:
        """Return the diagnostics of the present version, when they come."""
        while True:
            message = self._receive()
            shown = message.get("params", {}) if message.get("method") == "textDocument/publishDiagnostics" else {}
            if shown.get("version") == self.version:
                found: list[dict[str, Any]] = shown["diagnostics"]
                return found

    def show(self, text: str) -> list[dict[str, Any]]:
        """Open the document or change all of it; return the diagnostics."""
        self.version += 1
        item = {"uri": self.uri, "version": self.version}
        if self.version == 1:
            self.tell("textDocument/didOpen", textDocument={**item, "languageId": "p4", "text": text})
        else:
            self.tell("textDocument/didChange", textDocument=item, contentChanges=[{"text": text}])
        self.text = text
        return self.diagnostics()

    def at(self, mark: str, after: int = 0) -> dict[str, Any]:
        """Return the parameters for the place of `mark` in the text."""
        before = self.text[: self.text.index(mark) + after]
        position = {"line": before.count("\n"), "character": len(before.rpartition("\n")[2])}
        return {"textDocument": {"uri": self.uri}, "position": position}


@pytest.fixture(scope="module", params=["workspace", "elsewhere"])
def editor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    """Yield an editor with a program that was never saved, beside an include that was. Editors start their servers in
    the workspace, which the program is below, or in some other folder."""
    folder = tmp_path_factory.mktemp("lsp")
    (folder / "types.p4").write_text(TYPES, encoding="utf-8")
    client = Editor(folder, folder.parent if request.param == "workspace" else tmp_path_factory.mktemp("elsewhere"))
    yield client
    assert client.ask("shutdown") is None
    client.tell("exit")
    assert client.process.wait(timeout=120) == 0


@pytest.fixture(autouse=True)
def program(editor: Editor) -> None:
    """Every test starts with the correct program."""
    assert editor.show(PROGRAM) == []


def words(items: list[dict[str, Any]]) -> list[str]:
    return [item["label"] for item in items]


def test_error_is_shown_at_its_place_and_goes_when_corrected(editor: Editor) -> None:
    (found,) = editor.show(PROGRAM.replace("hdr.h.a = x;", "hdr.h.a = y;"))
    assert found["range"] == {"start": {"line": 16, "character": 18}, "end": {"line": 16, "character": 19}}
    assert (found["severity"], found["source"]) == (1, "p4lite")
    assert "'y'" in found["message"]
    assert editor.show(PROGRAM) == []


def test_definition_is_found_here_in_an_include_and_in_v1model(editor: Editor) -> None:
    here = editor.ask("textDocument/definition", **editor.at("t.apply()"))
    assert (here["uri"], here["range"]["start"]) == (editor.uri, {"line": 12, "character": 10})
    include = editor.ask("textDocument/definition", **editor.at("h.a = x", 2))
    assert include["uri"].endswith("/types.p4")
    assert include["range"]["start"] == {"line": 1, "character": 20}
    library = editor.ask("textDocument/definition", **editor.at("egress_spec"))
    assert library["uri"].endswith("/v1model.p4")
    assert editor.ask("textDocument/definition", **editor.at("1: more", 3))["range"]["start"]["line"] == 7
    assert editor.ask("textDocument/definition", **editor.at("#include")) is None


def test_hover_tells_type_annotation_and_width(editor: Editor) -> None:
    def hover(mark: str, after: int = 0) -> str:
        return str(editor.ask("textDocument/hover", **editor.at(mark, after))["contents"]["value"])

    assert hover("m.m;", 2) == '```p4\n@name("m_")\nbit<8> m\n```\n8 bits (1 bytes)'
    assert "port_t /* bit<9> */ b;" in hover("h_t h;")
    assert hover("h_t h;").endswith("\n24 bits (3 bytes)")
    assert "action fwd(port_t port)" in hover("fwd; NoAction")


def test_completion_knows_members_names_keywords_and_externs(editor: Editor) -> None:
    def typed(text: str) -> list[str]:
        editor.show(PROGRAM.replace("        hdr.h.a = x;\n", f"        {text}\n"))
        return words(editor.ask("textDocument/completion", **editor.at(f"        {text}\n", 8 + len(text))))

    assert typed("hdr.")[:2] == ["h", "st"]
    assert typed("hdr.st[0].")[:4] == ["a", "b", "pad", "isValid"]
    assert {"next", "push_front"} <= set(typed("hdr.st."))
    assert "egress_spec" in typed("sm.eg")
    anything = typed("m")
    assert {"x", "t", "fwd", "hdr", "mark_to_drop", "register", "if", "apply"} <= set(anything)
    assert "port" not in anything, "the parameter of an action is not visible in apply"
    assert typed("t.apply().") == ["hit", "miss", "action_run"]


def test_completion_works_while_a_brace_is_open(editor: Editor) -> None:
    broken = PROGRAM[: PROGRAM.index("hdr.h.a = x;")] + "hdr.h."
    assert editor.show(broken)
    assert "pad" in words(
        editor.ask(
            "textDocument/completion",
            **editor.at("hdr.h.", 0)
            | {"position": {"line": broken.count("\n"), "character": len(broken.rpartition("\n")[2])}},
        )
    )


def test_rename_changes_every_use(editor: Editor) -> None:
    edit = editor.ask("textDocument/rename", **editor.at("fwd("), newName="forward")
    starts = [e["range"]["start"] for e in edit["changes"][editor.uri]]
    assert starts == [{"line": 11, "character": 11}, {"line": 12, "character": 52}]
    state = editor.ask("textDocument/rename", **editor.at("state more", 6), newName="again")
    assert [e["range"]["start"]["line"] for e in state["changes"][editor.uri]] == [6, 7]


@pytest.mark.parametrize(
    ("mark", "after", "name", "why"),
    [
        ("fwd(", 0, "t", "would be an error in line 13: 't' is already declared"),
        ("bit<8> x", 7, "hdr", "would be an error in line 17"),
        ("egress_spec", 0, "out_port", "is declared by the architecture"),
        ("h_t h;", 0, "x_t", "is also named in"),
        ("fwd(", 0, "table", "is not a name"),
        ("#include", 0, "x", "no name here"),
    ],
)
def test_rename_that_changes_the_meaning_is_refused(editor: Editor, mark: str, after: int, name: str, why: str) -> None:
    assert why in editor.ask("textDocument/rename", **editor.at(mark, after), newName=name)


def test_outline_and_references(editor: Editor) -> None:
    outline = editor.ask("textDocument/documentSymbol", textDocument={"uri": editor.uri})
    names = {s["name"]: [c["name"] for c in s["children"]] for s in outline}
    assert names["I"] == ["fwd", "t"]
    assert names["P"] == ["start", "more"]
    assert names["headers"] == ["h", "st"]
    found = editor.ask("textDocument/references", **editor.at("t.apply"), context={"includeDeclaration": True})
    assert [f["range"]["start"]["line"] for f in found] == [12, 15]


def test_formatting_returns_the_formatted_text(editor: Editor) -> None:
    options = {"tabSize": 4, "insertSpaces": True}
    assert editor.ask("textDocument/formatting", textDocument={"uri": editor.uri}, options=options) == []
    editor.show(PROGRAM.replace("hdr.h.a = x;", "hdr.h.a=x;"))
    (edit,) = editor.ask("textDocument/formatting", textDocument={"uri": editor.uri}, options=options)
    assert edit["newText"] == PROGRAM


def test_columns_count_utf16_units(editor: Editor) -> None:
    (found,) = editor.show(PROGRAM.replace("hdr.h.a = x;", "/* \U0001f600 */ hdr.h.a = y;"))
    assert found["range"]["start"] == {"line": 16, "character": 27}


def test_no_prefix_of_a_program_ends_the_server(editor: Editor) -> None:
    for cut in range(60, len(PROGRAM), 263):
        editor.show(PROGRAM[:cut])
        position = {"line": PROGRAM[:cut].count("\n"), "character": len(PROGRAM[:cut].rpartition("\n")[2])}
        where = {"textDocument": {"uri": editor.uri}, "position": position}
        for method in ("definition", "hover", "completion"):
            assert not isinstance(editor.ask(f"textDocument/{method}", **where), str)
        assert isinstance(editor.ask("textDocument/documentSymbol", textDocument={"uri": editor.uri}), list)
