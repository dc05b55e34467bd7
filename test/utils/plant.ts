/** A copy of the library with faults in it. */
import { afterAll, assert, describe, it } from "@effect/vitest"
import type * as Library from "effect-turn"
import type * as Kit from "effect-turn/testing"
import * as Effect from "effect/Effect"
import * as fs from "node:fs"
import * as path from "node:path"
import { pathToFileURL } from "node:url"

const root = path.join(import.meta.dirname, "../..")

/** One change of a text of the library: what stands there, and what is put in its place. */
interface Change {
  readonly file: string
  readonly from: string
  readonly to: string
}

export interface Copy {
  readonly library: typeof Library
  readonly kit: typeof Kit
}

const copies: Array<string> = []
afterAll(() => {
  for (const copy of copies) fs.rmSync(copy, { recursive: true, force: true })
})

/** A copy of the library with some changes. It lies inside the repository, where its packages are found. */
const plant = (changes: ReadonlyArray<Change>): Effect.Effect<Copy> =>
  Effect.promise(async () => {
    const copy = fs.mkdtempSync(path.join(root, ".planted-"))
    copies.push(copy)
    fs.cpSync(path.join(root, "src"), path.join(copy, "src"), { recursive: true })
    for (const { file, from, to } of changes) {
      const at = path.join(copy, "src", file)
      const text = fs.readFileSync(at, "utf8")
      assert.strictEqual(text.split(from).length, 2, `${file} has to have this once: ${from}`)
      fs.writeFileSync(at, text.replace(from, () => to))
    }
    const load = (file: string) => import(/* @vite-ignore */ pathToFileURL(path.join(copy, "src", file)).href)
    return { library: await load("index.ts"), kit: await load("testing/index.ts") }
  })

/** A fault, what finds it, and what that says. */
export interface Fault {
  readonly fault: string
  readonly changes: ReadonlyArray<Change>
  readonly find: (copy: Copy) => Effect.Effect<unknown, Kit.Simulation.Falsified>
  readonly tells: RegExp
}

/** Plants the faults one at a time; what finds them has to pass where there is none. */
export const describeFaults = (
  name: string,
  faults: ReadonlyArray<Fault>,
  finders: ReadonlyArray<Fault["find"]>
): void => {
  describe(name, () => {
    it.live("the library as it is passes what finds them", () =>
      Effect.gen(function*() {
        const copy = yield* plant([])
        for (const find of finders) yield* find(copy)
      }), 120_000)

    for (const { changes, fault, find, tells } of faults) {
      it.live(`found: ${fault}`, () =>
        Effect.gen(function*() {
          const copy = yield* plant(changes)
          const falsified = yield* Effect.flip(find(copy))
          assert.match(falsified.problem, tells)
          assert.isTrue(falsified.repeatable, falsified.message)
          // One line for whoever reads the run: the fault, and what repeats it.
          console.log(`found after ${falsified.runs} runs: ${fault}; ${falsified.replay}`)
        }), 60_000)
    }
  })
}
