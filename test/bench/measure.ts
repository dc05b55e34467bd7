/** Timing in one process, contenders in turn, medians: a ratio holds where an absolute figure does not. */
import { Effect } from "effect"
import type { Context } from "effect"

export const median = (values: ReadonlyArray<number>): number => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.floor(sorted.length / 2)]!
}

export interface Contender {
  readonly name: string
  readonly run: () => Effect.Effect<unknown, unknown, any>
}

/** Microseconds per run of each contender. `repeat` runs make one sample, so that short ones are above the clock's grain. */
export const compare = async (
  contenders: ReadonlyArray<Contender>,
  context: Context.Context<any>,
  options: { readonly rounds: number; readonly repeat: number }
): Promise<ReadonlyArray<number>> => {
  const run = Effect.runPromiseWith(context)
  const times = contenders.map((): Array<number> => [])
  // Warm until the compiler has had its say: a second of running, or a third of the rounds.
  const warm = performance.now() + 1000
  const warmUp = Math.ceil(options.rounds / 3)
  for (let round = -warmUp; round < options.rounds; round++) {
    if (round === -1 && performance.now() < warm) round--
    for (let c = 0; c < contenders.length; c++) {
      const start = performance.now()
      for (let i = 0; i < options.repeat; i++) await run(contenders[c]!.run() as Effect.Effect<unknown, unknown>)
      const took = (performance.now() - start) * 1000 / options.repeat
      if (round >= 0) times[c]!.push(took)
    }
  }
  return times.map(median)
}
