/**
 * What some tests need and not every machine has. Where it is missing the tests say so and do not run, unless the environment
 * names it in `EFFECT_TURN_REQUIRE` (a comma-separated list): then its absence is a failure.
 */
import { describe, it } from "@effect/vitest"
import * as fs from "node:fs"
import * as net from "node:net"
import * as path from "node:path"

const root = path.join(import.meta.dirname, "../..")

const isRequired = (what: string): boolean => (process.env["EFFECT_TURN_REQUIRE"] ?? "").split(",").includes(what)

/**
 * The folder of shared scenarios and data: `EFFECT_TURN_SHARED`, or `shared` beside the repository.
 *
 * @public
 */
export const sharedDir = (): string | undefined => {
  const folder = path.resolve(root, process.env["EFFECT_TURN_SHARED"] ?? "../shared")
  return fs.existsSync(path.join(folder, "scenarios")) ? folder : undefined
}

/** Tests over the shared folder, which `register` gets. */
export const describeShared = (name: string, register: (shared: string) => void): void => {
  const shared = sharedDir()
  describe(name, () => {
    if (shared !== undefined) return register(shared)
    it("needs the shared scenarios and data", (context) => {
      const why = "there is no ../shared beside the repository, and EFFECT_TURN_SHARED names no such folder"
      if (isRequired("shared")) throw new Error(why)
      context.skip(why)
    })
  })
}

/** Services on this machine: where clients find them by default, or where the environment says. */
const services = {
  PostgreSQL: { host: process.env["PGHOST"] ?? "127.0.0.1", port: Number(process.env["PGPORT"] ?? 5432) },
  Redis: { host: process.env["REDIS_HOST"] ?? "127.0.0.1", port: Number(process.env["REDIS_PORT"] ?? 6379) }
}

export interface Address {
  readonly host: string
  readonly port: number
}

const answers = ({ host, port }: Address): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = net.connect({ host, port, timeout: 2_000 })
    const end = (is: boolean) => {
      socket.destroy()
      resolve(is)
    }
    socket.once("connect", () => end(true)).once("error", () => end(false)).once("timeout", () => end(false))
  })

/** Tests over a service, whose address `register` gets. To be awaited at the top of a test file. */
export const describeService = async (
  name: string,
  service: keyof typeof services,
  register: (address: Address) => void
): Promise<void> => {
  const address = services[service]
  const there = await answers(address)
  describe(name, () => {
    if (there) return register(address)
    it(`needs ${service}`, (context) => {
      const why = `there is no ${service} at ${address.host}:${address.port}`
      if (isRequired("services")) throw new Error(why)
      context.skip(why)
    })
  })
}

/** Tests that drive a program of this machine, where it is there. */
export const describeProgram = (name: string, program: string, isThere: () => boolean, register: () => void): void => {
  describe(name, () => {
    if (isThere()) return register()
    it(`needs ${program}`, (context) => {
      const why = `there is no ${program} on this machine`
      if (isRequired("programs")) throw new Error(why)
      context.skip(why)
    })
  })
}
