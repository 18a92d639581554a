"use strict";
// The maps of load: a byte per link, [plane][T0][T1], 100 for a full link, 255 for a dead one; packed with zlib.
(async () => {
  const {planes, t0s, t1s, maps} = JSON.parse(document.getElementById("maps").textContent);
  const canvas = document.getElementById("map"), told = document.getElementById("told");
  const when = document.getElementById("when"), plane = document.getElementById("plane");
  const unpack = async (text) => {
    const packed = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  };
  const data = await Promise.all(maps.map((each) => unpack(each.data)));
  maps.forEach((each, i) => when.add(new Option(each.name, i)));
  for (let p = 0; p < planes; p++) plane.add(new Option(p, p));
  const steps = [[201, 211, 220], [166, 200, 224], [111, 177, 217], [47, 143, 198], [10, 92, 148], [6, 48, 79]];
  const colour = (v) => {
    if (v === 255) return [213, 94, 0];
    const at = Math.min(v / 100, 1) * 5, i = Math.min(Math.floor(at), 4), part = at - i;
    return steps[i].map((low, k) => low + (steps[i + 1][k] - low) * part);
  };
  const draw = () => {
    canvas.width = t1s; canvas.height = t0s;
    const picture = canvas.getContext("2d"), image = picture.createImageData(t1s, t0s);
    const from = plane.value * t0s * t1s, values = data[when.value];
    for (let i = 0; i < t0s * t1s; i++) {
      const [r, g, b] = colour(values[from + i]);
      image.data.set([r, g, b, 255], 4 * i);
    }
    picture.putImageData(image, 0, 0);
  };
  canvas.addEventListener("mousemove", (event) => {
    const t1 = Math.floor(event.offsetX / canvas.clientWidth * t1s), t0 = Math.floor(event.offsetY / canvas.clientHeight * t0s);
    const value = data[when.value][(plane.value * t0s + t0) * t1s + t1];
    told.textContent = `p${plane.value}-t0.${t0}--p${plane.value}-t1.${t1}: ${value === 255 ? "dead" : value + " %"}`;
  });
  when.addEventListener("change", draw);
  plane.addEventListener("change", draw);
  if (maps.length > 1) when.value = maps.length - 1;
  draw();
})();
