/**
 * Turns that other runtimes of tool calls get wrong, each by its number and words. 17 is not here: a turn keeps no large results. `npm run bench:peers -- --turns` runs them on those runtimes.
 */
import { assert, describe, it } from "@effect/vitest"
import { Approval, Backend, Handler, type Outcome, Siblings, ToolPolicy, Turn } from "effect-turn"
import { FakeTool } from "effect-turn/testing"
import { Tool } from "effect/ai"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { byCaller, call, facts, on, Params, read, stage, timed, tool, turn, words, write } from "./utils/dataTurns.ts"

type AnyOutcome = Outcome.Outcome<any>

const ok = (ms: number, result: unknown = "done") => () => Effect.as(Effect.sleep(ms), result)

/** A store of texts whose reads and writes take their time. */
const store = () => {
  const values: Record<string, string> = {}
  const log: Array<string> = []
  const put = ({ k, n }: { readonly k: string; readonly n: string }) =>
    Effect.gen(function*() {
      log.push(`begin ${n}`)
      yield* Effect.sleep(20)
      values[k] = n
      log.push(`end ${n}`)
      return n
    })
  const get = ({ k }: { readonly k: string }) =>
    Effect.gen(function*() {
      yield* Effect.sleep(10)
      return values[k] ?? "nothing"
    })
  return { values, log, tools: [[write(tool("write")), put as any], [read(tool("read")), get as any]] as const }
}

describe("1. a slow write beside a call that fails: the write finishes, and both are answered", () => {
  for (const siblings of [Siblings.letFinish, Siblings.failFast]) {
    it.effect(siblings.name, () =>
      Effect.gen(function*() {
        const world = yield* FakeTool.makeWorld
        const slow = write(tool("write"))
        const made = stage([
          [slow, FakeTool.handler(world, slow, { type: "ok", latencyMs: 100, result: "written" })],
          [read(tool("boom")), () => Effect.andThen(Effect.sleep(10), Effect.fail("boom"))],
          [read(tool("die")), () => Effect.andThen(Effect.sleep(10), Effect.die("dead"))]
        ])
        for (const boom of ["boom", "die"]) {
          const { outcomes } = yield* turn(made, [call("a", "write", { k: "a" }), call("b", boom)], { siblings })
          assert.deepStrictEqual(outcomes.map(facts), [
            ["ok", true, "applied"],
            [boom === "boom" ? "error/failed" : "error/defect", true, "none"]
          ])
        }
        assert.strictEqual(world.effects("write"), 2)
        assert.strictEqual(world.atWork.length, 0)
      }))
  }
})

it.effect("2. a tool interrupts itself: its sibling is not touched", () =>
  Effect.gen(function*() {
    const made = stage([
      [write(tool("write")), ok(50)],
      [read(tool("read")), ok(50)],
      [read(tool("itself")), () => Effect.andThen(Effect.sleep(10), Effect.interrupt)]
    ])
    const { at, outcomes } = yield* turn(made, [call("a", "write", { k: "a" }), call("b", "itself"), call("c", "read")])
    assert.deepStrictEqual(outcomes.map(facts), [
      ["ok", true, "applied"],
      ["cancelled/by_itself", true, "none"],
      ["ok", true, "none"]
    ])
    assert.strictEqual(at, 50)
  }))

it.effect("3. an unknown tool beside a read: two results", () =>
  Effect.gen(function*() {
    const made = stage([[read(tool("read")), ok(10, "text")]])
    const calls = [call("a", "no_such_tool", { x: 1 }), call("b", "read")]
    const { outcomes } = yield* turn(made, calls)
    assert.deepStrictEqual(outcomes.map(words), ["error/unknown_tool", "ok"])
    const [, answers] = Turn.toPrompt(calls, outcomes).content as ReadonlyArray<any>
    assert.deepStrictEqual(answers.content.map((part: any) => [part.id, part.isFailure]), [["a", true], ["b", false]])
  }))

describe("4. an abort while a write without a key runs: it waits, and the result says what happened", () => {
  const endings = {
    written: { type: "ok", latencyMs: 100, result: "written" },
    failed: { type: "fail", latencyMs: 100, failure: "not written" }
  } as const
  for (const [name, behaviour] of Object.entries(endings)) {
    for (const how of ["a stop", "an interruption", "a deadline"] as const) {
      it.effect(`${how}: ${name}`, () =>
        Effect.gen(function*() {
          const world = yield* FakeTool.makeWorld
          const it = pipe(
            write(tool("write")),
            ToolPolicy.failures({ noEffect: (failure) => failure === "not written" })
          )
          const made = stage([[it, FakeTool.handler(world, it, behaviour)], [read(tool("read")), ok(500)]])
          let told: ReadonlyArray<AnyOutcome> = []
          const options: Turn.Options = {
            onClosed: ({ outcomes }) =>
              Effect.sync(() => {
                told = outcomes
              }),
            ...(how === "a stop" ? byCaller(20, "user") : how === "a deadline" ? { deadline: 20 } : {})
          }
          const run = made.run(
            [call("a", "write", { k: "a" }), call("b", "read"), call("c", "write", { k: "a", n: 2 })],
            options
          )
          const interrupted = Effect.gen(function*() {
            const fiber = yield* Effect.forkChild(run)
            yield* Effect.sleep(20)
            yield* Fiber.interrupt(fiber)
          })
          const [, at] = yield* on(made, timed(how === "an interruption" ? interrupted : Effect.asVoid(run)))
          assert.strictEqual(at, 100)
          const by = how === "a deadline" ? "cancelled/by_deadline" : "cancelled/by_caller"
          assert.deepStrictEqual(told.map(facts), [
            name === "written" ? ["ok", true, "applied"] : ["error/failed", true, "none"],
            [by, true, "none"],
            [by, false, "none"]
          ])
          assert.strictEqual(world.effects("write"), name === "written" ? 1 : 0)
          for (const { message } of told) assert.notMatch(message, /fix|mistake/i)
        }))
    }
  }
})

it.effect("5. a timeout of 50 ms, and a tool that is deaf for 400: answered, reported as unsettled, its key stays locked", () =>
  Effect.gen(function*() {
    const context = yield* Effect.context<never>()
    const deaf = pipe(read(tool("deaf")), ToolPolicy.timeout(50))
    const made = stage([
      [deaf, Handler.promise(() => Effect.runPromiseWith(context)(Effect.as(Effect.sleep(400), "late")))],
      [write(tool("write")), ok(10)],
      [read(tool("read")), ok(10)]
    ])
    const unsettled = Effect.flatMap(Turn.Runtime, (runtime) => runtime.unsettled)
    const seen = yield* on(
      made,
      Effect.gen(function*() {
        const first = yield* timed(made.run([call("a", "deaf", { k: "x" })], { grace: 1, turn: "t" }))
        const left = yield* unsettled
        const free = yield* timed(made.run([call("b", "write", { k: "y" }), call("c", "read", { k: "x" })]))
        const locked = yield* timed(made.run([call("d", "write", { k: "x" })]))
        return { first, left, free, locked, after: yield* unsettled }
      })
    )
    assert.deepStrictEqual([seen.first[0].map(facts), seen.first[1]], [[["timeout/handler", true, "none"]], 51])
    assert.deepStrictEqual(seen.left.map(({ id, tool, turn }) => ({ id, tool, turn })), [{
      id: "a",
      tool: "deaf",
      turn: "t"
    }])
    assert.deepStrictEqual([seen.free[0].map(words), seen.free[1]], [["ok", "ok"], 61])
    assert.deepStrictEqual([seen.locked[0].map(words), seen.locked[1]], [["ok"], 410])
    assert.deepStrictEqual(seen.after, [])
  }))

it.effect("6. read, write, read of one thing: the third sees the write", () =>
  Effect.gen(function*() {
    const { tools } = store()
    const { outcomes } = yield* turn(stage(tools), [
      call("a", "read", { k: "a" }),
      call("b", "write", { k: "a", n: "new" }),
      call("c", "read", { k: "a" })
    ])
    assert.deepStrictEqual(outcomes.map((outcome: any) => outcome.result), ["nothing", "new", "new"])
    assert.isUndefined(outcomes[2]!.duplicateOf)
  }))

it.effect("7. write x, write y, write x to one key: three writes, in order", () =>
  Effect.gen(function*() {
    for (const dedupe of ["all", "reads", "off"] as const) {
      const { log, tools, values } = store()
      const { outcomes } = yield* turn(stage(tools), [
        call("a", "write", { k: "a", n: "x" }),
        call("b", "write", { k: "a", n: "y" }),
        call("c", "write", { k: "a", n: "x" })
      ], { dedupe })
      assert.deepStrictEqual(outcomes.map(words), ["ok", "ok", "ok"])
      assert.deepStrictEqual(log, ["begin x", "end x", "begin y", "end y", "begin x", "end x"])
      assert.strictEqual(values["a"], "x")
    }
  }))

it.effect("8. the same key is pressed twice: twice, where the tool says that each call is meant for itself, or the turn merges reads only", () =>
  Effect.gen(function*() {
    const pressed = Effect.fnUntraced(function*(press: Tool.Any, options?: Turn.Options) {
      const world = yield* FakeTool.makeWorld
      const made = stage([[press, FakeTool.handler(world, press as any, { type: "ok", latencyMs: 10, result: 1 })]])
      const calls = [call("a", "press", { n: "Down", k: "screen" }), call("b", "press", { n: "Down", k: "screen" })]
      const { outcomes } = yield* turn(made, calls, options)
      assert.deepStrictEqual(outcomes.map(words), ["ok", "ok"])
      return world.runs.map(({ ended, startedAt }) => [startedAt, ended !== undefined]).length
    })
    const press = write(tool("press"))
    assert.strictEqual(yield* pressed(ToolPolicy.repeatable(press)), 2)
    assert.strictEqual(yield* pressed(press, { dedupe: "reads" }), 2)
    assert.strictEqual(yield* pressed(press), 1)
  }))

it.effect("9. the same id twice: both positions are answered, and nothing is run that is not meant", () =>
  Effect.gen(function*() {
    const world = yield* FakeTool.makeWorld
    const it = write(tool("write"))
    const made = stage([[it, FakeTool.handler(world, it, { type: "ok", result: "written" })]])
    const same = yield* turn(made, [call("a", "write", { k: "x" }), call("a", "write", '{ "k": "x" }')], {
      dedupe: "off"
    })
    assert.deepStrictEqual(same.outcomes.map(words), ["ok", "ok"])
    assert.strictEqual(same.outcomes[1]!.duplicateOf?.position, 0)
    assert.strictEqual(world.runs.length, 1)
    const other = yield* turn(made, [
      call("a", "write", { k: "x" }),
      call("a", "write", { k: "y" }),
      call("b", "write", { k: "z" })
    ])
    assert.deepStrictEqual(other.outcomes.map(words), ["error/ambiguous_id", "error/ambiguous_id", "ok"])
    assert.strictEqual(world.runs.length, 2)
  }))

const pay = pipe(
  Tool.make("pay", { parameters: Params, success: Schema.Unknown, failure: Schema.String, needsApproval: true }),
  write
)

it.effect("10. a write that needs approval beside a read: the read is answered now, the write is held", () =>
  Effect.gen(function*() {
    const world = yield* FakeTool.makeWorld
    const made = stage([
      [pay, FakeTool.handler(world, pay, { type: "ok", result: 1 })],
      [read(tool("read")), ok(10)],
      [write(tool("write")), ok(10)]
    ])
    const { at, outcomes } = yield* turn(made, [
      call("a", "pay", { k: "account" }),
      call("b", "read", { k: "weather" }),
      call("c", "read", { k: "account" }),
      call("d", "write", { k: "notes" })
    ])
    assert.deepStrictEqual(outcomes.map(facts), [
      ["pending_approval", false, "none"],
      ["ok", true, "none"],
      ["deferred/waits_for_approval", false, "none"],
      ["ok", true, "applied"]
    ])
    assert.strictEqual(at, 10)
    assert.strictEqual(world.runs.length, 0)
  }))

it.effect("11. one approval is granted and one refused, beside a read: the granted one runs, and all three are answered", () =>
  Effect.gen(function*() {
    const world = yield* FakeTool.makeWorld
    const made = stage([[pay, FakeTool.handler(world, pay, { type: "ok", result: 1 })], [read(tool("read")), ok(10)]])
    const { outcomes } = yield* turn(made, [
      call("a", "pay", { k: "mine" }),
      call("b", "pay", { k: "yours" }),
      call("c", "read", { k: "weather" })
    ], { decide: ({ id }) => id === "a" ? Approval.approve() : Approval.deny("not that one") })
    assert.deepStrictEqual(outcomes.map(facts), [
      ["ok", true, "applied"],
      ["error/denied", false, "none"],
      ["ok", true, "none"]
    ])
    assert.deepStrictEqual(world.runs.map(({ params }) => params), [{ k: "mine" }])
  }))

it.effect("12. a response that was cut short: one answer for each call, and nothing is run", () =>
  Effect.gen(function*() {
    const world = yield* FakeTool.makeWorld
    const it = write(tool("write"))
    const made = stage([[it, FakeTool.handler(world, it, { type: "ok", result: 1 })]])
    for (const finishReason of ["length", "content-filter", "error"] as const) {
      const calls = [call("a", "write", { k: "x" }), call("b", "write", '{"k":"y')]
      const { outcomes } = yield* turn(made, calls, { finishReason })
      assert.deepStrictEqual(outcomes.map(facts), [
        ["error/incomplete_response", false, "none"],
        ["error/incomplete_response", false, "none"]
      ])
      assert.isTrue(outcomes.every(({ retryable }) => retryable))
      const [, answers] = Turn.toPrompt(calls, outcomes).content as ReadonlyArray<any>
      assert.deepStrictEqual(answers.content.map((part: any) => part.id), ["a", "b"])
    }
    assert.strictEqual(world.runs.length, 0)
  }))

it.effect("13. results that finish b, a are reported a, b", () =>
  Effect.gen(function*() {
    const made = stage([[read(tool("read")), ({ n }) => Effect.as(Effect.sleep(n), n)]])
    const calls = [call("a", "read", { n: 50 }), call("b", "read", { n: 10 })]
    const { events, outcomes } = yield* turn(made, calls)
    assert.deepStrictEqual(events.flatMap((event) => event._tag === "CallEnded" ? [event.id] : []), ["b", "a"])
    assert.deepStrictEqual(outcomes.map((outcome: any) => [outcome.id, outcome.result]), [["a", 50], ["b", 10]])
    const [, answers] = Turn.toPrompt(calls, outcomes).content as ReadonlyArray<any>
    assert.deepStrictEqual(answers.content.map((part: any) => part.id), ["a", "b"])
  }))

describe("14. 800 calls in one turn: bounded", () => {
  class Api extends Backend.Service<Api>()("test/peers/Api") {}
  const calls = Array.from({ length: 800 }, (_, n) => call(`c${n}`, "read", { n }))

  const counting = () => {
    const counts = { now: 0, most: 0 }
    const handler = () =>
      Effect.acquireUseRelease(
        Effect.sync(() => {
          counts.most = Math.max(counts.most, ++counts.now)
        }),
        () => Effect.as(Effect.sleep(10), "done"),
        () => Effect.sync(() => counts.now--)
      )
    return { counts, handler }
  }

  it.effect("by its backend, whatever the number of turns", () =>
    Effect.gen(function*() {
      const { counts, handler } = counting()
      const it = pipe(tool("read"), read, ToolPolicy.on(Api))
      const made = stage([[it, handler]], Layer.merge(Turn.layer(), Api.layer({ concurrency: 8 })) as Layer.Layer<any>)
      const [outcomes, at] = yield* on(
        made,
        timed(Effect.all([made.run(calls.slice(0, 400)), made.run(calls.slice(400))], { concurrency: 2 }))
      )
      assert.strictEqual(outcomes.flat().filter(({ status }) => status === "ok").length, 800)
      assert.deepStrictEqual([counts.most, counts.now, at], [8, 0, 1000])
    }))

  it.effect("by the turn itself", () =>
    Effect.gen(function*() {
      const { counts, handler } = counting()
      const { at, outcomes } = yield* turn(stage([[read(tool("read")), handler]]), calls, { execution: 16 })
      assert.strictEqual(outcomes.filter(({ status }) => status === "ok").length, 800)
      assert.deepStrictEqual([counts.most, counts.now, at], [16, 0, 500])
    }))

  it.effect("a line that is full refuses at once, and says so", () =>
    Effect.gen(function*() {
      const { counts, handler } = counting()
      const it = pipe(tool("read"), read, ToolPolicy.on(Api))
      const made = stage(
        [[it, handler]],
        Layer.merge(Turn.layer(), Api.layer({ concurrency: 8, queueLimit: 92 })) as Layer.Layer<any>
      )
      const { outcomes } = yield* turn(made, calls)
      assert.deepStrictEqual(outcomes.map(words), [
        ...Array(100).fill("ok"),
        ...Array(700).fill("error/queue_full")
      ])
      assert.deepStrictEqual([counts.most, counts.now], [8, 0])
    }))
})

describe("15. a write that carries a key fails after its effect, and the model calls it again: one effect", () => {
  const failsFirst = [
    { type: "fail", latencyMs: 30, effectAtMs: 20, failure: "connection lost" },
    { type: "ok", latencyMs: 30, effectAtMs: 20, result: "ordered" }
  ] as const
  const transient = () => true
  const calls = [call("a", "order", { n: 12, k: "order:12" })]

  it.effect("where the backend honours the key: safe to try again, and said to be", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const order = pipe(
        tool("order"),
        write,
        ToolPolicy.failures({ transient }),
        ToolPolicy.forward(({ n }) => `order:${String(n)}`)
      )
      const made = stage([[order, FakeTool.handler(world, order, failsFirst)]])
      const first = yield* turn(made, calls)
      assert.deepStrictEqual(first.outcomes.map(facts), [["error/failed", true, "unknown"]])
      assert.isTrue(first.outcomes[0]!.retryable)
      const second = yield* turn(made, calls)
      assert.deepStrictEqual(second.outcomes.map(facts), [["ok", true, "applied"]])
      assert.deepStrictEqual([world.runs.length, world.effects("order")], [2, 1])
    }))

  it.effect("where there is no key: what happened is unknown, and nobody is invited to try again", () =>
    Effect.gen(function*() {
      const world = yield* FakeTool.makeWorld
      const order = pipe(tool("order"), write, ToolPolicy.failures({ transient }))
      const made = stage([[order, FakeTool.handler(world, order, failsFirst)]])
      const { outcomes } = yield* turn(made, calls)
      assert.deepStrictEqual(outcomes.map(facts), [["error/failed", true, "unknown"]])
      assert.isFalse(outcomes[0]!.retryable)
      assert.strictEqual(world.effects("order"), 1)
    }))
})

it.effect("16. a tool with approval is merely registered: reads stay parallel", () =>
  Effect.gen(function*() {
    const made = stage([[pay, ok(10)], [read(tool("read")), ok(100)]])
    const { at, outcomes } = yield* turn(made, [call("a", "read", { n: 1 }), call("b", "read", { n: 2 })])
    assert.deepStrictEqual(outcomes.map(words), ["ok", "ok"])
    assert.strictEqual(at, 100)
  }))

describe("18. a tool fails in a plan with dependants: the turn ends, and each dependant is answered", () => {
  const made = () =>
    stage([
      [write(tool("write")), ({ n }) =>
        Effect.andThen(Effect.sleep(10), n === "fails" ? Effect.fail("no") : Effect.succeed(n))],
      [read(tool("read")), ok(10)]
    ])
  const calls = [
    call("a", "write", { k: "x", n: "fails" }),
    call("b", "read", { k: "x" }),
    call("c", "write", { k: "x", n: "goes on" }),
    call("d", "read", { k: "x" }),
    call("e", "read", { k: "{{a.id}}" })
  ]

  it.effect("let-finish: they run, for a key orders calls and does not bind them", () =>
    Effect.gen(function*() {
      const { at, outcomes } = yield* turn(made(), calls)
      assert.deepStrictEqual(outcomes.map(words), ["error/failed", "ok", "ok", "ok", "deferred/placeholder"])
      assert.strictEqual(at, 40)
    }))

  it.effect("fail-fast: they are cancelled before they start", () =>
    Effect.gen(function*() {
      const { at, outcomes } = yield* turn(made(), calls, { siblings: Siblings.failFast })
      assert.deepStrictEqual(outcomes.map(facts), [
        ["error/failed", true, "unknown"],
        ["cancelled/by_sibling", false, "none"],
        ["cancelled/by_sibling", false, "none"],
        ["cancelled/by_sibling", false, "none"],
        ["deferred/placeholder", false, "none"]
      ])
      assert.strictEqual(at, 10)
      assert.isAtLeast(yield* Clock.currentTimeMillis, 10)
    }))
})
