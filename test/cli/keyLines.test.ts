import { assert, describe, it } from "@effect/vitest"
import type { IdempotencyStore } from "effect-turn"
import { displayWidth } from "effect/cli/CliOutput"
import * as Lines from "../../src/cli/keyLines.ts"
import { plain } from "../../src/cli/text.ts"

const now = 1_700_000_000_000
const hour = 3_600_000

const entry = (more?: Partial<IdempotencyStore.Entry>): IdempotencyStore.Entry => ({
  key: { tenant: "north", conversation: "c-1", tool: "pay", key: "order-1" },
  state: "unknown",
  digest: "d",
  owner: "me",
  leaseUntil: 0,
  createdAt: now - hour,
  updatedAt: now - hour,
  expiresAt: null,
  ...more
})

const ok = (result: unknown): IdempotencyStore.Entry["outcome"] & {} => ({
  position: 0,
  id: "c1",
  name: "pay",
  status: "ok",
  started: true,
  effect: "applied",
  retryable: false,
  result
})

const details = (one: IdempotencyStore.Entry) => Lines.details(one, { now, paint: plain })

describe("the details of a key", () => {
  it("does not say whose key it is where it cannot know", () => {
    const { conversation: _, ...key } = entry().key
    assert.include(
      details(entry({ key })),
      "conversation  none: it guards calls without a conversation, or a tool whose keys are the whole tenant's"
    )
  })

  it.each(["applied", "undone"] as const)(
    "of one that is %s and kept no longer do not say that it still guards",
    (state) => {
      const over = details(entry({ state, expiresAt: now - 2 * hour }))
      assert.include(over, "its time is over: a call with this key is run again")
      assert.match(over, /^kept +until .* \(2 h ago\): effect-turn keys expire forgets it$/m)
      for (const text of ["is answered", "not used again", "forgotten  "]) assert.notInclude(over, text)
      const kept = details(entry({ state, expiresAt: now + 2 * hour }))
      assert.match(kept, /^forgotten +.* \(in 2 h\)$/m)
      assert.notInclude(kept, "its time is over")
    }
  )

  it("has a result as JSON, and that it was said by hand", () => {
    const text = details(entry({ state: "applied", outcome: ok("rec\u001b"), resolved: true }))
    assert.match(text, /^result +"rec\\u001b"$/m)
    assert.match(text, /^resolved +by hand: effect-turn keys resolve can correct it$/m)
    assert.notInclude(details(entry({ state: "applied" })), "by hand")
  })
})

describe("the words before a key is resolved", () => {
  const { key } = entry()
  const words = (
    resolution: IdempotencyStore.Resolution,
    more: { readonly before?: IdempotencyStore.Entry; readonly checkedBy?: string } = {}
  ) => Lines.consequence(key, resolution, { before: more.before, checkedBy: more.checkedBy })

  it("have the result as JSON, and whether it was checked", () => {
    assert.include(words({ _tag: "Applied", result: "rec" }), 'with the result "rec": a call')
    assert.include(words({ _tag: "Applied", result: null }), "with the result null: a call")
    assert.include(words({ _tag: "Applied", result: 1 }), "is not checked against the tool's success schema: --tools")
    assert.include(
      words({ _tag: "Applied", result: 1 }, { checkedBy: "t.ts" }),
      "fits the success schema of pay in t.ts"
    )
    for (const none of [words({ _tag: "Applied" }), words({ _tag: "NotApplied" })]) assert.notInclude(none, "schema")
  })

  it("have what was said by hand before", () => {
    const before = entry({ state: "applied", outcome: ok({ booking: 17 }), resolved: true })
    for (const resolution of [{ _tag: "Applied", result: 18 }, { _tag: "NotApplied" }] as const) {
      assert.include(words(resolution, { before }), 'by hand before, with the result {"booking":17}: calls may have')
      assert.notInclude(words(resolution), "before")
    }
    assert.include(
      words({ _tag: "Applied" }, { before: entry({ state: "applied", resolved: true }) }),
      "with no result"
    )
  })
})

describe("the table of keys", () => {
  const table = (entries: ReadonlyArray<IdempotencyStore.Entry>, width: number) =>
    Lines.table(entries, { now, width, paint: plain })

  const many = (length: number) =>
    ["a", "key-of-some-length-", "漢字", "\u001b[2J"].map((part, i) =>
      entry({
        key: {
          tenant: part.repeat(length),
          ...(i === 0 ? undefined : { conversation: part.repeat(length) }),
          tool: `t${part.repeat(length)}`,
          key: `k${part.repeat(length)}`
        },
        note: part.repeat(length)
      })
    )

  it("fits every width, has the tool and the key in it, and leaves out in one order", () => {
    const order = ["note", "since", "conversation", "tenant", "state", "id"]
    for (const length of [1, 3, 20]) {
      for (let width = 16; width <= 240; width++) {
        const { hidden, text } = table(many(length), width)
        const [head, ...rows] = text.split("\n")
        for (const line of [head!, ...rows]) assert.isAtMost(displayWidth(line), width)
        assert.match(head!, /tool +key/)
        for (const row of rows) assert.match(row, / k/)
        assert.deepStrictEqual(
          [...hidden].sort((a, b) => order.indexOf(a) - order.indexOf(b)),
          order.slice(0, hidden.length)
        )
      }
    }
  })

  it("has everything where there is no terminal", () => {
    const { hidden, text } = table(many(20), 0)
    assert.deepStrictEqual(hidden, [])
    assert.include(text, "key-of-some-length-".repeat(20))
  })

  it("shortens the tool and the key with a mark at 50 columns, after it has left out the note and when", () => {
    const { hidden, text } = table([
      entry({ key: { tenant: "north", tool: "charge_the_credit_card", key: "order-2023-11-14-000017" }, note: "broke" })
    ], 50)
    assert.deepStrictEqual(hidden, ["since", "tenant", "note"])
    assert.match(
      text.split("\n")[1]!,
      /^\w{12} {2}unknown {3}charge_the… {2}order-2023-…$|^\w{12} {2}unknown {2}charge\S*… {2}order-2\S*…$/
    )
  })

  it("says nothing of columns in which nothing stands", () => {
    const { conversation: _, ...key } = entry().key
    assert.deepStrictEqual(table([entry({ key })], 40).hidden, ["since", "tenant"])
  })
})
