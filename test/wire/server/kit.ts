/** Tools whose results are odd in every way that a handler can think of, and the ways in which a turn of theirs may end. */
import { Siblings, ToolPolicy, Turn } from "effect-turn"
import * as Prompt from "effect/ai/Prompt"
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Arbitrary from "effect/Arbitrary"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { pick } from "../../utils/gen.ts"

const Params = Schema.Struct({ n: Schema.Int })

const fields = { parameters: Params, success: Schema.Unknown, failure: Schema.String }

/** What a tool gives back for `n`. */
const results: ReadonlyArray<unknown> = [
  "ok",
  "",
  { n: 1, text: "caf\u00e9 \ud83d\ude00" },
  " \n",
  "half \ud83d",
  null,
  undefined,
  { "\udc00": ["\ud83d", null, { deep: true }] },
  "x".repeat(3_000),
  [],
  10n,
  Number.NaN
]

const file = (mediaType: string, data: string | Uint8Array | URL, fileName?: string) =>
  Prompt.filePart({ mediaType, data, ...(fileName === undefined ? undefined : { fileName }) })

/** What the model is shown in place of the result of `draw`, for `n`. */
const shown: ReadonlyArray<ReadonlyArray<Prompt.ToolModelOutputPart>> = [
  [Prompt.textPart({ text: "a picture" }), file("image/png", new Uint8Array([1, 2, 3]))],
  [file("application/pdf", "AAAA", "a.pdf")],
  [file("image/jpeg", new URL("https://example.com/a.jpg"))],
  [Prompt.textPart({ text: " " }), file("image/svg+xml", "AAAA")],
  [],
  [Prompt.textPart({ text: "half \ud83d" })],
  [file("text/plain", new TextEncoder().encode("plain words"), "a.txt"), file("audio/mp3", "AAAA")],
  [file("application/octet-stream", new Uint8Array([]), "\ud83d")],
  [file("image/*", "data:image/png;base64,AAAA")],
  [Prompt.textPart({ text: "" })],
  [file("application/pdf", new URL("https://example.com/a.pdf"), "a.pdf")],
  [file("text/csv", "YSxi"), Prompt.textPart({ text: "a table" })]
]

const keyed = { keys: ({ n }: { readonly n: number }) => [`k/${n % 3}`] }

export const toolkit = Toolkit.make(
  pipe(Tool.make("read", fields), ToolPolicy.read(keyed)),
  pipe(Tool.make("write", fields), ToolPolicy.write(keyed), ToolPolicy.undo(() => Effect.void)),
  pipe(Tool.make("put", fields), ToolPolicy.write(keyed), ToolPolicy.forward(({ n }) => `key:${n}`)),
  pipe(Tool.make("fail", fields), ToolPolicy.read({ keys: () => [] })),
  pipe(Tool.make("slow", fields), ToolPolicy.write(keyed)),
  pipe(Tool.make("late", fields), ToolPolicy.read(keyed), ToolPolicy.timeout(30)),
  pipe(
    Tool.make("draw", { ...fields, toModelOutput: (n) => shown[n as number] ?? [] }),
    ToolPolicy.read({ keys: () => [] })
  ),
  Tool.make("pay", { ...fields, needsApproval: true }),
  /** What a custom tool is called with. */
  pipe(
    Tool.make("script", { ...fields, parameters: Schema.Struct({ input: Schema.String }) }),
    ToolPolicy.read({ keys: () => [] })
  )
)

/** What the model calls: tools that exist, more often than others. */
export const names = [
  "read",
  "read",
  "write",
  "write",
  "draw",
  "draw",
  "put",
  "fail",
  "slow",
  "late",
  "late",
  "pay",
  "pay",
  "nobody",
  "multi_tool_use.parallel",
  "a b/c",
  "9lives",
  "",
  "x".repeat(150)
]

const result = ({ n }: { readonly n: number }) => results[n]

export const services = Layer.mergeAll(
  toolkit.toLayer({
    read: (params) => Effect.succeed(result(params)),
    write: (params) => Effect.succeed(result(params)),
    put: (params) => Effect.succeed(result(params)),
    fail: ({ n }) => n === 0 ? Effect.die(new Error("broken \ud83d")) : Effect.fail(n === 1 ? "" : "half \ud83d"),
    slow: (params) => Effect.as(Effect.sleep(50), result(params)),
    late: (params) => Effect.as(Effect.sleep(40), result(params)),
    draw: ({ n }) => Effect.succeed(n),
    pay: () => Effect.die("it is never paid"),
    script: ({ input }) => Effect.succeed(input)
  }),
  Turn.layer()
)

const policies = {
  letFinish: Siblings.letFinish,
  failFast: Siblings.failFast,
  quorum: Siblings.quorum(1),
  allOrNothing: Siblings.allOrNothing
}

/** How a turn is run, and how it ends. */
export const someOptions = Arbitrary.map(
  Arbitrary.all({
    siblings: pick<keyof typeof policies>("letFinish", "letFinish", "failFast", "quorum", "allOrNothing"),
    stop: pick("never", "never", "never", "at once", "soon", "deadline"),
    execution: pick<"parallel" | "sequential" | number>("parallel", "sequential", 2),
    dedupe: pick<"all" | "reads" | "off">("all", "reads", "off"),
    budget: pick(undefined, undefined, 400)
  }),
  ({ budget, dedupe, execution, siblings, stop }): Turn.Options<any> => ({
    siblings: policies[siblings],
    execution,
    dedupe,
    ...(budget === undefined ? undefined : { resultBudget: { maxChars: budget } }),
    ...(stop === "at once" ? { cancelOn: Effect.succeed("user") } : undefined),
    ...(stop === "soon" ? { cancelOn: Effect.as(Effect.sleep(20), "budget") } : undefined),
    ...(stop === "deadline" ? { deadline: 20 } : undefined)
  })
)
