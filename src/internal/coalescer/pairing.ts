/**
 * Who gets what of an answer. Nobody is given a guess: what cannot be paired is told in words.
 */
import * as Equal from "effect/Equal"
import * as Exit from "effect/Exit"
import * as TurnError from "../../TurnError.ts"

/** How the errors of a coalescer are made, and what an item that failed by itself is known by. */
export interface Words {
  readonly notFound: (key: unknown) => unknown
  readonly failed: (error: unknown) => unknown
  readonly late: (millis: number) => unknown
  readonly invalid: (problem: string) => unknown
  /** The failure of an item, or undefined for an item. */
  readonly itemFailure: (item: unknown) => { readonly error: unknown } | undefined
}

/** What became of each key, in the order of the keys. */
export type Found = ReadonlyArray<Exit.Exit<any, any>>

/** An answer that is paired already, as resolvers give it. */
export class Paired {
  readonly exits: Found
  constructor(exits: Found) {
    this.exits = exits
  }
}

/** How keys are told apart. `plain`: by the default, so that keys which are texts are their own. */
export interface Keys {
  readonly text: (key: any) => string
  readonly plain: boolean
  readonly ofItem: ((item: any) => unknown) | undefined
}

/** Pairs an answer, or fails with what is wrong with all of it. */
export const pair = (
  keys: ReadonlyArray<unknown>,
  texts: ReadonlyArray<string>,
  answer: unknown,
  by: Keys,
  words: Words
): Exit.Exit<Found, any> => {
  if (answer instanceof Paired) return Exit.succeed(answer.exits)
  try {
    if (answer instanceof Map) return Exit.succeed(byMap(keys, texts, answer, by, words))
    if (Array.isArray(answer)) {
      return by.ofItem === undefined
        ? byPosition(keys, answer, words)
        : Exit.succeed(byItem(keys, texts, answer, by.ofItem, by, words))
    }
  } catch {
    return Exit.fail(words.invalid("the answer cannot be read"))
  }
  return Exit.fail(words.invalid(`expected a list or a Map as the answer, and got ${TurnError.show(answer)}`))
}

const exitOf = (key: unknown, item: unknown, words: Words): Exit.Exit<any, any> => {
  if (item === undefined) return Exit.fail(words.notFound(key))
  const failure = words.itemFailure(item)
  return failure === undefined ? Exit.succeed(item) : Exit.fail(failure.error)
}

const byPosition = (
  keys: ReadonlyArray<unknown>,
  items: ReadonlyArray<unknown>,
  words: Words
): Exit.Exit<Found, any> => {
  if (items.length !== keys.length) {
    return Exit.fail(words.invalid(
      `expected a list as long as the keys, ${keys.length}, and got ${items.length}: nobody can tell which is whose`
    ))
  }
  const found: Array<Exit.Exit<any, any>> = []
  for (let i = 0; i < keys.length; i++) found.push(exitOf(keys[i], items[i], words))
  return Exit.succeed(found)
}

/** Items by the text of their key. */
class Index {
  private readonly items = new Map<string, unknown>()
  private readonly doubtful = new Set<string>()

  add(text: string, item: unknown): void {
    if (!this.items.has(text)) this.items.set(text, item)
    else if (!Equal.equals(this.items.get(text), item)) this.doubtful.add(text)
  }

  /** What became of a key; `lost` tells why an item may be there that nobody can find. */
  exit(key: unknown, text: string, lost: string | undefined, words: Words): Exit.Exit<any, any> {
    if (this.doubtful.has(text)) {
      return Exit.fail(words.invalid(`the answer has two different items for ${TurnError.show(key)}`))
    }
    const item = this.items.get(text)
    return item === undefined && lost !== undefined ? Exit.fail(words.invalid(lost)) : exitOf(key, item, words)
  }
}

const byMap = (
  keys: ReadonlyArray<unknown>,
  texts: ReadonlyArray<string>,
  answer: ReadonlyMap<unknown, unknown>,
  by: Keys,
  words: Words
): Found => {
  if (by.plain && keys.every((key) => typeof key === "string")) {
    return keys.map((key) => exitOf(key, answer.get(key), words))
  }
  const index = new Index()
  for (const [key, item] of answer) {
    const text = textOf(by, key)
    if (text !== undefined && item !== undefined) index.add(text, item)
  }
  return keys.map((key, i) => index.exit(key, texts[i]!, undefined, words))
}

const byItem = (
  keys: ReadonlyArray<unknown>,
  texts: ReadonlyArray<string>,
  items: ReadonlyArray<unknown>,
  keyOf: (item: any) => unknown,
  by: Keys,
  words: Words
): Found => {
  const index = new Index()
  let lost: string | undefined
  for (const item of items) {
    if (item === undefined) continue
    if (words.itemFailure(item) !== undefined) {
      lost = "the answer has a failure in a list whose items are told by their keys: a failure has none, give a Map"
      continue
    }
    let text: string | undefined
    try {
      text = textOf(by, keyOf(item))
    } catch {
      text = undefined
    }
    if (text === undefined) lost = "the answer has an item whose key cannot be told"
    else index.add(text, item)
  }
  return keys.map((key, i) => index.exit(key, texts[i]!, lost, words))
}

/** Undefined for what is no key: nobody has asked for it. */
const textOf = (by: Keys, key: unknown): string | undefined => {
  try {
    const text: unknown = by.text(key)
    return typeof text === "string" ? text : undefined
  } catch {
    return undefined
  }
}
