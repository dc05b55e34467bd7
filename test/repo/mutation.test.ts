import { assert, describe, it } from "@effect/vitest"
import * as fs from "node:fs"
import * as path from "node:path"
import { transformSync } from "rolldown/utils"
import { instrument, keyOf, mutantsOf, switchName } from "../mutation/mutants.ts"
import { sources } from "../mutation/plan.ts"
import type { Explained } from "../mutation/report.ts"
import { root } from "./checks/report.ts"

const short = (source: string) => mutantsOf("a.ts", source).map(({ from, to }) => `${from} => ${to}`)

describe("mutants", () => {
  it("are planted where code decides, counts, and does something", () => {
    assert.deepStrictEqual(short("const a = b < c"), ["b < c => b <= c", "b < c => b >= c"])
    assert.deepStrictEqual(short("const a = b && c"), ["b && c => b || c"])
    assert.deepStrictEqual(short("const a = b ?? c"), ["b ?? c => b", "b ?? c => c"])
    assert.deepStrictEqual(short("const a = b ? 1 : 2"), ["b => !(b)"])
    assert.deepStrictEqual(short("const a = !b"), ["!b => b"])
    assert.deepStrictEqual(short("const a = b - 1"), ["b - 1 => b + 1"])
    assert.deepStrictEqual(short("const a = true"), ["true => false"])
    assert.deepStrictEqual(short("const a = b?.c.d?.(1)"), ["b?.c.d?.(1) => b.c.d?.(1)", "b?.c.d?.(1) => b?.c.d(1)"])
    assert.deepStrictEqual(short("const a = Math.min(b, c)"), ["Math.min(b, c) => Math.max(b, c)"])
    assert.deepStrictEqual(short("const a = b.filter(c)"), ["b.filter(c) => b"])
    assert.deepStrictEqual(short("a++"), ["a++ => (nothing)", "a++ => a--"])
    assert.deepStrictEqual(short("a()"), ["a() => (nothing)"])
    assert.deepStrictEqual(short("const a = () => { b(); c() }"), [
      "{ b(); c() } => {}",
      "b(); => (nothing)",
      "c() => (nothing)"
    ])
  })

  it("are not planted in words, types, and declarations", () => {
    const source = "type A = true | false\nconst a = `x${b}` + 'y'\nlet c: A\nimport d from 'd'\nconst e = f as true"
    assert.deepStrictEqual(short(source), [])
  })

  it("stand together in one source, each behind its switch, and only those that are wanted", () => {
    const source =
      "const f = (a: number, b?: { c: number }) => { if (a < 1 && b !== undefined) return b?.c ?? 0; return -a }"
    const mutants = mutantsOf("a.ts", source)
    const run = (active: number, wanted = (_: number) => true) => {
      const { code, errors } = transformSync("a.ts", instrument("a.ts", source, 1, wanted))
      assert.deepStrictEqual(errors, [])
      const make = new Function(switchName, `${code}; return f`)
      const f = make((id: number) => id === active)
      return JSON.stringify([f(0, { c: 5 }), f(1, { c: 5 }), f(2, { c: 5 }), f(0)])
    }
    const plain = run(0)
    assert.strictEqual(plain, "[5,-1,-2,0]")
    // Each of them changes something, but for those of the chain and of `?? 0`, which is never asked here.
    const same = mutants.filter((_, i) => run(i + 1) === plain).map(({ from, to }) => `${from} => ${to}`)
    assert.deepStrictEqual(same, ["b?.c ?? 0 => b?.c", "b?.c => b.c"])
    assert.strictEqual(run(1, (id) => id !== 1), plain)
  })

  it("leave what stands above them alone, where lines end without a sign", () => {
    const source = "const f = (a: Array<number>) => {\n  a.concat(a)\n  a.push(1)\n  a[0]!++\n  return a\n}"
    const ids = mutantsOf("a.ts", source).map((_, i) => i + 1)
    for (const only of ids) {
      const { code } = transformSync("a.ts", instrument("a.ts", source, 1, (id) => id === only))
      const f = new Function(switchName, `${code}; return f`)(() => false)
      assert.deepStrictEqual(f([0]), [1, 1])
    }
  })

  it("have one key each, in all sources, and every explanation fits one", () => {
    const keys = sources().flatMap(({ mutants }) => mutants.map(keyOf))
    assert.isAbove(keys.length, 1000)
    const known = new Set(keys)
    assert.strictEqual(known.size, keys.length)
    const explained: ReadonlyArray<Explained> = JSON.parse(
      fs.readFileSync(path.join(root, "test/mutation/explained.json"), "utf8")
    )
    assert.deepStrictEqual(explained.map((one) => keyOf({ nth: 1, ...one })).filter((key) => !known.has(key)), [])
  })
})
