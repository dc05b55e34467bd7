/**
 * `Siblings` without tools: what happens to the others when one fails, for any effects.
 *
 * `Siblings.all` takes a tuple, a struct or any iterable, as `Effect.all` does, and never fails: it tells what became of each
 * member. The first failure is kept apart from the cancellations that followed it, and no fiber is left behind.
 */
import { Cause, Effect, Schema } from "effect"
import { Siblings } from "effect-turn"

class Down extends Schema.TaggedError<Down>()("Down", { service: Schema.String }) {
  override get message(): string {
    return `${this.service} is down`
  }
}

const log: Array<string> = []
const answer = (service: string, millis: number) =>
  Effect.sleep(millis).pipe(
    Effect.as(`${service} is up`),
    Effect.onInterrupt(() => Effect.sync(() => log.push(`${service} was interrupted`)))
  )
const down = (service: string, millis: number) => Effect.andThen(Effect.sleep(millis), new Down({ service }))

const words = <A, E>(settled: Siblings.Settled<A, E>): string => {
  switch (settled._tag) {
    case "Succeeded":
      return `${settled.value}`
    case "Failed":
      return `${settled.first ? "the first failure" : "failed"}: ${Cause.pretty(settled.cause).split("\n")[0]}`
    case "Cancelled":
      return `cancelled by ${settled.by}, ${settled.started ? "after" : "before"} its start`
  }
}

const program = Effect.gen(function*() {
  console.log("letFinish, as a tuple:")
  const [search, mail] = yield* Siblings.all([answer("search", 20), down("mail", 10)], Siblings.letFinish)
  console.log(`  ${words(search)}\n  ${words(mail)}`)

  console.log("\nfailFast, as a struct. A protected member is never cut short once it has started:")
  const settled = yield* Siblings.all({
    search: answer("search", 500),
    mail: down("mail", 10),
    payment: Siblings.protect(answer("payment", 40))
  }, Siblings.failFast)
  for (const [name, one] of Object.entries(settled)) console.log(`  ${name}: ${words<string, Down>(one)}`)
  console.log(`  (${log.splice(0).join(", ")})`)

  console.log("\nquorum(2) of five mirrors, three at a time:")
  const mirrors = [30, 10, 400, 200, 10].map((millis, i) => answer(`mirror ${i}`, millis))
  for (const one of yield* Siblings.all(mirrors, Siblings.quorum(2), { concurrency: 3 })) console.log(`  ${words(one)}`)
  console.log(`  (${log.splice(0).join(", ")})`)

  // Back to an ordinary effect: all values, or the failure that came first.
  const both = yield* Siblings.all([answer("search", 10), down("mail", 5)], Siblings.failFast).pipe(
    Effect.flatMap(Siblings.getOrFail),
    Effect.match({ onSuccess: ([first]) => first, onFailure: (error) => `failed with ${error}` })
  )
  console.log(`\ngetOrFail ${both}`)
})

await Effect.runPromise(program)
