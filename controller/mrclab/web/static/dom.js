// Elements without markup in strings: what comes from the server is only ever text.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((each) => each !== null && each !== undefined));
  return made;
}

export const byId = (id) => document.getElementById(id);

/** Sets a text only if it is another: most of a page does not change from one state to the next. */
export function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

const colours = new Map();

const schemes = matchMedia("(prefers-color-scheme: dark)");

/** Calls back when the page's colours change, between light and dark. */
export function onColours(changed) {
  schemes.addEventListener("change", () => { colours.clear(); changed(); });
}

/** A colour of the page's style by its name; it is asked for once, for that is slow. */
export function colour(name) {
  let found = colours.get(name);
  if (found === undefined) {
    found = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    colours.set(name, found);
  }
  return found;
}

/** Name and value pairs; `set` changes the values. */
export class Facts {
  constructor() {
    this.node = el("dl");
    this.values = new Map();
  }

  /** Without a value (null) the pair goes. */
  set(name, value) {
    let place = this.values.get(name);
    if (value === null) {
      place?.previousSibling.remove();
      place?.remove();
      this.values.delete(name);
      return;
    }
    if (place === undefined) {
      place = el("dd");
      this.values.set(name, place);
      this.node.append(el("dt", {}, name), place);
    }
    text(place, value);
  }
}

let fading = 0;

/** A word about what was done, or why not. */
export function say(message, bad = false) {
  const place = byId("answer");
  text(place, message);
  place.className = bad ? "shown bad" : "shown";
  clearTimeout(fading);
  fading = setTimeout(() => { place.className = ""; }, bad ? 8000 : 3000);
}
