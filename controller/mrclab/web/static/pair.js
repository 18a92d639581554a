// The panel of a pair of hosts: all EVs of their queue pairs, by plane, and the window that they share.

import { el, Facts, text } from "./dom.js";
import { bytes, count, entropy, seconds, span } from "./units.js";

const LETTERS = { GOOD: "G", SKIP: "S", ASSUMED_BAD: "B", DENIED: "D" };
/** An EV that was in flight so short a time ago shows it. */
const FRESH_NS = 400e6;
/** The table of changes has the newest of them. */
const CHANGES = 40;

export class PairPanel {
  constructor(place, watch, highlight) {
    this.watch = watch;
    this.highlight = highlight;
    this.source = el("select", { id: "source" });
    this.destination = el("select", { id: "destination" });
    this.note = el("p", { class: "hint" });
    this.facts = new Facts();
    this.table = el("table", { class: "evs", id: "evs" });
    this.detail = el("p", { class: "hint", role: "status" });
    this.changes = el("table", { class: "changes", id: "changes", hidden: true });
    this.told = "";
    this.cells = new Map();
    this.chosen = null;
    this.now = 0;
    /** When the workload began: times are shown from there. */
    this.origin = 0;
    for (const select of [this.source, this.destination]) select.addEventListener("change", () => this.change());
    place.replaceChildren(
      el("div", { class: "row" }, el("label", {}, "from ", this.source), el("label", {}, "to ", this.destination)),
      this.note, this.facts.node, this.detail, this.table,
      el("p", { class: "hint" }, "G good, S skipped once, B assumed bad, D denied; filled: active, hollow: in reserve; "
        + "black frame: in flight just now. Point at one, or press it, to see its way."),
      this.changes,
    );
  }

  show(layout) {
    this.layout = layout;
    const names = layout.hosts.map((host) => host.name);
    for (const select of [this.source, this.destination]) {
      const before = select.value;
      select.replaceChildren(el("option", { value: "" }, "–"), ...names.map((name) => el("option", { value: name }, name)));
      if (names.includes(before)) select.value = before;
    }
    this.clear();
    if (layout.mode === "run") this.note.textContent = "A recorded run does not have single EVs; the tab Element has their counts.";
  }

  set(source, destination) {
    if (source) this.source.value = source;
    if (destination) this.destination.value = destination;
    this.change();
  }

  change() {
    this.clear();
    const [source, destination] = [this.source.value, this.destination.value];
    this.note.textContent = source && destination
      ? source === destination ? "Choose two hosts." : "Waiting for what the host says." : "Choose two hosts.";
    this.watch(source, destination);
  }

  clear() {
    this.table.replaceChildren();
    this.cells.clear();
    this.changes.hidden = true;
    this.told = "";
    this.chosen = null;
    this.detail.textContent = "";
    this.highlight([]);
  }

  update(pair) {
    if (pair.source !== this.source.value || pair.destination !== this.destination.value) return;
    text(this.note, pair.error);
    this.facts.set("window, in flight", `${bytes(pair.cwnd)}, ${bytes(pair.inflight)}`);
    this.facts.set("round-trip time", pair.rtt_ns ? span(pair.rtt_ns) : "–");
    this.facts.set("packets", `${count(pair.packets)}, ${count(pair.retransmissions)} again`);
    this.facts.set("queue pairs", pair.qps.map((qp) => `${qp.qpn} (${qp.state})`).join(", ") || "none");
    const seen = new Set();
    for (const qp of pair.qps) for (const ev of qp.evs) this.draw(pair, qp, ev, seen);
    for (const [key, cell] of this.cells) {
      if (!seen.has(key)) { cell.remove(); this.cells.delete(key); }
    }
    if (this.chosen) this.describe(this.chosen);
    this.change_rows(pair);
  }

  /** The EVs that came into their state while the host's log has it, newest first. */
  change_rows(pair) {
    const found = pair.qps.flatMap((qp) => qp.evs.filter((ev) => ev.since_ns >= 0).map((ev) => ({ ev, qp })));
    found.sort((one, other) => other.ev.since_ns - one.ev.since_ns || one.ev.ev - other.ev.ev);
    const rows = found.slice(0, CHANGES).map(({ ev, qp }) => [
      seconds(ev.since_ns - this.origin), ev.state, entropy(ev.ev), String(ev.plane), String(qp.qpn), ev.cause,
    ]);
    const more = found.length - rows.length;
    const key = JSON.stringify([rows, more]);
    if (key === this.told) return;
    this.told = key;
    this.changes.hidden = !rows.length;
    this.changes.replaceChildren(
      el("caption", {}, `EVs from ${pair.source} to ${pair.destination} whose state changed, the latest first`
        + (more > 0 ? `; ${more} earlier ones are not shown` : "")),
      el("tr", {}, ...["since", "state", "EV", "plane", "QP", "cause"].map((each) => el("th", { scope: "col" }, each))),
      ...rows.map((row) => el("tr", {}, ...row.map((each) => el("td", {}, each)))),
    );
  }

  draw(pair, qp, ev, seen) {
    const key = `${qp.qpn} ${ev.ev} ${ev.plane}`;
    seen.add(key);
    let cell = this.cells.get(key);
    if (!cell) {
      cell = el("button", { type: "button", onclick: () => this.press(cell), onmouseenter: () => this.point(cell),
        onmouseleave: () => this.highlight(this.chosen?.ev.links ?? []), onfocus: () => this.point(cell) });
      this.cells.set(key, cell);
      this.line(pair, qp, ev.plane).append(cell);
    }
    Object.assign(cell, { ev, qp, pair });
    const fresh = ev.used_ns >= 0 && this.now - ev.used_ns < FRESH_NS;
    const kind = `ev ${ev.state}${ev.active ? "" : " idle"}${fresh ? " fresh" : ""}`;
    if (cell.className !== kind) {
      cell.className = kind;
      cell.setAttribute("aria-label", `EV ${entropy(ev.ev)}, plane ${ev.plane}, ${ev.state}${ev.active ? ", active" : ""}`);
    }
    text(cell, LETTERS[ev.state] ?? "?");
  }

  line(pair, qp, plane) {
    const id = `evs-${qp.qpn}-${plane}`;
    let row = document.getElementById(id);
    if (!row) {
      const head = pair.qps.length > 1 ? `QP ${qp.qpn}, plane ${plane}` : `plane ${plane}`;
      row = el("td", { id });
      this.table.append(el("tr", {}, el("th", { scope: "row" }, head), row));
    }
    return row;
  }

  point(cell) {
    this.highlight(cell.ev.links);
    this.describe(cell);
  }

  press(cell) {
    this.chosen?.setAttribute("aria-pressed", "false");
    this.chosen = this.chosen === cell ? null : cell;
    this.chosen?.setAttribute("aria-pressed", "true");
    this.point(cell);
  }

  describe({ ev }) {
    const used = ev.used_ns < 0 ? "not seen in flight" : `last in flight ${span(Math.max(this.now - ev.used_ns, 0))} ago`;
    const names = ev.links.map((at) => this.layout.links[at].name);
    const way = names.length ? `by ${names.join(", ")}` : "the switches choose its way";
    const since = ev.since_ns < 0 ? "" : ` since ${seconds(ev.since_ns - this.origin)} (${ev.cause})`;
    text(this.detail, `EV ${entropy(ev.ev)}: plane ${ev.plane}, ${ev.state}${since}, ${ev.active ? "active" : "in reserve"}, `
      + `${ev.losses} packets on it taken for lost, ${used}; ${way}`);
  }
}
