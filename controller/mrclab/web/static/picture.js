// What changes with every state: the links with their load, below the graph's nodes, and the words in and above the nodes.
// Two canvases of our own, for a graph library redraws all of itself for each change, which takes several frames.

import { colour } from "./dom.js";

const FONT = "system-ui, sans-serif";
/** Words smaller than this on the screen, in pixels, cannot be read: then there is one line of this size; in boxes narrower
 * than these its last word, or nothing. */
export const LEAST_PX = 9;
const [WORD_PX, NONE_PX] = [18, 8];
const MARK_PX = 13;
/** Height of the bar that shows how much waits in a switch. */
const QUEUE_HIGH = 5;
const DASHES = { down: [9, 7], dark: [9, 7], impaired: [3, 5], denied: [3, 5] };
const MARKS = { down: "✕", impaired: "⚠", denied: "⊘" };
/** Drawn in this order, the last on top. */
const ORDER = ["dark", "", "denied", "impaired", "down"];

function layer(container, below) {
  const canvas = document.createElement("canvas");
  canvas.setAttribute("aria-hidden", "true");
  Object.assign(canvas.style, { inset: "0", pointerEvents: "none", position: "absolute", zIndex: below ? "-1" : "1" });
  container.append(canvas);
  return { canvas, context: canvas.getContext("2d") };
}

export class Picture {
  constructor(container) {
    this.container = container;
    this.below = layer(container, true);
    this.above = layer(container, false);
    this.lines = new Map();
    this.boxes = new Map();
    this.eye = { zoom: 1, x: 0, y: 0 };
    this.linesChanged = false;
    this.boxesChanged = new Set();
    this.patterns = new Map();
  }

  /** lines: {id, x1, y1, x2, y2, width}; boxes: {id, x, y, width, height, round, title, size, name, brief} by their centres;
   * round: an ellipse, title: its lower edge stays where it is when words need more room, brief: what remains of a name that
   * does not fit into its box. */
  show(lines, boxes) {
    this.lines = new Map(lines.map((each) => [each.id, { ...each, level: 0, kind: "", halos: new Map() }]));
    this.boxes = new Map(boxes.map((each) => [each.id, { ...each, words: "", fill: "", until: 0, level: 0 }]));
    this.all();
  }

  /** How an element is drawn: load level, kind, halos of a line; words of a box. */
  look(id) {
    const line = this.lines.get(id);
    if (line) return { level: line.level, kind: line.kind, halos: [...line.halos.keys()] };
    const box = this.boxes.get(id);
    return box ? { name: box.name, words: box.words, fill: box.fill, level: box.level } : null;
  }

  line(id, level, kind) {
    const line = this.lines.get(id);
    if (line.level === level && line.kind === kind) return;
    line.level = level;
    line.kind = kind;
    this.linesChanged = true;
  }

  /** A broad pale line below a line: `until` a moment of performance.now(), Infinity, or 0 for no more. */
  halo(id, kind, until) {
    const halos = this.lines.get(id)?.halos;
    if (!halos) return;
    if (halos.has(kind) !== until > 0) this.linesChanged = true;
    if (until) halos.set(kind, until);
    else halos.delete(kind);
  }

  /** Those that have this halo, and no others. */
  halos(kind, ids) {
    for (const id of this.lines.keys()) this.halo(id, kind, ids.has(id) ? Infinity : 0);
  }

  words(id, name, words) {
    const box = this.boxes.get(id);
    if (box.name === name && box.words === words) return;
    box.name = name;
    box.words = words;
    this.boxesChanged.add(box);
  }

  /** A bar along the lower edge of a box, from 0 to 1 of its width. */
  level(id, level) {
    const box = this.boxes.get(id);
    if (box.level === level) return;
    box.level = level;
    this.boxesChanged.add(box);
  }

  /** Stripes in a colour, crossed or not: what a colour says a pattern says, too. */
  hatched(context, name, crossed) {
    const ink = colour(name);
    const key = `${ink} ${crossed}`;
    if (!this.patterns.has(key)) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 8;
      const pen = tile.getContext("2d");
      pen.globalAlpha = 0.45;
      pen.fillStyle = ink;
      pen.fillRect(0, 0, 8, 8);
      pen.globalAlpha = 1;
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      const lines = [[-2, 10, 10, -2], [-2, 2, 2, -2], [6, 10, 10, 6]];
      for (const [x1, y1, x2, y2] of crossed ? [...lines, ...lines.map(([a, b, c, d]) => [8 - a, b, 8 - c, d])] : lines) {
        pen.beginPath();
        pen.moveTo(x1, y1);
        pen.lineTo(x2, y2);
        pen.stroke();
      }
      this.patterns.set(key, context.createPattern(tile, "repeat"));
    }
    return this.patterns.get(key);
  }

  /** A box shines in a colour until a moment. */
  shine(id, fill, until) {
    const box = this.boxes.get(id);
    if (box.fill !== fill) this.boxesChanged.add(box);
    box.fill = fill;
    box.until = until;
  }

  /** What has shone long enough ceases. */
  fade(now) {
    for (const line of this.lines.values()) {
      for (const [kind, until] of line.halos) {
        if (until <= now) { line.halos.delete(kind); this.linesChanged = true; }
      }
    }
    for (const box of this.boxes.values()) {
      if (box.fill && box.until <= now) { box.fill = ""; this.boxesChanged.add(box); }
    }
  }

  /** The graph is seen from here: pixel = zoom * place + (x, y). */
  lookFrom(zoom, x, y, ratio) {
    const { clientWidth: width, clientHeight: height } = this.container;
    const { eye } = this;
    if (eye.zoom === zoom && eye.x === x && eye.y === y && eye.width === width && eye.height === height) return;
    this.eye = { zoom, x, y, ratio, width, height };
    for (const { canvas } of [this.below, this.above]) {
      if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
        canvas.width = Math.round(width * ratio);
        canvas.height = Math.round(height * ratio);
        Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
      }
    }
    this.all();
    this.draw();
  }

  all() {
    this.linesChanged = true;
    this.wipe = true;
    this.boxesChanged = new Set(this.boxes.values());
  }

  /** Draws what has changed since it was drawn last. */
  draw() {
    if (!this.eye.width) return;
    if (this.linesChanged) this.drawLines();
    if (this.boxesChanged.size) this.drawBoxes();
    this.linesChanged = false;
    this.wipe = false;
    this.boxesChanged.clear();
  }

  begin({ canvas, context }, wipe) {
    const { zoom, x, y, ratio } = this.eye;
    if (wipe) {
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.clearRect(0, 0, canvas.width, canvas.height);
    }
    context.setTransform(zoom * ratio, 0, 0, zoom * ratio, x * ratio, y * ratio);
    return context;
  }

  drawLines() {
    const context = this.begin(this.below, true);
    const halos = { found: ["--found", 0.4, 13], lost: ["--down", 0.5, 13], path: ["--accent", 0.45, 13], chosen: ["--accent", 0.6, 17] };
    const pale = new Map(Object.keys(halos).map((kind) => [kind, []]));
    // Lines that look the same are one stroke.
    const alike = new Map();
    const marked = [];
    for (const line of this.lines.values()) {
      for (const kind of line.halos.keys()) pale.get(kind).push(line);
      const look = `${ORDER.indexOf(line.kind)} ${line.kind} ${line.level} ${line.width}`;
      if (!alike.has(look)) alike.set(look, []);
      alike.get(look).push(line);
      if (MARKS[line.kind]) marked.push(line);
    }
    context.lineCap = "butt";
    context.setLineDash([]);
    for (const [kind, lines] of pale) {
      const [name, opacity, more] = halos[kind];
      context.globalAlpha = opacity;
      context.strokeStyle = colour(name);
      for (const line of lines) this.stroke(context, [line], line.width + more);
    }
    context.globalAlpha = 1;
    for (const look of [...alike.keys()].sort()) {
      const lines = alike.get(look);
      const [{ kind, level, width }] = lines;
      const name = { down: "--down", impaired: "--impaired", denied: "--denied", dark: "--load-0" }[kind] ?? `--load-${level}`;
      context.strokeStyle = colour(name);
      context.setLineDash(DASHES[kind] ?? []);
      this.stroke(context, lines, kind === "dark" ? 2 : width);
    }
    context.setLineDash([]);
    const size = Math.max(24, MARK_PX / this.eye.zoom);
    const half = size * 0.55;
    context.font = `700 ${size}px ${FONT}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const { x1, y1, x2, y2, kind } of marked) {
      const [x, y] = [(x1 + x2) / 2, (y1 + y2) / 2];
      context.fillStyle = colour("--paper");
      context.fillRect(x - half, y - half, 2 * half, 2 * half);
      context.fillStyle = colour({ down: "--down", impaired: "--warn", denied: "--denied" }[kind]);
      context.fillText(MARKS[kind], x, y + size * 0.04);
    }
  }

  stroke(context, lines, width) {
    context.lineWidth = width;
    context.beginPath();
    for (const { x1, y1, x2, y2 } of lines) {
      context.moveTo(x1, y1);
      context.lineTo(x2, y2);
    }
    context.stroke();
  }

  drawBoxes() {
    const context = this.begin(this.above, this.wipe);
    const [dark, light] = [colour("--ink"), colour("--paper")];
    const fills = { mark: this.hatched(context, "--mark", false), trim: this.hatched(context, "--trim", true) };
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (const box of this.boxesChanged) {
      const { x, y, width, height, size, name, brief, words, fill, round, title } = box;
      const { zoom } = this.eye;
      const high = Math.max(height, (1.4 * LEAST_PX) / zoom);
      if (!this.wipe) context.clearRect(x - width / 2, title ? y + height / 2 - high : y - height / 2, width, title ? high : height);
      if (fill) {
        context.fillStyle = fills[fill] ?? light;
        context.beginPath();
        if (round) context.ellipse(x, y, width / 2, height / 2, 0, 0, 2 * Math.PI);
        else context.roundRect(x - width / 2, y - height / 2, width, height, 5);
        context.fill();
      }
      if (box.level > 0 && !round) {
        context.fillStyle = colour("--accent");
        context.fillRect(x - width / 2 + 3, y + height / 2 - QUEUE_HIGH, (width - 6) * box.level, QUEUE_HIGH);
      }
      context.fillStyle = dark;
      const most = round ? width * 0.86 : width - 2;
      if ((size - 2) * zoom < LEAST_PX) {
        if (width * zoom < NONE_PX) continue;
        context.font = `600 ${LEAST_PX / zoom}px ${FONT}`;
        const narrow = width * zoom < WORD_PX || (brief && context.measureText(name).width > most);
        const short = narrow ? brief || name.split(/[ .]/).pop() : name;
        context.fillText(words.startsWith("✕") ? "✕" : short, x, title ? y + height / 2 - high / 2 : y, most);
        continue;
      }
      context.font = `600 ${size}px ${FONT}`;
      context.fillText(name, x, words ? y - size * 0.58 : y, most);
      if (!words) continue;
      context.font = `${size - 2}px ${FONT}`;
      context.fillText(words, x, y + size * 0.62, most);
    }
  }
}
