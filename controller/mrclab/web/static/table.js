// Every link and switch as text: what the picture says, for those who do not see it or do not use a pointer.

import { el, text } from "./dom.js";
import { linkWord } from "./fabric.js";
import { rate, bytes } from "./units.js";

const MOST = 400;

export class TablePanel {
  constructor(place, choose) {
    this.place = place;
    this.choose = choose;
    this.rows = [];
  }

  show(layout) {
    this.layout = layout;
    const search = el("input", { type: "search", placeholder: "p0-t1, h3:", "aria-label": "names that contain", oninput: () => this.filter(search.value) });
    const body = el("tbody");
    this.rows = [
      ...layout.switches.map((each, at) => this.row(each.name, (state) => this.switchText(state.switches[at]))),
      ...layout.links.slice(0, MOST).map((each, at) => this.row(each.name, (state) => this.linkText(state.links[at], each))),
    ];
    body.append(...this.rows.map((each) => each.node));
    this.place.replaceChildren(search, el("table", { class: "all" },
      el("thead", {}, el("tr", {}, ...["name", "state", "load"].map((each) => el("th", { scope: "col" }, each)))), body));
  }

  row(name, words) {
    const cells = [el("td"), el("td")];
    const go = () => this.choose(name);
    const node = el("tr", { tabindex: 0, onclick: go, onkeydown: (event) => { if (event.key === "Enter") go(); } },
      el("th", { scope: "row" }, name), ...cells);
    return { name, node, cells, words };
  }

  filter(part) {
    for (const each of this.rows) each.node.hidden = !each.name.includes(part);
  }

  linkText(row, link) {
    const most = Math.max(row.up_bps ?? 0, row.down_bps ?? 0);
    return [linkWord(row), `${link.rate_bps ? Math.round((100 * most) / link.rate_bps) : 0} %, ${rate(most)}`];
  }

  switchText(row) {
    return [row.state ?? "unknown", `${bytes(row.queue_bytes)} wait`];
  }

  update(state) {
    if (this.place.hidden) return;
    for (const each of this.rows) each.words(state).forEach((value, at) => text(each.cells[at], value));
  }
}
