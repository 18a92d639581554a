// Goodput over time, drawn by uPlot; what was scheduled and done are lines across it.

import uPlot from "./vendor/uplot.js";
import { colour, el } from "./dom.js";
import { rate } from "./units.js";

const POINTS = 1500;
/** A live view shows so much of the past, in seconds. */
const WINDOW_S = 60;
const DASHES = [[], [6, 3], [2, 3]];

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

  size() {
    if (this.container.clientWidth) this.plot?.setSize({ width: this.container.clientWidth, height: this.container.clientHeight });
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
    const { names } = this.columns();
    const line = (label, at) => ({
      label, stroke: colour(`--plane-${at % 8}`), width: 1.5, dash: DASHES[Math.floor(at / 8) % 3], points: { show: false },
    });
    const drawn = [["all hosts", "--ink", []], ...names.map((name, at) => [name, `--plane-${at % 8}`, DASHES[Math.floor(at / 8) % 3]])];
    this.key.replaceChildren(...drawn.map(([name, ink, dash]) => el("li", {},
      el("i", { style: `border-color: var(${ink}); border-top-style: ${dash.length ? (dash[0] > 3 ? "dashed" : "dotted") : "solid"}` }), name)));
    const axis = { labelSize: 18, labelFont: "11px system-ui, sans-serif", stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    this.plot = new uPlot({
      width: this.container.clientWidth || 600,
      height: this.container.clientHeight || 170,
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, bind: this.whole ? { mousedown: (plot, target, handler) => this.drag(plot, handler) } : {} },
      scales: { x: { time: false }, y: { range: (plot, low, high) => [0, Math.max(high * 1.25, 1)] } },
      series: [
        { label: "time" },
        { label: "goodput", stroke: colour("--ink"), width: 2.5, points: { show: false } },
        ...names.map(line),
      ],
      axes: [
        { ...axis, label: this.whole ? "time of the run" : "time since the workload began",
          values: (plot, ticks) => ticks.map((each) => `${each} s`) },
        { ...axis, label: "rate", size: 70, values: (plot, ticks) => ticks.map((each) => rate(each)) },
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
    this.rows.push([
      state.t_ns, state.goodput_bps, ...state.planes.map((each) => each.rx_bps), ...state.hosts.map((each) => each.goodput_bps ?? 0),
    ]);
    if (this.rows.length > POINTS) this.rows.splice(0, this.rows.length - POINTS);
  }

  data() {
    const { first, names } = this.columns();
    let rows = this.rows;
    if (!this.whole && rows.length) {
      // The time before the workload is idle.
      const from = Math.max(rows[rows.length - 1][0] - WINDOW_S * 1e9, this.origin);
      const first = rows.findIndex((row) => row[0] >= from);
      rows = first < 0 ? [] : rows.slice(first);
    }
    const column = (at) => rows.map((row) => row[at]);
    return [rows.map((row) => (row[0] - this.origin) / 1e9), column(1), ...names.map((_, at) => column(first + at))];
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
    const words = plot.series.slice(1).map((series, number) => `${series.label} ${rate(plot.data[number + 1][at] ?? 0)}`);
    this.values.textContent = `${plot.data[0][at].toFixed(2)} s: ${words.slice(0, 10).join(", ")}`;
  }
}
