/**
 * What some tests need and not every machine has. Where it is missing the tests say so and do not run, unless the environment
 * names it in `EFFECT_TURN_REQUIRE` (a comma-separated list): then its absence is a failure.
 */
import { describe, it } from "@effect/vitest"
import * as fs from "node:fs"
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
