// The way to the server: a stream of server-sent events, and commands. The token is behind the # of the page's address,
// so it is in no request line; it goes out in a header, which is why the stream is read by fetch and not by EventSource.

const token = decodeURIComponent(location.hash.slice(1));
const headers = { Authorization: `Bearer ${token}` };

/** A command; its answer. Throws an Error with the server's reason. */
export async function command(name, body = {}) {
  let response;
  try {
    response = await fetch(`api/${name}`, {
      method: "POST",
      headers: { ...headers, "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Error("the server does not answer");
  }
  if (!response.ok) {
    const text = await response.text();
    let reason = text;
    try { reason = JSON.parse(text).error; } catch { /* it is text */ }
    throw new Error(reason.trim());
  }
  return response.json();
}

/** What was captured of a port, as a file of the browser's. */
export async function download(port) {
  const response = await fetch(`api/captures/${encodeURIComponent(port)}`, { headers });
  if (!response.ok) throw new Error((await response.text()).trim());
  keep(await response.blob(), `${port.replace(/[^a-z0-9.]/g, "-")}.pcapng`);
}

export function keep(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const RETRY_MS = 1000;

/** Reads the stream for ever, again after each loss. `on` has a function for each event, and `connection(state, why)`. */
export class Stream {
  constructor(on) {
    this.on = on;
    this.pair = null;
    this.abort = null;
    this.ended = false;
    this.loop();
  }

  /** Looks at another pair of hosts: the stream restarts. */
  watch(source, destination) {
    const pair = source && destination && source !== destination ? { source, destination } : null;
    if (JSON.stringify(pair) === JSON.stringify(this.pair)) return;
    this.pair = pair;
    this.again = true;
    this.abort?.abort();
  }

  async loop() {
    for (;;) {
      this.again = false;
      let why = "the server has gone";
      try {
        why = await this.read();
      } catch (error) {
        if (error.fatal) {
          this.on.connection("refused", error.message);
          return;
        }
      }
      if (this.again) continue;
      this.on.connection("lost", this.ended ? "the command has ended" : why);
      await new Promise((done) => { setTimeout(done, RETRY_MS); });
    }
  }

  async read() {
    this.abort = new AbortController();
    const query = this.pair ? `?${new URLSearchParams(this.pair)}` : "";
    // A proxy in front of the server passes the stream on at once if it knows what it is.
    const asked = { ...headers, Accept: "text/event-stream" };
    const response = await fetch(`api/stream${query}`, { headers: asked, signal: this.abort.signal });
    if (!response.ok) {
      const reason = (await response.text()).trim();
      if (response.status === 503) return reason;
      throw Object.assign(new Error(reason), { fatal: true });
    }
    this.on.connection("open", "");
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return "the server has gone";
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      this.take(parts);
    }
  }

  take(parts) {
    const found = [];
    for (const part of parts) {
      const at = part.indexOf("\ndata: ");
      if (part.startsWith("event: ") && at > 0) found.push([part.slice(7, at), part.slice(at + 7)]);
    }
    // Of several states that came at once the newest will do.
    const newest = found.map(([name]) => name).lastIndexOf("state");
    found.forEach(([name, data], place) => {
      if (name === "state" && place !== newest) return;
      if (name === "end") this.ended = true;
      this.on[name]?.(JSON.parse(data));
    });
  }
}
