/** The tools that the tests run on worker threads, and the cells of memory with which both sides agree on order. */
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Schema from "effect/Schema"

const parameters = Schema.Struct({ does: Schema.String, n: Schema.optionalKey(Schema.Finite) })
const shape = { parameters, success: Schema.Unknown, failure: Schema.Struct({ at: Schema.DateFromString }) }

export const Read = Tool.make("read", shape)
export const Write = Tool.make("write", shape)
export const Put = Tool.make("put", shape)
/** Its values are not what crosses: dates are texts on their way. */
export const NextDay = Tool.make("next_day", {
  parameters: Schema.Struct({ day: Schema.DateFromString }),
  success: Schema.Struct({ day: Schema.DateFromString })
})

export const toolkit = Toolkit.make(Read, Write, Put, NextDay)

/** What a worker is given at its start. */
export const cells = {
  /** A handler has got to where it blocks. */
  here: 0,
  /** It may go on; it takes one. */
  go: 1,
  /** How many threads still have to fail while they load. */
  broken: 2,
  /** A thread may finish loading. */
  open: 3,
  /** A reply has been sent. */
  sent: 4,
  /** Calls at work, and the most that there have been. */
  atWork: 5,
  most: 6,
  /** How many threads still have to leave as soon as they have loaded. */
  lame: 8,
  /** It grows for as long as an endless loop runs. */
  turns: 7
} as const
