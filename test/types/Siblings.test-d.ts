// What must not compile is left floating on purpose.
// @effect-diagnostics floatingEffect:off
// @effect-diagnostics missingEffectError:off
import { type Backend, Siblings, type TurnContext } from "effect-turn"
import type * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import { describe, expectTypeOf, it } from "vitest"

const number = Effect.succeed(1)
const text = Effect.fail("no")
declare const cancel: Effect.Effect<void, never, Backend.Backend>
declare const needs: Effect.Effect<boolean, Error, TurnContext.Tenant>

type Settled<A, E> = Siblings.Settled<A, E>

describe("Siblings.all", () => {
  it("gives a tuple for a tuple", () => {
    expectTypeOf(Siblings.all([number, text, needs], Siblings.letFinish)).toEqualTypeOf<
      Effect.Effect<
        [Settled<number, never>, Settled<never, string>, Settled<boolean, Error>],
        never,
        TurnContext.Tenant
      >
    >()
    expectTypeOf(Siblings.all([], Siblings.letFinish)).toEqualTypeOf<Effect.Effect<[], never, never>>()
  })

  it("gives a struct for a struct", () => {
    expectTypeOf(Siblings.all({ a: number, b: needs }, Siblings.failFast)).toEqualTypeOf<
      Effect.Effect<{ a: Settled<number, never>; b: Settled<boolean, Error> }, never, TurnContext.Tenant>
    >()
  })

  it("gives an array for any other iterable", () => {
    expectTypeOf(Siblings.all(new Set([number]), Siblings.failFast)).toEqualTypeOf<
      Effect.Effect<Array<Settled<number, never>>>
    >()
    const list: ReadonlyArray<typeof needs> = []
    expectTypeOf(Siblings.all(list, Siblings.failFast)).toEqualTypeOf<
      Effect.Effect<Array<Settled<boolean, Error>>, never, TurnContext.Tenant>
    >()
  })

  it("is the same data-last", () => {
    expectTypeOf(Siblings.all(Siblings.letFinish, { concurrency: 2 })([number, text])).toEqualTypeOf<
      Effect.Effect<[Settled<number, never>, Settled<never, string>], never, never>
    >()
    expectTypeOf(pipe({ a: number, b: needs }, Siblings.all(Siblings.failFast))).toEqualTypeOf<
      Effect.Effect<{ a: Settled<number, never>; b: Settled<boolean, Error> }, never, TurnContext.Tenant>
    >()
  })

  it("a predicate is asked about the members' failures, and about no others", () => {
    const fatal = Siblings.failFastWhen((cause: Cause.Cause<string>) => cause.reasons.length > 0)
    Siblings.all([number, text], fatal)
    Siblings.all(fatal)([number, text])
    // @ts-expect-error: this member fails with an Error, which the predicate does not take
    Siblings.all([number, needs], fatal)
    // @ts-expect-error: the same, data-last
    Siblings.all(fatal)([number, needs])
  })

  it("does not take what is no effect, nor a policy that is none", () => {
    // @ts-expect-error: a number is no effect
    Siblings.all([1], Siblings.letFinish)
    // @ts-expect-error: a text is no policy
    Siblings.all([number], "letFinish")
    // @ts-expect-error: concurrency is a number or "unbounded"
    Siblings.all([number], Siblings.letFinish, { concurrency: "many" })
  })
})

describe("Siblings.getOrFail", () => {
  it("gives the values, and fails as the members do", () => {
    const all = Siblings.all([number, text, needs], Siblings.letFinish)
    expectTypeOf(Effect.flatMap(all, Siblings.getOrFail)).toEqualTypeOf<
      Effect.Effect<[number, never, boolean], string | Error, TurnContext.Tenant>
    >()
    const struct = Siblings.all({ a: number, b: needs }, Siblings.letFinish)
    expectTypeOf(Effect.flatMap(struct, Siblings.getOrFail)).toEqualTypeOf<
      Effect.Effect<{ a: number; b: boolean }, Error, TurnContext.Tenant>
    >()
  })
})

describe("Siblings.allOrNothing", () => {
  const book = Siblings.undoable(needs, (value) => {
    expectTypeOf(value).toEqualTypeOf<boolean>()
    return Effect.fail(404 as const)
  })
  const look = Siblings.nothingToUndo(text)

  it("undoable: the services of the undo are the member's, and what it fails with is in the answer", () => {
    expectTypeOf(book).toEqualTypeOf<Siblings.Undoable<boolean, Error, 404, TurnContext.Tenant>>()
    expectTypeOf(Siblings.undoable(needs, () => cancel)).toEqualTypeOf<
      Siblings.Undoable<boolean, Error, never, TurnContext.Tenant | Backend.Backend>
    >()
    const last = needs.pipe(Siblings.undoable((value) => Effect.fail(value)))
    expectTypeOf(last).toEqualTypeOf<Siblings.Undoable<boolean, Error, boolean, TurnContext.Tenant>>()
    expectTypeOf(Siblings.all([book, look], Siblings.allOrNothing)).toEqualTypeOf<
      Effect.Effect<
        [Siblings.SettledOrUndone<boolean, Error, 404>, Settled<never, string>],
        never,
        TurnContext.Tenant
      >
    >()
    expectTypeOf(pipe({ book, look }, Siblings.all(Siblings.allOrNothing, { concurrency: 1 }))).toEqualTypeOf<
      Effect.Effect<
        { book: Siblings.SettledOrUndone<boolean, Error, 404>; look: Settled<never, string> },
        never,
        TurnContext.Tenant
      >
    >()
    const list: ReadonlyArray<typeof book | typeof look> = []
    expectTypeOf(Siblings.all(new Set(list), Siblings.allOrNothing)).toEqualTypeOf<
      Effect.Effect<
        Array<Siblings.SettledOrUndone<boolean, Error, 404> | Settled<never, string>>,
        never,
        TurnContext.Tenant
      >
    >()
  })

  it("a member that does not say what undoes it does not compile", () => {
    // @ts-expect-error: nobody has said how to undo a number
    Siblings.all([book, number], Siblings.allOrNothing)
    // @ts-expect-error: the same in a struct
    Siblings.all({ book, number }, Siblings.allOrNothing)
    // @ts-expect-error: the same, data-last
    Siblings.all(Siblings.allOrNothing)([book, number])
    // @ts-expect-error: a policy that undoes is none of those that do not
    const policy: Siblings.Policy = Siblings.allOrNothing
    void policy
    // @ts-expect-error: it undoes another value
    Siblings.undoable(number, (value: string) => Effect.succeed(value))
  })

  it("under other policies it is a member as any other", () => {
    expectTypeOf(Siblings.all([book], Siblings.failFast)).toEqualTypeOf<
      Effect.Effect<[Settled<boolean, Error>], never, TurnContext.Tenant>
    >()
  })

  it("getOrFail fails as the members do, and as their undos do", () => {
    expectTypeOf(Effect.flatMap(Siblings.all([book, look], Siblings.allOrNothing), Siblings.getOrFail)).toEqualTypeOf<
      Effect.Effect<[boolean, never], Error | string | 404, TurnContext.Tenant>
    >()
  })
})

it("protect keeps the effect's type", () => {
  expectTypeOf(Siblings.protect(needs)).toEqualTypeOf<typeof needs>()
  expectTypeOf<Backend.QueueFull>().toExtend<Error>()
})
