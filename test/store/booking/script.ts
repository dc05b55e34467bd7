/** What a test and the processes that it kills say to each other. */
import type { Outcome } from "effect-turn"
import type { Shared } from "../../utils/stores.ts"

export const modes = ["forward", "verify", "record"] as const

export type Mode = typeof modes[number]

/** One booking: how long the server takes before its effect and after it, in milliseconds. */
export interface Booking {
  readonly mode: Mode
  readonly key: string
  readonly before: number
  readonly after: number
}

/** Where a process finds its store and the server. */
export interface Setup {
  readonly shared: Shared
  readonly journal: boolean
  readonly url: string
  readonly lease: number
}

/** A turn that a process is told to run: a call for each booking. */
export interface Script {
  readonly turn: string
  readonly bookings: ReadonlyArray<Booking>
}

/** What a process tells: it is ready; a turn has its answers; all turns have. */
export type Told =
  | { readonly _tag: "ready" }
  | { readonly _tag: "told"; readonly turn: string; readonly outcomes: ReadonlyArray<Outcome.Encoded> }
  | { readonly _tag: "done" }
  | { readonly _tag: "broken"; readonly why: string }
