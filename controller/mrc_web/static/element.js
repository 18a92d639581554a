// The panel of what is selected: how it is, and what can be done to it.

import { el, Facts, say } from "./dom.js";
import { command, download } from "./api.js";
import { linkWord } from "./fabric.js";
import { rate, bytes, count, span } from "./units.js";

const HINTS = {
  loss: "0.1 (of packets)", corrupt: "0.01", duplicate: "0.1", reorder: "0.1", reorder_extra_ns: "1000000",
  delay_ns: "5000000", rate_bps: "1000000", blackhole: "true", first: "1 (port)", count: "2 (links)",
};

/** Does a command, and says what came of it. */
export async function act(name, body) {
  try {
    const answer = await command(name, body);
    say(answer.text);
    return answer;
  } catch (error) {
    say(error.message, true);
    return null;
  }
}

export class ElementPanel {
  constructor(place) {
    this.place = place;
    this.name = "";
    this.layout = null;
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
    const words = { link: "Link", port: "Host port", switch: "Switch", host: "Host" };
    const parts = [el("h2", {}, `${words[kind]} ${name}`), this.facts.node, this.force];
    if (kind === "host") {
      const ports = this.layout.links.filter((link) => link.low === name).map((link) => link.name);
      parts.push(el("p", { class: "hint" }, "Its ports:"), el("div", { class: "row" }, ...ports.map((port) => (
        el("button", { type: "button", onclick: () => this.choose(port) }, port)))));
    } else {
      if (this.can("fail")) parts.push(this.breaking(kind));
      if (this.can("deny")) parts.push(this.denying());
      if (kind !== "switch" && this.can("capture")) parts.push(this.capturing());
    }
    parts.push(...this.everything());
    this.place.replaceChildren(...parts);
    this.shownForce = "";
    if (this.state) this.update(this.state);
  }

  everything() {
    if (!this.can("restore")) return [];
    return [el("p", {}, el("button", { type: "button", onclick: () => act("restore", {}) }, "Restore everything"))];
  }

  breaking(kind) {
    const kinds = this.layout.kinds.filter((each) => each.fits.includes(kind));
    const usual = { link: "link_down", port: "port_down", switch: "stop" }[kind];
    const select = el("select", { id: "kind", name: "kind" }, ...kinds.map((each) => (
      el("option", { value: each.name, selected: each.name === usual }, each.name.replaceAll("_", " ")))));
    const more = el("div");
    const summary = el("p", { class: "hint" });
    const change = () => {
      const chosen = kinds.find((each) => each.name === select.value);
      summary.textContent = chosen.summary;
      const rows = chosen.takes.map((name) => el("label", {}, name, el("input", { name, placeholder: HINTS[name] ?? "" })));
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
    return form;
  }

  break(form) {
    const given = new FormData(form);
    const settings = {};
    for (const [name, value] of given) {
      if (name === "kind" || name === "direction" || value.trim() === "") continue;
      const text = value.trim();
      settings[name] = text === "true" ? true : text === "false" ? false : Number(text);
      if (Number.isNaN(settings[name])) { say(`${name} must be a number, not ${text}`, true); return; }
    }
    act("fail", { target: this.name, kind: given.get("kind"), direction: given.get("direction") ?? "both", settings });
  }

  denying() {
    this.deny = el("button", { type: "button", onclick: () => act(this.denied() ? "allow" : "deny", { elements: [this.name] }) });
    return el("div", { class: "row" }, this.deny);
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
    act(verb, { target: this.name });
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
    if (this.deny && kind !== "host") this.deny.textContent = this.denied() ? "Allow it" : "Deny it";
    if (this.capture) {
      this.capture.textContent = state.captures.includes(this.port()) ? "End the capture" : "Capture its packets";
    }
  }

  forces(state) {
    const mine = state.broken.filter((each) => each.target === this.name);
    const key = JSON.stringify(mine);
    if (key === this.shownForce) return;
    this.shownForce = key;
    this.force.replaceChildren(...mine.map((each) => (this.can("restore")
      ? el("button", { type: "button", class: "primary", onclick: () => act("restore", { target: each.target, kind: each.kind }) },
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
  }

  switchFacts(row, facts) {
    facts.set("state", row.state ?? "unknown");
    facts.set("waits in queues", bytes(row.queue_bytes));
    facts.set("dropped", `${count(row.drops)}, ${count(row.lost)} of them by failures`);
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
    facts.set("losses, timeouts", `${count(row.losses)}, ${count(row.timeouts)}`);
    facts.set("trims, marks seen", `${count(row.trims)}, ${count(row.marks)}`);
    facts.set("EVs", Object.entries(row.ev ?? {}).map(([state, many]) => `${state} ${many}`).join(", ") || "none");
    if (row.cc?.cwnd !== undefined) facts.set("window, in flight", `${bytes(row.cc.cwnd)}, ${bytes(row.cc.inflight)}`);
    if (row.cc?.rtt_ns) facts.set("round-trip time", span(row.cc.rtt_ns));
  }
}
