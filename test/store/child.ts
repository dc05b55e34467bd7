/** A process that reserves keys when it is told to. */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import * as IdempotencyStore from "../../src/IdempotencyStore.ts"
import { layerOf, type Shared } from "../utils/stores.ts"

export type Order =
  | { readonly open: Shared }
  | { readonly close: true }
  /** Each key is reserved by so many fibers at once. */
  | { readonly keys: ReadonlyArray<string>; readonly fibers: number }

export type Answer =
  | { readonly failed: string }
  | { readonly done: true }
  /** For each key who had it by what each fiber was told. */
  | { readonly owners: Record<string, ReadonlyArray<{ readonly owner: string; readonly won: boolean }>> }

let scope: Scope.Closeable | undefined
let store: IdempotencyStore.IdempotencyStore["Service"] | undefined

const obey = (order: Order): Effect.Effect<Answer, unknown> =>
  Effect.gen(function*() {
    if ("open" in order) {
      scope = yield* Scope.make()
      const layer = Layer.provide(IdempotencyStore.layer({ digest: "text" }), layerOf(order.open))
      const context = yield* Layer.buildWithScope(layer, scope)
      store = yield* Effect.provide(IdempotencyStore.IdempotencyStore, context)
      return { done: true }
    }
    if ("close" in order) {
      yield* Scope.close(scope!, Exit.void)
      return { done: true }
    }
    const fibers = Array.from({ length: order.fibers }, (_, i) => i)
    const owners = yield* Effect.forEach(order.keys, (key) =>
      Effect.map(
        Effect.forEach(fibers, (fiber) =>
          Effect.gen(function*() {
            const owner = `${process.pid}/${fiber}/${key}`
            const reservation = yield* store!.reserve({ tenant: "t", tool: "book", key }, { digest: "d", owner })
            return reservation._tag === "Reserved"
              ? { owner, won: true }
              : { owner: reservation.entry.owner, won: false }
          }), { concurrency: "unbounded" }),
        (told) => [key, told] as const
      ), { concurrency: "unbounded" })
    return { owners: Object.fromEntries(owners) }
  })

process.on("message", (order: Order) => {
  void Effect.runPromise(
    Effect.matchCause(obey(order), {
      onFailure: (cause): Answer => ({ failed: String(cause) }),
      onSuccess: (answer) => answer
    })
  ).then((answer) => process.send!(answer))
})
process.on("disconnect", () => process.exit(0))
process.send!({ done: true } satisfies Answer)
