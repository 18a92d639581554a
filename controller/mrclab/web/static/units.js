// Numbers as people read them.

const SCALES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function scaled(value, unit) {
  for (const [factor, letter] of SCALES) {
    if (value >= factor) return `${trim(value / factor)} ${letter}${unit}`;
  }
  return `${trim(value)} ${unit}`;
}

function trim(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value === 0 ? "0" : value.toFixed(2);
}

export const rate = (bps) => scaled(bps ?? 0, "b/s");
export const bytes = (count) => scaled(count ?? 0, "B");
/** An EV as every message and file of mrclab has it. */
export const entropy = (ev) => ev.toString(16).padStart(8, "0");
export const count = (value) => (value ?? 0).toLocaleString("en");

export function seconds(ns) {
  return `${(ns / 1e9).toFixed(2)} s`;
}

export function span(ns) {
  if (ns >= 1e9) return `${trim(ns / 1e9)} s`;
  if (ns >= 1e6) return `${trim(ns / 1e6)} ms`;
  return `${trim(ns / 1e3)} µs`;
}
