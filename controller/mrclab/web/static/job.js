// The panel of the job: what runs, how far it is; starting, stopping, experiments, saving.

import { el, Facts, say, text } from "./dom.js";
import { command, keep } from "./api.js";
import { act } from "./element.js";
import { bytes, count, seconds, span } from "./units.js";

/** A name of a file or setting for people. */
const words = (key) => key.replaceAll("_", " ");

export class JobPanel {
  constructor(place) {
    this.place = place;
  }

  show(layout) {
    this.layout = layout;
    this.facts = new Facts();
    this.title = el("h2", {}, "No workload");
    this.failures = el("p", { class: "bad" });
    const parts = [this.title, this.facts.node, this.failures];
    if (layout.can.includes("start")) parts.push(this.starting());
    if (layout.can.includes("run")) parts.push(this.experiments());
    if (layout.can.includes("save")) {
      parts.push(el("p", {}, el("button", { type: "button", id: "save", onclick: () => this.save() }, "Save as an experiment")),
        el("p", { class: "hint" }, "What was done since the workload began, as a file that mrclab run repeats."));
    }
    this.place.replaceChildren(...parts);
  }

  starting() {
    const names = Object.keys(this.layout.workloads);
    const select = el("select", { name: "workload", id: "workload" }, ...names.map((name) => el("option", { value: name }, name)));
    if (names.includes("ring_all_reduce")) select.value = "ring_all_reduce";
    const more = el("div");
    const change = () => {
      const rows = Object.entries(this.layout.workloads[select.value])
        .filter(([, value]) => typeof value === "number")
        .map(([name, value]) => el("label", {}, words(name), el("input", { name, placeholder: String(value) })));
      more.replaceChildren(...rows);
    };
    select.addEventListener("change", change);
    change();
    this.stop = el("button", { type: "button", id: "stop", onclick: () => act("stop", {}) }, "Stop");
    const form = el("form", { onsubmit: (event) => { event.preventDefault(); this.start(form); } },
      el("fieldset", {}, el("legend", {}, "Start a workload"), el("label", {}, "workload", select), more,
        el("label", {}, "seconds", el("input", { name: " duration", placeholder: "until it is stopped" })),
        el("div", { class: "row" }, el("button", { class: "primary", id: "start" }, "Start"), this.stop)));
    return form;
  }

  start(form) {
    const given = new FormData(form);
    const params = {};
    let duration = null;
    for (const [name, value] of given) {
      if (name === "workload" || value.trim() === "") continue;
      const number = Number(value);
      if (Number.isNaN(number)) { say(`${name.trim()} must be a number, not ${value}`, true); return; }
      if (name === " duration") duration = number;
      else params[name] = number;
    }
    act("start", { workload: given.get("workload"), params, duration });
  }

  experiments() {
    const select = el("select", { name: "name", id: "experiment" },
      ...this.layout.experiments.map((name) => el("option", { value: name }, name)));
    return el("form", { onsubmit: (event) => { event.preventDefault(); act("run", { name: select.value }); } },
      el("fieldset", {}, el("legend", {}, "Run an experiment"), el("label", {}, "experiment", select),
        el("div", { class: "row" }, el("button", { id: "run" }, "Run"))));
  }

  async save() {
    try {
      const answer = await command("save");
      keep(new Blob([answer.file], { type: "application/yaml" }), answer.name);
      say("saved; repeat it with mrclab run");
    } catch (error) {
      say(error.message, true);
    }
  }

  update(state) {
    const { job } = state;
    if (this.stop) this.stop.disabled = !job?.running;
    if (!job) { text(this.title, "No workload"); return; }
    const workload = words(job.workload);
    text(this.title, job.name === job.workload || !job.schedule?.length ? workload : `${job.name}: ${workload}`);
    const { facts } = this;
    facts.set("state", job.running ? `runs for ${seconds(Math.max(state.t_ns - job.began_ns, 0))}` : "ended");
    facts.set("verdict so far", job.running && job.verdict ? job.verdict : null);
    facts.set("verdict", !job.running && job.verdict ? job.verdict : null);
    facts.set("iterations", job.iterations === undefined ? null : count(job.iterations));
    facts.set("time of a step", job.step_ns ? span(job.step_ns) : null);
    facts.set("verified", job.bytes_verified === undefined ? null : `${bytes(job.bytes_verified)}, ${count(job.mismatches)} wrong`);
    facts.set("hosts", job.hosts.length > 8 ? `${job.hosts.length}` : job.hosts.join(", "));
    const next = (job.schedule ?? []).find((each) => each.t_ns > state.t_ns);
    facts.set("next", !job.schedule?.length ? null
      : next ? `${next.text}, in ${seconds(next.t_ns - state.t_ns)}` : "nothing more is scheduled");
    text(this.failures, (job.failures ?? []).slice(0, 3).join("; "));
  }
}
