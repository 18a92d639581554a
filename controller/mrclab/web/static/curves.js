// Goodput and completion times over time, drawn by uPlot; what was scheduled and done are lines across them.

import uPlot from "./vendor/uplot.js";
import { colour, el } from "./dom.js";
import { rate, span } from "./units.js";

const POINTS = 1500;
/** A live view shows so much of the past, in seconds. */
const WINDOW_S = 60;
const DASHES = [[], [6, 3], [2, 3]];
/** The server's mean over the latest iterations is over this time (`STEP_NS` of sampler.py), in seconds. */
const MEAN_S = 2;
/** The least height of the scale of completion times, ns. */
const LEAST_NS = 1e6;

/** The width that an axis needs for its ticks, so that its label stands beside them. */
function width(plot, ticks, at, cycle) {
  const axis = plot.axes[at];
  if (cycle > 1) return axis._size;
  plot.ctx.save();
  [plot.ctx.font] = axis.font;
  const widest = Math.max(0, ...(ticks ?? []).map((each) => plot.ctx.measureText(each).width));
  plot.ctx.restore();
  return Math.ceil(axis.ticks.size + axis.gap + widest / devicePixelRatio) + 4;
}

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
    this.plot = null;
    new ResizeObserver(() => this.size()).observe(container);
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

  size() {
    if (this.container.clientWidth) this.plot?.setSize({ width: this.container.clientWidth, height: this.container.clientHeight });
  }

  /** The curves beside the goodput of all hosts: name, colour and dash of each, whether it is a time, and its place in
   * the rows (of completion times, for a median or P99). */
  beside() {
    if (this.what === "times") {
      const { rows, window_ns } = this.times;
      const single = [["median", 0, 1], ["P99", 1, 2]].map(([name, ink, column]) => (
        { name: `${name} of ${span(window_ns)}`, ink: `--plane-${ink}`, dash: DASHES[ink], time: true, single: true, column }));
      const mean = { name: `mean of ${MEAN_S} s, or the present one if longer`, ink: "--plane-2", dash: DASHES[2], time: true, column: -1 };
      return [...(rows.length ? single : []), ...(this.whole ? [] : [mean])];
    }
    const { first, names } = this.columns();
    return names.map((name, at) => (
      { name, ink: `--plane-${at % 8}`, dash: DASHES[Math.floor(at / 8) % 3], column: first + at }));
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
    this.plot?.destroy();
    const curves = this.beside();
    const timed = this.what === "times";
    const line = ({ name, ink, dash, time }) => ({
      label: name, stroke: colour(ink), width: 1.5, dash, scale: time ? "ns" : "y", ...(time ? {} : { points: { show: false } }),
    });
    const first = { name: timed ? "goodput of all hosts" : "all hosts", ink: "--ink", dash: [] };
    const ended = { "": "an iteration", step: "a step", flow: "a flow" }[this.times.what];
    this.container.setAttribute("aria-label", timed ? "goodput and completion times over time" : "goodput over time");
    this.key.replaceChildren(...[first, ...curves].map(({ name, ink, dash }) => el("li", {},
      el("i", { style: `border-color: var(${ink}); border-top-style: ${dash.length ? (dash[0] > 3 ? "dashed" : "dotted") : "solid"}` }), name)));
    const axis = { labelSize: 18, labelFont: "11px system-ui, sans-serif", stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    this.plot = new uPlot({
      width: this.container.clientWidth || 600,
      height: this.container.clientHeight || 170,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, bind: this.whole ? { mousedown: (plot, target, handler) => this.drag(plot, handler) } : {} },
      scales: {
        x: { time: false },
        y: { range: (plot, low, high) => [0, Math.max(high * 1.25, 1)] },
        ns: { range: (plot, low, high) => [0, Math.max(high * 1.25, LEAST_NS)] },
      },
      series: [
        { label: "time" },
        { label: "goodput", stroke: colour("--ink"), width: 2.5, points: { show: false } },
        ...curves.map(line),
      ],
      axes: [
        { ...axis, label: this.whole ? "time of the run" : "time since the workload began",
          values: (plot, ticks) => ticks.map((each) => `${each} s`) },
        { ...axis, label: this.what === "planes" ? "goodput, load" : "goodput", size: width, values: (plot, ticks) => ticks.map((each) => rate(each)) },
        ...(timed ? [{ ...axis, scale: "ns", side: 1, grid: { show: false }, label: `time of ${ended}`, size: width,
          values: (plot, ticks) => ticks.map((each) => (each ? span(each) : "0")) }] : []),
      ],
      hooks: { draw: [(plot) => this.drawMarks(plot)], setCursor: [(plot) => this.tell(plot)] },
    }, this.data(), this.container);
  }

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
    this.plot?.setData(this.data());
  }

  /** Lines across: what is scheduled, what happened. */
  mark(marks) {
    this.marks = marks.slice(-200);
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    const [low, high] = [plot.scales.x.min, plot.scales.x.max];
    ctx.textAlign = "left";
    ctx.textBaseline = "alphabetic";
    let right = -Infinity;
    const line = (at, ink, dash, words) => {
      const seconds = (at - this.origin) / 1e9;
      if (!(seconds >= low && seconds <= high)) return;
      const x = plot.valToPos(seconds, "x", true);
      ctx.strokeStyle = ink;
      ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.setLineDash(dash.map((each) => each * devicePixelRatio));
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const wide = words ? ctx.measureText(words).width + 6 * devicePixelRatio : 0;
      // At the right edge the words stand before their line.
      const from = x + wide > bbox.left + bbox.width ? x - wide : x + 3 * devicePixelRatio;
      if (words && from > right) {
        ctx.setLineDash([]);
        ctx.lineWidth = 4 * devicePixelRatio;
        ctx.strokeStyle = colour("--paper");
        ctx.strokeText(words, from, bbox.top + 11 * devicePixelRatio);
        ctx.fillStyle = ink;
        ctx.fillText(words, from, bbox.top + 11 * devicePixelRatio);
        right = from + wide;
      }
    };
    for (const each of this.marks) {
      line(each.t_ns, colour(each.breaks ? "--down" : "--ev-good"), each.breaks ? [5, 3] : [2, 3], `${each.breaks ? "✕" : "✓"} ${each.text}`);
    }
    if (this.cursor !== null) line(this.cursor, colour("--accent"), [], "");
    ctx.restore();
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
      return `${series.label} ${series.scale !== "ns" ? rate(value ?? 0) : value ? span(value) : "–"}`;
    });
    this.values.textContent = `${plot.data[0][at].toFixed(2)} s: ${words.slice(0, 10).join(", ")}`;
  }
}
