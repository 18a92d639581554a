// The settings of a failure as a user writes them, with units; and what the server takes: numbers of ns, b/s and shares.

const SHARES = { "%": 0.01, "": 1 };
const TIMES = { ns: 1, us: 1e3, "µs": 1e3, ms: 1e6, s: 1e9 };
const RATES = { bps: 1, "b/s": 1, kbps: 1e3, "kb/s": 1e3, mbps: 1e6, "mb/s": 1e6, gbps: 1e9, "gb/s": 1e9 };
const COUNTS = { "": 1 };

const share = (label, ...presets) => ({ label, units: SHARES, presets, unit: "write 10% or 0.1" });
const time = (label, ...presets) => ({ label, units: TIMES, presets, unit: "write a time with its unit: 5ms, 200us" });
const whole = (label, ...presets) => ({ label, units: COUNTS, presets, unit: "write a whole number" });

const SETTINGS = {
  loss: share("loses", "1%", "10%", "50%"),
  corrupt: share("corrupts", "0.1%", "1%"),
  duplicate: share("duplicates", "1%", "10%"),
  reorder: share("delays some", "1%", "10%"),
  reorder_extra_ns: time("these by", "100us", "1ms"),
  delay_ns: time("delays all by", "200us", "5ms", "20ms"),
  rate_bps: { label: "limits to", units: RATES, presets: ["1Mbps", "5Mbps", "10Mbps"], unit: "write a rate with its unit: 5Mbps" },
  first: whole("first port", "0", "1"),
  count: whole("links", "1", "2"),
};

/** What a setting is called, what it may be, and why something is no value of it; null: yes or no. */
export const setting = (name) => SETTINGS[name] ?? null;

/** The number that the server takes; an error says what to write. */
export function parse(name, text) {
  const { label, units, unit } = SETTINGS[name];
  const found = /^([0-9]*\.?[0-9]+)\s*([^0-9.]*)$/.exec(text.trim());
  const factor = found && units[found[2].trim().toLowerCase()];
  if (factor === undefined || factor === null) throw new Error(`${label}: ${unit}, not ${text}`);
  const value = Number(found[1]) * factor;
  return units === SHARES ? value : Math.round(value);
}
