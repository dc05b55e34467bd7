/**
 * The typed identity that runs through everything: on whose behalf, in which conversation, which turn, who
 * asked. Nested turns inherit it.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"

/**
 * On whose behalf a turn runs. Keys, per-tenant shares and records of one tenant never meet those of another.
 *
 * **Details**
 *
 * It is a service without a default: a backend made with `Backend.TenantService` asks for it, so that forgetting the
 * tenant does not compile. A turn that uses no per-tenant service runs for the tenant `"default"`.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class Tenant extends Context.Service<Tenant, string>()("effect-turn/Tenant") {}

/**
 * The conversation that a turn belongs to; `undefined` when the caller keeps none.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export const Conversation = Context.Reference<string | undefined>("effect-turn/Conversation", {
  defaultValue: () => undefined
})

/**
 * Who asked: a user, a service, another agent. Carried along, never interpreted.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export const Principal = Context.Reference<string | undefined>("effect-turn/Principal", {
  defaultValue: () => undefined
})

/**
 * The identity of one turn.
 *
 * **Details**
 *
 * `turn` is the id that the caller gave, or a random one: never a counter, so it is unique across processes. `parent`
 * names the call whose handler runs this turn, for nested turns.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Identity {
  readonly tenant: string
  readonly conversation: string | undefined
  readonly principal: string | undefined
  readonly turn: string
  readonly parent: { readonly turn: string; readonly position: number } | undefined
}

/**
 * What a handler can know of the call that it serves.
 *
 * **Details**
 *
 * `idempotencyKey` is set for writes that carry one: with `ToolPolicy.forward`, hand it to the backend. `attempt` counts from 1.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface CallContext {
  readonly identity: Identity
  readonly position: number
  readonly id: string
  readonly tool: string
  readonly attempt: number
  readonly idempotencyKey: string | undefined
  /** The words of whoever approved the call. */
  readonly approvalNote: string | undefined
  /**
   * Tells `heed` once when the call is told to stop, also where its handler is not interrupted for it; gives what takes it back.
   *
   * @internal
   */
  readonly onStop?: (heed: () => void) => () => void
}

/**
 * The call that the current fiber serves; `undefined` outside a handler.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export const CurrentCall = Context.Reference<CallContext | undefined>("effect-turn/CurrentCall", {
  defaultValue: () => undefined
})

/**
 * Makes the context of one identity, to be given with `Effect.provide`.
 *
 * **Example** (A turn for one tenant)
 *
 * ```ts import.meta.vitest
 * import { Effect } from "effect"
 * import { TurnContext } from "effect-turn"
 *
 * const program = TurnContext.Tenant.useSync((tenant) => tenant).pipe(
 *   Effect.provide(TurnContext.make({ tenant: "north", conversation: "c-17" }))
 * )
 * const tenant = Effect.runSync(program) // => "north"
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make = (identity: {
  readonly tenant: string
  readonly conversation?: string | undefined
  readonly principal?: string | undefined
}): Context.Context<Tenant> =>
  Context.make(Tenant, identity.tenant).pipe(
    Context.add(Conversation, identity.conversation),
    Context.add(Principal, identity.principal)
  )

/** A new id, random and never a counter, from numbers between 0 and 1.
 *
 * @internal
 */
export const newId = (kind: string, random: () => number): string => {
  let id = `${kind}_`
  const length = id.length + 22
  while (id.length < length) id += Math.floor(random() * 0x100000000).toString(36).padStart(7, "0")
  return id.slice(0, length)
}
