"use strict";
// The maps of load: a byte per link, 100 for a full link, 255 for a dead one; packed with zlib. By tier: T0-T1 links are
// [plane][T0][T1 of its pod], T1-T2 links [plane][pod][uplink].
(async () => {
  const {planes, t0s, t1s, podT0s, pods, uplinks, parallel, maps} = JSON.parse(document.getElementById("maps").textContent);
  const canvas = document.getElementById("map"), told = document.getElementById("told");
  const [when, plane, tier, range, key] = ["when", "plane", "tier", "range", "key"].map((id) => document.getElementById(id));
  const tiers = [{
    name: "T0-T1", rows: t0s, columns: t1s,
    ends: (t0, own) => [`t0.${t0}`, `t1.${Math.floor(t0 / podT0s) * t1s + own}`],
  }, {
    name: "T1-T2", rows: pods, columns: t1s * uplinks,
    ends: (pod, up) => [`t1.${pod * t1s + Math.floor(up / uplinks)}`, `t2.${Math.floor(up / parallel)}`, up % parallel],
  }].slice(0, maps[0].data.length);
  const unpack = async (text) => {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const data = await Promise.all(maps.map((each) => Promise.all(each.data.map(unpack))));
  maps.forEach((each, i) => when.add(new Option(each.name, i)));
  for (let p = 0; p < planes; p++) plane.add(new Option(p, p));
  tiers.forEach((each, i) => tier.add(new Option(each.name, i)));
  const steps = [[201, 211, 220], [166, 200, 224], [111, 177, 217], [47, 143, 198], [10, 92, 148], [6, 48, 79]];
  const DEAD = 255;
  const colour = (v, least, most) => {
    if (v === DEAD) return [213, 94, 0];
    const at = Math.min(Math.max((v - least) / Math.max(most - least, 1), 0), 1) * 5, i = Math.min(Math.floor(at), 4), part = at - i;
    return steps[i].map((low, k) => low + (steps[i + 1][k] - low) * part);
  };
  // The link that the pointer or the arrow keys are at.
  let row = 0, column = 0;
  const draw = () => {
    const {rows, columns} = tiers[tier.value];
    canvas.width = columns; canvas.height = rows;
    const picture = canvas.getContext("2d"), image = picture.createImageData(columns, rows);
    const from = plane.value * rows * columns, values = data[when.value][tier.value].subarray(from, from + rows * columns);
    const alive = values.filter((v) => v !== DEAD);
    const [least, most] = range.value === "shown" && alive.length
      ? [alive.reduce((a, b) => Math.min(a, b)), alive.reduce((a, b) => Math.max(a, b))] : [0, 100];
    key.textContent = `${least} % light, ${most} % dark; what is dead: orange`;
    values.forEach((v, i) => image.data.set([...colour(v, least, most), 255], 4 * i));
    picture.putImageData(image, 0, 0);
  };
  const tell = () => {
    const {rows, columns, ends} = tiers[tier.value];
    row = Math.min(Math.max(row, 0), rows - 1), column = Math.min(Math.max(column, 0), columns - 1);
    const value = data[when.value][tier.value][(plane.value * rows + row) * columns + column];
    const [from, to, number] = ends(row, column), name = `p${plane.value}-${from}--p${plane.value}-${to}`;
    told.textContent = `${name}${parallel > 1 && number !== undefined ? ":" + number : ""}: ${value === DEAD ? "dead" : value + " %"}`;
  };
  canvas.addEventListener("pointermove", (event) => {
    const {rows, columns} = tiers[tier.value];
    column = Math.floor(event.offsetX / canvas.clientWidth * columns), row = Math.floor(event.offsetY / canvas.clientHeight * rows);
    tell();
  });
  const keys = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
  canvas.addEventListener("keydown", (event) => {
    if (!(event.key in keys)) return;
    const [down, right] = keys[event.key];
    row += down, column += right;
    event.preventDefault();
    tell();
  });
  for (const each of [when, plane, tier, range]) each.addEventListener("change", draw);
  if (maps.length > 1) when.value = maps.length - 1;
  draw();
})();
