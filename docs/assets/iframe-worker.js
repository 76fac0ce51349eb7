// Browsers start no Worker from file://. There, search runs in a hidden frame that speaks as a Worker does.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.appendChild(frame)
      this.inner = frame.contentWindow
      this.inner.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      const load = source => new Promise((resolve, reject) => {
        const script = this.inner.document.createElement("script")
        script.src = new URL(source, document.baseURI)
        script.onload = resolve
        script.onerror = reject
        this.inner.document.body.appendChild(script)
      })
      this.inner.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve())
      this.ready = load(url)
    }
    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data })))
    }
    terminate() {}
  }
}
