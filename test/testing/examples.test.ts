import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Scenario } from "effect-turn/testing"
import * as fs from "node:fs"
import * as path from "node:path"

const folder = path.join(import.meta.dirname, "../../examples/scenarios")
const files = fs.readdirSync(folder).filter((name) => name.endsWith(".json"))

describe("scenarios", () => {
  it("there are some", () => assert.isAbove(files.length, 0))

  it.effect.each(files)("%s", (name) =>
    Scenario.runText(name, fs.readFileSync(path.join(folder, name), "utf8")).pipe(
      Effect.map(({ failures }) => assert.deepStrictEqual(failures, []))
    ))
})

describe("scenarios, explored", () => {
  it.effect.each(files)(
    "%s",
    (name) =>
      Scenario.exploreText(name, fs.readFileSync(path.join(folder, name), "utf8"), { seeds: 50 }).pipe(
        Effect.map(({ explored, failures }) => assert.deepStrictEqual([failures, explored?.runs], [[], 50]))
      )
  )
})
