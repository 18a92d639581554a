// The picture: planes as panels side by side (T1 above T0), hosts below all of them; drawn by Cytoscape.

import cytoscape from "./vendor/cytoscape.js";
import { rate, bytes } from "./units.js";

const LEVELS = 6;
const FLASH_MS = 700;
/** Above so many hosts those of a T0 are one node. */
const SINGLE_HOSTS = 64;
const PITCH = 74;
const GAP = 46;
/** Rows below each other, as a share of the picture's height. */
const ROWS = { t1: 0, t0: 0.42, host: 1 };
const HEIGHTS = [300, 1400];

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const planeColour = (plane) => css(`--plane-${plane % 8}`);

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

const MARKS = { down: "✕", impaired: "⚠", denied: "⊘" };

/** 0 without load, 5 with all of the rate. */
function level(load) {
  if (load < 0.01) return 0;
  return Math.min(LEVELS - 1, 1 + Math.floor(load * (LEVELS - 1)));
}

export class Fabric {
  /** `choose(name)` is called when somebody picks an element. */
  constructor(container, choose) {
    this.container = container;
    this.choose = choose;
    this.cy = null;
    this.selected = "";
    this.path = [];
    this.shown = new Map();
    container.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.fit()).observe(container);
  }

  show(layout) {
    this.layout = layout;
    this.groups = layout.hosts.length > SINGLE_HOSTS;
    this.cy?.destroy();
    this.shown.clear();
    this.before = null;
    const { nodes, edges } = this.elements();
    this.cy = cytoscape({
      container: this.container,
      elements: [...nodes, ...edges],
      layout: { name: "preset" },
      style: this.style(),
      autoungrabify: true,
      boxSelectionEnabled: false,
      selectionType: "single",
      minZoom: 0.05,
      maxZoom: 4,
      pixelRatio: Math.min(window.devicePixelRatio || 1, 2),
    });
    this.cy.on("tap", "node, edge", (event) => {
      const name = event.target.data("element");
      if (name) this.choose(name);
    });
    this.fit();
  }

  fit() {
    this.cy?.resize();
    this.cy?.fit(undefined, 14);
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
    this.t0s = new Map(layout.hosts.map((host) => [host.name, host.t0]));
    const t0 = layout.switches.filter((each) => each.plane === 0 && each.tier === "t0").length;
    const t1 = layout.switches.filter((each) => each.plane === 0 && each.tier === "t1").length;
    const width = Math.max(t0, t1, 2) * PITCH;
    const pitch = width + GAP;
    const whole = layout.planes * pitch - GAP;
    const box = this.container.getBoundingClientRect();
    const shape = box.width && box.height ? box.height / box.width : 0.6;
    const height = Math.min(Math.max(whole * shape - 160, HEIGHTS[0]), HEIGHTS[1]);
    for (let plane = 0; plane < layout.planes; plane += 1) {
      nodes.push({ data: { id: `plane-${plane}`, label: `plane ${plane}`, colour: planeColour(plane) }, classes: "plane" });
    }
    for (const each of layout.switches) {
      const many = each.tier === "t0" ? t0 : t1;
      const x = each.plane * pitch + (width / many) * (each.index + 0.5);
      const label = `${each.tier.toUpperCase()} ${each.index}`;
      nodes.push({
        data: { id: each.name, element: each.name, parent: `plane-${each.plane}`, name: label, label },
        position: { x, y: ROWS[each.tier] * height },
        classes: `switch ${each.tier}`,
      });
    }
    const names = this.groups
      ? [...new Set(layout.hosts.map((host) => host.t0))].map((index) => [`hosts-${index}`, this.members(index)])
      : layout.hosts.map((host) => [host.name, host.name]);
    names.forEach(([id, name], at) => {
      nodes.push({
        data: { id, element: this.groups ? "" : id, name, label: name },
        position: { x: (whole / names.length) * (at + 0.5), y: ROWS.host * height },
        classes: this.groups ? "host group" : "host",
      });
    });
    const fastest = Math.max(...layout.links.map((link) => link.rate_bps), 1);
    this.edgeOf = [];
    this.linksOf = new Map();
    layout.links.forEach((link, at) => {
      const hosts = this.t0s.has(link.low);
      const low = hosts ? this.hostNode(link.low) : link.low;
      const id = hosts && this.groups ? `${low}--${link.high}` : link.name;
      this.edgeOf.push(id);
      if (!this.linksOf.has(id)) {
        this.linksOf.set(id, []);
        const share = link.rate_bps ? link.rate_bps / fastest : 1;
        edges.push({
          data: {
            id, element: id === link.name ? link.name : "", source: low, target: link.high, mark: "",
            width: (hosts ? 2 : 3) + 3 * Math.sqrt(share), colour: css("--load-0"),
          },
          classes: hosts ? "hostlink" : "fabriclink",
        });
      }
      this.linksOf.get(id).push(at);
    });
    return { nodes, edges };
  }

  members(t0) {
    const names = this.layout.hosts.filter((host) => host.t0 === t0).map((host) => host.name);
    return names.length > 1 ? `${names[0]} – ${names[names.length - 1]}` : names[0];
  }

  style() {
    const ink = css("--ink");
    return [
      { selector: "node", style: {
        label: "data(label)", "font-size": 18, color: ink, "text-valign": "center", "text-halign": "center",
        "text-wrap": "wrap", "overlay-opacity": 0, "font-family": "system-ui, sans-serif",
      } },
      { selector: ".plane", style: {
        shape: "round-rectangle", "background-color": "data(colour)", "background-opacity": 0.07, "border-width": 2,
        "border-color": "data(colour)", "text-valign": "top", "text-halign": "center", "font-size": 20, "font-weight": 600,
        padding: 16, events: "no", "text-margin-y": -4,
      } },
      { selector: ".switch", style: {
        shape: "round-rectangle", width: 66, height: 54, "background-color": "#fff", "border-width": 2, "border-color": ink,
      } },
      { selector: ".host", style: {
        shape: "ellipse", width: 118, height: 66, "background-color": css("--panel"), "border-width": 2, "border-color": ink,
        "font-size": 19,
      } },
      { selector: ".group", style: { shape: "round-rectangle", width: 170, height: 70 } },
      { selector: "edge", style: {
        "curve-style": "straight", width: "data(width)", "line-color": "data(colour)", "overlay-opacity": 0,
        label: "data(mark)", "font-size": 24, "font-weight": 700, color: css("--down"), "text-background-color": "#fff",
        "text-background-opacity": 0.9, "text-background-shape": "roundrectangle", "text-background-padding": 1,
      } },
      { selector: "edge.hostlink", style: { "source-text-offset": 60, opacity: 0.9 } },
      { selector: "edge.down, edge.dark", style: { "line-style": "dashed", "line-color": css("--down"), "z-index": 5 } },
      { selector: "edge.dark", style: { "line-color": css("--load-0"), width: 2 } },
      { selector: "edge.impaired", style: {
        "line-style": "dotted", "line-color": css("--impaired"), color: css("--warn"), "z-index": 4,
      } },
      { selector: "edge.denied", style: { "line-style": "dotted", "line-color": css("--denied"), color: css("--denied") } },
      { selector: "node.off", style: {
        "border-style": "dashed", "border-color": css("--down"), "border-width": 4, "background-color": css("--bad-paper"),
      } },
      { selector: "node.frozen", style: {
        "border-style": "dotted", "border-color": css("--plane-4"), "border-width": 4, "background-color": "#e8f3fb",
      } },
      { selector: "node.found, edge.found", style: { "underlay-color": css("--plane-3"), "underlay-opacity": 0.35,
        "underlay-padding": 5 } },
      { selector: "node.mark", style: { "background-color": css("--mark") } },
      { selector: "node.trim", style: { "background-color": css("--trim") } },
      { selector: "edge.lost, node.lost", style: { "underlay-color": css("--down"), "underlay-opacity": 0.5,
        "underlay-padding": 6 } },
      { selector: "edge.path", style: { "underlay-color": css("--accent"), "underlay-opacity": 0.45, "underlay-padding": 6,
        "z-index": 9 } },
      { selector: "node.path", style: { "border-color": css("--accent"), "border-width": 4 } },
      { selector: "node.chosen", style: { "border-color": css("--accent"), "border-width": 5 } },
      { selector: "edge.chosen", style: { "underlay-color": css("--accent"), "underlay-opacity": 0.6, "underlay-padding": 8,
        "z-index": 10 } },
    ];
  }

  /** Sets what is different from what is drawn. */
  put(id, key, value) {
    const slot = `${id} ${key}`;
    if (this.shown.get(slot) === value) return null;
    this.shown.set(slot, value);
    return this.cy.getElementById(id);
  }

  data(id, key, value) {
    this.put(id, key, value)?.data(key, value);
  }

  mode(id, kinds, value) {
    const node = this.put(id, "class", value);
    if (node === null) return;
    node.removeClass(kinds);
    if (value) node.addClass(value);
  }

  update(state) {
    const { layout, cy } = this;
    if (cy === null || state.layout !== layout.number) return;
    cy.batch(() => {
      for (const [id, places] of this.linksOf) this.drawEdge(id, places, state);
      state.switches.forEach((row, at) => this.drawSwitch(layout.switches[at], row));
      this.drawHosts(state);
      state.planes.forEach((plane, at) => {
        this.data(`plane-${at}`, "label", `plane ${at} · ${rate(plane.rx_bps)}`);
      });
      const found = new Set(Object.keys(state.found).map((name) => this.nodeOf(name)));
      for (const name of new Set([...found, ...(this.found ?? [])])) {
        cy.getElementById(name).toggleClass("found", found.has(name));
      }
      this.found = found;
    });
    this.flash(state);
    this.before = state;
  }

  /** The node or edge that shows an element. */
  nodeOf(name) {
    const at = this.layout.links.findIndex((link) => link.name === name);
    return at >= 0 ? this.edgeOf[at] : this.t0s.has(name) ? this.hostNode(name) : name;
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
    this.data(id, "colour", css(`--load-${load}`));
    this.mode(id, "down dark impaired denied", kind);
    this.data(id, "mark", MARKS[kind] ?? "");
  }

  drawSwitch(place, row) {
    const waits = row.queue_bytes ?? 0;
    const short = `${place.tier.toUpperCase()} ${place.index}`;
    const words = { frozen: "❄ frozen", stopped: "✕ off", dead: "✕ dead" };
    const second = words[row.state] ?? (waits >= 512 ? bytes(waits) : "");
    this.data(place.name, "label", second ? `${short}\n${second}` : short);
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
      const name = this.cy.getElementById(id).data("name");
      this.data(id, "label", `${name}\n${sum.silent ? `✕ ${this.groups ? sum.silent : ""} silent` : rate(sum.bps)}`);
      this.mode(id, "off", sum.silent ? "off" : "");
    }
  }

  /** Trims, marks and losses shine for a moment where they happen. */
  flash(state) {
    const before = this.before;
    if (!before || before.layout !== state.layout || state.t_ns <= before.t_ns) return;
    const shine = (id, kind) => {
      const node = this.cy.getElementById(id);
      node.addClass(kind);
      setTimeout(() => node.removeClass(kind), FLASH_MS);
    };
    state.switches.forEach((row, at) => {
      const then = before.switches[at];
      if ((row.trimmed ?? 0) > (then.trimmed ?? row.trimmed ?? 0)) shine(this.layout.switches[at].name, "trim");
      else if ((row.marked ?? 0) > (then.marked ?? row.marked ?? 0)) shine(this.layout.switches[at].name, "mark");
    });
    state.links.forEach((row, at) => {
      if ((row.lost ?? 0) > (before.links[at].lost ?? row.lost ?? 0)) shine(this.edgeOf[at], "lost");
    });
  }

  select(name) {
    if (!this.cy) return;
    this.cy.$(".chosen").removeClass("chosen");
    this.selected = name;
    if (name) this.cy.getElementById(this.nodeOf(name)).addClass("chosen");
  }

  /** Draws the way of an EV: places of links. */
  highlight(places) {
    if (!this.cy) return;
    this.cy.batch(() => {
      this.cy.$(".path").removeClass("path");
      for (const at of places) {
        const edge = this.cy.getElementById(this.edgeOf[at]);
        edge.addClass("path");
        edge.connectedNodes().addClass("path");
      }
    });
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
  const swatch = (colour) => `<i style="background:var(${colour})"></i>`;
  const loads = [0, 1, 2, 3, 4, 5].map((each) => swatch(`--load-${each}`)).join("");
  return [
    `load ${loads} full`, "wide: fast link", "- - ✕ down", "··· ⚠ impaired", "··· ⊘ denied",
    `${swatch("--mark")} marks`, `${swatch("--trim")} trims`, `${swatch("--down")} loses packets`,
    `${swatch("--plane-3")} found by the hosts`,
  ].map((each) => `<span>${each}</span>`).join("");
}
