// Browsers start no worker from a file of this machine. There the search runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.document.open();
      inner.document.write("<!doctype html><body>");
      inner.document.close();
      inner.postMessage = (data) =>
        setTimeout(() => this.receive(new MessageEvent("message", { data: structuredClone(data) })));
      const script = inner.document.createElement("script");
      this.loaded = new Promise((resolve) => {
        script.onload = resolve;
      });
      script.src = new URL(address, location);
      inner.document.body.append(script);
    }

    receive(event) {
      this.dispatchEvent(event);
      if (this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      this.loaded.then(() =>
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })),
      );
    }

    terminate() {
      this.frame.remove();
    }
  };
}
