/**
 * The one public error of the library. A turn's error channel is for misuse alone: whatever a *call* does is an
 * outcome. Limits that cannot be are refused where they are written, so they are thrown, not returned.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"

/**
 * A limit that can never be met was written: 0, negative, NaN, over 2^31-1 ms, or an unspoken infinity.
 *
 * @category reasons
 * @since 0.1.0
 * @stability experimental
 */
export class InvalidLimit extends Schema.TaggedClass<InvalidLimit>()("InvalidLimit", {
  /** The tool, backend or option that the limit belongs to. */
  owner: Schema.String,
  limit: Schema.String,
  expected: Schema.String,
  received: Schema.String
}) {
  get message(): string {
    return `${this.owner}: the limit "${this.limit}" must be ${this.expected}, and is ${this.received}`
  }
}

/**
 * The list of calls, or an option of the turn, has a form that no rule covers.
 *
 * @category reasons
 * @since 0.1.0
 * @stability experimental
 */
export class InvalidInput extends Schema.TaggedClass<InvalidInput>()("InvalidInput", {
  what: Schema.String,
  expected: Schema.String,
  received: Schema.String
}) {
  get message(): string {
    return `${this.what}: expected ${this.expected}, and got ${this.received}`
  }
}

/**
 * A tool of the toolkit has no handler in the context, or its backend has no layer.
 *
 * @category reasons
 * @since 0.1.0
 * @stability experimental
 */
export class MissingService extends Schema.TaggedClass<MissingService>()("MissingService", {
  tool: Schema.String,
  service: Schema.String
}) {
  get message(): string {
    return `tool "${this.tool}": expected ${this.service} in the context, and it is not there`
  }
}

/**
 * The runtime is shut down, or is being shut down: it takes no new turns.
 *
 * @category reasons
 * @since 0.1.0
 * @stability experimental
 */
export class ShutDown extends Schema.TaggedClass<ShutDown>()("ShutDown", {}) {
  get message(): string {
    return "the turn runtime has been shut down: expected a running runtime for a new turn"
  }
}

/**
 * A message is none of the known forms, or a provider would refuse it.
 *
 * @category reasons
 * @since 0.1.0
 * @stability experimental
 */
export class InvalidMessage extends Schema.TaggedClass<InvalidMessage>()("InvalidMessage", {
  dialect: Schema.String,
  path: Schema.String,
  expected: Schema.String,
  received: Schema.String
}) {
  get message(): string {
    return `${this.dialect} message, at ${
      this.path === "" ? "its root" : this.path
    }: expected ${this.expected}, and got ${this.received}`
  }
}

/**
 * What can be wrong.
 *
 * @category reasons
 * @since 0.1.0
 * @stability experimental
 */
export const Reason = Schema.Union([InvalidLimit, InvalidInput, MissingService, ShutDown, InvalidMessage])

/**
 * What can be wrong.
 *
 * @category reasons
 * @since 0.1.0
 * @stability experimental
 */
export type Reason = typeof Reason.Type

/**
 * Misuse of the library. Match `_tag` once and `reason._tag` as needed.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class TurnError extends Schema.TaggedError<TurnError>()("TurnError", { reason: Reason }) {
  override get message(): string {
    return this.reason.message
  }
}

/**
 * Makes a {@link TurnError} from its reason.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make = (reason: Reason): TurnError => new TurnError({ reason })

/** A limit that counts, or a thrown {@link TurnError} that names its owner. `or` is what else the caller takes there.
 *
 * @internal
 */
export const wholeNumber = (owner: string, limit: string, value: unknown, least: 0 | 1 = 1, or = ""): number => {
  if (typeof value === "number" && Number.isSafeInteger(value) && value >= least) return value
  const expected = `a whole number from ${least}${or}`
  throw make(new InvalidLimit({ owner, limit, expected, received: show(value) }))
}

/** How a value is named in a message: short, on one line, and never failing itself.
 *
 * @internal
 */
export const show = (value: unknown): string => {
  if (typeof value === "string") {
    return value.length > 60
      ? `${JSON.stringify(value.slice(0, 57))}...`
      : JSON.stringify(value)
  }
  if (typeof value === "bigint") return `${value}n`
  if (value === null || typeof value !== "object") return typeof value === "function" ? "a function" : String(value)
  if (Array.isArray(value)) return `a list of ${value.length}`
  try {
    const text = JSON.stringify(value)
    return text === undefined ? "an object" : text.length > 60 ? `${text.slice(0, 57)}...` : text
  } catch {
    return "an object that JSON cannot hold"
  }
}
