/* Browsers start no worker for a page that is a file, and the search runs in one. There, a hidden frame takes its place. */
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.appendChild(frame);
      this.inside = frame.contentWindow;
      this.ready = new Promise((resolve) => {
        const inside = frame.contentDocument;
        this.inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        this.inside.importScripts = (...addresses) =>
          addresses.reduce(
            (before, one) =>
              before.then(
                () =>
                  new Promise((done) => {
                    const script = inside.createElement("script");
                    script.src = one;
                    script.onload = done;
                    inside.body.appendChild(script);
                  }),
              ),
            Promise.resolve(),
          );
        const script = inside.createElement("script");
        script.src = address;
        script.onload = resolve;
        inside.body.appendChild(script);
      });
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {}
  };
}
