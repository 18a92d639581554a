// Goodput and completion times over time, in the chart of all pages, with what was scheduled and done.

import { digits, Panel } from "./chart.js";
import { el } from "./dom.js";
import { rate, span } from "./units.js";

const POINTS = 1500;
/** A live view shows so much of the past, in seconds. */
const WINDOW_S = 60;
/** The server's mean over the latest iterations is over this time (`STEP_NS` of sampler.py), in seconds. */
const MEAN_S = 2;
/** Longer than any run, in seconds. */
const LASTS_S = 1e7;

export class Curves {
  /** `seek(seconds)` is called when a user goes to a time of a recorded run. */
  constructor(container, values, key, seek) {
    this.container = container;
    this.values = values;
    this.key = key;
    this.seek = seek;
    this.origin = 0;
    this.rows = [];
    this.marks = [];
    this.cursor = null;
    this.what = "planes";
    this.times = { what: "", window_ns: 0, rows: [], why: "" };
    this.panel = null;
    this.titles = el("div", { class: "axis" });
    this.place = el("div", { class: "plot", role: "img" });
    container.replaceChildren(this.titles, this.place);
  }

  show(layout) {
    this.layout = layout;
    this.whole = layout.mode === "run";
    this.rows = [];
    this.marks = [];
    this.build();
  }

  history(rows) {
    this.rows = rows;
    this.draw();
  }

  /** Completion times, or why there are none. */
  completions(found) {
    this.times = found;
    if (this.what === "times") this.build();
  }

  /** Whether there are completion times to draw: single ones, or the mean while a workload runs. */
  timed() {
    return this.times.rows.length > 0 || this.rows.some((row) => row[row.length - 1] > 0);
  }

  /** The curves beside the goodput of all hosts: name, colour and dash of each, whether it is a time, and its place in
   * the rows (of completion times, for a median or P99). */
  beside() {
    if (this.what === "times") {
      const { rows, window_ns } = this.times;
      const single = [["median", 0, 1], ["P99", 1, 2]].map(([name, ink, column]) => (
        { name: `${name} of ${span(window_ns)}`, ink: `--plane-${ink}`, dash: ink, time: true, single: true, column }));
      const mean = { name: `mean of ${MEAN_S} s, or the present one if longer`, ink: "--plane-2", dash: 2, time: true, column: -1 };
      return [...(rows.length ? single : []), ...(this.whole ? [] : [mean])];
    }
    const { first, names } = this.columns();
    return names.map((name, at) => (
      { name, ink: `--plane-${at % 8}`, dash: Math.floor(at / 8) % 3, column: first + at }));
  }

  columns() {
    const { layout } = this;
    const first = this.what === "planes" ? 2 : 2 + layout.planes;
    const names = this.what === "planes"
      ? Array.from({ length: layout.planes }, (_, at) => `plane ${at}`)
      : layout.hosts.slice(0, 64).map((host) => host.name);
    return { first, names };
  }

  build() {
    this.panel?.destroy();
    const curves = this.beside();
    const timed = this.what === "times";
    const first = { name: timed ? "goodput of all hosts" : "all hosts", ink: "--ink", dash: 0, width: 2.5 };
    const ended = { "": "an iteration", step: "a step", flow: "a flow" }[this.times.what];
    this.place.setAttribute("aria-label", timed ? "goodput and completion times over time" : "goodput over time");
    this.key.replaceChildren(...[first, ...curves].map(({ name, ink, dash }) => el("li", {},
      el("i", { style: `border-color: var(${ink}); border-top-style: ${["solid", "dashed", "dotted"][dash]}` }), name)));
    const titles = [this.what === "planes" ? "goodput of all hosts, load of planes" : "goodput", ...(timed ? [`time of ${ended}`] : [])];
    this.titles.replaceChildren(...titles.map((each) => el("span", {}, each)));
    this.place.replaceChildren();
    this.panel = new Panel(this.place, {
      x: { words: (each) => `${digits(each)} s` },
      y: { zero: true, words: rate },
      right: timed ? { zero: true, words: (each) => (each ? span(each) : "0") } : null,
      marks: this.marks, lanes: 3,
      series: [first, ...curves].map(({ name, ink, dash, time, width }) => (
        { name, colour: ink.slice(2), dash, width, right: time, points: time })),
    }, this.data(), {
      bind: this.whole ? { mousedown: (plot, target, handler) => this.drag(plot, handler) } : {},
      tell: (plot) => this.tell(plot),
    });
  }

  get plot() { return this.panel?.plot; }

  /** A press on the curves of a recorded run goes there, and on while it is held. */
  drag(plot, handler) {
    const go = (event) => {
      const { left, width } = plot.over.getBoundingClientRect();
      const share = Math.min(Math.max((event.clientX - left) / width, 0), 1);
      this.seek(plot.scales.x.min + share * (plot.scales.x.max - plot.scales.x.min));
    };
    const end = () => { removeEventListener("mousemove", go); removeEventListener("mouseup", end); };
    return (event) => {
      handler(event);
      go(event);
      addEventListener("mousemove", go);
      addEventListener("mouseup", end);
    };
  }

  choose(what) {
    this.what = what;
    this.build();
  }

  add(state) {
    const last = this.rows[this.rows.length - 1];
    if (last && state.t_ns <= last[0]) return;
    // A workload that ended since the last row ran meanwhile.
    const ran = state.job?.running || (state.job?.ended_ns ?? -1) > (last?.[0] ?? -1);
    this.rows.push([
      state.t_ns, state.goodput_bps, ...state.planes.map((each) => each.rx_bps), ...state.hosts.map((each) => each.goodput_bps ?? 0),
      ran ? state.job.completion_ns ?? 0 : 0,
    ]);
    if (this.rows.length > POINTS) this.rows.splice(0, this.rows.length - POINTS);
  }

  data() {
    const curves = this.beside();
    let { rows } = this;
    let single = curves.some((each) => each.single) ? this.times.rows : [];
    if (!this.whole && rows.length) {
      // The time before the workload is idle.
      const from = Math.max(rows[rows.length - 1][0] - WINDOW_S * 1e9, this.origin);
      const first = rows.findIndex((row) => row[0] >= from);
      rows = first < 0 ? [] : rows.slice(first);
      single = single.filter((row) => row[0] >= from);
    }
    const shown = (row) => (row[0] - this.origin) / 1e9;
    // A mean of 0 is of no workload.
    const column = ({ column, time }) => rows.map((row) => (time ? row.at(column) || null : row[column]));
    const table = [rows.map(shown), rows.map((row) => row[1]), ...curves.filter((each) => !each.single).map(column)];
    if (!single.length) return [...table.slice(0, 2), ...curves.filter((each) => each.single).map(() => rows.map(() => null)), ...table.slice(2)];
    // Single completion times have points of their own.
    const joined = uPlot.join([table, [single.map(shown), ...curves.filter((each) => each.single).map((each) => single.map((row) => row[each.column]))]]);
    const means = table.length - 2;
    return [...joined.slice(0, 2), ...joined.slice(2 + means), ...joined.slice(2, 2 + means)];
  }

  draw() {
    if (!this.panel) return;
    this.panel.cursor = this.cursor === null ? null : (this.cursor - this.origin) / 1e9;
    this.panel.setData(this.data());
  }

  /** What is scheduled, and what happened: a failure until it is repaired. */
  mark(marks) {
    const open = new Map();
    this.marks = [];
    for (const { t_ns, text, breaks } of marks.slice(-200)) {
      const at = (t_ns - this.origin) / 1e9, name = text.replace(/^restored: /, "");
      const made = { at, text, breaks, label: `${breaks ? "✕" : "✓"} ${name}` };
      if (!breaks && open.has(name)) { open.get(name).until = at; open.delete(name); continue; }
      if (breaks) open.set(name, made);
      this.marks.push(made);
    }
    // What has not been repaired lasts.
    for (const each of open.values()) each.until = LASTS_S;
    if (this.panel) this.panel.marks = this.marks;
  }

  tell(plot) {
    const at = plot.cursor.idx;
    if (at === null || at === undefined) return;
    const words = plot.series.slice(1).map((series, number) => {
      const column = plot.data[number + 1];
      // A moment that another curve has a point at lies between two points of this one.
      let from = at;
      while (from > 0 && column[from] === undefined) from -= 1;
      const value = column[from];
      return `${series.label} ${series.scale !== "right" ? rate(value ?? 0) : value ? span(value) : "–"}`;
    });
    this.values.textContent = `${plot.data[0][at].toFixed(2)} s: ${words.slice(0, 10).join(", ")}`;
  }
}
