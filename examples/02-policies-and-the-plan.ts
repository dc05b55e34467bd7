/**
 * Policies, and the plan that follows from them.
 *
 * The plan is a value: it says what will run, what will not and why, and who waits for whom because of which key. Nothing runs
 * to make it. The runtime acts on this value and on nothing else, so what is printed here is what a turn would do.
 */
import { Effect, pipe, Schema } from "effect"
import { ToolCall, ToolPolicy, Turn, TurnPlan } from "effect-turn"
import { Tool, Toolkit } from "effect/ai"

const Path = Schema.Struct({ path: Schema.String })

// Keys name what a call touches. They may be paths: `file:/src` covers `file:/src/a.ts`.
const ReadFile = pipe(
  Tool.make("read_file", { parameters: Path, success: Schema.String }),
  ToolPolicy.read({ keys: ({ path }) => [`file:${path}`] })
)

const EditFile = pipe(
  Tool.make("edit_file", { parameters: Schema.Struct({ path: Schema.String, text: Schema.String }) }),
  ToolPolicy.write({ keys: ({ path }) => [`file:${path}`] }),
  // A file may really contain "TBD" or "{{name}}", so this argument is not searched for invented values.
  ToolPolicy.placeholders({ literal: ["text"] })
)

// An empty list of keys: touches nothing that anybody else touches.
const Search = pipe(
  Tool.make("search_web", {
    parameters: Schema.Struct({ query: Schema.String }),
    success: Schema.Array(Schema.String)
  }),
  ToolPolicy.read({ keys: () => [] })
)

// `needsApproval` is effect/ai's own. The call is held; what touches the same keys later is deferred.
const Deploy = pipe(
  Tool.make("deploy", { parameters: Schema.Struct({ to: Schema.String }), needsApproval: true }),
  ToolPolicy.write({ keys: ({ to }) => [`environment:${to}`] })
)

const ReadStatus = pipe(
  Tool.make("read_status", { parameters: Schema.Struct({ of: Schema.String }), success: Schema.String }),
  ToolPolicy.read({ keys: ({ of }) => [`environment:${of}`] })
)

// No policy at all: a write of unknown reach. It waits for every earlier call that has keys, and later ones wait for it.
const RunScript = Tool.make("run_script", { parameters: Schema.Struct({ script: Schema.String }) })

const toolkit = Toolkit.make(ReadFile, EditFile, Search, Deploy, ReadStatus, RunScript)

const show = (title: string, calls: ReadonlyArray<ToolCall.ToolCall>, options?: Turn.Options) =>
  Effect.map(Turn.plan(toolkit, calls, options), (plan) => {
    console.log(`${title}\n\n${TurnPlan.print(plan).replace(/^/gm, "  ")}\n`)
    return plan
  })

const program = Effect.gen(function*() {
  const edits = yield* show(
    "Edits of one file keep their order. Another file waits for nobody, a folder covers its files:",
    [
      ToolCall.make("c0", "read_file", { path: "/src/a.ts" }),
      ToolCall.make("c1", "read_file", { path: "/src/b.ts" }),
      ToolCall.make("c2", "edit_file", { path: "/src/a.ts", text: "{{name}} TBD" }),
      ToolCall.make("c3", "edit_file", { path: "/src/a.ts", text: "second" }),
      ToolCall.make("c4", "read_file", { path: "/src" }),
      ToolCall.make("c5", "search_web", { query: "effect" })
    ]
  )
  console.log(`  The same as data: ${JSON.stringify(edits.edges)}`)
  console.log(`  #4 waits for: ${JSON.stringify(TurnPlan.dependencies(edits, 4))}\n`)

  yield* show("What does not run, and why:", [
    ToolCall.make("c0", "search_web", { query: "weather" }),
    ToolCall.make("c1", "search_web", '{ "query": "weather" }'),
    ToolCall.make("c2", "read_file", { path: "<path of the file found above>" }),
    ToolCall.make("c3", "read_file", { file: "/src/a.ts" }),
    ToolCall.make("c4", "readfile", { path: "/src/a.ts" }),
    ToolCall.make("c5", "deploy", { to: "production" }),
    ToolCall.make("c6", "read_status", { of: "production" }),
    ToolCall.make("c7", "read_status", { of: "staging" })
  ])

  const withScript = [
    ToolCall.make("c0", "read_file", { path: "/src/a.ts" }),
    ToolCall.make("c1", "search_web", { query: "effect" }),
    ToolCall.make("c2", "run_script", { script: "make" }),
    ToolCall.make("c3", "read_file", { path: "/src/a.ts" })
  ]
  yield* show("A tool without a policy is a write of unknown reach:", withScript)
  yield* show("The same calls, one after another because the turn says so:", withScript, { execution: "sequential" })

  const cut = yield* Turn.plan(toolkit, withScript, { finishReason: "length" })
  console.log(`A response that the provider cut short runs nothing: ${cut.calls.map((call) => call.code).join(", ")}`)
})

await Effect.runPromise(program)
