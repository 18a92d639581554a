// The page: takes what the stream says, keeps the newest, and draws it when the browser is ready for it.

import { Stream } from "./api.js";
import { Curves } from "./curves.js";
import { byId, el, onColours, say, text } from "./dom.js";
import { act, ElementPanel, undo, undoable } from "./element.js";
import { Fabric, legend } from "./fabric.js";
import { JobPanel } from "./job.js";
import { PairPanel } from "./pair.js";
import { TablePanel } from "./table.js";
import { entropy, rate, seconds } from "./units.js";

const LOG_ROWS = 400;
const CURVE_MS = 250;
/** For how many of the latest updates their duration is kept. */
const TIMES = 600;
const MODES = { lab: "live, real clock", simulation: "simulation", run: "recorded run" };

let layout = null;
let state = null;
let drawn = null;
let marks = [];
let curveDue = 0;
/** When the workload began, ns of the session: times are told from there. */
let origin = 0;

const element = new ElementPanel(byId("panel-element"));
const fabric = new Fabric(byId("fabric"), choose);
const curves = new Curves(byId("curves"), byId("values"), byId("key"), (to) => seek(Math.max(to, 0)));
const job = new JobPanel(byId("panel-job"));
const table = new TablePanel(byId("panel-table"), choose);
const pair = new PairPanel(byId("panel-pair"), (source, destination) => stream.watch(source, destination), (places) => fabric.highlight(places));
element.choose = choose;
byId("legend").innerHTML = legend();

const stream = new Stream({
  layout(made) {
    layout = made;
    state = drawn = null;
    marks = [];
    origin = 0;
    curves.origin = pair.origin = 0;
    document.title = `${layout.lab} – mrclab`;
    text(byId("lab"), layout.lab);
    byId("lab").title = layout.description;
    text(byId("mode"), MODES[layout.mode] + (layout.transport === "roce" ? ", RoCE" : ""));
    for (const part of [fabric, curves, element, pair, job, table]) part.show(layout);
    byId("time").hidden = !layout.can.includes("pause");
    byId("step").hidden = !layout.can.includes("step");
    byId("slide").hidden = !layout.can.includes("seek");
    byId("slider").max = Math.ceil((layout.length_ns ?? 0) / 1e6);
    byId("log").replaceChildren();
  },
  history: (rows) => { curves.history(rows); offer(); },
  completions: (found) => { curves.completions(found); offer(); },
  log: (rows) => rows.forEach(note),
  state(found) {
    if (state === null) requestAnimationFrame(draw);
    state = found;
    if (layout.mode !== "run") curves.add(found);
  },
  pair: (found) => pair.update(found),
  end: () => {},
  connection(kind, why) {
    const badge = byId("connection");
    text(badge, { open: "connected", lost: "not connected", refused: "refused" }[kind]);
    badge.className = kind === "open" ? "badge good" : "badge bad";
    warn(byId("problem"), kind === "open" ? "" : kind === "lost" ? `${why}: what is shown is old` : why);
  },
});

/** Draws the newest state; states that came meanwhile are passed over. */
function draw() {
  const found = state;
  state = null;
  if (!found || found.layout !== layout.number) return;
  const began = performance.now();
  drawn = found;
  begin(found.job);
  pair.now = found.t_ns;
  fabric.update(found);
  for (const part of [element, job, table]) part.update(found);
  head(found);
  truth(found);
  const now = performance.now();
  if (now >= curveDue) {
    curveDue = now + CURVE_MS;
    // In the next frame, which is their own.
    requestAnimationFrame(() => drawCurves(found));
  }
  window.mrclab.updates += 1;
  window.mrclab.times.push(performance.now() - began);
  if (window.mrclab.times.length > TIMES) window.mrclab.times.shift();
}

function drawCurves(found) {
  if (found.layout !== layout.number) return;
  curves.cursor = layout.mode === "run" ? found.t_ns : null;
  curves.mark(allMarks(found));
  curves.draw();
  offer();
}

/** Offers completion times where there are some, and says why where there are none. */
function offer() {
  const option = byId("what").querySelector("[value=times]");
  const { why } = curves.times;
  const timed = curves.timed();
  if (!timed && curves.what === "times") {
    byId("what").value = "planes";
    curves.choose("planes");
  }
  if (option.disabled === timed) option.disabled = !timed;
  text(option, timed ? "goodput and completion times" : `completion times: ${why}`);
  warn(byId("why"), curves.what === "times" ? why : "");
}

/** What was done, and what is still scheduled. */
function allMarks(found) {
  const scheduled = found.job?.schedule ?? [];
  return layout.mode === "run" ? scheduled : [...marks, ...scheduled.filter((each) => each.t_ns > found.t_ns)];
}

/** A workload that begins sets the clock and the curves to 0; what happened before has times below 0. */
function begin(job) {
  if (layout.mode === "run" || job?.began_ns === undefined || job.began_ns === origin) return;
  origin = curves.origin = pair.origin = job.began_ns;
  for (const each of document.querySelectorAll("#log time")) text(each, when(Number(each.dataset.ns)));
}

const when = (ns) => seconds(ns - origin);

function head(found) {
  text(byId("clock"), found.job || layout.mode !== "lab" ? when(found.t_ns) : "no workload");
  text(byId("goodput"), `goodput ${rate(found.goodput_bps)}`);
  const still = found.phase === "paused" || (layout.mode === "run" && found.phase === "ended");
  text(byId("pause"), still ? "Go on" : "Pause");
  text(byId("actual"), found.phase === "paused" ? "paused" : found.phase === "ended" ? "ended" : layout.clock === "virtual" || layout.mode === "run" ? `runs at ${found.speed}×` : "");
  const speed = byId("speed");
  if (document.activeElement !== speed) speed.value = String(found.asked_speed);
  const slider = byId("slider");
  if (document.activeElement !== slider || !sliding) slider.value = found.t_ns / 1e6;
  text(byId("at"), `${seconds(found.t_ns)} of ${seconds(layout.length_ns ?? 0)}`);
  if (byId("connection").classList.contains("good")) warn(byId("problem"), found.problem);
  warn(byId("tenants"), tenants(found));
  warn(byId("fidelity"), found.fidelity.valid === false ? `The machine does not keep up; times and rates are not valid: ${found.fidelity.reasons.join("; ")}` : "");
}

/** What each tenant's hosts get now, what they have taken for lost, and how equally they share it (Jain's index). */
function tenants(found) {
  const sums = new Map();
  for (const [place, host] of layout.hosts.entries()) {
    if (host.tenant === undefined) continue;
    const sum = sums.get(host.tenant) ?? { hosts: 0, bps: 0, squares: 0, lost: 0 };
    const bps = found.hosts[place].goodput_bps ?? 0;
    sums.set(host.tenant, { hosts: sum.hosts + 1, bps: sum.bps + bps, squares: sum.squares + bps * bps, lost: sum.lost + (found.hosts[place].losses ?? 0) });
  }
  return [...sums].map(([name, each]) => {
    const jain = each.squares ? `, Jain's index ${(each.bps ** 2 / (each.hosts * each.squares)).toFixed(2)}` : "";
    return `${name || "in no tenant"}: ${rate(each.bps)}, ${each.lost} taken for lost${jain}`;
  }).join(" · ");
}

function warn(place, words) {
  text(place, words);
  place.hidden = !words;
}

let shownTruth = "";

/** What is broken beside what the hosts' probes say of it. */
function truth(found) {
  const broken = new Map();
  for (const each of found.broken) broken.set(each.target, [...(broken.get(each.target) ?? []), each.text]);
  const denied = new Map(found.denied.map((name) => [name, "on it: not used"]));
  // Hosts keep EVs denied that no element of the list explains, if another controller has set them.
  if (!denied.size) layout.hosts.forEach((host, at) => {
    const evs = found.hosts[at]?.denied_evs;
    if (evs) denied.set(host.name, `${evs} EVs denied`);
  });
  const names = [...new Set([...broken.keys(), ...Object.keys(found.found), ...denied.keys()])].sort();
  const rows = names.map((name) => [name, broken.get(name)?.join(", ") ?? "healthy", found.found[name] ?? "healthy", denied.get(name) ?? ""]);
  const key = JSON.stringify(rows);
  if (key === shownTruth) return;
  shownTruth = key;
  byId("truth").replaceChildren(rows.length
    ? el("table", { class: "truth" },
      el("tr", {}, ...["element", "injected", "detected", "denylist"].map((each) => el("th", { scope: "col" }, each))),
      ...rows.map((row) => el("tr", {}, ...row.map((each, at) => el("td", {}, at === 0 ? el("button", { type: "button", onclick: () => choose(each) }, each) : each)))))
    : el("p", { class: "hint" }, "Everything works, and the hosts see it so."));
}

function note(row) {
  const list = byId("log");
  if (row.what === "back") {
    // A recorded run was wound back: what is to come has not happened.
    list.replaceChildren();
    return;
  }
  if (row.what === "failure" || row.what === "restore") {
    marks.push({ t_ns: row.t_ns, text: row.text.replace(/^restored: /, ""), breaks: row.what === "failure" });
    marks = marks.slice(-200);
  }
  // Newest first; hosts are asked in turn, so what they report comes later than what was done meanwhile. What was done
  // at the same time as something else was noticed is its cause, and stands below it.
  const done = row.what === "failure" || row.what === "restore";
  const earlier = (each) => {
    const time = Number(each.firstElementChild.dataset.ns);
    return time < row.t_ns || (time === row.t_ns && !(done && each.className !== "failure" && each.className !== "restore"));
  };
  let next = list.firstElementChild;
  while (next && !earlier(next)) next = next.nextElementSibling;
  list.insertBefore(el("li", { class: row.what }, el("time", { "data-ns": row.t_ns }, when(row.t_ns)), words(row),
    row.done_ns !== undefined && when(row.done_ns) !== when(row.t_ns) ? el("span", { class: "muted" }, ", done at ", el("time", { "data-ns": row.done_ns }, when(row.done_ns))) : null,
    row.changed > 1 ? which(row) : null), next);
  // Changes of EVs are many; what was done to the lab stays longer.
  while (list.childElementCount > LOG_ROWS) ([...list.querySelectorAll(":scope > .ev")].pop() ?? list.lastElementChild).remove();
}

/** The text of a line for people: names and states without the underscores and capitals of the records. */
function words({ what, text }) {
  if (what === "job") return text.replaceAll("_", " ");
  return what === "ev" ? text.replace(/\b(?:GOOD|SKIP|ASSUMED_BAD|DENIED)\b/g, (each) => each.toLowerCase().replace("_", " ")) : text;
}

/** The EVs of a line that has several; their table is made when it is opened. */
function which(row) {
  const made = el("details", { ontoggle: () => {
    if (made.childElementCount > 1) return;
    const cells = row.evs.map((each) => [el("time", { "data-ns": each.t_ns }, when(each.t_ns)), entropy(each.ev), each.peer || "not known", String(each.qpn)]);
    const more = row.changed - row.evs.length;
    if (row.evs.length) {
      made.append(el("table", {},
        el("tr", {}, ...["time", "EV", "peer", "QP"].map((each) => el("th", { scope: "col" }, each))),
        ...cells.map((each) => el("tr", {}, ...each.map((cell) => el("td", {}, cell))))));
    }
    if (more > 0) {
      made.append(el("p", { class: "hint" }, row.evs.length ? `${more} more are not listed.`
        : "They are no longer kept here; mrclab events lists those of a recorded run."));
    }
  } }, el("summary", {}, "which"));
  return made;
}

function choose(name) {
  element.select(name);
  fabric.select(name);
  open("element");
  if (layout.hosts.some((host) => host.name === name)) {
    // The first host that is chosen sends, the second one receives.
    if (!pair.source.value || pair.destination.value) pair.set(name, "");
    else if (pair.source.value !== name) pair.set("", name);
    if (pair.source.value && !pair.destination.value) pair.note.textContent = "Choose a second host.";
  }
}

function open(name) {
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (drawn) table.update(drawn);
}

for (const tab of document.querySelectorAll("[role=tab]")) {
  const name = tab.id.slice(4);
  tab.addEventListener("click", () => open(name));
  tab.addEventListener("keydown", (event) => {
    const way = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    const tabs = [...document.querySelectorAll("[role=tab]")];
    const next = tabs[(tabs.indexOf(tab) + way + tabs.length) % tabs.length];
    open(next.id.slice(4));
    next.focus();
  });
}

byId("pause").addEventListener("click", pauseOrGo);
byId("step").addEventListener("click", () => act("step", { seconds: 0.01 }));
byId("speed").addEventListener("change", (event) => act("speed", { speed: Number(event.target.value) }));
byId("what").addEventListener("change", (event) => { curves.choose(event.target.value); offer(); });

function pauseOrGo() {
  act(byId("pause").textContent === "Pause" ? "pause" : "resume", {});
}

byId("all-evs").addEventListener("change", (event) => byId("log").classList.toggle("few", !event.target.checked));

byId("undo").addEventListener("click", undo);
undoable.changed = (what) => {
  byId("undo").disabled = !what;
  byId("undo").title = what ? `undo ${what} (key u)` : "nothing to undo (key u)";
};

// Canvases have the colours of when they were drawn.
onColours(() => {
  if (!layout) return;
  const { rows } = curves;
  fabric.show(layout);
  curves.build();
  curves.history(rows);
  if (drawn) fabric.update(drawn);
});

let sliding = false;
let asked = null;

/** One seek at a time; of those asked for meanwhile the last. */
async function seek(to) {
  const busy = asked !== null;
  asked = to;
  if (busy) return;
  while (asked !== null) {
    const now = asked;
    await act("seek", { seconds: now });
    if (asked === now) asked = null;
  }
}

byId("slider").addEventListener("input", (event) => { sliding = true; seek(event.target.value / 1e3); });
byId("slider").addEventListener("change", () => { sliding = false; });

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea")) return;
  if (event.key === "b") element.shortcut("fail");
  else if (event.key === "r") element.shortcut("restore");
  else if (event.key === "u") undo();
  else if (event.key === " " && !event.target.closest("button, tr") && !byId("time").hidden) { event.preventDefault(); pauseOrGo(); }
  else if (event.key === "s" && !byId("step").hidden && !byId("time").hidden) act("step", { seconds: 0.01 });
});

if (!location.hash) say("The address has no token: open the one that mrclab printed.", true);

// For tests and measurements.
window.mrclab = { fabric, curves, stream, updates: 0, times: [], latest: () => drawn };
