/** Governed handlers: the toolkit of an MCP server, in process and over stdio, obeys what one call can obey. */
import { NodeServices } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { Backend, ToolPolicy, Turn, TurnError } from "effect-turn"
import type * as AiError from "effect/ai/AiError"
import * as McpClient from "effect/ai/McpClient"
import * as McpProtocol from "effect/ai/McpProtocol"
import * as McpServer from "effect/ai/McpServer"
import * as McpTest from "effect/ai/McpTest"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { ChildProcess } from "effect/process"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as TestClock from "effect/testing/TestClock"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { drive, ended, fork } from "../utils/kit.ts"

/** As `drive`, for what goes through the queues of a client and a server: each takes a step of its own. */
const served = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const fiber = yield* fork(effect)
    for (let i = 0; i < 10; i++) yield* TestClock.adjust(0)
    for (let i = 0; i < 10; i++) yield* TestClock.adjust(1000)
    return yield* ended(fiber)
  })

const Params = Schema.Struct({ n: Schema.FiniteFromString })

const Get = pipe(
  Tool.make("get", { parameters: Params, success: Schema.Finite, failure: Schema.String, failureMode: "return" }),
  ToolPolicy.read({ keys: () => ["k"] }),
  ToolPolicy.timeout(1000)
)
const Put = pipe(
  Tool.make("put", { parameters: Params, success: Schema.Finite, failure: Schema.String }),
  ToolPolicy.write({ keys: () => ["k"] }),
  ToolPolicy.timeout(1000)
)
const Pay = pipe(
  Tool.make("pay", { parameters: Params, success: Schema.Finite, failureMode: "return", needsApproval: true }),
  ToolPolicy.write({ keys: () => [] })
)
const kit = Toolkit.make(Get, Put, Pay)

/** Handlers that take `n` milliseconds, and fail for odd ones, break for 13; and what they did. */
const notes = () => {
  const seen: Array<string> = []
  const work = (name: string) => ({ n }: { readonly n: number }) =>
    Effect.gen(function*() {
      seen.push(`${yield* Clock.currentTimeMillis} ${name} ${n} begins`)
      yield* Effect.sleep(n)
      if (n === 13) return yield* Effect.die(new Error("secret"))
      if (n % 2 === 1) return yield* Effect.fail(`${n} is odd`)
      return n
    }).pipe(Effect.onExit((exit) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        seen.push(
          `${now} ${name} ${n} ${Exit.isSuccess(exit) ? "ends" : Exit.hasInterrupts(exit) ? "is cut short" : "fails"}`
        )
      })
    ))
  const handlers = kit.toLayer({ get: work("get"), put: work("put"), pay: ({ n }) => Effect.succeed(n) })
  return { seen, layer: Turn.layerHandlers(kit).pipe(Layer.provide(handlers), Layer.provide(Turn.layer())) }
}

const server = () => {
  const { layer, seen } = notes()
  const registrations = McpServer.toolkit(kit).pipe(Layer.provide(layer))
  return Effect.map(
    McpTest.makeClient(registrations, { protocols: [McpProtocol.v2025_11_25] }),
    (client) => ({
      seen,
      call: (name: string, n: number) => client.callTool({ name, arguments: { n: String(n) } })
    })
  )
}

const textOf = (result: { readonly content: ReadonlyArray<unknown> }) =>
  result.content.map((part) => (part as { readonly text: string }).text).join()

describe("the toolkit of an MCP server with governed handlers", () => {
  it.effect("keeps the order of keys across calls", () =>
    Effect.gen(function*() {
      const { call, seen } = yield* server()
      const results = yield* served(
        Effect.all([call("put", 20), call("get", 4), call("get", 6), call("put", 2)], { concurrency: "unbounded" })
      )
      assert.deepStrictEqual(results.map(textOf), ["20", "4", "6", "2"])
      assert.deepStrictEqual(seen, [
        "0 put 20 begins",
        "20 put 20 ends",
        "20 get 4 begins",
        "20 get 6 begins",
        "24 get 4 ends",
        "26 get 6 ends",
        "26 put 2 begins",
        "28 put 2 ends"
      ])
    }))

  it.effect("a write that the client cancels is finished; a read is cut short", () =>
    Effect.gen(function*() {
      const { call, seen } = yield* server()
      const write = yield* fork(call("put", 100))
      yield* TestClock.adjust(10)
      const gone = yield* fork(Fiber.interrupt(write))
      yield* TestClock.adjust(1000)
      yield* ended(gone)
      const read = yield* fork(call("get", 100))
      yield* TestClock.adjust(10)
      yield* fork(Fiber.interrupt(read))
      yield* TestClock.adjust(1000)
      assert.deepStrictEqual(seen.map((line) => line.replace(/^\d+ /, "")), [
        "put 100 begins",
        "put 100 ends",
        "get 100 begins",
        "get 100 is cut short"
      ])
    }))

  it.effect("a declared failure stays that; what is none is told with its reason, or not at all", () =>
    Effect.gen(function*() {
      const { call } = yield* server()
      const failed = yield* served(call("get", 3))
      assert.deepStrictEqual([failed.isError, textOf(failed)], [true, '"3 is odd"'])
      assert.deepStrictEqual(textOf(yield* served(call("put", 5))), '"5 is odd"')
      const late = yield* served(call("get", 5000))
      assert.isTrue(late.isError)
      assert.include(textOf(late), "it only reads, so nothing was changed")
      const held = yield* served(call("pay", 1))
      assert.isTrue(held.isError)
      assert.include(textOf(held), "approval")
      const broken = yield* served(Effect.provide(call("get", 13), Logger.layer([])))
      assert.isTrue(broken.isError)
      assert.notInclude(textOf(broken), "secret")
    }))

  it.effect("an overdue write is awaited, and its true result is given", () =>
    Effect.gen(function*() {
      const { call, seen } = yield* server()
      const result = yield* served(call("put", 3000))
      assert.deepStrictEqual([textOf(result), seen.at(-1)], ["3000", "3000 put 3000 ends"])
    }))

  it.live("over stdio: a write that the client cancels is finished", () =>
    Effect.gen(function*() {
      const file = path.join(fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-mcp-")), "notes")
      fs.writeFileSync(file, "")
      const lines = () => fs.readFileSync(file, "utf8").trim().split("\n")
      const until = (line: string): Effect.Effect<void> =>
        Effect.suspend(() => lines().includes(line) ? Effect.void : Effect.andThen(Effect.sleep(20), until(line)))
      yield* Effect.gen(function*() {
        const client = yield* McpClient.McpClient
        const book = (yield* client.listTools()).find((tool) => tool.name === "book")!
        const first = yield* fork(client.callTool({ tool: book, arguments: { room: 1 } }))
        yield* until("begins 1")
        yield* Fiber.interrupt(first)
        const second = yield* client.callTool({ tool: book, arguments: { room: 2 } })
        assert.deepStrictEqual(second.structuredContent as unknown, { reference: "room-2" })
      }).pipe(
        Effect.scoped,
        Effect.provide(McpClient.layerStdio({
          name: "test",
          version: "0.0.1",
          protocol: McpProtocol.v2025_11_25,
          command: ChildProcess.make(process.execPath, [
            "--conditions=@effect-turn/source",
            path.join(import.meta.dirname, "../fixtures/mcp/server.ts"),
            file
          ], { stderr: "inherit" })
        }))
      )
      // The second write waited for the first one, which nobody wanted any more.
      assert.deepStrictEqual(lines(), ["begins 1", "ends 1", "begins 2", "ends 2"])
      fs.rmSync(path.dirname(file), { recursive: true })
    }).pipe(Effect.provide(NodeServices.layer)), 60_000)
})

describe("governed handlers", () => {
  it.effect("pass preliminary results on, and give results and errors as a handler does", () =>
    Effect.gen(function*() {
      const Slow = pipe(
        Tool.make("slow", { success: Schema.FiniteFromString, failure: Schema.String, failureMode: "return" }),
        ToolPolicy.read({ keys: () => [] })
      )
      const own = Toolkit.make(Slow)
      const handlers = own.toLayer({ slow: (_, { preliminary }) => Effect.as(preliminary(1), 2) })
      const results = yield* Effect.gen(function*() {
        const { handle } = yield* own
        return yield* Stream.runCollect(Stream.unwrap(handle("slow", {}, "id")))
      }).pipe(Effect.provide(Turn.layerHandlers(own).pipe(Layer.provide(handlers), Layer.provide(Turn.layer()))))
      assert.deepStrictEqual(
        results.map(({ encodedResult, preliminary, result }) => [result, encodedResult, preliminary]),
        [[1, "1", true], [2, "2", false]]
      )
    }))

  it.effect("have the services of their own layer, and over them those of whoever calls", () =>
    Effect.gen(function*() {
      const Name = Context.Reference("handlers/Name", { defaultValue: () => "nobody" })
      const Who = pipe(Tool.make("who", { success: Schema.String }), ToolPolicy.read({ keys: () => [] }))
      const own = Toolkit.make(Who)
      const handlers = own.toLayer({ who: () => Name }).pipe(Layer.provide(Layer.succeed(Name, "handler")))
      const governed = Turn.layerHandlers(own).pipe(
        Layer.provide([handlers, Turn.layer(), Layer.succeed(Name, "governor")])
      )
      const ask = Effect.gen(function*() {
        const { handle } = yield* own
        const [one] = yield* Stream.runCollect(Stream.unwrap(handle("who", {})))
        return one!.result
      }).pipe(Effect.provide(governed))
      assert.strictEqual(yield* ask, "handler")
      assert.strictEqual(yield* Effect.provideService(ask, Name, "caller"), "caller")
    }))

  it.effect("take permits of backends, which all calls share", () =>
    Effect.gen(function*() {
      class Api extends Backend.Service<Api>()("handlers/Api") {}
      const Ask = pipe(
        Tool.make("ask", { success: Schema.Finite }),
        ToolPolicy.read({ keys: () => [] }),
        ToolPolicy.on(Api)
      )
      const own = Toolkit.make(Ask)
      const handlers = own.toLayer({ ask: () => Effect.andThen(Effect.sleep(10), Clock.currentTimeMillis) })
      const times = yield* drive(
        Effect.gen(function*() {
          const { handle } = yield* own
          return yield* Effect.all(
            Array.from({ length: 3 }, () => Stream.runCollect(Stream.unwrap(handle("ask", {})))),
            { concurrency: "unbounded" }
          )
        }).pipe(
          Effect.provide(Layer.mergeAll(
            Turn.layerHandlers(own).pipe(Layer.provide(handlers), Layer.provide(Turn.layer())),
            Api.layer({ concurrency: 1 })
          ))
        )
      )
      assert.deepStrictEqual(times.map(([one]) => one!.result), [10, 20, 30])
    }))

  it.effect("an answer that is no failure of the tool is an error of effect/ai, retryable where the answer is", () =>
    Effect.gen(function*() {
      const { layer } = notes()
      yield* Effect.gen(function*() {
        const { handle } = yield* kit
        const [late] = yield* drive(Stream.runCollect(Stream.unwrap(handle("get", { n: "5000" }))))
        assert.deepStrictEqual((late!.result as AiError.AiError).reason._tag, "InternalProviderError")
        assert.isTrue((late!.result as AiError.AiError).isRetryable)
        const [held] = yield* drive(Stream.runCollect(Stream.unwrap(handle("pay", { n: "1" }))))
        assert.deepStrictEqual((held!.result as AiError.AiError).reason._tag, "UnknownError")
      }).pipe(Effect.provide(layer))
    }))

  it("options that cannot be are refused where they are written", () => {
    assert.throws(() => Turn.layerHandlers(kit, { deadline: 0 }), TurnError.TurnError as any)
  })
})
