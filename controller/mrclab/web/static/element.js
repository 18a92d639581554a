// The panel of what is selected: how it is, and what can be done to it.

import { el, Facts, say } from "./dom.js";
import { command, download } from "./api.js";
import { linkWord } from "./fabric.js";
import { parse, setting } from "./settings.js";
import { rate, bytes, count, span } from "./units.js";

/** The two counts of lost packets: what each has, and why they differ. */
const DROPPED = "packets of any kind that the fabric stopped. Hosts take fewer for lost, because they probe dead paths, too, "
  + "or more, where packets are trimmed or late.";
const TAKEN = "data packets that the sender gave up waiting for. The fabric drops others, too (probes, acknowledgements), "
  + "and not those that are trimmed or late.";

const USUAL = { link: "link_down", port: "port_down", switch: "stop" };

/** What this page did to the lab, the latest last: how each is undone. */
const done = [];
const MOST_DONE = 50;
/** Called with what `undo` would undo now, or "". */
export const undoable = { changed: () => {} };

/** How a command is undone: [words, command, arguments]; null: it is not. `broken`: what failed before it. */
function inverse(name, body, broken) {
  if (name === "fail") return [`${body.target}: break`, "restore", { target: body.target, kind: body.kind ?? "" }];
  if (name === "deny") return [`${body.elements}: deny`, "allow", body];
  if (name === "allow") return [`${body.elements}: allow`, "deny", body];
  if (name !== "restore") return null;
  const gone = broken.filter((each) => !body.target || (each.target === body.target && (!body.kind || each.kind === body.kind)));
  // Several failures are not undone together.
  if (gone.length !== 1) return null;
  const [{ target, kind, direction, settings }] = gone;
  return [`${target}: restore`, "fail", { target, kind, direction, settings }];
}

/** Does a command, and says what came of it. */
export async function act(name, body, broken = []) {
  try {
    const answer = await command(name, body);
    say(answer.text);
    const back = inverse(name, body, broken);
    if (back) {
      done.push(back);
      if (done.length > MOST_DONE) done.shift();
      undoable.changed(back[0]);
    }
    return answer;
  } catch (error) {
    say(error.message, true);
    return null;
  }
}

/** Undoes the latest of what this page did. */
export async function undo() {
  const last = done.pop();
  if (!last) { say("nothing to undo: this page has done nothing yet", true); return; }
  const [, name, body] = last;
  undoable.changed(done.length ? done[done.length - 1][0] : "");
  try {
    say(`undone: ${(await command(name, body)).text}`);
  } catch (error) {
    say(error.message, true);
  }
}

export class ElementPanel {
  constructor(place) {
    this.place = place;
    this.name = "";
    this.layout = null;
    this.opened = false;
  }

  show(layout) {
    this.layout = layout;
    this.links = new Map(layout.links.map((link, at) => [link.name, at]));
    this.switches = new Map(layout.switches.map((each, at) => [each.name, at]));
    this.hosts = new Map(layout.hosts.map((each, at) => [each.name, at]));
    this.select("");
  }

  /** link, port, switch, host or nothing. */
  kind() {
    if (this.links.has(this.name)) return this.name.includes(":") ? "port" : "link";
    if (this.switches.has(this.name)) return "switch";
    return this.hosts.has(this.name) ? "host" : "";
  }

  can(name) {
    return this.layout.can.includes(name);
  }

  select(name) {
    this.name = name;
    const kind = this.kind();
    if (!kind) {
      this.place.replaceChildren(
        el("h2", {}, "Nothing selected"),
        el("p", { class: "hint" }, "Click a link, a switch or a host, or go there with the arrow keys in the picture."
          + (this.can("fail") ? " Then break it: b breaks, r restores." : "")),
        ...this.everything(),
      );
      return;
    }
    this.facts = new Facts();
    this.force = el("div", { class: "row" });
    this.capture = null;
    this.all = null;
    const words = { link: "Link", port: "Host port", switch: "Switch", host: "Host" };
    const parts = [el("h2", {}, `${words[kind]} ${name}`)];
    if (kind !== "host" && this.can("fail")) parts.push(this.actions(kind));
    parts.push(this.force, this.facts.node);
    if (kind === "host") {
      const ports = this.layout.links.filter((link) => link.low === name).map((link) => link.name);
      parts.push(el("p", { class: "hint" }, "Its ports:"), el("div", { class: "row" }, ...ports.map((port) => (
        el("button", { type: "button", onclick: () => this.choose(port) }, port)))));
    } else {
      if (this.can("fail")) parts.push(this.breaking(kind));
      if (kind !== "switch" && this.can("capture")) parts.push(this.capturing());
    }
    parts.push(...this.everything());
    this.place.replaceChildren(...parts);
    this.shownForce = "";
    if (this.state) this.update(this.state);
  }

  everything() {
    if (!this.can("restore")) return [];
    return [el("p", {}, el("button", { type: "button", onclick: () => act("restore", {}, this.state?.broken) }, "Restore everything"))];
  }

  /** What is done most, in one row: break it by its usual kind, restore it, deny it. */
  actions(kind) {
    const usual = USUAL[kind];
    this.deny = this.can("deny")
      ? el("button", { type: "button", onclick: () => act(this.denied() ? "allow" : "deny", { elements: [this.name] }) }) : null;
    this.all = el("button", { type: "button", id: "mend", hidden: true, onclick: () => this.mend() }, "Restore all of it");
    return el("div", { class: "row actions" },
      el("button", { type: "button", class: "break", id: "fail", onclick: () => act("fail", { target: this.name, kind: usual }) },
        `Break: ${usual.replaceAll("_", " ")}`),
      this.all, this.deny);
  }

  mend() {
    act("restore", { target: this.name }, this.state?.broken ?? []);
  }

  breaking(kind) {
    const kinds = this.layout.kinds.filter((each) => each.fits.includes(kind));
    const usual = USUAL[kind];
    const select = el("select", { id: "kind", name: "kind" }, ...kinds.map((each) => (
      el("option", { value: each.name, selected: each.name === usual }, each.name.replaceAll("_", " ")))));
    const more = el("div");
    const summary = el("p", { class: "hint" });
    const change = () => {
      const chosen = kinds.find((each) => each.name === select.value);
      summary.textContent = chosen.summary;
      const rows = chosen.takes.map((name) => this.field(name));
      if (chosen.directed) {
        rows.unshift(el("label", {}, "direction", el("select", { name: "direction" },
          ...["both", "up", "down"].map((each) => el("option", { value: each }, each)))));
      }
      more.replaceChildren(...rows);
    };
    select.addEventListener("change", change);
    change();
    const form = el("form", { onsubmit: (event) => { event.preventDefault(); this.break(form); } },
      el("fieldset", {}, el("legend", {}, "Break it"),
        el("label", {}, "how", select), summary, more,
        el("button", { class: "break", id: "break" }, "Break")));
    return el("details", { open: this.opened, ontoggle: (event) => { this.opened = event.target.open; } },
      el("summary", {}, "Break it in another way"), form);
  }

  /** A setting with its unit, and values to choose from. */
  field(name) {
    const known = setting(name);
    if (!known) return el("label", {}, name.replaceAll("_", " "), el("select", { name }, el("option", {}, "no"), el("option", {}, "yes")));
    const list = `values-${name}`;
    return el("label", {}, known.label, el("input", { name, list, placeholder: known.presets.join(", "), title: known.unit, autocomplete: "off" }),
      el("datalist", { id: list }, ...known.presets.map((value) => el("option", { value }))));
  }

  break(form) {
    const given = new FormData(form);
    const settings = {};
    try {
      for (const [name, value] of given) {
        if (name === "kind" || name === "direction" || value.trim() === "") continue;
        if (setting(name)) settings[name] = parse(name, value);
        else if (value === "yes") settings[name] = true;
      }
    } catch (error) {
      say(error.message, true);
      return;
    }
    act("fail", { target: this.name, kind: given.get("kind"), direction: given.get("direction") ?? "both", settings });
  }

  denied() {
    return this.state?.denied.includes(this.name);
  }

  capturing() {
    const port = this.port();
    this.capture = el("button", { type: "button", onclick: () => act("capture", { port, on: !this.state.captures.includes(port) }) });
    this.fetch = el("button", { type: "button", onclick: () => download(port).catch((error) => say(error.message, true)) },
      "Save its packets");
    return el("div", { class: "row" }, this.capture, this.fetch);
  }

  /** The switch's port at which the packets of a link are captured. */
  port() {
    const link = this.layout.links[this.links.get(this.name)];
    return link.name.includes(":") ? link.name : `${link.low}:${link.low_port}`;
  }

  /** What keyboard short cuts do. */
  shortcut(verb) {
    const kind = this.kind();
    if (!kind || kind === "host") { say("select a link, a host port or a switch first", true); return; }
    if (verb === "restore") this.mend();
    else act(verb, { target: this.name });
  }

  update(state) {
    this.state = state;
    const kind = this.kind();
    if (!kind) return;
    const { facts } = this;
    if (kind === "switch") this.switchFacts(state.switches[this.switches.get(this.name)], facts);
    else if (kind === "host") this.hostFacts(state.hosts[this.hosts.get(this.name)], facts);
    else this.linkFacts(state.links[this.links.get(this.name)], facts);
    if (state.found[this.name]) facts.set("the hosts find it", state.found[this.name]);
    else if (facts.values.has("the hosts find it")) facts.set("the hosts find it", "healthy");
    this.forces(state);
    if (this.deny && kind !== "host") this.deny.textContent = this.denied() ? "Allow it" : "Deny it (no path over it)";
    if (this.capture) {
      this.capture.textContent = state.captures.includes(this.port()) ? "End the capture" : "Capture its packets";
    }
  }

  forces(state) {
    const mine = state.broken.filter((each) => each.target === this.name);
    const key = JSON.stringify(mine);
    if (key === this.shownForce) return;
    this.shownForce = key;
    // The button of the only failure does the same, and says which it is.
    if (this.all) this.all.hidden = mine.length < 2;
    const usual = this.place.querySelector("#fail");
    if (usual) usual.disabled = mine.some((each) => each.kind === USUAL[this.kind()]);
    this.force.replaceChildren(...mine.map((each) => (this.can("restore")
      ? el("button", { type: "button", class: "primary", onclick: () => act("restore", { target: each.target, kind: each.kind }, [each]) },
        `Restore: ${each.text}`)
      : el("span", { class: "bad" }, each.text))));
  }

  linkFacts(row, facts) {
    const link = this.layout.links[this.links.get(this.name)];
    facts.set("state", linkWord(row));
    facts.set("rate, delay", `${rate(link.rate_bps)}, ${span(link.delay_ns)}`);
    facts.set(`to ${link.high}`, `${rate(row.up_bps)}, ${bytes(row.up_queue_bytes)} wait`);
    facts.set(`to ${link.low}`, `${rate(row.down_bps)}, ${bytes(row.down_queue_bytes)} wait`);
    facts.set("carried", `${bytes(row.up_bytes)} and ${bytes(row.down_bytes)}`);
    facts.set("dropped", `${count(row.drops)}, ${count(row.lost)} of them by failures`);
    facts.set("dropped means", DROPPED);
  }

  switchFacts(row, facts) {
    facts.set("state", row.state ?? "unknown");
    facts.set("waits in queues", bytes(row.queue_bytes));
    facts.set("dropped", `${count(row.drops)}, ${count(row.lost)} of them by failures`);
    facts.set("dropped means", DROPPED);
    if (row.trimmed !== undefined) facts.set("trimmed", count(row.trimmed));
    if (row.marked !== undefined) facts.set("ECN-marked", count(row.marked));
  }

  hostFacts(row, facts) {
    facts.set("state", row.alive === false ? row.error : row.alive ? "its agent answers" : "unknown");
    if (!row.alive) return;
    facts.set("goodput", rate(row.goodput_bps));
    facts.set("ports up", String(row.ports_up));
    facts.set("received by plane", (row.rx_bps ?? []).map(rate).join(" · "));
    facts.set("packets", `${count(row.packets)}, ${count(row.retransmissions)} again`);
    facts.set("taken for lost, timeouts", `${count(row.losses)}, ${count(row.timeouts)}`);
    facts.set("taken for lost means", TAKEN);
    facts.set("trims, marks seen", `${count(row.trims)}, ${count(row.marks)}`);
    facts.set("EVs", Object.entries(row.ev ?? {}).map(([state, many]) => `${state} ${many}`).join(", ") || "none");
    if (row.denied_evs) facts.set("EVs denied", String(row.denied_evs));
    if (row.cc?.cwnd !== undefined) facts.set("window, in flight", `${bytes(row.cc.cwnd)}, ${bytes(row.cc.inflight)}`);
    if (row.cc?.rtt_ns) facts.set("round-trip time", span(row.cc.rtt_ns));
  }
}
