/** A TCP proxy between a client and a service, which can cut connections where a test wants it. */
import * as net from "node:net"
import type { Address } from "./requires.ts"

/**
 * What becomes of the next bytes: they pass; or all connections are cut when the client sends some, before the service has them
 * (`request`), when the service answers (`answer`), after half of its answer (`half`); or nothing gets through any more (`silence`).
 */
export type Plan = "pass" | "request" | "answer" | "half" | "silence"

export class Proxy {
  private plan: Plan = "pass"
  private cuts = 0
  private readonly sockets = new Set<net.Socket>()
  private readonly server: net.Server
  /** Where clients are to connect. */
  address: Address = { host: "127.0.0.1", port: 0 }

  constructor(target: Address) {
    this.server = net.createServer((client) => {
      const service = net.connect(target)
      for (const socket of [client, service]) {
        this.sockets.add(socket)
        socket.on("error", () => undefined).once("close", () => {
          this.sockets.delete(socket)
          client.destroy()
          service.destroy()
        })
      }
      client.on("data", (bytes) => {
        if (this.plan === "request") this.cut()
        else if (this.plan !== "silence") service.write(bytes)
      })
      service.on("data", (bytes) => {
        if (this.plan === "answer") this.cut()
        else if (this.plan === "half") client.write(bytes.subarray(0, Math.ceil(bytes.length / 2)), () => this.cut())
        else if (this.plan !== "silence") client.write(bytes)
      })
    })
  }

  /** Listens, again on the same port where it did before. */
  open(): Promise<void> {
    return new Promise((resolve, reject) => {
      this.server.once("error", reject).listen(this.address.port, "127.0.0.1", () => {
        this.address = { host: "127.0.0.1", port: (this.server.address() as net.AddressInfo).port }
        resolve()
      })
    })
  }

  /** Cuts all connections and refuses new ones. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.server.close(() => resolve())
      this.cut()
    })
  }

  next(plan: Plan): void {
    this.plan = plan
  }

  /** How often it has cut all connections; those that come later pass. */
  get count(): number {
    return this.cuts
  }

  cut(): void {
    this.plan = "pass"
    this.cuts++
    for (const socket of this.sockets) socket.destroy()
  }
}
