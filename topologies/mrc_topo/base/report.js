// What makes a report's charts and pictures move. Nothing is loaded from anywhere; without this the page can still be read.
"use strict";
(() => {
  const WIDTH = 1000, LEFT = 64, TOP = 22, WIDE = 926, HIGH = 230, ROOM = 18;
  const make = (name, attributes = {}, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const short = value => String(Number(value.toPrecision(6)));

  function ticks(low, high, most) {
    const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
    const width = power * [1, 2, 5, 10].find(each => power * each >= rough * (1 - 1e-9));
    const found = [];
    for (let number = Math.ceil(low / width - 1e-9); number * width <= high + width * 1e-9; number++)
      found.push(number * width);
    return found;
  }

  // A path holds whole steps, all but the first point relative: see charts.py.
  function points(path, xStep, yStep) {
    const numbers = (path.getAttribute("d").match(/-?\d+/g) || []).map(Number), x = [], y = [];
    let across = 0, up = 0;
    for (let at = 0; at < numbers.length; at += 2) {
      across += numbers[at]; up += numbers[at + 1];
      x.push(across * xStep); y.push(up * yStep);
    }
    return { x, y };
  }

  function nearest(x, wanted) {
    let low = 0, high = x.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (x[middle] <= wanted) low = middle; else high = middle;
    }
    return wanted - x[low] <= x[high] - wanted ? low : high;
  }

  function keep(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  const charts = [];

  class Chart {
    constructor(figure) {
      this.figure = figure;
      this.svg = figure.querySelector(":scope > svg");
      this.area = this.svg.querySelector(".area");
      this.unit = figure.dataset.unit;
      [this.xStep, this.yStep] = figure.dataset.step.split(" ").map(Number);
      const [, , across, up] = this.area.getAttribute("viewBox").split(" ").map(Number);
      this.whole = this.range = [0, across * this.xStep];
      this.top = up * this.yStep;
      this.full = this.svg.querySelector(".axes").innerHTML;
      this.keys = [...figure.querySelectorAll(".key")];
      this.curves = [...this.area.querySelectorAll(".curve")].map((path, number) => (
        { path, name: path.querySelector("title").textContent, colour: path.style.stroke, key: this.keys[number],
          ...points(path, this.xStep, this.yStep) }));
      this.tip = document.createElement("div");
      this.tip.className = "tip"; this.tip.hidden = true; this.tip.setAttribute("role", "status");
      figure.append(this.tip);
      this.cross = make("path", { class: "cross", fill: "none", visibility: "hidden" });
      this.band = make("rect", { class: "chosen", y: TOP, height: HIGH, visibility: "hidden" });
      this.svg.append(this.band, this.cross);
      this.listen();
    }

    listen() {
      this.keys.forEach((key, number) => key.addEventListener("click", () => {
        const on = key.getAttribute("aria-pressed") !== "true";
        key.setAttribute("aria-pressed", on);
        this.curves[number].path.classList.toggle("off", !on);
        this.draw();
      }));
      this.figure.querySelector(".whole").addEventListener("click", () => zoom(null));
      this.figure.querySelector(".save").addEventListener("click", () => this.save());
      this.figure.querySelector(".save-csv").addEventListener("click", () => this.saveValues());
      let from = null;
      this.svg.addEventListener("pointerdown", event => { from = this.second(event); });
      this.svg.addEventListener("pointermove", event => {
        const now = this.second(event);
        this.show(now);
        if (from !== null && event.buttons) this.choose(from, now);
      });
      this.svg.addEventListener("pointerup", event => {
        const now = this.second(event), least = (this.range[1] - this.range[0]) / 100;
        this.band.setAttribute("visibility", "hidden");
        if (from !== null && Math.abs(now - from) > least) zoom([Math.min(from, now), Math.max(from, now)]);
        from = null;
      });
      this.svg.addEventListener("pointerleave", () => { from = null; this.hide(); });
      this.svg.addEventListener("dblclick", () => zoom(null));
      this.svg.addEventListener("blur", () => this.hide());
      this.svg.addEventListener("keydown", event => this.key(event));
    }

    key(event) {
      const curve = this.visible()[0], [low, high] = this.range, span = high - low;
      if (!curve || !curve.x.length) return;
      const at = this.at === undefined ? nearest(curve.x, low + span / 2) : nearest(curve.x, this.at);
      const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: curve.x.length - 1 }[event.key];
      if (to !== undefined) this.show(curve.x[Math.min(Math.max(to, 0), curve.x.length - 1)]);
      else if (event.key === "+") { const middle = this.at ?? low + span / 2; zoom([middle - span / 4, middle + span / 4]); }
      else if (event.key === "Escape" || event.key === "-") zoom(null);
      else return;
      event.preventDefault();
    }

    second(event) {
      const box = this.svg.getBoundingClientRect(), x = (event.clientX - box.left) / box.width * WIDTH;
      const share = Math.min(Math.max((x - LEFT) / WIDE, 0), 1);
      return this.range[0] + share * (this.range[1] - this.range[0]);
    }

    place(second) { return LEFT + WIDE * (second - this.range[0]) / (this.range[1] - this.range[0]); }
    visible() { return this.curves.filter(curve => !curve.path.classList.contains("off")); }

    choose(from, to) {
      const [left, right] = [this.place(Math.min(from, to)), this.place(Math.max(from, to))];
      this.band.setAttribute("x", left); this.band.setAttribute("width", right - left);
      this.band.setAttribute("visibility", "visible");
    }

    show(second) {
      this.at = second;
      const x = this.place(second), body = document.createElement("table");
      this.cross.setAttribute("d", `M${x} ${TOP}v${HIGH}`); this.cross.setAttribute("visibility", "visible");
      body.insertRow().insertCell().textContent = `${second.toFixed(3)} s`;
      for (const curve of this.visible()) {
        if (!curve.x.length) continue;
        const row = body.insertRow(), name = row.insertCell();
        name.textContent = curve.name; name.style.borderLeft = `4px solid ${curve.colour}`; name.style.paddingLeft = ".4rem";
        row.insertCell().textContent = `${short(curve.y[nearest(curve.x, second)])} ${this.unit}`;
      }
      this.tip.replaceChildren(body); this.tip.hidden = false;
      const share = x / WIDTH;
      this.tip.style.left = share < .5 ? `calc(${100 * share}% + 12px)` : "auto";
      this.tip.style.right = share < .5 ? "auto" : `calc(${100 - 100 * share}% + 12px)`;
    }

    hide() { this.at = undefined; this.tip.hidden = true; this.cross.setAttribute("visibility", "hidden"); }

    zoom(range) {
      const least = this.xStep * 20;
      const wanted = range && [Math.max(range[0], 0), Math.min(range[1], this.whole[1])];
      this.range = wanted && wanted[1] - wanted[0] > least ? wanted : this.whole;
      this.figure.querySelector(".whole").hidden = this.range === this.whole;
      this.draw();
    }

    draw() {
      const [low, high] = this.range, all = this.visible().length === this.curves.length;
      let top = this.top;
      if (this.range !== this.whole || !all) {
        const seen = this.visible().flatMap(each => each.y.filter((_, at) => each.x[at] >= low && each.x[at] <= high));
        top = seen.reduce((most, each) => Math.max(most, each), 0) * 1.05 || this.top;
      }
      const [x, across, up] = [low / this.xStep, (high - low) / this.xStep, top / this.yStep];
      this.area.setAttribute("viewBox", `${x} ${-up} ${across} ${up}`);
      for (const line of this.area.querySelectorAll(".fails, .mends"))
        line.setAttribute("d", line.getAttribute("d").replace(/V.*/, `V${Math.ceil(up)}`));
      const axes = this.svg.querySelector(".axes");
      axes.replaceChildren();
      for (const value of ticks(0, top, 6)) {
        const y = TOP + HIGH * (1 - value / top);
        axes.append(make("path", { d: `M${LEFT} ${y}h${WIDE}` }), make("text", { class: "y", x: LEFT - 6, y }, short(value)));
      }
      for (const value of ticks(low, high, 12)) {
        const at = this.place(value);
        axes.append(make("path", { d: `M${at} ${TOP}v${HIGH}` }), make("text", { class: "x", x: at, y: TOP + HIGH + 14 }, short(value)));
      }
      let last = -Infinity;
      for (const tag of this.svg.querySelectorAll(".tag")) {
        const at = this.place(Number(tag.dataset.s)), room = at >= LEFT && at <= LEFT + WIDE && at - last >= ROOM;
        tag.classList.toggle("hidden", !room);
        tag.setAttribute("transform", `translate(${at} ${TOP - 11})`);
        if (room) last = at;
      }
    }

    save() {
      const copy = this.svg.cloneNode(true);
      copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
      copy.setAttribute("width", WIDTH); copy.setAttribute("class", "chart");
      // Alone, the picture has what its colours and numbers mean below it.
      const keys = this.visible().map(each => [each.name, each.colour]);
      const marks = [...document.querySelectorAll(".marks li")].map((each, at) => [`${at + 1}  ${each.textContent}`, ""]);
      const [, , , height] = this.svg.getAttribute("viewBox").split(" ").map(Number);
      [...keys, ...marks].forEach(([text, colour], row) => {
        const y = height + 14 + 16 * row;
        if (colour) copy.append(make("path", { d: `M${LEFT} ${y}h20`, style: `stroke:${colour}`, "stroke-width": 3 }));
        copy.append(make("text", { class: "key", x: LEFT + 28, y }, text));
      });
      copy.setAttribute("viewBox", `0 0 ${WIDTH} ${height + 16 * (keys.length + marks.length) + 8}`);
      // The file has light colours wherever it is shown.
      const rules = [...document.querySelectorAll("head style")].map(each => each.textContent).join("\n")
        .replaceAll("(prefers-color-scheme: dark)", "(width < 0)");
      copy.prepend(make("style", {}, rules));
      keep(`${this.figure.id}.svg`, "image/svg+xml", new XMLSerializer().serializeToString(copy));
    }

    // A row for each point of the curves that are shown, in the part of the time that is shown.
    saveValues() {
      const quoted = text => `"${text.replaceAll('"', '""')}"`, [low, high] = this.range;
      const rows = [`curve,seconds,${quoted(this.unit)}`];
      for (const curve of this.visible())
        curve.x.forEach((x, at) => {
          if (x >= low && x <= high) rows.push(`${quoted(curve.name)},${short(x)},${short(curve.y[at])}`);
        });
      keep(`${this.figure.id}.csv`, "text/csv", rows.join("\r\n") + "\r\n");
    }
  }

  // All charts have the same seconds: what is looked at in one is looked at in all.
  const zoom = range => charts.forEach(chart => chart.zoom(range));
  document.querySelectorAll(".chart").forEach(figure => charts.push(new Chart(figure)));

  class Moment {
    constructor(section, data, few) {
      this.section = section; this.data = data; this.timer = null;
      this.slider = section.querySelector("input"); this.button = section.querySelector("button");
      this.now = section.querySelector(".now");
      this.slider.max = data.t.length - 1;
      // The slider stands at the first frame after the failure, until it is played.
      this.slider.value = Math.max(data.t.findIndex(time => time > data.at), 0);
      this.slider.addEventListener("input", () => { this.stop(); this.draw(); });
      this.button.addEventListener("click", () => this.timer === null ? this.play() : this.stop());
      section.querySelector(".controls").hidden = false;
      this.draw();
      if (few) this.build();
      else new IntersectionObserver((entries, observer) => {
        if (entries.some(entry => entry.isIntersecting)) { observer.disconnect(); this.build(); }
      }, { rootMargin: "200px" }).observe(section);
    }

    build() {
      const picture = document.querySelector("#lab svg").cloneNode(true);
      picture.setAttribute("role", "img"); picture.setAttribute("aria-label", "the lab at the time that the slider shows");
      picture.querySelectorAll("title, style").forEach(each => each.remove());
      this.links = [...picture.querySelectorAll(".link")];
      this.groups = new Map([...picture.querySelectorAll("g[data-name]")].map(each => [each.dataset.name, each]));
      for (const link of this.links) link.removeAttribute("stroke");
      this.section.querySelector(".picture").replaceChildren(picture);
      this.draw();
    }

    draw() {
      const at = Number(this.slider.value), data = this.data;
      const state = data.states.filter(each => each.from <= at).pop() || { down: [], impaired: [], switches: [] };
      if (this.links) {
        const down = new Set(state.down), impaired = new Set(state.impaired);
        this.links.forEach((link, number) => {
          const harm = down.has(number) ? " down" : impaired.has(number) ? " impaired" : "";
          link.setAttribute("class", `link l${data.links[at][number]}${harm}`);
        });
        for (const [name, group] of this.groups) group.classList.toggle("down", state.switches.includes(name));
      }
      const since = data.t[at] - data.at, sign = since < 0 ? "−" : "+";
      const text = `${data.t[at].toFixed(2)} s (${sign}${Math.abs(since).toFixed(2)} s): ${data.goodput[at]} Mb/s, ` +
        `${data.bad[at]} EVs out of use, ${data.lost[at]} packets dropped in the fabric`;
      this.now.textContent = text;
      this.slider.setAttribute("aria-valuetext", text);
    }

    play() {
      if (Number(this.slider.value) >= this.data.t.length - 1 || !this.played) this.slider.value = 0;
      this.played = true;
      this.button.textContent = "pause";
      this.timer = setInterval(() => {
        if (Number(this.slider.value) >= this.data.t.length - 1) return this.stop();
        this.slider.value = Number(this.slider.value) + 1;
        this.draw();
      }, 150);
      this.draw();
    }

    stop() { clearInterval(this.timer); this.timer = null; this.button.textContent = "play"; }
  }

  const data = document.getElementById("moments-data");
  if (data) {
    const moments = JSON.parse(data.textContent);
    // Pictures of a large lab are drawn when they come into sight.
    const few = moments.length * document.querySelectorAll("#lab .link").length < 2000;
    document.querySelectorAll(".moment").forEach((section, number) => new Moment(section, moments[number], few));
  }
})();
