/*
 * The search of this site runs in a worker. Browsers start none for a page that was opened from the file system, so there
 * this stands in for one: a hidden frame runs the script, and messages go both ways as a worker's do.
 */
(function () {
  "use strict";
  if (window.location.protocol !== "file:") return;
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.waiting = [];
      this.ready = false;
      this.frame.addEventListener("load", () => this.begin(String(url)), { once: true });
      this.frame.srcdoc = "<!doctype html><title>search</title>";
      document.body.appendChild(this.frame);
    }

    begin(url) {
      const inner = this.frame.contentWindow;
      const tell = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (typeof this.onmessage === "function") this.onmessage(event);
      };
      // What the script calls to answer, and how it loads others.
      inner.postMessage = (data) => setTimeout(tell, 0, data);
      inner.importScripts = (...urls) =>
        urls.reduce((before, each) => before.then(() => this.load(inner, new URL(each, url))), Promise.resolve());
      this.load(inner, url).then(() => {
        this.ready = true;
        for (const data of this.waiting.splice(0)) this.postMessage(data);
      });
    }

    load(inner, url) {
      return new Promise((done, failed) => {
        const script = inner.document.createElement("script");
        script.src = String(url);
        script.onload = () => done();
        script.onerror = () => failed(new Error("cannot load " + url));
        inner.document.body.appendChild(script);
      });
    }

    postMessage(data) {
      if (!this.ready) {
        this.waiting.push(data);
        return;
      }
      const inner = this.frame.contentWindow;
      inner.dispatchEvent(new inner.MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
})();
