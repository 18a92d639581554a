// Goodput over time, drawn by uPlot; what was scheduled and done are lines across it.

import uPlot from "./vendor/uplot.js";
import { colour } from "./dom.js";
import { rate } from "./units.js";

const POINTS = 1500;
/** A live view shows so much of the past, in seconds. */
const WINDOW_S = 60;
const DASHES = [[], [6, 3], [2, 3]];

export class Curves {
  constructor(container, values) {
    this.container = container;
    this.values = values;
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
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    this.plot = new uPlot({
      width: this.container.clientWidth || 600,
      height: this.container.clientHeight || 170,
      legend: { show: false },
      cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: (plot, low, high) => [0, Math.max(high * 1.25, 1)] } },
      series: [
        { label: "time" },
        { label: "goodput", stroke: colour("--ink"), width: 2.5, points: { show: false } },
        ...names.map(line),
      ],
      axes: [
        { ...axis, values: (plot, ticks) => ticks.map((each) => `${each} s`) },
        { ...axis, size: 84, values: (plot, ticks) => ticks.map((each) => rate(each)) },
      ],
      hooks: { draw: [(plot) => this.drawMarks(plot)], setCursor: [(plot) => this.tell(plot)] },
    }, this.data(), this.container);
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
      const from = rows[rows.length - 1][0] - WINDOW_S * 1e9;
      rows = rows.slice(rows.findIndex((row) => row[0] >= from));
    }
    const column = (at) => rows.map((row) => row[at]);
    return [rows.map((row) => row[0] / 1e9), column(1), ...names.map((_, at) => column(first + at))];
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
      const seconds = at / 1e9;
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
