// Plays the moment of each failure over the picture of the lab. Without this the page can still be read.
"use strict";
(() => {
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
