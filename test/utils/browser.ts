/**
 * Pages in a real browser without a window, driven over its DevTools protocol: real keys, real layout, real colours.
 *
 * The browser is `CHROME_PATH`, or the first of the usual names that runs. Where there is none the tests say so and do not run, unless
 * `EFFECT_TURN_REQUIRE` names `browser`.
 */
import { describe, it } from "@effect/vitest"
import { type ChildProcess, spawn, spawnSync } from "node:child_process"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { pathToFileURL } from "node:url"
import { afterAll, beforeAll } from "vitest"

const names = [
  process.env["CHROME_PATH"] ?? "",
  "chromium",
  "chromium-browser",
  "google-chrome",
  "google-chrome-stable"
]

const found = (): string | undefined =>
  names.find((name) => name !== "" && spawnSync(name, ["--version"], { timeout: 20_000 }).status === 0)

/** How a page is looked at. */
interface Look {
  readonly width: number
  readonly height: number
  readonly dark?: boolean
  readonly scripts?: boolean
}

/** The keys that have no text, with their codes. */
const codes: Readonly<Record<string, number>> = {
  Enter: 13,
  Escape: 27,
  PageUp: 33,
  PageDown: 34,
  End: 35,
  Home: 36,
  ArrowLeft: 37,
  ArrowUp: 38,
  ArrowRight: 39,
  ArrowDown: 40,
  Tab: 9
}

export class Page {
  /** What the page asked for, other than itself; and what went wrong in it. */
  readonly requests: Array<string> = []
  readonly problems: Array<string> = []
  private readonly send: (method: string, params?: object) => Promise<any>
  private readonly scripts: boolean

  constructor(send: (method: string, params?: object) => Promise<any>, scripts: boolean) {
    this.send = send
    this.scripts = scripts
  }

  /** The value of an expression in the page. What is drawn in the next frame is drawn when it is asked for. */
  async get<A = unknown>(expression: string): Promise<A> {
    const frame = "new Promise((done) => requestAnimationFrame(() => setTimeout(done)))"
    const { exceptionDetails, result } = await this.send("Runtime.evaluate", {
      // Without scripts there is no frame to wait for.
      expression: this.scripts ? `${frame}.then(() => (${expression}))` : expression,
      awaitPromise: true,
      returnByValue: true
    })
    if (exceptionDetails !== undefined) {
      throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text)
    }
    return result.value
  }

  async press(...keys: ReadonlyArray<string>): Promise<void> {
    for (const key of keys) {
      const code = codes[key]
      const text = key === "Enter" ? "\r" : code === undefined ? key : undefined
      const event = {
        key,
        code: code === undefined ? undefined : key,
        windowsVirtualKeyCode: code ?? key.toUpperCase().charCodeAt(0)
      }
      await this.send("Input.dispatchKeyEvent", { ...event, type: text === undefined ? "rawKeyDown" : "keyDown", text })
      await this.send("Input.dispatchKeyEvent", { ...event, type: "keyUp" })
    }
  }

  async mouse(type: "Pressed" | "Moved" | "Released", x: number, y: number): Promise<void> {
    await this.send("Input.dispatchMouseEvent", {
      type: `mouse${type}`,
      x,
      y,
      button: "left",
      buttons: type === "Released" ? 0 : 1,
      clickCount: 1
    })
  }

  async wheel(x: number, y: number, deltaY: number, modifiers: "none" | "ctrl"): Promise<void> {
    const event = { type: "mouseWheel", x, y, deltaX: 0, deltaY, modifiers: modifiers === "ctrl" ? 2 : 0 }
    await this.send("Input.dispatchMouseEvent", event)
  }

  /** What is seen, as a PNG. */
  async screenshot(): Promise<Uint8Array> {
    const { data } = await this.send("Page.captureScreenshot", { format: "png" })
    return Uint8Array.from(Buffer.from(data, "base64"))
  }

  async print(): Promise<void> {
    await this.send("Emulation.setEmulatedMedia", { media: "print" })
  }
}

export class Browser {
  private readonly child: ChildProcess
  private readonly profile: string
  private readonly socket: WebSocket
  private readonly waiting = new Map<
    number,
    { readonly done: (value: any) => void; readonly failed: (error: Error) => void }
  >()
  private readonly pages = new Map<string, Page>()
  private count = 0

  private constructor(child: ChildProcess, profile: string, socket: WebSocket) {
    this.child = child
    this.profile = profile
    this.socket = socket
    socket.addEventListener("message", ({ data }) => this.heard(JSON.parse(String(data))))
  }

  static async open(program: string): Promise<Browser> {
    const profile = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-browser-"))
    const child = spawn(program, [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--remote-debugging-port=0",
      `--user-data-dir=${profile}`,
      "about:blank"
    ], { stdio: ["ignore", "ignore", "pipe"] })
    const address = await new Promise<string>((done, failed) => {
      let text = ""
      child.stderr!.on("data", (chunk) => {
        const [, url] = /DevTools listening on (ws:\S+)/.exec(text += String(chunk)) ?? []
        if (url !== undefined) done(url)
      })
      child.once("error", failed)
      child.once("exit", () => failed(new Error(`the browser ended:\n${text}`)))
    })
    const socket = new WebSocket(address)
    await new Promise((done, failed) => {
      socket.addEventListener("open", done, { once: true })
      socket.addEventListener("error", () => failed(new Error("the browser does not answer")), { once: true })
    })
    return new Browser(child, profile, socket)
  }

  private heard(message: any): void {
    const asked = this.waiting.get(message.id)
    if (asked !== undefined) {
      this.waiting.delete(message.id)
      if (message.error === undefined) asked.done(message.result)
      else asked.failed(new Error(message.error.message))
      return
    }
    const page = this.pages.get(message.sessionId)
    if (page === undefined) return
    const { method, params } = message
    if (method === "Network.requestWillBeSent") page.requests.push(params.request.url)
    if (method === "Runtime.exceptionThrown") {
      page.problems.push(params.exceptionDetails.exception?.description ?? params.exceptionDetails.text)
    }
    if (method === "Log.entryAdded") page.problems.push(params.entry.text)
    if (method === "Page.javascriptDialogOpening") page.problems.push(`a dialog: ${params.message}`)
  }

  private send(method: string, params: object = {}, sessionId?: string): Promise<any> {
    const id = ++this.count
    return new Promise((done, failed) => {
      this.waiting.set(id, { done, failed })
      this.socket.send(JSON.stringify({ id, method, params, sessionId }))
    })
  }

  /** Opens a file. Frames are drawn in the page that was opened last alone. */
  async page(file: string, { dark = false, height, scripts = true, width }: Look): Promise<Page> {
    const { targetId } = await this.send("Target.createTarget", { url: "about:blank" })
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true })
    const send = (method: string, params?: object) => this.send(method, params, sessionId)
    const page = new Page(send, scripts)
    this.pages.set(sessionId, page)
    for (const domain of ["Page", "Runtime", "Network", "Log"]) await send(`${domain}.enable`)
    await send("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: width < 600 })
    await send("Emulation.setEmulatedMedia", {
      features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }]
    })
    await send("Emulation.setScriptExecutionDisabled", { value: !scripts })
    await send("Page.navigate", { url: pathToFileURL(file).href })
    while (await page.get("document.readyState === 'complete' && location.protocol === 'file:'") !== true) {
      // It asks for the next frame each time.
    }
    return page
  }

  async close(): Promise<void> {
    const ended = new Promise((done) => this.child.once("exit", done))
    this.socket.close()
    this.child.kill("SIGKILL")
    await ended
    fs.rmSync(this.profile, { recursive: true, force: true, maxRetries: 5, retryDelay: 100 })
  }
}

/** Tests in a browser, which `register` gets when it is open. */
export const describeBrowser = (name: string, register: (browser: () => Browser) => void): void => {
  const program = found()
  describe(name, () => {
    if (program !== undefined) return opened(program, register)
    it("needs a browser", (context) => {
      const why = "there is no Chromium on this machine, and CHROME_PATH names none"
      if ((process.env["EFFECT_TURN_REQUIRE"] ?? "").split(",").includes("browser")) throw new Error(why)
      context.skip(why)
    })
  })
}

const opened = (program: string, register: (browser: () => Browser) => void): void => {
  let browser: Browser | undefined
  beforeAll(async () => {
    browser = await Browser.open(program)
  }, 60_000)
  afterAll(() => browser?.close())
  register(() => browser!)
}
