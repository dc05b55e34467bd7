/**
 * Generated scenarios: tools with policies of all kinds, behaviours, backends, calls and stops, and nothing expected, so that the
 * rules that always hold are what is checked. They shrink towards few calls of plain tools.
 *
 * @since 0.1.0
 */
import * as Arbitrary from "effect/Arbitrary"
import { int, pick } from "../turnCase/generate.ts"
import type * as Form from "./schema.ts"

type Some<A> = Arbitrary.Arbitrary<A>

/** A member that is there in one of `oneIn` cases. */
const maybe = <A>(oneIn: number, some: Some<A>): Some<A | undefined> =>
  Arbitrary.flatMap(
    int(0, oneIn - 1),
    (n): Some<A | undefined> => n === oneIn - 1 ? some : Arbitrary.Constant(undefined)
  )

/** A member that is missing in one of `oneIn` cases. */
const mostly = <A>(oneIn: number, some: Some<A>): Some<A | undefined> =>
  Arbitrary.flatMap(
    int(0, oneIn - 1),
    (n): Some<A | undefined> => n === oneIn - 1 ? Arbitrary.Constant(undefined) : some
  )

/** The object without the members that are undefined. */
const present = (object: object): any =>
  Object.fromEntries(Object.entries(object).filter(([, value]) => value !== undefined))

const members = (of: { readonly [name: string]: Some<unknown> }): Some<any> => Arbitrary.map(Arbitrary.all(of), present)

const time = pick([10, 0, 5, 15, 20, 25, 30, 35])

const names = ["a", "b", "c", "d", "e"]

const call = (of: ReadonlyArray<string>): Some<Form.Call> =>
  Arbitrary.map(
    Arbitrary.all({
      name: pick(of),
      odd: int(0, 40),
      k: int(0, 2),
      n: maybe(3, int(0, 1))
    }),
    ({ k, n, name, odd }) => ({
      id: odd === 40 ? "" : odd === 39 ? "same" : `${name}${k}`,
      name: odd === 38 ? "nobody" : name,
      arguments: n === undefined ? { k } : { k, n }
    })
  )

/** Calls with ids of their own, where they are not odd. */
const calls = (of: ReadonlyArray<string>, maxLength: number): Some<ReadonlyArray<Form.Call>> =>
  Arbitrary.map(
    Arbitrary.array(call(of), { minLength: 1, maxLength }),
    (all) => all.map((one, i) => one.id === "" || one.id === "same" ? one : { ...one, id: `c${i}` })
  )

const types = [
  "ok",
  "ok",
  "ok",
  "ok",
  "fail",
  "failUnknown",
  "failAfterEffect",
  "throw",
  "selfInterrupt",
  "hang",
  "rateLimited"
] as const

const behaviour = (nests: boolean): Some<Form.Behaviour> =>
  Arbitrary.flatMap(
    pick<typeof types[number] | "callsTools">(nests ? [...types, "callsTools", "callsTools"] : types),
    (type) =>
      members({
        type: Arbitrary.Constant(type),
        latencyMs: time,
        effectAtMs: maybe(3, time),
        ignoresInterrupt: maybe(5, Arbitrary.Constant(true)),
        thrown: Arbitrary.Constant(type === "throw" ? "x" : undefined),
        untilMs: type === "rateLimited" ? time : Arbitrary.Constant(undefined),
        retryAfterMs: type === "rateLimited" ? time : Arbitrary.Constant(undefined),
        // Only the first tool runs others, so that no turn goes down for ever.
        calls: type === "callsTools" ? calls(names.slice(1), 3) : Arbitrary.Constant(undefined)
      })
  )

const keys = [["k:{k}"], [], ["f:/a/{k}"], ["f:/a"], ["k:{k}", "f:/b/{n}"]]

const tool = (nests: boolean): Some<Form.Tool> =>
  members({
    access: pick(["read", "write"]),
    keys: mostly(6, pick(keys)),
    backend: maybe(2, pick(["narrow", "shared", "unbounded"])),
    timeoutMs: maybe(4, pick([20, 5, 10, 15, 25, 30])),
    queueTimeoutMs: maybe(5, pick([20, 5, 10, 30, 50])),
    idempotency: maybe(2, pick(["forward", "record"])),
    // Calls that differ in `n` alone have one key where it is made of `k`.
    idempotencyKey: maybe(4, Arbitrary.Constant("{k}")),
    retry: maybe(4, members({ max: int(0, 2), delayMs: maybe(2, time), jitter: maybe(3, Arbitrary.Constant(true)) })),
    repeatable: maybe(10, Arbitrary.Constant(true)),
    approval: maybe(12, Arbitrary.Constant(true)),
    behaviour: Arbitrary.flatMap(int(0, 4), (n): Some<unknown> =>
      n === 4 ? Arbitrary.array(behaviour(nests), { minLength: 2, maxLength: 2 }) : behaviour(nests))
  })

/** What a list does with requests. */
const list: Some<Form.Tool> = members({
  access: Arbitrary.Constant("read"),
  keys: Arbitrary.Constant([]),
  backend: maybe(2, pick(["narrow", "shared"])),
  timeoutMs: maybe(6, pick([20, 5, 10, 15])),
  behaviour: members({
    type: Arbitrary.Constant("items"),
    latencyMs: time,
    ignoresInterrupt: maybe(6, Arbitrary.Constant(true)),
    missing: maybe(4, Arbitrary.Constant([{ k: 0 }])),
    failing: maybe(5, Arbitrary.Constant([{ k: 1 }])),
    shuffled: maybe(3, Arbitrary.Constant(true)),
    short: maybe(8, Arbitrary.Constant(true))
  })
})

/** A tool as one that is merged into the list. */
const merged = (said: Form.Tool, batch: NonNullable<Form.Tool["batch"]>): Form.Tool => {
  const { behaviour: _, idempotency: __, idempotencyKey: ___, ...rest } = said
  return { ...rest, access: "read", batch }
}

const event = (ids: ReadonlyArray<string>): Some<Form.Event> =>
  Arbitrary.map(
    Arbitrary.all({
      type: pick(["cancelTurn", "interrupt", "cancelCall", "approve", "deny", "crash"]),
      atMs: time,
      id: pick(ids)
    }),
    ({ atMs, id, type }) =>
      type === "cancelTurn" || type === "interrupt" || type === "crash" ? { type, atMs } : { type, atMs, id }
  )

const turn = (maxCalls: number): Some<Form.Turn> =>
  Arbitrary.flatMap(calls(names, maxCalls), (all) =>
    members({
      calls: Arbitrary.Constant(all),
      tenant: maybe(3, pick(["north", "south"])),
      startAtMs: maybe(3, time),
      events: maybe(2, Arbitrary.array(event(all.map(({ id }) => id)), { minLength: 1, maxLength: 2 }))
    }))

const policy = (hangs: boolean): Some<NonNullable<Form.Scenario["policy"]>> => {
  const limit = <A>(oneIn: number, some: Some<A>): Some<A | undefined> => (hangs ? some : maybe(oneIn, some))
  return members({
    siblings: maybe(3, Arbitrary.Constant("failFast")),
    execution: maybe(3, pick(["sequential", 1, 2, 3])),
    dedupe: maybe(3, pick(["reads", "off"])),
    // What hangs is ended by a deadline, and what is deaf to it by a grace.
    deadlineMs: limit(3, pick([50, 20, 30, 100])),
    graceMs: limit(3, pick([10, 0, 1, 5, 30]))
  })
}

/** The list is there where a tool is merged into it. */
const withList = (tools: Record<string, Form.Tool>, list: Form.Tool): Record<string, Form.Tool> =>
  Object.values(tools).some(({ batch }) => batch !== undefined) ? { ...tools, list } : tools

/** Scenarios of up to so many turns, and so many calls in each. */
export const scenario = (maxTurns: number, maxCalls: number): Some<Form.Scenario> =>
  Arbitrary.flatMap(
    Arbitrary.all({
      plain: Arbitrary.all(names.map((_, index) => tool(index === 0))),
      // The last two are merged into one list, in one of five.
      batch: maybe(
        5,
        members({ into: Arbitrary.Constant("list"), windowMs: maybe(2, time), maxSize: maybe(2, int(1, 3)) })
      ),
      list
    }),
    ({ batch, list, plain }) => {
      const tools = plain.map((one, i) => batch !== undefined && i >= names.length - 2 ? merged(one, batch) : one)
      const hangs = JSON.stringify(tools).includes('"hang"')
      return Arbitrary.map(
        Arbitrary.all({
          policy: policy(hangs),
          narrow: members({ concurrency: int(1, 2), queueLimit: maybe(4, int(0, 2)) }),
          shared: members({
            concurrency: int(1, 3),
            perTenant: int(1, 2),
            rate: maybe(5, members({ limit: int(1, 3), windowMs: pick([10, 5, 25]) }))
          }),
          given: Arbitrary.array(turn(maxCalls), { minLength: 1, maxLength: maxTurns }),
          concurrent: pick([false, true]),
          resumed: int(0, 1)
        }),
        ({ concurrent, given, narrow, policy, resumed, shared }): Form.Scenario => {
          // What was held goes on, as far as it was decided.
          const turns = resumed === 1 && !concurrent
            ? given.flatMap((one) => [one, present({ resume: true, tenant: one.tenant })])
            : given
          const used = JSON.stringify(turns) + JSON.stringify(tools)
          return {
            name: "generated",
            why: "The rules hold whatever happens.",
            // A tool that nobody calls is not shown.
            tools: withList(
              Object.fromEntries(
                names.map((name, i) => [name, tools[i]!] as const).filter(([name], i) =>
                  i === 0 || used.includes(`"name":"${name}"`)
                )
              ),
              list
            ),
            backends: { narrow, shared },
            policy,
            turns,
            ...(concurrent ? { concurrent } : undefined),
            expect: {}
          }
        }
      )
    }
  )
