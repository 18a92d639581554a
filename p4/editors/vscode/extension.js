// Starts `p4lite lsp` and connects it with the editor. There is nothing to build and no package to install: the protocol's
// framing is below, and every request of the editor goes to the server as it is.
"use strict";

const { spawn } = require("child_process");
const vscode = require("vscode");

const SELECTOR = { language: "p4" };
const RESTARTS = 3;

/** A connection to the server: requests with their answers, and its notifications. */
class Connection {
  constructor(command, onNotification, onEnd) {
    this.waiting = new Map();
    this.next = 1;
    this.buffer = Buffer.alloc(0);
    this.onNotification = onNotification;
    this.child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "ignore"] });
    this.child.stdout.on("data", (data) => this.receive(data));
    this.child.stdin.on("error", () => {});
    this.child.on("error", (error) => this.end(onEnd, error.message));
    this.child.on("exit", (code) => this.end(onEnd, `it ended with ${code}`));
  }

  end(onEnd, why) {
    if (this.ended) return;
    this.ended = true;
    for (const { reject } of this.waiting.values()) reject(new Error(why));
    this.waiting.clear();
    onEnd(why);
  }

  send(message) {
    const body = Buffer.from(JSON.stringify({ jsonrpc: "2.0", ...message }));
    this.child.stdin.write(`Content-Length: ${body.length}\r\n\r\n`);
    this.child.stdin.write(body);
  }

  notify(method, params) {
    if (!this.ended) this.send({ method, params });
  }

  request(method, params) {
    if (this.ended) return Promise.resolve(null);
    const id = this.next++;
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject });
      this.send({ id, method, params });
    });
  }

  receive(data) {
    this.buffer = Buffer.concat([this.buffer, data]);
    for (;;) {
      const head = this.buffer.indexOf("\r\n\r\n");
      if (head < 0) return;
      const length = /content-length: *(\d+)/i.exec(this.buffer.toString("ascii", 0, head));
      const end = head + 4 + Number(length[1]);
      if (this.buffer.length < end) return;
      const message = JSON.parse(this.buffer.toString("utf8", head + 4, end));
      this.buffer = this.buffer.subarray(end);
      if (message.method === undefined) this.answer(message);
      else if (message.id === undefined) this.onNotification(message.method, message.params);
      else this.send({ id: message.id, result: null }); // a request of the server, of which none needs an answer
    }
  }

  answer({ id, result, error }) {
    const waiting = this.waiting.get(id);
    if (waiting === undefined) return;
    this.waiting.delete(id);
    if (error) waiting.reject(new Error(error.message));
    else waiting.resolve(result);
  }
}

const position = (p) => ({ line: p.line, character: p.character });
const range = (r) => new vscode.Range(r.start.line, r.start.character, r.end.line, r.end.character);
const edit = (e) => new vscode.TextEdit(range(e.range), e.newText);
const location = (l) => new vscode.Location(vscode.Uri.parse(l.uri), range(l.range));
const at = (document, p) => ({ textDocument: { uri: document.uri.toString() }, position: position(p) });

function symbol(s) {
  // The editor counts kinds from 0, the protocol from 1.
  const made = new vscode.DocumentSymbol(s.name, s.detail || "", s.kind - 1, range(s.range), range(s.selectionRange));
  made.children = (s.children || []).map(symbol);
  return made;
}

function completion(item) {
  const made = new vscode.CompletionItem(item.label, item.kind - 1);
  made.detail = item.detail;
  return made;
}

function activate(context) {
  const problems = vscode.languages.createDiagnosticCollection("p4lite");
  const settings = vscode.workspace.getConfiguration("p4lite");
  const command = settings.get("command");
  let connection;
  let started = 0;
  let closing = false;

  function notified(method, params) {
    if (method !== "textDocument/publishDiagnostics") return;
    const found = params.diagnostics.map((d) => {
      const made = new vscode.Diagnostic(range(d.range), d.message, d.severity - 1);
      made.source = d.source;
      return made;
    });
    problems.set(vscode.Uri.parse(params.uri), found);
  }

  function opened(document) {
    if (document.languageId !== "p4") return;
    const uri = document.uri.toString();
    const item = { uri, languageId: "p4", version: document.version, text: document.getText() };
    connection.notify("textDocument/didOpen", { textDocument: item });
  }

  function start() {
    started += 1;
    connection = new Connection(command, notified, (why) => {
      if (closing) return;
      if (started <= RESTARTS) start();
      else {
        const hint = "Install it with: pip install 'p4lite[lsp]', or set p4lite.command";
        vscode.window.showErrorMessage(`${command.join(" ")}: ${why}. ${hint}`);
      }
    });
    const options = { includeDirs: settings.get("includeDirs"), defines: settings.get("defines") };
    connection
      .request("initialize", { processId: process.pid, rootUri: null, capabilities: {}, initializationOptions: options })
      .then(() => {
        connection.notify("initialized", {});
        vscode.workspace.textDocuments.forEach(opened);
      })
      .catch(() => {}); // the end of the process was reported
  }

  start();
  const ask = (method, params) => connection.request(`textDocument/${method}`, params);
  context.subscriptions.push(
    problems,
    { dispose: () => { closing = true; connection.child.kill(); } },
    vscode.workspace.onDidOpenTextDocument(opened),
    vscode.workspace.onDidChangeTextDocument(({ document }) => {
      if (document.languageId !== "p4") return;
      const item = { uri: document.uri.toString(), version: document.version };
      connection.notify("textDocument/didChange", { textDocument: item, contentChanges: [{ text: document.getText() }] });
    }),
    vscode.workspace.onDidSaveTextDocument((document) => {
      if (document.languageId === "p4")
        connection.notify("textDocument/didSave", { textDocument: { uri: document.uri.toString() } });
    }),
    vscode.workspace.onDidCloseTextDocument((document) => {
      if (document.languageId === "p4")
        connection.notify("textDocument/didClose", { textDocument: { uri: document.uri.toString() } });
    }),
    vscode.languages.registerDefinitionProvider(SELECTOR, {
      provideDefinition: async (d, p) => {
        const found = await ask("definition", at(d, p));
        return found && location(found);
      },
    }),
    vscode.languages.registerReferenceProvider(SELECTOR, {
      provideReferences: async (d, p, c) =>
        ((await ask("references", { ...at(d, p), context: c })) || []).map(location),
    }),
    vscode.languages.registerHoverProvider(SELECTOR, {
      provideHover: async (d, p) => {
        const found = await ask("hover", at(d, p));
        return found && new vscode.Hover(new vscode.MarkdownString(found.contents.value));
      },
    }),
    vscode.languages.registerCompletionItemProvider(
      SELECTOR,
      { provideCompletionItems: async (d, p) => ((await ask("completion", at(d, p))) || []).map(completion) },
      ".",
    ),
    vscode.languages.registerRenameProvider(SELECTOR, {
      provideRenameEdits: async (d, p, newName) => {
        const found = await ask("rename", { ...at(d, p), newName });
        const made = new vscode.WorkspaceEdit();
        for (const [uri, edits] of Object.entries((found && found.changes) || {}))
          made.set(vscode.Uri.parse(uri), edits.map(edit));
        return made;
      },
    }),
    vscode.languages.registerDocumentSymbolProvider(SELECTOR, {
      provideDocumentSymbols: async (d) =>
        ((await ask("documentSymbol", { textDocument: { uri: d.uri.toString() } })) || []).map(symbol),
    }),
    vscode.languages.registerDocumentFormattingEditProvider(SELECTOR, {
      provideDocumentFormattingEdits: async (d, options) =>
        ((await ask("formatting", { textDocument: { uri: d.uri.toString() }, options })) || []).map(edit),
    }),
  );
}

module.exports = { activate, deactivate: () => {} };
