// The fabric: planes as panels side by side (T1 above T0), hosts below all of them. Cytoscape has the graph: places, shapes
// and borders of nodes, what is clicked, selection, zoom. What changes all the time is drawn by `Picture`.

import cytoscape from "./vendor/cytoscape.js";
import { colour } from "./dom.js";
import { LEAST_PX, Picture } from "./picture.js";
import { rate, bytes } from "./units.js";

const LEVELS = 6;
const FLASH_MS = 700;
/** Above this number of hosts, the hosts of a T0 are one node. */
const SINGLE_HOSTS = 64;
const PITCH = 74;
const GAP = 46;
/** Rows below each other, as a share of the picture's height. */
const ROWS = { t1: 0, t0: 0.42, host: 1 };
const HEIGHTS = [300, 4000];

/** Height of a switch, and of the words above a plane. */
const SWITCH = 54;
const SWITCH_WIDTH = 66;
const TITLE = 30;
const PADDING = 16;
const [HOST, HOST_WIDTH, GROUP_WIDTH] = [66, 118, 170];
const MARGIN = 10;

/** What a link's state is in words; the first part decides how it looks. */
export function linkWord(row) {
  const words = { up: "up", cut: "down", cut_up: "down upwards", cut_down: "down downwards", dark: "at a switch that is off" };
  let word = words[row.state] ?? "unknown";
  if (row.impaired) word += ", impaired";
  if (row.denied) word += ", denied";
  return word;
}

function linkClass(row) {
  if (row.state === "dark") return "dark";
  if (row.state && row.state !== "up") return "down";
  if (row.impaired) return "impaired";
  return row.denied ? "denied" : "";
}

/** The row of a switch in the picture. */
function row(each) {
  return `${each.plane} ${each.tier}`;
}

/** 0 without load, 5 with all of the rate. */
function level(load) {
  if (load < 0.01) return 0;
  return Math.min(LEVELS - 1, 1 + Math.floor(load * (LEVELS - 1)));
}

export class Fabric {
  /** `choose(name)` is called when a user picks an element. */
  constructor(container, choose) {
    this.container = container;
    this.graph = document.createElement("div");
    this.graph.className = "graph";
    container.append(this.graph);
    this.picture = new Picture(container);
    this.choose = choose;
    this.cy = null;
    this.shown = new Map();
    container.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.fit()).observe(container);
  }

  show(layout) {
    this.layout = layout;
    this.groups = layout.hosts.length > SINGLE_HOSTS;
    this.cy?.destroy();
    this.shown.clear();
    this.found = new Set();
    this.before = null;
    const { nodes, edges, lines, boxes } = this.elements();
    this.names = new Map(boxes.filter((each) => !each.id.startsWith("plane-")).map((each) => [each.id, each.name]));
    this.picture.show(lines, boxes);
    const pixelRatio = Math.min(window.devicePixelRatio || 1, 2);
    this.cy = cytoscape({
      container: this.graph,
      elements: [...nodes, ...edges],
      layout: { name: "preset" },
      style: this.style(),
      autoungrabify: true,
      boxSelectionEnabled: false,
      selectionType: "single",
      minZoom: 0.05,
      maxZoom: 4,
      pixelRatio,
    });
    this.cy.on("render", () => {
      const { x, y } = this.cy.pan();
      this.picture.lookFrom(this.cy.zoom(), x, y, pixelRatio);
    });
    this.cy.on("tap", "node, edge", (event) => {
      const name = event.target.data("element");
      if (name) this.choose(name);
    });
    this.fit();
  }

  /** The whole graph, with the words above it, fills the container. */
  fit() {
    const { cy } = this;
    if (!cy) return;
    cy.resize();
    const { x1, x2, y1, y2 } = cy.nodes().boundingBox({ includeLabels: false });
    let [zoom, title] = [1, TITLE];
    for (let turn = 0; turn < 3; turn += 1) {
      zoom = Math.min(cy.width() / (x2 - x1 + 2 * MARGIN), cy.height() / (y2 - y1 + title + 2 * MARGIN));
      title = Math.max(TITLE, (1.6 * LEAST_PX) / zoom);
    }
    const pan = { x: cy.width() / 2 - (zoom * (x1 + x2)) / 2, y: cy.height() / 2 - (zoom * (y1 - title + y2)) / 2 };
    if (zoom > 0) cy.viewport({ zoom, pan });
  }

  /** Whose node a host is part of: its own, or its T0's. */
  hostNode(name) {
    if (!this.groups) return name;
    return `hosts-${this.t0s.get(name)}`;
  }

  elements() {
    const { layout } = this;
    const nodes = [];
    const edges = [];
    const boxes = [];
    const places = new Map();
    this.t0s = new Map(layout.hosts.map((host) => [host.name, host.t0]));
    const rows = new Map();
    for (const each of layout.switches) rows.set(row(each), (rows.get(row(each)) ?? 0) + 1);
    // The ports of a graph's hosts may share switches, so it may have fewer planes of switches than ports.
    const planes = [...new Set(layout.switches.map((each) => each.plane))];
    const lowest = this.groups ? new Set(layout.hosts.map((host) => host.t0)).size : layout.hosts.length;
    const below = (1.05 * lowest * (this.groups ? GROUP_WIDTH : HOST_WIDTH) + GAP) / planes.length - GAP;
    const width = Math.max(Math.max(...rows.values(), 2) * PITCH, below);
    const pitch = width + GAP;
    const whole = planes.length * pitch - GAP;
    const tiers = new Map(layout.switches.map((each) => [each.name, each.tier]));
    const sideways = new Set(layout.links.filter((link) => tiers.get(link.low) === tiers.get(link.high)).map((link) => tiers.get(link.low)));
    const box = this.container.getBoundingClientRect();
    const shape = box.width && box.height ? box.height / box.width : 0.6;
    const height = Math.min(Math.max(whole * shape - 160, HEIGHTS[0]), HEIGHTS[1]);
    planes.forEach((plane, at) => {
      nodes.push({ data: { id: `plane-${plane}`, colour: colour(`--plane-${plane % 8}`) }, classes: "plane" });
      boxes.push({
        id: `plane-${plane}`, name: `plane ${plane}`, size: 20, x: at * pitch + width / 2, y: ROWS.t1 * height - SWITCH / 2 - PADDING - TITLE / 2,
        width: pitch - 4, height: TITLE, title: true,
      });
    });
    for (const each of layout.switches) {
      // Links within a row would lie behind its switches if these were all at one height.
      const lower = sideways.has(each.tier) && each.index % 2 ? 1.6 * SWITCH : 0;
      const x = planes.indexOf(each.plane) * pitch + (width / rows.get(row(each))) * (each.index + 0.5);
      const position = { x, y: ROWS[each.tier] * height + lower };
      const { name } = each;
      places.set(each.name, position);
      nodes.push({
        data: { id: each.name, element: each.name, parent: `plane-${each.plane}`, label: name },
        position: { ...position }, classes: `switch ${each.tier}`,
      });
      boxes.push({ id: each.name, name, size: 16, ...position, width: SWITCH_WIDTH - 6, height: SWITCH - 6 });
    }
    const names = this.groups
      ? [...new Set(layout.hosts.map((host) => host.t0))].map((index) => [`hosts-${index}`, this.members(index)])
      : layout.hosts.map((host) => [host.name, host.name]);
    names.forEach(([id, name], at) => {
      const position = { x: (whole / names.length) * (at + 0.5), y: ROWS.host * height };
      places.set(id, position);
      nodes.push({
        data: { id, element: this.groups ? "" : id, label: name },
        position: { ...position }, classes: this.groups ? "host group" : "host",
      });
      boxes.push({
        id, name, brief: this.groups ? name.split(" ")[0] : "", size: 19, ...position, width: (this.groups ? GROUP_WIDTH : HOST_WIDTH) - 8, height: HOST - 8, round: !this.groups,
      });
    });
    const fastest = Math.max(...layout.links.map((link) => link.rate_bps), 1);
    const lines = [];
    this.edgeOf = [];
    this.linksOf = new Map();
    this.placeOf = new Map(layout.links.map((link, at) => [link.name, at]));
    layout.links.forEach((link, at) => {
      const hosts = this.t0s.has(link.low);
      const low = hosts ? this.hostNode(link.low) : link.low;
      const id = hosts && this.groups ? `${low}--${link.high}` : link.name;
      this.edgeOf.push(id);
      if (!this.linksOf.has(id)) {
        this.linksOf.set(id, []);
        const share = link.rate_bps ? link.rate_bps / fastest : 1;
        const width = (hosts ? 2 : 3) + 3 * Math.sqrt(share);
        const [from, to] = [places.get(low), places.get(link.high)];
        edges.push({ data: { id, element: id === link.name ? link.name : "", source: low, target: link.high, width } });
        lines.push({ id, x1: from.x, y1: from.y, x2: to.x, y2: to.y, width });
      }
      this.linksOf.get(id).push(at);
    });
    return { nodes, edges, lines, boxes };
  }

  members(t0) {
    const names = this.layout.hosts.filter((host) => host.t0 === t0).map((host) => host.name);
    return names.length > 1 ? `${names[0]} – ${names[names.length - 1]}` : names[0];
  }

  style() {
    return [
      { selector: "node", style: { "overlay-opacity": 0, "border-width": 2, "border-color": colour("--ink") } },
      { selector: ".plane", style: {
        shape: "round-rectangle", "background-color": "data(colour)", "background-opacity": 0.07, "border-color": "data(colour)",
        padding: PADDING, events: "no",
      } },
      { selector: ".switch", style: {
        shape: "round-rectangle", width: SWITCH_WIDTH, height: SWITCH, "background-color": colour("--paper"),
      } },
      { selector: ".host", style: {
        shape: "ellipse", width: HOST_WIDTH, height: HOST, "background-color": colour("--panel"),
      } },
      { selector: ".group", style: { shape: "round-rectangle", width: GROUP_WIDTH } },
      // Edges are there to be clicked; the picture draws them.
      { selector: "edge", style: { "curve-style": "straight", width: "data(width)", opacity: 0, "overlay-opacity": 0 } },
      { selector: "node.off", style: {
        "border-style": "dashed", "border-color": colour("--down"), "border-width": 4, "background-color": colour("--bad-paper"),
      } },
      { selector: "node.frozen", style: {
        "border-style": "dotted", "border-color": colour("--plane-4"), "border-width": 4, "background-color": colour("--frozen-paper"),
      } },
      { selector: "node.found", style: { "underlay-color": colour("--found"), "underlay-opacity": 0.4, "underlay-padding": 5 } },
      { selector: "node.path", style: { "border-color": colour("--accent"), "border-width": 4 } },
      { selector: "node.chosen", style: { "border-color": colour("--accent"), "border-width": 5 } },
    ];
  }

  /** How an element is drawn, in words and classes; for tests. */
  look(name) {
    const id = this.nodeOf(name);
    return { ...this.picture.look(id), classes: this.cy.getElementById(id).classes() };
  }

  /** A state that a node keeps for a while: it is redrawn only when it has changed. */
  mode(id, kinds, value) {
    if ((this.shown.get(id) ?? "") === value) return;
    this.shown.set(id, value);
    const node = this.cy.getElementById(id);
    node.removeClass(kinds);
    if (value) node.addClass(value);
  }

  update(state) {
    const { layout, cy, picture } = this;
    if (cy === null || state.layout !== layout.number) return;
    picture.fade(performance.now());
    cy.batch(() => {
      for (const [id, places] of this.linksOf) this.drawEdge(id, places, state);
      state.switches.forEach((row, at) => this.drawSwitch(layout.switches[at], row));
      this.drawHosts(state);
      state.planes.forEach((plane, at) => picture.words(`plane-${at}`, `plane ${at} · ${rate(plane.rx_bps)}`, ""));
      this.drawFound(Object.keys(state.found));
    });
    this.flash(state);
    this.before = state;
    picture.draw();
    // Where no other state comes, what shines ceases all the same.
    clearTimeout(this.fading);
    this.fading = setTimeout(() => { picture.fade(performance.now()); picture.draw(); }, 2 * FLASH_MS);
  }

  /** The node or edge that shows an element. */
  nodeOf(name) {
    const at = this.placeOf.get(name);
    return at !== undefined ? this.edgeOf[at] : this.t0s.has(name) ? this.hostNode(name) : name;
  }

  drawEdge(id, places, state) {
    let carried = 0;
    let most = 0;
    let worst = "";
    let bad = 0;
    for (const at of places) {
      const row = state.links[at];
      carried += Math.max(row.up_bps ?? 0, row.down_bps ?? 0);
      most += this.layout.links[at].rate_bps;
      const kind = linkClass(row);
      if (kind) bad += 1;
      if (kind && (worst === "" || worst === "denied")) worst = kind;
    }
    // Of many links in one line: down only when all are, impaired when some are.
    const kind = places.length > 1 && bad && bad < places.length ? "impaired" : worst;
    const load = kind && kind !== "impaired" && kind !== "denied" ? 0 : level(most ? carried / most : 0);
    this.picture.line(id, load, kind);
  }

  drawSwitch(place, row) {
    const waits = row.queue_bytes ?? 0;
    const words = { frozen: "❄ frozen", stopped: "✕ off", dead: "✕ dead" };
    this.picture.words(place.name, this.names.get(place.name), words[row.state] ?? (waits >= 512 ? bytes(waits) : ""));
    // In steps of a tenth, so that what hardly changes is not drawn again.
    this.picture.level(place.name, Math.min(Math.ceil((10 * waits) / this.layout.queue_limit), 10) / 10);
    this.mode(place.name, "off frozen", { frozen: "frozen", stopped: "off", dead: "off" }[row.state] ?? "");
  }

  drawHosts(state) {
    const sums = new Map();
    state.hosts.forEach((row, at) => {
      const name = this.layout.hosts[at].name;
      const id = this.hostNode(name);
      const sum = sums.get(id) ?? { bps: 0, silent: 0 };
      sum.bps += row.goodput_bps ?? 0;
      if (row.alive === false) sum.silent += 1;
      sums.set(id, sum);
    });
    for (const [id, sum] of sums) {
      this.picture.words(id, this.names.get(id), sum.silent ? `✕ ${this.groups ? `${sum.silent} ` : ""}silent` : rate(sum.bps));
      this.mode(id, "off", sum.silent ? "off" : "");
    }
  }

  drawFound(names) {
    const found = new Set(names.map((name) => this.nodeOf(name)));
    this.picture.halos("found", found);
    const nodes = new Set([...found].filter((id) => this.names.has(id)));
    for (const id of new Set([...nodes, ...this.found])) this.cy.getElementById(id).toggleClass("found", nodes.has(id));
    this.found = nodes;
  }

  /** Trims, marks and losses shine for a moment where they happen. */
  flash(state) {
    const { before, picture } = this;
    if (!before || before.layout !== state.layout || state.t_ns <= before.t_ns) return;
    const until = performance.now() + FLASH_MS;
    state.switches.forEach((row, at) => {
      const then = before.switches[at];
      if ((row.trimmed ?? 0) > (then.trimmed ?? row.trimmed ?? 0)) picture.shine(this.layout.switches[at].name, "trim", until);
      else if ((row.marked ?? 0) > (then.marked ?? row.marked ?? 0)) picture.shine(this.layout.switches[at].name, "mark", until);
    });
    state.links.forEach((row, at) => {
      if ((row.lost ?? 0) > (before.links[at].lost ?? row.lost ?? 0)) picture.halo(this.edgeOf[at], "lost", until);
    });
  }

  select(name) {
    if (!this.cy) return;
    this.cy.$(".chosen").removeClass("chosen");
    const id = name ? this.nodeOf(name) : "";
    if (id) this.cy.getElementById(id).addClass("chosen");
    this.picture.halos("chosen", new Set([id]));
    this.picture.draw();
  }

  /** Draws the way of an EV: places of links. */
  highlight(places) {
    if (!this.cy) return;
    const edges = new Set(places.map((at) => this.edgeOf[at]));
    this.cy.batch(() => {
      this.cy.$(".path").removeClass("path");
      for (const id of edges) this.cy.getElementById(id).connectedNodes().addClass("path");
    });
    this.picture.halos("path", edges);
    this.picture.draw();
  }

  /** Arrow keys: to the nearest node in that direction; on a node, Enter goes through its links. */
  key(event) {
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const way = ways[event.key];
    if (!this.cy || (!way && event.key !== "Enter")) return;
    event.preventDefault();
    const nodes = this.cy.nodes(".switch, .host").filter((node) => node.data("element"));
    if (nodes.empty()) return;
    const chosen = this.cy.$(".chosen");
    if (chosen.empty()) {
      this.choose(nodes[0].data("element"));
      return;
    }
    const from = chosen[0].isNode() ? chosen[0] : chosen[0].source();
    if (!way) {
      const edges = from.connectedEdges().filter((edge) => edge.data("element"));
      const next = chosen[0].isNode() ? 0 : (edges.toArray().findIndex((edge) => edge.same(chosen[0])) + 1) % edges.length;
      if (edges.nonempty()) this.choose(edges[next].data("element"));
      return;
    }
    const { x, y } = from.position();
    let best = null;
    let least = Infinity;
    nodes.forEach((node) => {
      const dx = node.position("x") - x;
      const dy = node.position("y") - y;
      const along = dx * way[0] + dy * way[1];
      if (along <= 1) return;
      const distance = along + 3 * Math.abs(dx * way[1]) + 3 * Math.abs(dy * way[0]);
      if (distance < least) [best, least] = [node, distance];
    });
    if (best) this.choose(best.data("element"));
  }
}

/** What the colours and dashes mean. */
export function legend() {
  const swatch = (colour, pattern = "") => `<i class="${pattern}" style="--swatch:var(${colour})"></i>`;
  const loads = [0, 1, 2, 3, 4, 5].map((each) => swatch(`--load-${each}`)).join("");
  return [
    `load ${loads} full`, "plane: what its hosts receive, with headers", "host: its goodput (payload)", "wide: fast link", "▂ in a switch: bytes that wait, of one full queue", "- - ✕ down", "··· ⚠ impaired", "··· ⊘ denied: on the denylist, not used",
    `${swatch("--mark", "stripes")} marks`, `${swatch("--trim", "crossed")} trims`, `${swatch("--down")} loses packets`,
    `${swatch("--found")} found by the hosts`,
  ].map((each) => `<span>${each}</span>`).join("");
}
