/** Claims in a store that lapse unless their owner is heard of: while a process has some, it says a word every third of their time. */
import type * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Fiber from "effect/Fiber"
import * as Siblings from "../../Siblings.ts"

/** Says a word for one claim; false where it is lost. */
export interface Claim {
  readonly what: string
  readonly renew: Effect.Effect<boolean, unknown>
}

export class Leases {
  private readonly claims = new Set<Claim>()
  private readonly every: number
  private fiber: Fiber.Fiber<unknown> | undefined = undefined

  constructor(lease: number) {
    this.every = Math.max(1, Math.floor(lease / 3))
  }

  /** From here on the claim is kept, by a fiber that there is while there are claims. */
  add(claim: Claim, context: Context.Context<never>): void {
    this.claims.add(claim)
    this.fiber ??= Effect.runForkWith(context)(Effect.forever(Effect.andThen(Effect.sleep(this.every), this.round)))
  }

  delete(claim: Claim): void {
    this.claims.delete(claim)
    if (this.claims.size === 0) this.stop()
  }

  /** Nothing is kept any more: what is at work still is left to itself. */
  stop(): void {
    this.claims.clear()
    this.fiber?.interruptUnsafe()
    this.fiber = undefined
  }

  private readonly round = Effect.suspend(() =>
    Effect.forEach(this.claims, (claim) => this.renew(claim), { concurrency: 16, discard: true })
  )

  /** A word that a store does not take is said again in the next round. One that never returns keeps no other claim waiting. */
  private renew(claim: Claim): Effect.Effect<void> {
    return Siblings.leavable(claim.renew, 0, () => Effect.void).pipe(
      Effect.timeout(this.every),
      Effect.flatMap((kept) => {
        if (kept || !this.claims.delete(claim)) return Effect.void
        return Effect.logWarning(
          `${claim.what} was lost while its work goes on: its lease was over, or somebody else has settled it`
        )
      }),
      Effect.catchCause((cause) => Effect.logWarning(`the lease of ${claim.what} could not be prolonged`, cause))
    )
  }
}
