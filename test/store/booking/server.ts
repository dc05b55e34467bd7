/**
 * A booking service that knows what has really happened: every effect, by key. A client that is killed while it waits does not take its
 * request back, as with any backend.
 */
import * as http from "node:http"
import type { AddressInfo } from "node:net"

export class BookingServer {
  /** The numbers of the bookings that were made, by key. */
  readonly made = new Map<string, Array<number>>()
  /** Requests that were answered from memory, for their key had been seen. */
  repeated = 0
  /** Questions by what was answered. */
  readonly asked = { booked: 0, unknown: 0 }
  /** Requests with a key in their path and none, or another, in their header. */
  readonly withoutKey: Array<string> = []
  /** Told of every booking that is asked for, before it is made, and of every one that is answered. */
  onBooking: (key: string, moment: "asked" | "answered") => void = () => {}
  private last = 0
  private readonly server = http.createServer((request, response) => void this.serve(request, response))

  async open(): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen(0, "127.0.0.1", resolve))
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`
  }

  async close(): Promise<void> {
    this.server.closeAllConnections()
    await new Promise((resolve) => this.server.close(resolve))
  }

  countOf(key: string): number {
    return this.made.get(key)?.length ?? 0
  }

  private async serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const url = new URL(request.url!, "http://localhost")
    const [, mode, encoded] = url.pathname.split("/")
    const key = decodeURIComponent(encoded!)
    const answer = (status: number, body: unknown) => {
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body))
    }
    if (request.method === "GET") {
      const number = this.made.get(key)?.[0]
      this.asked[number === undefined ? "unknown" : "booked"]++
      return number === undefined ? answer(404, { error: "no such booking" }) : answer(200, { number })
    }
    if (request.headers["idempotency-key"] !== key) this.withoutKey.push(key)
    this.onBooking(key, "asked")
    await pause(Number(url.searchParams.get("before")))
    const known = this.made.get(key)
    if (known !== undefined && mode === "forward") this.repeated++
    else if (known === undefined) this.made.set(key, [++this.last])
    else known.push(++this.last)
    const number = mode === "forward" ? this.made.get(key)![0] : this.last
    await pause(Number(url.searchParams.get("after")))
    answer(201, { number })
    this.onBooking(key, "answered")
  }
}

const pause = (millis: number): Promise<void> =>
  millis === 0 ? Promise.resolve() : new Promise((resolve) => setTimeout(resolve, millis))
