// Numbers as people read them.

import { shown } from "./chart.js";

export const rate = (bps) => shown(bps ?? 0, "b/s", 3);
export const bytes = (count) => shown(count ?? 0, "B", 3);
/** An EV as every message and file of mrclab has it. */
export const entropy = (ev) => ev.toString(16).padStart(8, "0");
export const count = (value) => (value ?? 0).toLocaleString("en");

export function seconds(ns) {
  return `${(ns / 1e9).toFixed(2)} s`;
}

export const span = (ns) => shown(ns / 1e9, "s", 3);
