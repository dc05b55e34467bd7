/**
 * Calls that need a human's consent: what is asked, what may be decided, and a place where requests wait for their decisions.
 *
 * A request is for one call with exactly these arguments: its `digest` is the canonical form of the tool's name and the decoded
 * arguments, so a decision never moves to another call, and changed arguments need a new one. The first decision stands. A decision
 * is used once.
 *
 * `Turn.Options.decide` is for rules, which answer at once. A person is waited for between turns: `Turn.runOrPark`, decide,
 * `Turn.resume`. Where {@link Approvals} is in the context, every turn registers there what it holds, and takes decisions from there.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as SubscriptionRef from "effect/SubscriptionRef"
import * as ToolPolicy from "./ToolPolicy.ts"

/**
 * What a human is asked.
 *
 * **Details**
 *
 * - `arguments` are the encoded arguments that would run. They may be another's secret: show them to whoever decides, and log them nowhere.
 * - `requestedAt` and `expiresAt` are milliseconds since 1970.
 * - `problem` says why an earlier decision could not be used: edited arguments, or an answer, that do not fit the tool.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Request = Schema.Struct({
  tenant: Schema.String,
  conversation: Schema.optionalKey(Schema.String),
  principal: Schema.optionalKey(Schema.String),
  turn: Schema.String,
  position: Schema.Int,
  id: Schema.String,
  tool: Schema.String,
  arguments: Schema.Record(Schema.String, Schema.Unknown),
  digest: Schema.String,
  requestedAt: Schema.Number,
  expiresAt: Schema.optionalKey(Schema.Number),
  problem: Schema.optionalKey(Schema.String)
})

/**
 * What a human is asked.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Request = typeof Request.Type

/**
 * What may be decided.
 *
 * **Details**
 *
 * - `Approve`: the call runs as it was asked for. The handler finds `note` in `TurnContext.CurrentCall`.
 * - `Deny`: the call is answered `denied`, with the reason.
 * - `Edit`: the call runs with these arguments, which are decoded again.
 * - `Answer`: the call is answered with this result, in its encoded form, and is not run.
 *
 * @category schemas
 * @since 0.1.0
 * @stability experimental
 */
export const Decision = Schema.Union([
  Schema.Struct({ _tag: Schema.Literal("Approve"), note: Schema.optionalKey(Schema.String) }),
  Schema.Struct({ _tag: Schema.Literal("Deny"), reason: Schema.optionalKey(Schema.String) }),
  Schema.Struct({ _tag: Schema.Literal("Edit"), arguments: Schema.Record(Schema.String, Schema.Unknown) }),
  Schema.Struct({ _tag: Schema.Literal("Answer"), result: Schema.Unknown })
])

/**
 * What may be decided.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export type Decision = typeof Decision.Type

/**
 * Lets the call run as it was asked for.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const approve = (note?: string): Decision => note === undefined ? { _tag: "Approve" } : { _tag: "Approve", note }

/**
 * Refuses the call; the model is told the reason.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const deny = (reason?: string): Decision => reason === undefined ? { _tag: "Deny" } : { _tag: "Deny", reason }

/**
 * Lets the call run with other arguments, which are given in their encoded form.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const edit = (args: Record<string, unknown>): Decision => ({ _tag: "Edit", arguments: args })

/**
 * Answers the call in the tool's place, with a result in its encoded form.
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const answer = (result: unknown): Decision => ({ _tag: "Answer", result })

/**
 * A decision that was refused, for its sender.
 *
 * **Details**
 *
 * - `unknown`: no call of this turn and position has asked.
 * - `decided`: somebody decided before; the first decision stands.
 * - `settled`: the call has been answered meanwhile, by a stop or by its run.
 * - `expired`: the request was not decided in time.
 * - `changed`: the request is for other arguments by now.
 *
 * @category errors
 * @since 0.1.0
 * @stability experimental
 */
export class DecisionRefused extends Schema.TaggedError<DecisionRefused>()("DecisionRefused", {
  turn: Schema.String,
  position: Schema.Int,
  reason: Schema.Literals(["unknown", "decided", "settled", "expired", "changed"])
}) {
  override get message(): string {
    return `call #${this.position} of turn "${this.turn}": expected a request that waits for a decision, and ${
      words[this.reason]
    }`
  }
}

const words: Record<DecisionRefused["reason"], string> = {
  unknown: "there is none",
  decided: "it has been decided: the first decision stands",
  settled: "the call has its answer already",
  expired: "its time to be decided is over",
  changed: "it is for other arguments by now"
}

/**
 * For which call a decision is: a request itself will do. With a `digest` the decision is refused when the arguments have changed.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Place {
  readonly tenant: string
  readonly turn: string
  readonly position: number
  readonly digest?: string | undefined
}

/**
 * Whose calls need not be asked for again.
 *
 * **Details**
 *
 * `tool` and `tenant` are compared; `when` may look at the whole request. One that throws allows nothing.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Rule {
  readonly tool: string
  readonly tenant?: string | undefined
  readonly when?: ((request: Request) => boolean) | undefined
}

/**
 * Where requests wait for their decisions.
 *
 * **Details**
 *
 * - `pending` lists the requests that wait, the oldest first; `changes` is the same list, now and whenever it changes.
 * - `decide` decides one, or is refused with the reason.
 * - `always` lets calls that a rule names run from now on, those that wait included, until the rule is taken back with `revoke`: one with the same tool and
 *   tenant and the same function.
 * - `decided` waits until no call of a turn waits for a decision any more. Interrupting it changes nothing.
 * - `standing`, `ask` and `withdraw` are for turns: a turn takes the decision that stands, or asks, and withdraws what it has answered. What
 *   was taken is used up.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class Approvals extends Context.Service<Approvals, {
  readonly pending: Effect.Effect<ReadonlyArray<Request>>
  readonly changes: Stream.Stream<ReadonlyArray<Request>>
  readonly decide: (place: Place, decision: Decision) => Effect.Effect<void, DecisionRefused>
  readonly always: (rule: Rule) => Effect.Effect<void>
  readonly revoke: (rule: Rule) => Effect.Effect<void>
  readonly decided: (turn: { readonly tenant: string; readonly turn: string }) => Effect.Effect<void>
  /** How long a request may wait, in milliseconds. */
  readonly expires: number
  /** The decision that stands for exactly these arguments. */
  readonly standing: (place: Place) => Effect.Effect<Decision | undefined>
  /** Registers a request, and gives back the decision that stands for exactly this one, or that a rule gives. */
  readonly ask: (request: Request) => Effect.Effect<Decision | undefined>
  /** The call was answered: no decision on it is taken any more. */
  readonly withdraw: (place: Place) => Effect.Effect<void>
}>()("effect-turn/Approval/Approvals") {}

type State =
  | { readonly _tag: "waiting" }
  | { readonly _tag: "decided"; readonly decision: Decision }

interface Entry {
  readonly request: Request
  state: State
}

/** How many requests that were answered, or not in time, are remembered, so that a late decision is told why it is refused. */
const mostSettled = 10_000

/**
 * Requests and decisions in memory, for one process.
 *
 * **Details**
 *
 * `expires` is how long a request may wait, and how long its decision is good: what has not been decided and used by then is asked for
 * anew. Default: `"infinite"`: then a request that nobody decides, and whose turn is neither resumed nor abandoned, stays. `rules` are
 * allowed from the start.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layerMemory = (options?: {
  readonly expires?: ToolPolicy.Limit | undefined
  readonly rules?: ReadonlyArray<Rule> | undefined
}): Layer.Layer<Approvals> => {
  const expires = ToolPolicy.limitMillis("Approval.layerMemory", "expires", options?.expires ?? "infinite")
  return Layer.effect(
    Approvals,
    Effect.gen(function*() {
      const entries = new Map<string, Entry>()
      const settled = new Set<string>()
      const rules = new Set<Rule>(options?.rules)
      const list = yield* SubscriptionRef.make<ReadonlyArray<Request>>([])

      const waiting = (now: number): ReadonlyArray<Request> =>
        Array.from(entries.values()).flatMap(({ request, state }) =>
          state._tag === "waiting" && !isOver(request, now) ? [request] : []
        )
      // The list is made when its turn has come: of two changes at once the later one is told last.
      const changed = SubscriptionRef.updateEffect(list, () => Effect.map(Clock.currentTimeMillis, waiting))
      /** The oldest that are over are forgotten, never one that waits. */
      const settle = (key: string) => {
        entries.delete(key)
        settled.add(key)
        if (settled.size > mostSettled) settled.delete(settled.keys().next().value!)
      }
      const allowed = (request: Request): boolean => {
        for (const rule of rules) if (fits(rule, request)) return true
        return false
      }

      const decide = (place: Place, decision: Decision): Effect.Effect<void, DecisionRefused> =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          const refuse = (reason: DecisionRefused["reason"]) =>
            Effect.fail(new DecisionRefused({ turn: place.turn, position: place.position, reason }))
          const entry = entries.get(keyOf(place))
          if (entry === undefined) return refuse(settled.has(keyOf(place)) ? "settled" : "unknown")
          if (entry.state._tag === "decided") return refuse("decided")
          if (isOver(entry.request, now)) return refuse("expired")
          if (place.digest !== undefined && place.digest !== entry.request.digest) return refuse("changed")
          entry.state = { _tag: "decided", decision }
          return changed
        })

      const standing = (place: Place): Effect.Effect<Decision | undefined> =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          const key = keyOf(place)
          const entry = entries.get(key)
          if (entry?.state._tag !== "decided" || isOver(entry.request, now)) return Effect.succeed(undefined)
          if (place.digest !== undefined && entry.request.digest !== place.digest) return Effect.succeed(undefined)
          const { decision } = entry.state
          settle(key)
          return Effect.as(changed, decision)
        })

      const register = (request: Request): Effect.Effect<Decision | undefined> =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          const key = keyOf(request)
          const entry = entries.get(key)
          if (
            entry?.state._tag === "waiting" && request.problem === undefined &&
            entry.request.digest === request.digest && !isOver(entry.request, now)
          ) return Effect.succeed(undefined)
          if (request.problem === undefined && allowed(request)) return Effect.succeed(approve())
          settled.delete(key)
          entries.delete(key)
          // What nobody came back for is forgotten in the end.
          for (const [oldest, { request }] of entries) {
            if (entries.size < mostSettled || !isOver(request, now)) break
            entries.delete(oldest)
          }
          entries.set(key, {
            request: expires === Infinity || (request.expiresAt ?? 0) > now
              ? request
              : { ...request, expiresAt: now + expires },
            state: { _tag: "waiting" }
          })
          return Effect.as(changed, undefined)
        })

      const ask = (request: Request): Effect.Effect<Decision | undefined> =>
        request.problem === undefined
          ? Effect.flatMap(standing(request), (decision) =>
            decision === undefined ? register(request) : Effect.succeed(decision))
          : register(request)

      return {
        expires,
        standing,
        pending: Effect.map(Clock.currentTimeMillis, waiting),
        changes: Stream.switchMap(SubscriptionRef.changes(list), whileTheyWait),
        // What has been noted is told as well, whatever becomes of its sender.
        decide: (place, decision) => Effect.uninterruptible(decide(place, decision)),
        always: (rule) =>
          Effect.uninterruptible(Effect.suspend(() => {
            rules.add(rule)
            for (const entry of entries.values()) {
              if (entry.state._tag === "waiting" && entry.request.problem === undefined && fits(rule, entry.request)) {
                entry.state = { _tag: "decided", decision: approve() }
              }
            }
            return changed
          })),
        revoke: (rule) =>
          Effect.sync(() => {
            for (const one of rules) {
              if (one.tool === rule.tool && one.tenant === rule.tenant && one.when === rule.when) rules.delete(one)
            }
          }),
        decided: ({ tenant, turn }) => {
          const isOf = (request: Request) => request.tenant === tenant && request.turn === turn
          const check: Effect.Effect<void> = Effect.flatMap(Clock.currentTimeMillis, (now) => {
            const left = waiting(now).filter(isOf)
            if (left.length === 0) return Effect.void
            const change = Stream.runDrain(
              Stream.takeUntil(SubscriptionRef.changes(list), (requests) => requests.filter(isOf).length < left.length)
            )
            const first = Math.min(...left.map((request) => request.expiresAt ?? Infinity))
            return Effect.andThen(
              first === Infinity ? change : Effect.raceFirst(change, Effect.sleep(Math.max(1, first - now))),
              check
            )
          })
          return check
        },
        ask: (request) => Effect.uninterruptible(ask(request)),
        withdraw: (place) =>
          Effect.uninterruptible(Effect.suspend(() => {
            const key = keyOf(place)
            if (!entries.has(key)) return Effect.void
            settle(key)
            return changed
          }))
      }
    })
  )
}

const keyOf = ({ position, tenant, turn }: Place): string => JSON.stringify([tenant, turn, position])

/** These requests, and again what is left of them whenever one of them expires. */
const whileTheyWait = (requests: ReadonlyArray<Request>): Stream.Stream<ReadonlyArray<Request>> =>
  Stream.unwrap(Effect.map(Clock.currentTimeMillis, (now) => {
    const left = requests.filter((request) => !isOver(request, now))
    const first = Math.min(...left.map((request) => request.expiresAt ?? Infinity))
    if (first === Infinity) return Stream.make(left)
    const later = Stream.unwrap(
      Effect.as(Effect.sleep(Math.max(1, first - now)), Stream.suspend(() => whileTheyWait(left)))
    )
    return Stream.concat(Stream.make(left), later)
  }))

const isOver = (request: Request, now: number): boolean => request.expiresAt !== undefined && now >= request.expiresAt

const fits = (rule: Rule, request: Request): boolean => {
  if (rule.tool !== request.tool || (rule.tenant !== undefined && rule.tenant !== request.tenant)) return false
  try {
    return rule.when === undefined || rule.when(request) === true
  } catch {
    return false
  }
}
