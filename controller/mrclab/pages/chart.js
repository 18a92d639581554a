// The chart of every page, over uPlot: the typed description of `chart.py`, drawn; of the live view, too.
// Ticks and marks are elements of the page, not pixels, so that they print, follow the colours, and can be measured.

const DIGITS = 4;

/** A number as `mrc_topo.units.digits` writes it: some significant digits, never an exponent. */
export function digits(value, count = DIGITS) {
  if (value === null || value === undefined || Number.isNaN(value)) return "-";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "-∞";
  const places = Math.max(count - 1 - (value ? Math.floor(Math.log10(Math.abs(value))) : 0), 0);
  return value.toLocaleString("en", { maximumFractionDigits: Math.min(places, 20) });
}

const MULTIPLES = {
  "b/s": [[1e15, "Pb/s"], [1e12, "Tb/s"], [1e9, "Gb/s"], [1e6, "Mb/s"], [1e3, "kb/s"], [1, "b/s"]],
  s: [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]],
  B: [[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]],
  "%": [[0.01, "%"]],
};

/** A quantity as `mrc_topo.units.shown` writes it. */
export function shown(value, unit = "", count = DIGITS) {
  if (value === null || value === undefined) return "-";
  const steps = MULTIPLES[unit] ?? [[1, unit]];
  const [factor, symbol] = unit === "s" && !value ? [1, "s"]
    : steps.find(([each]) => Math.abs(value) >= each * 0.99995) ?? steps[steps.length - 1];
  return `${digits(value / factor, count)} ${symbol}`.trimEnd();
}

const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
const ROOM = 6;
/** Failures lie in lanes above the plot, none over another: height of a lane, and how many there are at most. */
const LANE = 19, LANES = 6;
/** At least so wide is what stands left of charts over the same time, so that a time has one place in all of them. */
const GUTTER = 48;
const font = () => `11px ${getComputedStyle(document.body).fontFamily}`;
const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const pen = document.createElement("canvas").getContext("2d");
const widths = new Map();
const wide = (text) => {
  if (!widths.has(text)) { pen.font = font(); widths.set(text, pen.measureText(text).width); }
  return widths.get(text);
};

const make = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

/** Where an axis begins and ends: at 0, or where the differences can be seen (as in `chart.py`). */
export function bounds(low, high, zero) {
  if (!(high > low)) [low, high] = low > 0 ? [0, low * 1.1] : low < 0 ? [low * 1.1, 0] : [0, 1];
  const span = high - low;
  const least = low >= 0 && (zero || span > 0.4 * high) ? 0 : low - 0.1 * span;
  return [low >= 0 ? Math.max(least, 0) : least, high + 0.06 * (high - least)];
}

/** One panel. `spec`: x, y, series, marks; `data`: columns as uPlot has them, `bands`: pairs of their numbers. */
export class Panel {
  constructor(place, spec, data, hooks = {}) {
    Object.assign(this, { place, spec, hooks, data, marks: spec.marks ?? [], lane: [], deep: 0, cursor: null, off: new Set() });
    this.build();
    this.watch = new ResizeObserver(() => this.size());
    this.watch.observe(place);
  }

  height() { return this.spec.height || this.place.clientHeight || 240; }

  /** Where the x axis begins and ends while all of it is shown. */
  ends() { return this.spec.x.span ?? [this.data[0][0], this.data[0][this.data[0].length - 1]]; }

  /** Give each failure a lane in which it hides no other, with room for its name or, where names take too many lanes,
   * for its number. */
  arrange() {
    const [from, to] = this.ends(), most = this.spec.lanes ?? LANES, across = Math.max(this.place.clientWidth - GUTTER - 20, 50);
    const x = (at) => ((Math.min(Math.max(at, from), to) - from) / (to - from || 1)) * across;
    let free = [];
    for (const named of [true, false]) {
      free = [];
      this.lane = this.marks.map((mark, at) => {
        if (mark.at > to || (mark.until ?? mark.at) < from) return -1;
        const [long, short] = this.flag(at), until = x(mark.until ?? mark.at), room = until - x(mark.at);
        // A name that is longer than the bar stands at its end.
        const behind = this.mended(mark) && wide(long) + 16 > room, own = wide(named && !behind ? long : short) + 16;
        const begin = Math.min(x(mark.at), across + 12 - own);
        const fits = free.findIndex((each) => each <= begin), lane = fits < 0 ? free.length : fits;
        free[lane] = Math.max(begin + own, until) + (this.mended(mark) ? wide(this.flag(at, true).at(named ? behind ? 0 : 1 : 2)) + 16 : 0);
        return lane;
      });
      if (free.length <= most) break;
    }
    // What has no lane left shares the last one.
    this.lane = this.lane.map((each) => Math.min(each, most - 1));
    const deep = Math.min(free.length, most), changed = deep !== this.deep;
    this.deep = deep;
    if (this.spec.base) this.place.style.height = `${this.spec.base + LANE * deep}px`;
    return changed;
  }

  mended(mark) { return mark.until !== undefined && mark.until < this.ends()[1]; }

  /** What stands at a failure, or at its end, by the room that there is. */
  flag(at, end = false) {
    const { label, text } = this.marks[at], number = label === undefined ? String(at + 1) : "";
    if (end) return [`✓${number} restored: ${text}`, `✓${number} restored`, `✓${number}`];
    return label === undefined ? [`${number} ${text}`, number] : [label, label[0]];
  }

  size() {
    this.arrange();
    const width = this.place.clientWidth;
    if (width && (width !== this.plot.width || this.height() !== this.plot.height)) this.plot.setSize({ width, height: this.height() });
  }

  build() {
    this.plot?.destroy();
    this.arrange();
    const { spec } = this, log = spec.x.log, names = spec.x.ticks;
    const line = ink("line");
    const grid = { stroke: line, width: 1 };
    const axis = (at, words, more) => ({
      stroke: ink("muted"), grid, ticks: { stroke: line, size: 4 }, gap: 3, ...more,
      values: (plot, splits) => { this.words[at] = splits.map((each) => [each, each === null ? "" : words(each)]); return splits.map(() => ""); },
    });
    this.words = [];
    this.layer = make("div", { class: "words", "aria-hidden": "true" });
    // Panels over each other have their axes in one line.
    const upright = (at) => () => {
      const own = 8 + Math.ceil(Math.max(spec.group ? GUTTER : 16, ...(this.words[at] ?? []).map(([, text]) => wide(text))));
      return at === 1 ? Math.max(own, ...(this.beside ?? []).map((each) => each.left ?? 0), (this.left = own)) : own;
    };
    const range = ({ zero, span = [] }) => (plot, low, high) => bounds(Math.min(low ?? 0, ...span), Math.max(high ?? 0, ...span), zero);
    const y = (at, scale, more) => axis(at, (each) => scale.words ? scale.words(each) : digits(each), {
      size: upright(at), space: 34, ...more });
    const slot = () => (names ? (this.place.clientWidth - 60) / names.length : 0);
    const deep = () => (names ? 14 * Math.max(...names.map((each) => Math.min(Math.ceil(wide(each) / Math.max(slot() - ROOM, 20)), 4))) + 10 : 21);
    this.plot = new uPlot({
      width: this.place.clientWidth || 600, height: this.height(), padding: [() => 8 + LANE * this.deep, 12, 0, 0],
      legend: { show: false },
      cursor: { drag: { x: !this.hooks.bind, y: false }, bind: this.hooks.bind ?? {}, points: { size: 7 }, ...(spec.group ? { sync: { key: spec.group, setSeries: false } } : {}) },
      scales: {
        x: { time: false, ...(log ? { distr: 3, log: 2 } : {}), ...(names ? { range: [-0.5, names.length - 0.5] } : {}), ...(spec.x.range ? { range: spec.x.range } : {}) },
        y: { range: range(spec.y) },
        ...(spec.right ? { right: { range: range(spec.right) } } : {}),
      },
      axes: [
        axis(0, (each) => (names ? names[each] ?? "" : spec.x.names ? spec.x.names[spec.x.at.indexOf(each)] : (spec.x.words ?? digits)(each)), {
          size: deep, space: 56,
          ...(names || spec.x.at ? { splits: () => (names ? names.map((_, at) => at) : spec.x.at), grid: { show: !names, ...grid }, filter: (plot, splits) => splits } : {}) }),
        y(1, spec.y),
        ...(spec.right ? [y(2, spec.right, { side: 1, scale: "right", grid: { show: false } })] : []),
      ],
      series: [{}, ...spec.series.map((each, at) => ({
        label: each.name, stroke: ink(each.colour), width: each.dots ? 0 : each.width ?? 1.6, dash: DASHES[each.dash ?? 0].map((part) => part), scale: each.right ? "right" : "y",
        show: !this.off.has(at), spanGaps: each.joined ?? false,
        points: { show: Boolean(each.dots || each.points), size: each.dots ? 6 : 7, fill: ink(each.colour), stroke: ink(each.colour) },
        ...(each.dots ? { paths: () => null } : each.steps ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
      })), ...(spec.hidden ?? []).map(() => ({ width: 0, points: { show: false }, paths: () => null }))],
      hooks: {
        drawClear: [(plot) => this.under(plot)],
        draw: [(plot) => this.over(plot)],
        setCursor: [(plot) => this.hooks.tell?.(plot)],
        setScale: [(plot, key) => { if (key === "x") this.hooks.zoomed?.(plot); }],
      },
    }, this.data, this.place);
    this.plot.root.append(this.layer);
    if (spec.x.span) this.plot.setScale("x", { min: spec.x.span[0], max: spec.x.span[1] });
    this.label();
  }

  setData(data) {
    this.data = data;
    if (this.arrange()) this.plot.redraw(false, true);
    this.plot.setData(data);
  }

  toggle(at, on) {
    if (on) this.off.delete(at); else this.off.add(at);
    this.plot.setSeries(at + 1, { show: on });
    for (const each of (this.spec.hidden ?? []).filter((band) => band.of === at)) this.plot.setSeries(each.column, { show: on });
  }

  /** What lies below the curves: the time of a failure, and the confidence of a curve. */
  under(plot) {
    const { ctx, bbox } = plot, [low, high] = [plot.scales.x.min, plot.scales.x.max];
    const ratio = devicePixelRatio, bottom = bbox.top + bbox.height;
    ctx.save();
    ctx.lineWidth = ratio;
    const edge = (at, colour, from, dash) => {
      if (at < low || at > high) return;
      const x = plot.valToPos(at, "x", true);
      ctx.strokeStyle = ink(colour); ctx.globalAlpha = 0.8; ctx.setLineDash(dash.map((each) => each * ratio));
      ctx.beginPath(); ctx.moveTo(x, from); ctx.lineTo(x, bottom); ctx.stroke();
    };
    this.marks.forEach((mark, at) => {
      if (this.lane[at] < 0) return;
      const y = bbox.top - (LANE * (this.deep - this.lane[at]) + 2) * ratio, until = mark.until ?? mark.at;
      const [from, to] = [mark.at, until].map((each) => plot.valToPos(Math.min(Math.max(each, low), high), "x", true));
      ctx.globalAlpha = 0.25; ctx.fillStyle = ink(mark.breaks ? "down" : "ev-good");
      ctx.fillRect(from, y + 2 * ratio, to - from, (LANE - 4) * ratio);
      edge(mark.at, mark.breaks ? "down" : "ev-good", y, [5, 3]);
      if (this.mended(mark)) edge(until, "ev-good", y, [2, 3]);
    });
    for (const { at, breaks } of this.spec.edges ?? []) edge(at, breaks ? "down" : "ev-good", bbox.top, [5, 3]);
    ctx.setLineDash([]);
    ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
    // Values of names are bars where the axis has their 0.
    const beside = this.spec.series.filter((each) => each.dots && each.y.length).map((each) => spread(each.x)[0]).sort((one, other) => one - other);
    const near = Math.min(0.5, ...beside.slice(1).map((each, at) => each - beside[at]).filter((each) => each > 0));
    this.spec.series.forEach((each, at) => {
      if (!each.dots || !this.spec.x.ticks || this.off.has(at) || plot.scales.y.min > 0) return;
      ctx.fillStyle = ink(each.colour); ctx.globalAlpha = 0.35;
      const wide = Math.min(28 * ratio, (bbox.width / this.spec.x.ticks.length) * 0.9 * near), floor = plot.valToPos(0, "y", true);
      this.data[at + 1].forEach((value, place) => {
        if (value === null || value === undefined) return;
        const y = plot.valToPos(value, "y", true);
        ctx.fillRect(plot.valToPos(this.data[0][place], "x", true) - wide / 2, Math.min(y, floor), wide, Math.abs(floor - y));
      });
    });
    const hidden = this.spec.hidden ?? [];
    for (let at = 0; at < hidden.length; at += 2) {
      const { of, column } = hidden[at], [x, least, most] = [this.data[0], this.data[column], this.data[column + 1]];
      if (this.off.has(of)) continue;
      const known = x.map((_, place) => place).filter((place) => least[place] !== null && least[place] !== undefined);
      const point = (place, column) => [plot.valToPos(x[place], "x", true), plot.valToPos(column[place], "y", true)];
      ctx.fillStyle = ctx.strokeStyle = ink(this.spec.series[of].colour); ctx.globalAlpha = 0.18; ctx.lineWidth = 1.5 * devicePixelRatio;
      // Where there is none (null) a band ends; at the points of other curves (undefined) it goes on.
      const runs = [[]];
      x.forEach((_, place) => { if (least[place] === null) runs.push([]); else if (least[place] !== undefined) runs[runs.length - 1].push(place); });
      for (const run of runs) {
        if (run.length < 2 || (this.spec.x.ticks && !this.spec.series[of].points)) continue;
        ctx.beginPath();
        run.forEach((place) => ctx.lineTo(...point(place, most)));
        run.reverse().forEach((place) => ctx.lineTo(...point(place, least)));
        ctx.fill();
      }
      if (this.spec.series[of].dots || (this.spec.series[of].points && known.length < 40)) {
        ctx.globalAlpha = 0.7; ctx.beginPath();
        for (const place of known) { ctx.moveTo(...point(place, least)); ctx.lineTo(...point(place, most)); }
        ctx.stroke();
      }
    }
    if (this.spec.level !== undefined) {
      ctx.globalAlpha = 1; ctx.strokeStyle = ink("ink"); ctx.lineWidth = devicePixelRatio;
      const y = plot.valToPos(this.spec.level, "y", true);
      ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
    }
    ctx.restore();
  }

  over(plot) {
    const { ctx, bbox } = plot;
    if (this.cursor !== null) {
      const x = plot.valToPos(this.cursor, "x", true);
      ctx.save(); ctx.strokeStyle = ink("accent"); ctx.lineWidth = 1.5 * devicePixelRatio;
      ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke(); ctx.restore();
    }
    if (this.layer.isConnected) this.label();
  }

  /** Ticks and names of failures, none over another. */
  label() {
    const { plot } = this, ratio = devicePixelRatio;
    const [left, top, across, up] = ["left", "top", "width", "height"].map((each) => plot.bbox[each] / ratio);
    const drawn = [], { ticks: names } = this.spec.x, slot = names ? across / names.length : 0;
    const add = (kind, text, x, y, style = "") => drawn.push(make("span", { class: kind, style: `left:${x.toFixed(1)}px;top:${y.toFixed(1)}px;${style}` }, text));
    let free = -Infinity;
    for (const [value, text] of this.words[0] ?? []) {
      if (!text) continue;
      const x = left + plot.valToPos(value, "x"), half = names ? slot / 2 - ROOM / 2 : wide(text) / 2;
      const at = names ? x : Math.min(x, left + across + 12 - half);
      if (x < left - 1 || x > left + across + 1 || at - half < free - 1) continue;
      add("x", text, at, top + up + 7, names ? `width:${(2 * half).toFixed(0)}px` : "");
      free = at + half + ROOM;
    }
    [["y", 1, "y"], ["right", 2, "z"]].forEach(([scale, at, kind]) => {
      for (const [value, text] of this.words[at] ?? []) {
        if (!text) continue;
        const y = top + plot.valToPos(value, scale);
        if (y >= top - 1 && y <= top + up + 1) add(kind, text, kind === "y" ? left - 7 : left + across + 7, y);
      }
    });
    const flags = [];
    this.marks.forEach((mark, at) => {
      if (this.lane[at] < 0) return;
      const { min, max } = plot.scales.x, until = mark.until ?? mark.at;
      const put = (value, kind, words) => flags.push({ x: plot.valToPos(value, "x"), lane: this.lane[at], kind, title: mark.text, at, words });
      if (mark.at <= max && until >= min) put(Math.max(mark.at, min), mark.breaks ? "fails" : "mends", this.flag(at));
      if (this.mended(mark) && until >= min && until <= max) put(until, "mends", this.flag(at, true));
    });
    flags.sort((one, other) => one.lane - other.lane || one.x - other.x);
    let before = null;
    const named = new Set();
    flags.forEach((each, place) => {
      const next = flags[place + 1], end = across + 12, same = before?.lane === each.lane;
      const room = next?.lane === each.lane ? next.x : end, from = same ? before.end + 1 : -Infinity;
      const put = (words) => { const own = wide(words) + 14, begin = Math.min(each.x, end - own); return { begin, end: begin + own, words }; };
      const choice = each.words.filter((_, at) => each.words.length < 3 || at || !named.has(each.at)).map(put);
      const short = each.words.at(-1), made = choice.find(({ begin, end: to }) => begin >= from && to <= room) ?? choice.at(-1);
      // Where there is no room even for a number the line and the table tell of it.
      if (made.begin < from) return;
      if (made.words !== short) named.add(each.at);
      add(`mark ${each.kind}`, made.words, left + made.begin, top - 2 - LANE * (this.deep - each.lane - 0.5));
      before = { ...each, ...made };
      drawn[drawn.length - 1].title = each.title;
    });
    this.layer.replaceChildren(...drawn);
    const least = plot.scales.y.min;
    this.hooks.starts?.(least > 0 ? digits(least, 3) : "");
  }

  destroy() { this.watch.disconnect(); this.plot.destroy(); }
}

function keep(name, type, text) {
  const link = make("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

const spread = (column) => (Array.isArray(column) ? column : Array.from({ length: column.n }, (_, at) => column.from + at * column.step));
const figures = [];

/** A chart of a page that opens offline: one panel or two, legend, values under the pointer, keys. */
class Figure {
  constructor(figure) {
    this.figure = figure;
    this.spec = JSON.parse(figure.querySelector("script").textContent);
    this.tip = make("div", { class: "tip", role: "status" });
    this.tip.hidden = true;
    this.panels = [...figure.querySelectorAll(".plot")].map((place, at) => this.panel(place, this.spec.panels[at], figure.querySelectorAll(".starts")[at]));
    for (const panel of this.panels) {
      panel.beside = this.panels.filter((each) => each !== panel);
      if (panel.beside.length) panel.build();
    }
    this.ready = true;
    figure.append(this.tip);
    this.keys = [...figure.querySelectorAll(".key")];
    this.keys.forEach((key, at) => key.addEventListener("click", () => {
      const on = key.getAttribute("aria-pressed") !== "true";
      key.setAttribute("aria-pressed", on);
      const name = key.textContent.trim();
      this.panels.forEach((panel) => panel.spec.series.forEach((each, place) => { if (each.name.trim() === name) panel.toggle(place, on); }));
    }));
    figure.querySelector(".whole").addEventListener("click", () => zoom());
    figure.querySelector(".save").addEventListener("click", () => this.save());
  }

  panel(place, spec, starts) {
    // Series with points of their own are joined on all of them.
    const tables = spec.series.map((each) => [spread(each.x), each.y, ...(each.low ? [each.low, each.high] : [])]);
    // A step lasts until the axis ends.
    spec.series.forEach((each, at) => {
      const [x, ...columns] = tables[at], end = spec.x.span?.[1];
      if (each.steps && x[x.length - 1] < end) tables[at] = [[...x, end], ...columns.map((column) => [...column, column[column.length - 1]])];
    });
    const data = tables.length ? uPlot.join(tables) : [[0, 1]];
    const columns = [data[0]], extra = [];
    let at = 1;
    spec.series.forEach((each, of) => {
      columns.push(data[at]);
      if (each.low) extra.push([of, data[at + 1], data[at + 2]]);
      at += each.low ? 3 : 1;
    });
    spec.hidden = [];
    spec.base = place.clientHeight;
    if (spec !== this.spec.panels[0]) spec.edges = this.spec.panels[0].marks;
    for (const [of, low, high] of extra) {
      spec.hidden.push({ of, column: columns.length }, { of, column: columns.length + 1 });
      columns.push(low, high);
    }
    spec.series.forEach((each) => { each.joined = tables.length > 1; });
    const panel = new Panel(place, spec, columns, {
      tell: (plot) => this.tell(plot, spec),
      zoomed: (plot) => { if (this.ready) zoomed(plot, spec.group); },
      starts: (from) => { starts.textContent = from ? `axis starts at ${from}, not at 0` : ""; },
    });
    place.addEventListener("keydown", (event) => this.key(event, panel));
    place.addEventListener("blur", () => { this.tip.hidden = true; });
    place.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    return panel;
  }

  key(event, panel) {
    const { plot } = panel, x = panel.data[0], { min, max } = plot.scales.x;
    const middle = plot.cursor.idx ?? Math.floor(x.length / 2);
    const to = { ArrowLeft: middle - 1, ArrowRight: middle + 1, Home: 0, End: x.length - 1 }[event.key];
    if (to !== undefined) {
      const place = Math.min(Math.max(to, 0), x.length - 1);
      plot.setCursor({ left: plot.valToPos(x[place], "x"), top: 10 });
    } else if (event.key === "+") plot.setScale("x", { min: min + (max - min) / 4, max: max - (max - min) / 4 });
    else if (event.key === "Escape" || event.key === "-") zoom();
    else return;
    event.preventDefault();
  }

  tell(plot, spec) {
    const at = plot.cursor.idx;
    // Of charts that follow each other only the one that is looked at tells.
    if (at === null || at === undefined || !(this.figure.matches(":hover") || this.figure.contains(document.activeElement))) { this.tip.hidden = true; return; }
    const x = plot.data[0][at], body = make("table");
    const unit = spec.x.unit ? ` ${spec.x.unit}` : "";
    body.insertRow().insertCell().textContent = spec.x.ticks ? spec.x.ticks[Math.round(x)] : `${digits(x, 5)}${unit}`;
    spec.series.forEach((each, number) => {
      if (!plot.series[number + 1].show) return;
      const column = plot.data[number + 1];
      let from = at;
      while (from > 0 && (column[from] === undefined || column[from] === null) && !each.dots && !spec.x.ticks) from -= 1;
      if (column[from] === undefined || column[from] === null) return;
      const row = body.insertRow(), name = row.insertCell();
      name.textContent = each.name;
      name.style.borderLeft = `4px solid var(--${each.colour})`; name.style.paddingLeft = ".4rem";
      row.insertCell().textContent = `${digits(column[from])} ${spec.y.unit}`;
    });
    this.tip.replaceChildren(body);
    this.tip.hidden = false;
    const box = plot.root.getBoundingClientRect(), home = this.figure.getBoundingClientRect();
    const left = box.left - home.left + plot.bbox.left / devicePixelRatio + plot.cursor.left;
    this.tip.style.top = `${box.top - home.top + 24}px`;
    const right = left > home.width / 2;
    this.tip.style.left = right ? "auto" : `${left + 12}px`;
    this.tip.style.right = right ? `${home.width - left + 12}px` : "auto";
  }

  /** A row for each point of the curves that are shown. */
  save() {
    const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`, rows = [];
    for (const panel of this.panels) {
      const { x, y, series } = panel.spec;
      rows.push(["curve", quoted(`${x.title}${x.unit ? `, ${x.unit}` : ""}`), quoted(`${y.title}${y.unit ? `, ${y.unit}` : ""}`)].join(","));
      series.forEach((each, at) => {
        if (panel.off.has(at)) return;
        spread(each.x).forEach((value, place) => rows.push([quoted(each.name), x.ticks ? quoted(x.ticks[value]) : value, each.y[place] ?? ""].join(",")));
      });
    }
    keep(`${this.figure.id}.csv`, "text/csv", `${rows.join("\r\n")}\r\n`);
  }
}

let following = false;

const ends = (panel) => { const [min, max] = panel.ends(); return { min, max }; };

/** All charts of a group show the same part of the time; each of its own all of it. */
function zoomed(plot, group) {
  const mine = figures.flatMap((each) => each.panels).find((each) => each.plot === plot);
  if (following || !group || !mine) return;
  following = true;
  const { min, max } = plot.scales.x, own = ends(mine), whole = min <= own.min && max >= own.max;
  for (const { panels, figure } of figures) {
    for (const panel of panels) {
      if (panel.spec.group !== group) continue;
      if (panel.plot !== plot) panel.plot.setScale("x", whole ? ends(panel) : { min, max });
      figure.querySelector(".whole").hidden = whole;
    }
  }
  following = false;
}

function zoom() {
  for (const { panels } of figures) for (const panel of panels) panel.plot.setScale("x", ends(panel));
}

const again = () => figures.forEach(({ panels }) => panels.forEach((panel) => panel.build()));

/** Draws all charts of the page; those far below when they come into sight. */
export function drawAll() {
  const wanted = [...document.querySelectorAll("figure.chart")];
  const draw = (figure) => { if (!figure.dataset.drawn) { figure.dataset.drawn = "yes"; figures.push(new Figure(figure)); } };
  const seen = new IntersectionObserver((entries) => entries.forEach((entry) => {
    if (entry.isIntersecting) { seen.unobserve(entry.target); draw(entry.target); }
  }), { rootMargin: "400px" });
  wanted.forEach((each) => seen.observe(each));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  // Paper is white: colours and all charts are made for it.
  const paper = (on) => { document.documentElement.classList.toggle("printing", on); if (on) wanted.forEach(draw); again(); };
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
}

if (document.querySelector("figure.chart")) drawAll();
