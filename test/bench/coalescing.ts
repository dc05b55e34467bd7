/** What a load costs: many single lookups at once, made into requests of ten, by us, by Effect's resolvers and by `dataloader`. */
import DataLoader from "dataloader"
import { Effect, Exit, Request, RequestResolver } from "effect"
import { Coalescer, TurnContext } from "effect-turn"
import { compare } from "./measure.ts"

class Get extends Request.Class<{ readonly id: string }, string> {}

export interface Loads {
  /** What a request does: nothing, or one step of a promise. */
  readonly lookup: "no-op" | "promise"
  readonly n: number
  /** Microseconds per load. */
  readonly load: number
  readonly loadAll: number
  readonly resolver: number
  readonly dataloader: number
}

const size = 10
const done = Promise.resolve()

export const loads = async function*(rounds: (n: number) => number): AsyncGenerator<Loads> {
  for (const lookup of ["no-op", "promise"] as const) {
    const work = lookup === "no-op" ? Effect.void : Effect.promise(() => done)
    const coalescer = Coalescer.make<string, string>({
      name: "bench",
      size,
      lookup: (keys) => Effect.map(work, () => keys)
    })
    const resolver = RequestResolver.make<Get>((entries) =>
      Effect.map(work, () => {
        for (const entry of entries) entry.completeUnsafe(Exit.succeed(entry.request.id))
      })
    ).pipe(RequestResolver.batchN(size))
    for (const n of [100, 10_000]) {
      const keys = Array.from({ length: n }, (_, i) => `order-${i}`)
      const at = { concurrency: "unbounded" } as const
      const times = await compare(
        [
          { name: "load", run: () => Effect.forEach(keys, coalescer.load, at) },
          { name: "loadAll", run: () => coalescer.loadAll(keys) },
          {
            name: "resolver",
            run: () => Effect.forEach(keys, (id) => Effect.request(new Get({ id }), resolver), at)
          },
          {
            name: "dataloader",
            // A loader for each run, as it is meant to be used: its cache is the merging of equal keys.
            run: () =>
              Effect.promise(() => {
                const loader = new DataLoader<string, string>(
                  (keys) => lookup === "no-op" ? Promise.resolve(keys) : done.then(() => keys),
                  { maxBatchSize: size }
                )
                return Promise.all(keys.map((key) => loader.load(key)))
              })
          }
        ],
        TurnContext.make({ tenant: "bench" }),
        { rounds: rounds(n === 100 ? 101 : 31), repeat: n === 100 ? 10 : 1 }
      )
      const [load, loadAll, bare, other] = times.map((time) => time / n)
      yield { lookup, n, load: load!, loadAll: loadAll!, resolver: bare!, dataloader: other! }
    }
  }
}
