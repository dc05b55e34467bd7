/** R29: what of a turn's answers goes to the model. */
import { assert, describe, it } from "@effect/vitest"
import {
  Agent,
  ArtifactStore,
  Outcome,
  ResultBudget,
  ToolCall,
  ToolPolicy,
  Turn,
  TurnContext,
  type TurnEvent
} from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import * as AiError from "effect/ai/AiError"
import * as LanguageModel from "effect/ai/LanguageModel"
import * as Prompt from "effect/ai/Prompt"
import type * as Response from "effect/ai/Response"
import * as Tokenizer from "effect/ai/Tokenizer"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Clock from "effect/Clock"
import type * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import { int, pick, runs } from "../utils/gen.ts"
import { drive } from "../utils/kit.ts"

type AnyOutcome = Outcome.Outcome<any>

/** A result of so many letters, after so many milliseconds. */
const Params = Schema.Struct({
  n: Schema.Int,
  ms: Schema.optionalKey(Schema.Int),
  fails: Schema.optionalKey(Schema.Boolean)
})

const textTool = <const Name extends string>(name: Name) =>
  pipe(
    Tool.make(name, { parameters: Params, success: Schema.String, failure: Schema.Struct({ why: Schema.String }) }),
    ToolPolicy.read({ keys: () => [] })
  )
const Free = textTool("free")
const Page = pipe(textTool("page"), ToolPolicy.resultBudget({ maxChars: 300 }))
const Rows = pipe(
  Tool.make("rows", { parameters: Params, success: Schema.Array(Schema.Struct({ row: Schema.Int })) }),
  ToolPolicy.read({ keys: () => [] }),
  ToolPolicy.resultBudget({ maxChars: 300 })
)
const Pay = Tool.make("pay", { parameters: Params, success: Schema.String, needsApproval: true })
const Shown = pipe(
  Tool.make("shown", {
    parameters: Params,
    success: Schema.String,
    toModelOutput: (text: string) => [
      Prompt.textPart({ text }),
      Prompt.filePart({ mediaType: "image/png", data: new Uint8Array(5_000) }),
      Prompt.textPart({ text: "the end" })
    ]
  }),
  ToolPolicy.read({ keys: () => [] }),
  ToolPolicy.resultBudget({ maxChars: 300 })
)
const toolkit = Toolkit.make(Free, Page, Rows, Pay, Shown)

const letters = (n: number) => "lorem ipsum ".repeat(Math.ceil(n / 12)).slice(0, n)

type Params = typeof Params.Type

const handler = ({ fails, ms = 0, n }: Params) =>
  Effect.andThen(
    ms === 0 ? Effect.void : Effect.sleep(ms),
    fails === true ? Effect.fail({ why: letters(n) }) : Effect.succeed(letters(n))
  )

const handlers = toolkit.toLayer({
  free: handler,
  page: handler,
  rows: ({ n }) => Effect.succeed(Array.from({ length: n }, (_, row) => ({ row }))),
  pay: ({ n }) => Effect.succeed(letters(n)),
  shown: ({ n }) => Effect.succeed(letters(n))
})

const layer = Layer.merge(handlers, Turn.layer())
const withStore = Layer.merge(layer, ArtifactStore.layerMemory())

const call = (name: string, n: number, more: Partial<Params> = {}) =>
  ToolCall.make(`${name}-${n}`, name, { n, ...more })

const run = (calls: ReadonlyArray<ToolCall.ToolCall>, options?: Turn.Options) => Turn.run(toolkit, calls, options)

const told = (outcome: AnyOutcome) => Outcome.forModel(outcome).value
const lengths = (outcomes: ReadonlyArray<AnyOutcome>) => outcomes.map((outcome) => ResultBudget.lengthOf(told(outcome)))
const sum = (all: ReadonlyArray<number>) => all.reduce((sum, one) => sum + one, 0)

/** A word is a token; so is each sign of JSON. */
const words = (text: string): number => text.match(/\w+|[^\w\s]/g)?.length ?? 0
const tokenizer = (
  count: (text: string) => Effect.Effect<number, AiError.AiError> = (text) => Effect.succeed(words(text))
) =>
  Layer.succeed(
    Tokenizer.Tokenizer,
    Tokenizer.make({
      tokenize: (prompt) => {
        const text = prompt.content.flatMap(({ content }) =>
          typeof content === "string" ? [content] : content.flatMap((part) => part.type === "text" ? [part.text] : [])
        ).join("")
        return Effect.map(count(text), (n) => Array.from({ length: n }, (_, i) => i))
      }
    })
  )

/** What is logged meanwhile. */
const logged = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.suspend(() => {
    const lines: Array<string> = []
    const logger = Logger.make(({ message }) => void lines.push(String(message)))
    return Effect.map(
      Effect.provide(effect, Logger.layer([logger])),
      (value) => [value, lines] as const
    )
  })

describe("R29: a budget of a tool", () => {
  it.effect("cuts what the model gets; the program, and the event, have the whole", () =>
    Effect.gen(function*() {
      const events: Array<TurnEvent.TurnEvent> = []
      const [page, rows, small] = yield* drive(
        run([call("page", 5_000), call("rows", 200), call("page", 20)], {
          turn: "one",
          onEvent: (event) => events.push(event)
        })
      )
      assert.strictEqual(page!.status === "ok" && page!.result, letters(5_000))
      assert.strictEqual(page!.status === "ok" && page!.encoded, letters(5_000))
      assert.match(
        told(page!) as string,
        /^lorem ipsum .*… \[shown: \d+ of 5000 characters; whole: artifact [0-9a-f]{20}\]$/
      )
      assert.deepStrictEqual([page!.truncated, typeof page!.artifact], [true, "string"])
      assert.strictEqual(rows!.status === "ok" && (rows!.result as ReadonlyArray<unknown>).length, 200)
      assert.isTrue(Array.isArray(told(rows!)))
      for (const length of lengths([page!, rows!])) assert.isAtMost(length, 300)
      assert.deepStrictEqual(Object.keys(small!), [
        "position",
        "id",
        "name",
        "status",
        "result",
        "encoded",
        "started",
        "effect",
        "retryable",
        "message"
      ])
      const cuts = events.filter((event) => event._tag === "ResultCut")
      assert.deepStrictEqual(cuts, [
        {
          at: 0,
          turn: "one",
          position: 0,
          id: "page-5000",
          tool: "page",
          _tag: "ResultCut",
          of: 5_002,
          to: lengths([page!])[0]!,
          artifact: page!.artifact
        },
        {
          at: 0,
          turn: "one",
          position: 1,
          id: "rows-200",
          tool: "rows",
          _tag: "ResultCut",
          of: ResultBudget.lengthOf((rows as any).encoded),
          to: lengths([rows!])[0]!,
          artifact: rows!.artifact
        }
      ])
      assert.strictEqual(events.at(-1)?._tag, "TurnEnded")
      const end = events.find((event) => event._tag === "CallEnded" && event.position === 0)
      assert.isTrue(end?._tag === "CallEnded" && end.outcome.truncated === undefined)
      const json = Outcome.toJson(page!)
      assert.deepStrictEqual([json.truncated, json.artifact, json.result], [true, page!.artifact, letters(5_000)])
      assert.deepStrictEqual(Schema.decodeUnknownSync(Outcome.Encoded)(JSON.parse(JSON.stringify(json))), json)
      assert.include(JSON.stringify(Turn.toPrompt([call("page", 5_000)], [page!])), page!.artifact!)
      assert.isAtMost(JSON.stringify(Turn.toPrompt([call("page", 5_000)], [page!])).length, 1_000)
    }).pipe(Effect.provide(withStore)))

  it.effect("is for failures of the tool too, and not for the words of the runtime", () =>
    Effect.gen(function*() {
      const [failed, invalid] = yield* drive(run([
        call("page", 5_000, { fails: true }),
        ToolCall.make("b", "page", { n: "x".repeat(400) })
      ]))
      assert.isAtMost(lengths([failed!])[0]!, 300)
      assert.isTrue(failed!.truncated)
      const shown = told(failed!) as Record<string, unknown>
      assert.deepStrictEqual(
        [shown["status"], shown["code"], shown["retryable"], shown["effect"]],
        ["error", "failed", false, "none"]
      )
      assert.strictEqual((failed as any).failure.why.length, 5_000)
      assert.isUndefined(invalid!.truncated)
    }).pipe(Effect.provide(layer)))

  it.effect("without a store nothing is said of an artifact; the answer comes in the same moment", () =>
    Effect.gen(function*() {
      const [page] = yield* run([call("page", 5_000)])
      assert.match(told(page!) as string, /… \[shown: \d+ of 5000 characters\]$/)
      assert.isUndefined(page!.artifact)
      assert.isTrue(page!.truncated)
    }).pipe(Effect.provide(layer)))

  it.effect("an identical call is cut too, and names the same artifact, which is kept once", () =>
    Effect.gen(function*() {
      const puts: Array<string> = []
      const counting = Layer.effect(
        ArtifactStore.ArtifactStore,
        Effect.map(ArtifactStore.ArtifactStore, (store) => ({
          ...store,
          put: (key: ArtifactStore.Key, text: string) => {
            puts.push(key.id)
            return store.put(key, text)
          }
        }))
      ).pipe(Layer.provide(ArtifactStore.layerMemory()))
      const [one, two] = yield* drive(Effect.provide(
        run([call("page", 5_000), { ...call("page", 5_000), id: "other" }]),
        counting
      ))
      assert.deepStrictEqual(two!.duplicateOf, { position: 0, id: "page-5000" })
      assert.deepStrictEqual(told(two!), told(one!))
      assert.strictEqual(two!.artifact, one!.artifact)
      assert.deepStrictEqual(puts, [one!.artifact!])
    }).pipe(Effect.provide(layer)))

  it.effect("the texts of toModelOutput are cut to it; other parts stay", () =>
    Effect.gen(function*() {
      const [shown, small] = yield* drive(run([call("shown", 5_000), call("shown", 20)]))
      const output = shown!.shown!.output!
      assert.deepStrictEqual(output.map((part) => part.type), ["text", "file", "text"])
      const texts = output.flatMap((part) => part.type === "text" ? [part.text] : [])
      assert.isAtMost(sum(texts.map((text) => ResultBudget.lengthOf(text))), 300)
      assert.strictEqual(texts[1], "the end")
      assert.strictEqual(((output[1] as Prompt.FilePart).data as Uint8Array).length, 5_000)
      assert.isUndefined(small!.shown)
    }).pipe(Effect.provide(layer)))

  it.effect("of more texts than have room for a mark each the first are there, and one mark for the others", () =>
    Effect.gen(function*() {
      const Many = pipe(
        Tool.make("many", {
          success: Schema.String,
          toModelOutput: (text: string) => Array.from({ length: 200 }, () => Prompt.textPart({ text }))
        }),
        ToolPolicy.read({ keys: () => [] }),
        ToolPolicy.resultBudget({ maxChars: 100 })
      )
      const many = Toolkit.make(Many)
      const [outcome] = yield* drive(Turn.run(many, [ToolCall.make("m", "many")])).pipe(
        Effect.provide(many.toLayer({ many: () => Effect.succeed("lorem") }))
      )
      const texts = outcome!.shown!.output!.flatMap((part) => part.type === "text" ? [part.text] : [])
      assert.isAtMost(sum(texts.map((text) => ResultBudget.lengthOf(text))), 100)
      assert.isAbove(texts.length, 10)
      assert.strictEqual(texts.at(-1), "…")
    }).pipe(Effect.provide(layer)))

  it.effect("answers of a turn that is parked, resumed or given up are cut, each time from the whole", () =>
    Effect.gen(function*() {
      const calls = [call("page", 5_000), call("pay", 1)]
      const first = yield* drive(Turn.runOrPark(toolkit, calls, { turn: "t" }))
      assert.strictEqual(first._tag, "Parked")
      if (first._tag !== "Parked") return
      const [page] = first.outcomes
      assert.isTrue(page!.truncated)
      const parked = yield* Schema.decodeUnknownEffect(Turn.Parked)(JSON.parse(JSON.stringify(first.parked)))
      assert.deepStrictEqual(parked.outcomes[0]!.result, letters(5_000))
      const given = yield* drive(Turn.abandon(toolkit, parked))
      assert.deepStrictEqual([told(given[0]!), given[0]!.artifact], [told(page!), page!.artifact])
      const resumed = yield* drive(Effect.provide(Turn.resume(toolkit, parked), Layer.fresh(layer)))
      assert.deepStrictEqual([told(resumed.outcomes[0]!), resumed.outcomes[0]!.artifact], [told(page!), page!.artifact])
      // With a budget for the turn the kept one has its share anew.
      const tight = yield* drive(
        Effect.provide(Turn.resume(toolkit, parked, { resultBudget: { maxChars: 400 } }), Layer.fresh(layer))
      )
      assert.isAtMost(sum(lengths(tight.outcomes)), 400)
    }).pipe(Effect.provide(withStore)))
})

describe("R29: a budget of a turn", () => {
  const someCall = Arbitrary.all({
    name: pick("free", "free", "page", "rows", "pay", "shown", "nobody"),
    n: Arbitrary.flatMap(pick(5, 200, 3_000), (most) => int(0, most)),
    fails: pick(false, false, true),
    ms: int(0, 5)
  })

  it.effect.prop(
    "all answers together keep to it, small ones are whole, and the order of their ends changes nothing",
    { calls: Arbitrary.array(someCall, { maxLength: 8 }), budget: int(1, 6_000), kept: pick(true, false) },
    ({ budget, calls, kept }) =>
      Effect.gen(function*() {
        const given = calls.map(({ fails, ms, n, name }, i) => ToolCall.make(`c${i}`, name, { n, ms, fails }))
        const backwards = calls.map(({ fails, ms, n, name }, i) =>
          ToolCall.make(`c${i}`, name, { n, ms: 5 - ms, fails })
        )
        const options = { turn: "t", resultBudget: { maxChars: budget }, dedupe: "off" as const }
        const outcomes = yield* drive(run(given, options))
        const free = yield* drive(run(given, { turn: "t", dedupe: "off" }))
        const all = lengths(outcomes)
        const least = lengths(outcomes.map((outcome) => ({ ...outcome, message: "…" }) as AnyOutcome)).map((_, i) =>
          outcomes[i]!.status === "ok"
            ? 3
            : ResultBudget.cutFailure(told(free[i]!) as Record<string, unknown>, 1).to
        )
        assert.isAtMost(sum(all), Math.max(budget, sum(least)))
        outcomes.forEach((outcome, i) => {
          const { encoded, result } = free[i] as any
          assert.deepStrictEqual([(outcome as any).encoded, (outcome as any).result], [encoded, result])
          assert.strictEqual(outcome.truncated === true, outcome.shown !== undefined)
          assert.strictEqual(outcome.artifact !== undefined, kept && outcome.truncated === true)
          if (outcome.shown === undefined) assert.isAtMost(all[i]!, lengths([free[i]!])[i] ?? Infinity)
        })
        const cut = outcomes.filter((outcome) => outcome.truncated)
        // Failures are whole first: results share what they leave.
        const results = outcomes.filter(({ status }) => status === "ok").length
        const failures = sum(lengths(free.filter(({ status }) => status !== "ok")))
        const fair = Math.floor((budget - failures) / Math.max(1, results))
        for (const outcome of outcomes) {
          const [length] = lengths([free[outcome.position]!])
          if (
            length! <= fair && free[outcome.position]!.truncated === undefined && outcome.status === "ok" &&
            cut.every((one) => one.status === "ok")
          ) {
            assert.isUndefined(outcome.truncated)
          }
        }
        const again = yield* drive(run(backwards, options))
        assert.deepStrictEqual(again.map(told), outcomes.map(told))
      }).pipe(Effect.provide(kept ? withStore : layer)),
    runs(150)
  )

  it.effect("failures are whole before results have anything", () =>
    Effect.gen(function*() {
      const [failed, page] = yield* drive(
        run([call("free", 200, { fails: true }), call("free", 5_000)], { resultBudget: { maxChars: 700 } })
      )
      assert.isUndefined(failed!.truncated)
      assert.isTrue(page!.truncated)
      assert.isAtMost(sum(lengths([failed!, page!])), 700)
    }).pipe(Effect.provide(layer)))

  it.effect("failures alone that are too much are cut in their words; what cannot fit even so is said", () =>
    Effect.gen(function*() {
      const calls = [call("free", 900, { fails: true }), call("free", 901, { fails: true }), call("free", 5)]
      const fitting = yield* drive(run(calls, { resultBudget: { maxChars: 600 } }))
      assert.isAtMost(sum(lengths(fitting)), 600)
      const [outcomes, lines] = yield* logged(drive(run(calls, { resultBudget: { maxChars: 60 } })))
      for (const outcome of outcomes.slice(0, 2)) {
        const { message, ...rest } = told(outcome) as Record<string, unknown>
        assert.deepStrictEqual(rest, { status: "error", code: "failed", retryable: false, effect: "none" })
        assert.strictEqual(message, "…")
      }
      assert.strictEqual(told(outcomes[2]!), "…")
      assert.deepStrictEqual(lines, [
        `the answers of a turn have ${sum(lengths(outcomes))} characters at the shortest, and its resultBudget is 60`
      ])
    }).pipe(Effect.provide(layer)))

  it.effect("calls that are held, stopped or never ran count as well", () =>
    Effect.gen(function*() {
      const calls = [call("pay", 1), call("nobody", 1), ToolCall.make("c", "free", "[1"), call("free", 3_000)]
      const outcomes = yield* drive(run(calls, { resultBudget: { maxChars: 1_000 } }))
      assert.isAtMost(sum(lengths(outcomes)), 1_000)
      assert.deepStrictEqual(outcomes.map(({ truncated }) => truncated), [undefined, undefined, undefined, true])
    }).pipe(Effect.provide(layer)))

  it.effect("a turn of calls that come one by one has it too", () =>
    Effect.gen(function*() {
      const outcomes = yield* drive(Effect.scoped(Effect.gen(function*() {
        const turn = yield* Turn.open(toolkit, { resultBudget: { maxChars: 500 } })
        yield* turn.submit(call("free", 400))
        yield* turn.submit(call("free", 401))
        return yield* turn.end()
      })))
      assert.isAtMost(sum(lengths(outcomes)), 500)
    }).pipe(Effect.provide(layer)))

  it.effect("bad budgets are misuse", () =>
    Effect.gen(function*() {
      const refused = (resultBudget: unknown) =>
        Effect.map(Effect.flip(run([], { resultBudget: resultBudget as any })), (error) => error.message)
      assert.strictEqual(
        yield* refused({ maxChars: 0 }),
        'the turn: the limit "resultBudget.maxChars" must be a whole number from 1, and is 0'
      )
      assert.strictEqual(
        yield* refused({ maxchars: 10 }),
        'the resultBudget of the turn: expected either { maxChars } or { maxTokens }, and got {"maxchars":10}'
      )
      assert.throws(() => Turn.layerLanguageModel({ resultBudget: { maxTokens: NaN } }), /resultBudget.maxTokens/)
    }).pipe(Effect.provide(layer)))
})

describe("R29: budgets in tokens", () => {
  const Counted = pipe(textTool("counted"), ToolPolicy.resultBudget({ maxTokens: 60 }))
  const counted = Toolkit.make(Counted, Free)
  const both = Layer.mergeAll(counted.toLayer({ counted: handler, free: handler }), Turn.layer())
  const tokens = (outcome: AnyOutcome) => words(JSON.stringify(told(outcome)))

  it.effect("hold for the tool and for the turn", () =>
    Effect.gen(function*() {
      const calls = [call("counted", 2_000), call("counted", 50), call("free", 2_000)]
      const outcomes = yield* drive(Turn.run(counted, calls))
      assert.deepStrictEqual(outcomes.map(({ truncated }) => truncated), [true, undefined, undefined])
      assert.isAtMost(tokens(outcomes[0]!), 60)
      assert.isAtLeast(tokens(outcomes[0]!), 40)
      const tight = yield* drive(Turn.run(counted, calls, { resultBudget: { maxTokens: 100 } }))
      assert.isAtMost(sum(tight.map(tokens)), 100)
      assert.isUndefined(tight[1]!.truncated)
      const mixed = yield* drive(Turn.run(counted, calls, { resultBudget: { maxChars: 300 } }))
      assert.isAtMost(sum(lengths(mixed)), 300)
      for (const outcome of mixed.filter(({ name }) => name === "counted")) assert.isAtMost(tokens(outcome), 60)
    }).pipe(Effect.provide([both, tokenizer(), ArtifactStore.layerMemory()])))

  it.effect("count all texts of a toModelOutput together", () =>
    Effect.gen(function*() {
      const Two = pipe(
        Tool.make("two", {
          success: Schema.String,
          toModelOutput: (text: string) => Array.from({ length: 3 }, () => Prompt.textPart({ text }))
        }),
        ToolPolicy.read({ keys: () => [] }),
        ToolPolicy.resultBudget({ maxTokens: 60 })
      )
      const two = Toolkit.make(Two)
      const [outcome] = yield* drive(Turn.run(two, [ToolCall.make("t", "two")])).pipe(
        Effect.provide(two.toLayer({ two: () => Effect.succeed("lorem ipsum dolor ".repeat(14)) }))
      )
      const texts = outcome!.shown!.output!.flatMap((part) => part.type === "text" ? [part.text] : [])
      const counted = sum(texts.map((text) => words(JSON.stringify(text))))
      assert.isAtMost(counted, 60)
      assert.isAtLeast(counted, 30)
    }).pipe(Effect.provide([both, tokenizer()])))

  it.effect("without a tokenizer they are misuse, before anything runs", () =>
    Effect.gen(function*() {
      const ofTool = yield* Effect.flip(
        Turn.run(counted, [call("counted", 1)]) as Effect.Effect<
          unknown,
          Error,
          Context.Service.Identifier<typeof Turn.Runtime>
        >
      )
      assert.strictEqual(
        ofTool.message,
        'tool "counted": expected a `Tokenizer` (of "effect/ai") in the context, and it is not there'
      )
      const ofTurn = yield* Effect.flip(Turn.run(Toolkit.make(Free), [], { resultBudget: { maxTokens: 5 } }))
      assert.include(ofTurn.message, 'a `Tokenizer` (of "effect/ai") in the context')
    }).pipe(Effect.provide(both)))

  it.effect("a tokenizer that fails, or is late, does not keep the turn: a character counts as a token", () =>
    Effect.gen(function*() {
      const failing = AiError.make({
        module: "T",
        method: "t",
        reason: new AiError.UnknownError({ description: "no" })
      })
      for (const count of [() => Effect.fail(failing), () => Effect.never]) {
        const [outcomes, lines] = yield* logged(drive(
          Turn.run(counted, [call("counted", 2_000), call("free", 2_000)]).pipe(
            Effect.provide([both, tokenizer(count)])
          )
        ))
        assert.isAtMost(lengths(outcomes)[0]!, 60)
        assert.isTrue(outcomes[0]!.truncated)
        assert.include(lines[0], "a tokenizer failed")
      }
    }))
})

describe("R29: a store that is down", () => {
  const broken = (put: () => Effect.Effect<void, ArtifactStore.ArtifactError>) =>
    Layer.succeed(ArtifactStore.ArtifactStore, { put, get: () => Effect.undefined, search: () => Effect.undefined })
  const error = new ArtifactStore.ArtifactError({ store: "a test", operation: "put", description: "it is down" })
  const stores: ReadonlyArray<readonly [string, () => Effect.Effect<void, ArtifactStore.ArtifactError>, number]> = [
    ["fails", () => Effect.fail(error), 0],
    ["dies", () => Effect.die(new Error("bug")), 0],
    [
      "throws",
      () => {
        throw new Error("bug")
      },
      0
    ],
    ["interrupts itself", () => Effect.interrupt, 0],
    ["is late", () => Effect.never, 5_000],
    ["is late and deaf", () => Effect.uninterruptible(Effect.never), 10_000]
  ]
  it.effect.each(stores)("%s: the result is cut, and marked as not kept", ([_, put, most]) =>
    Effect.gen(function*() {
      const events: Array<TurnEvent.TurnEvent> = []
      const [[page, free], lines] = yield* logged(drive(
        run([call("page", 5_000), call("free", 10)], { onEvent: (event) => events.push(event) }).pipe(
          Effect.provide(broken(put))
        )
      ))
      assert.match(told(page!) as string, /… \[shown: \d+ of 5000 characters; the whole was not kept\]$/)
      assert.isAtMost(lengths([page!])[0]!, 300)
      assert.deepStrictEqual([page!.truncated, page!.artifact], [true, undefined])
      assert.strictEqual(free!.status, "ok")
      const words = 'the whole result of tool "page" (call "page-5000") could not be kept'
      const late = most === 0 ? "" : ": the artifact store had no answer within 5000 ms"
      assert.isTrue(lines.some((line) => line.startsWith(`${words}${late}`)), lines.join("\n"))
      const end = events.at(-1)!
      assert.strictEqual(end._tag, "TurnEnded")
      assert.isAtMost(end.at, most)
      assert.isTrue(events.some((event) => event._tag === "ResultCut" && event.artifact === undefined))
    }).pipe(Effect.provide(layer)))

  it.effect("a turn that is stopped meanwhile closes once, with what was answered", () =>
    Effect.gen(function*() {
      const asked = yield* Deferred.make<void>()
      const go = yield* Deferred.make<void>()
      const slow = broken(() => Effect.andThen(Deferred.succeed(asked, undefined), Deferred.await(go)))
      let closed = 0
      const outcomes = yield* drive(
        Effect.scoped(Effect.gen(function*() {
          const turn = yield* Turn.start(toolkit, [call("page", 5_000), call("pay", 1)], {
            onClosed: () => Effect.sync(() => void closed++)
          })
          yield* Deferred.await(asked)
          assert.isFalse(yield* turn.cancelCall(0))
          yield* Effect.forkChild(turn.cancel("user"))
          yield* Effect.sleep(10)
          yield* Deferred.succeed(go, undefined)
          return yield* turn.await
        })).pipe(Effect.provide(slow))
      )
      assert.deepStrictEqual(outcomes.map(({ status }) => status), ["ok", "pending_approval"])
      assert.isTrue(outcomes[0]!.truncated)
      assert.strictEqual(closed, 1)
    }).pipe(Effect.provide(layer)))
})

describe("R29: a turn that needs no budget", () => {
  it("closes in the step in which its last answer comes", () => {
    const none = Effect.runSync(
      Turn.run(toolkit, [call("rows", 3), call("page", 10)]).pipe(Effect.provide(withStore)) as Effect.Effect<
        ReadonlyArray<AnyOutcome>
      >
    )
    assert.deepStrictEqual(none.map(({ status }) => status), ["ok", "ok"])
    const shared = Effect.runSync(
      Turn.run(toolkit, [call("rows", 3), call("page", 10)], { resultBudget: { maxChars: 1_000 } }).pipe(
        Effect.provide(withStore)
      ) as Effect.Effect<ReadonlyArray<AnyOutcome>>
    )
    assert.deepStrictEqual(shared.map(({ truncated }) => truncated), [undefined, undefined])
  })
})

describe("R29: what is read again", () => {
  const reading = Toolkit.make(Page, ArtifactStore.readTool(), ArtifactStore.readTool({ name: "peek" }))
  const made = Layer.mergeAll(
    reading.toLayer({
      page: handler,
      read_artifact: ArtifactStore.read(),
      peek: ArtifactStore.read({ maxLength: 10 })
    }),
    ArtifactStore.layerMemory(),
    Turn.layer()
  )

  it.effect("the tool pages through what was cut, searches in it, and answers in words what it does not have", () =>
    Effect.gen(function*() {
      const one = (name: string, args: Record<string, unknown>) =>
        Effect.map(drive(Turn.run(reading, [ToolCall.make("r", name, args)])), ([outcome]) => outcome!)
      const page = yield* one("page", { n: 10_000 })
      const id = page.artifact
      let text = ""
      for (let offset: number | undefined = 0; offset !== undefined;) {
        const { next, text: more } = told(yield* one("read_artifact", { id, offset })) as any
        text += more
        offset = next
      }
      assert.strictEqual(text, letters(10_000))
      assert.deepStrictEqual(told(yield* one("read_artifact", { id, offset: 6, length: 5 })), {
        total: 10_000,
        offset: 6,
        next: 11,
        text: "ipsum"
      })
      const peeked = told(yield* one("peek", { id, length: 1_000_000 })) as any
      assert.strictEqual(peeked.text.length, 10)
      const found = told(yield* one("read_artifact", { id, search: "IPSUM", offset: 9_000 })) as any
      assert.strictEqual(found.matches[0].offset, 9_006)
      assert.isTrue(found.more)
      // A text that looks like a placeholder may be searched for.
      assert.strictEqual((yield* one("read_artifact", { id, search: "TBD" })).status, "ok")
      const lost = yield* one("read_artifact", { id: "0000" })
      assert.deepStrictEqual((lost as any).failure, {
        reason: "not_found",
        message: 'there is no artifact "0000": use an id that a cut result names'
      })
      const other = yield* Effect.provide(one("read_artifact", { id }), TurnContext.make({ tenant: "other" }))
      assert.strictEqual((other as any).failure.reason, "not_found")
      // Outside of turns the context says for whom it reads.
      const outside = (tenant: string) =>
        Effect.exit(ArtifactStore.read()({ id: id! })).pipe(Effect.provide(TurnContext.make({ tenant })))
      assert.isTrue(Exit.isSuccess(yield* outside("default")))
      assert.isTrue(Exit.isFailure(yield* outside("other")))
      assert.strictEqual(ToolPolicy.get(ArtifactStore.readTool()).access, "read")
    }).pipe(Effect.provide(made)))

  it.effect("a turn that is run again writes the same artifact, another turn and another tenant another", () =>
    Effect.gen(function*() {
      const idIn = (turn: string, tenant: string) =>
        Effect.map(
          drive(Turn.run(reading, [call("page", 5_000)], { turn })).pipe(Effect.provide(TurnContext.make({ tenant }))),
          ([outcome]) => outcome!.artifact
        )
      const first = yield* idIn("t", "a")
      assert.strictEqual(yield* idIn("t", "a"), first)
      assert.notStrictEqual(yield* idIn("u", "a"), first)
      assert.notStrictEqual(yield* idIn("t", "b"), first)
    }).pipe(Effect.provide(made)))

  it.effect("what a model fills in without need means the default; a character that is longer than a page is whole", () =>
    Effect.gen(function*() {
      const store = yield* ArtifactStore.ArtifactStore
      const family = "👩‍👩‍👧‍👦"
      yield* store.put({ tenant: "default", id: "one" }, family.repeat(3))
      const one = (name: string, args: Record<string, unknown>) =>
        Effect.map(
          drive(Turn.run(reading, [ToolCall.make("r", name, { id: "one", ...args })])),
          ([outcome]) => told(outcome!)
        )
      const all = { total: 3 * family.length, offset: 0, text: family.repeat(3) }
      for (const args of [{ search: "" }, { length: 0 }, { length: -1, offset: -3, search: "" }]) {
        assert.deepStrictEqual(yield* one("read_artifact", args), all)
      }
      const page = { total: 3 * family.length, offset: 0, next: family.length, text: family }
      assert.deepStrictEqual(yield* one("peek", {}), page)
      assert.deepStrictEqual(yield* one("read_artifact", { length: 2 }), page)
      // A place inside of a character is that of the character.
      assert.deepStrictEqual(yield* one("read_artifact", { offset: 5, length: 2 }), page)
    }).pipe(Effect.provide(made)))

  it.effect("a store that is down is told as one that may be tried again", () =>
    Effect.gen(function*() {
      const down = new ArtifactStore.ArtifactError({ store: "memory", operation: "get", description: "it is down" })
      const fails = () => Effect.fail(down)
      const [outcome] = yield* drive(
        Turn.run(reading, [ToolCall.make("r", "read_artifact", { id: "x" })]).pipe(
          Effect.provideService(ArtifactStore.ArtifactStore, { put: fails, get: fails, search: fails })
        )
      )
      assert.deepInclude(outcome, { status: "error", retryable: true })
      assert.strictEqual((outcome as any).failure.reason, "unavailable")
      const [lost] = yield* drive(Turn.run(reading, [ToolCall.make("r", "read_artifact", { id: "x" })]))
      assert.deepInclude(lost, { status: "error", retryable: false })
    }).pipe(Effect.provide(made)))

  it("its parameters are told without numbers that mean nothing", () => {
    const { properties } = Tool.getJsonSchema(ArtifactStore.readTool()) as any
    for (const name of ["offset", "length"]) {
      const { description: _, ...rest } = properties[name]
      assert.deepStrictEqual(rest, { type: "integer", minimum: 0 })
    }
  })

  it("bad lengths of pages are refused", () =>
    assert.throws(() => ArtifactStore.read({ maxLength: 0 }), /^ArtifactStore.read: the limit "maxLength"/))
})

describe("R29: agents", () => {
  it.effect("the history of an agent has what was cut, its steps the whole", () =>
    Effect.gen(function*() {
      const { prompt, steps } = yield* drive(Agent.run({
        prompt: "go",
        toolkit,
        turn: { resultBudget: { maxChars: 600 } }
      }))
      const outcomes = steps.flatMap((step) => step.outcomes)
      assert.strictEqual(outcomes[0]!.status === "ok" && outcomes[0]!.result, letters(5_000))
      assert.isAtMost(sum(lengths(outcomes)), 600)
      const answers = prompt.content.filter(({ role }) => role === "tool")
      assert.isAtMost(JSON.stringify(answers).length, 1_200)
      assert.include(JSON.stringify(answers), outcomes[0]!.artifact!)
    }).pipe(Effect.provide([
      FakeModel.layer([
        FakeModel.calls([
          FakeModel.call("free", { n: 5_000 }, { id: "a" }),
          FakeModel.call("free", { n: 4_000 }, { id: "b" })
        ]),
        FakeModel.text("done")
      ]),
      withStore
    ])))
})

describe("R29: the governed model", () => {
  const governed = (
    calls: ReadonlyArray<ToolCall.ToolCall>,
    options?: Turn.ModelOptions,
    store: Layer.Layer<ArtifactStore.ArtifactStore> = ArtifactStore.layerMemory()
  ) => {
    const script = calls.map(({ arguments: args, id, name }) =>
      FakeModel.call(name, args as Record<string, unknown>, { id })
    )
    return Layer.mergeAll(
      Turn.layerLanguageModel(options).pipe(
        Layer.provide(FakeModel.layer([FakeModel.calls(script)])),
        Layer.provideMerge(layer)
      ),
      store
    )
  }
  const resultsOf = (parts: ReadonlyArray<Response.AnyPart>) =>
    parts.filter((part) => part.type === "tool-result") as ReadonlyArray<Response.ToolResultPart<string, any, any>>
  const ask = LanguageModel.streamText({ prompt: "go", toolkit })
  /** The results of a stream, with the times at which they came. */
  const streamed = Effect.gen(function*() {
    const parts: Array<Response.AnyPart> = []
    const times: Array<number> = []
    const start = yield* Clock.currentTimeMillis
    yield* Stream.runForEach(ask, (part) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        if (part.type === "tool-result") times.push(now - start)
        parts.push(part)
      }))
    return { parts, times }
  })

  it.effect("gives the model what was cut, and the program the whole", () =>
    Effect.gen(function*() {
      const { content } = yield* drive(LanguageModel.generateText({ prompt: "go", toolkit }))
      const [page, failed, shown] = resultsOf(content)
      assert.strictEqual(page!.result, letters(5_000))
      assert.match(page!.encodedResult as string, /whole: artifact/)
      assert.isTrue(failed!.isFailure)
      // What `effect/ai` wants in a failure counts.
      assert.isAtMost(JSON.stringify(failed!.encodedResult).length, 300)
      assert.strictEqual((failed!.encodedResult as any).type, "execution-interrupted")
      const texts = shown!.modelOutput!.flatMap((part) => part.type === "text" ? [part.text] : [])
      assert.isAtMost(sum(texts.map((text) => ResultBudget.lengthOf(text))), 300)
      assert.isAtMost(JSON.stringify(Prompt.fromResponseParts(content).content.at(-1)!.content[0]).length, 500)
    }).pipe(
      Effect.provide(governed([call("page", 5_000), call("page", 5_001, { fails: true }), call("shown", 5_000)]))
    ))

  it.effect("a stream applies the budget of a tool to each answer before it is let out, each when it can be", () =>
    Effect.gen(function*() {
      const calls = [
        call("page", 5_000, { ms: 10 }),
        call("free", 5_000, { ms: 20 }),
        call("page", 5_001, { ms: 500 }),
        call("page", 6_000, { ms: 600 })
      ]
      const whole = yield* Effect.provide(drive(LanguageModel.generateText({ prompt: "go", toolkit })), governed(calls))
      const { parts, times } = yield* Effect.provide(drive(streamed), governed(calls))
      const results = resultsOf(parts)
      assert.deepStrictEqual(results.map(({ id }) => id), calls.map(({ id }) => id))
      assert.isBelow(times[1]!, 300)
      assert.isBelow(times[0]!, times[2]!)
      const textOf = (part: Response.ToolResultPart<string, any, any>) =>
        String(part.encodedResult).replace(/artifact [0-9a-f]+/, "artifact")
      assert.deepStrictEqual(results.map(textOf), resultsOf(whole.content).map(textOf))
      for (const at of [0, 2, 3]) assert.isAtMost(ResultBudget.lengthOf(results[at]!.encodedResult), 300)
    }))

  it.effect("with a store that takes its time each answer waits for it, and comes once", () =>
    Effect.gen(function*() {
      const slow = Layer.effect(
        ArtifactStore.ArtifactStore,
        Effect.map(ArtifactStore.ArtifactStore, (store) => ({
          ...store,
          put: (key: ArtifactStore.Key, text: string) => Effect.andThen(Effect.sleep(100), store.put(key, text))
        }))
      ).pipe(Layer.provide(ArtifactStore.layerMemory()))
      const { parts, times } = yield* Effect.provide(
        drive(streamed),
        governed([call("page", 5_000), call("free", 10), call("page", 5_001, { ms: 500 })], {}, slow)
      )
      const results = resultsOf(parts)
      assert.deepStrictEqual(results.map(({ id }) => id), ["page-5000", "free-10", "page-5001"])
      assert.isAtLeast(times[0]!, 100)
      assert.isBelow(times[1]!, 400)
      assert.isAtLeast(times[2]!, 600)
      assert.strictEqual(parts.at(-1)!.type, "finish")
    }))

  it.effect("with a budget for the turn a stream gives its answers when all are there", () =>
    Effect.gen(function*() {
      const { parts, times } = yield* drive(streamed)
      const results = resultsOf(parts)
      assert.deepStrictEqual(results.map(({ id }) => id), ["free-3000", "free-20"])
      assert.isAtMost(sum(results.map(({ encodedResult }) => ResultBudget.lengthOf(encodedResult))), 1_000)
      assert.isAtLeast(times[0]!, 300)
    }).pipe(
      Effect.provide(
        governed([call("free", 3_000), call("free", 20, { ms: 300 })], { resultBudget: { maxChars: 1_000 } })
      )
    ))
})
