import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { History } from "effect-turn/wire"
import { answersWithCall, damaged, edits, listOf, numbersIn, talks, written } from "./histories.ts"
import { type Provider, rules } from "./server/rules.ts"

const providers = Object.keys(rules) as ReadonlyArray<Provider>

const dialectOf = (provider: Provider): History.DialectId => provider

/** What the provider answers when the user goes on with this. */
const refusal = (provider: Provider, body: any): string | undefined => {
  const list = listOf(provider, body)
  if (list.length === 0) return undefined
  const ended = provider === "gemini" && list.at(-1).role === "model"
    ? { ...body, contents: [...list, { role: "user", parts: [{ text: "go on" }] }] }
    : body
  return rules[provider](ended)
}

const includesAll = (found: ReadonlySet<string>, wanted: ReadonlySet<string>, what: string) =>
  assert.deepStrictEqual([...wanted].filter((one) => !found.has(one)), [], what)

describe.each(providers)("%s", (provider) => {
  it.effect.prop(
    "R34: a sound history has no problems, and is not touched",
    { talk: talks },
    ({ talk }) =>
      Effect.sync(() => {
        const body = written(provider, talk)
        assert.isUndefined(refusal(provider, body), JSON.stringify(body))
        const options = { dialect: dialectOf(provider) }
        assert.deepStrictEqual(Result.getOrThrow(History.check(body, options)).problems, [])
        const mended = Result.getOrThrow(History.mend(body, options))
        assert.strictEqual(mended.history, body)
        assert.deepStrictEqual(mended.changes, [])
      }),
    { arbitrary: { runs: 300 } }
  )

  it.effect.prop(
    "R34: a damaged history is one that the provider takes, when it is mended, and nothing that matters is lost",
    { talk: talks, changes: edits },
    ({ changes, talk }) =>
      Effect.sync(() => {
        const body = damaged(provider, written(provider, talk), changes)
        const before = JSON.stringify(body)
        const options = { dialect: dialectOf(provider) }
        const { problems } = Result.getOrThrow(History.check(body, options))
        const mended = Result.getOrThrow(History.mend(body, options))
        const after = JSON.stringify(mended.history)
        assert.strictEqual(JSON.stringify(body), before, "the input is not changed")
        assert.isUndefined(refusal(provider, mended.history), `${before}\n${after}`)
        assert.strictEqual(problems.length, mended.changes.length)
        if (refusal(provider, body) !== undefined) {
          assert.isAbove(problems.length, 0, `refused and not found: ${refusal(provider, body)}`)
        }
        assert.deepStrictEqual(Result.getOrThrow(History.check(mended.history, options)).problems, [], after)
        const again = Result.getOrThrow(History.mend(mended.history, options))
        assert.strictEqual(JSON.stringify(again.history), after, "mending twice is mending once")
        includesAll(numbersIn(mended.history, "text"), numbersIn(body, "text"), "a text is lost")
        includesAll(numbersIn(mended.history, "answer"), answersWithCall(provider, body), "an answer is lost")
      }),
    { arbitrary: { runs: 400 } }
  )
})
