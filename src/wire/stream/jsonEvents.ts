/** JSON objects out of a text that comes in pieces: one after another, or the items of lists. */
import * as Result from "effect/Result"
import * as TurnError from "../../TurnError.ts"
import * as Dialect from "../Dialect.ts"

export type Read = Result.Result<unknown, TurnError.TurnError>

/** More characters than any event has. */
export const mostCharacters = 64 * 1024 * 1024

export class JsonEvents {
  private readonly dialect: string
  /** Pieces of the object that is not whole. */
  private pending: Array<string> = []
  private length = 0
  private depth = 0
  private inString = false
  private escaped = false
  private inList = false
  private count = 0
  private broken = false

  constructor(dialect: string) {
    this.dialect = dialect
  }

  push(text: string): ReadonlyArray<Read> {
    const read: Array<Read> = []
    let start = 0
    for (let at = 0; at < text.length && !this.broken; at++) {
      const char = text[at]!
      if (this.depth === 0) {
        start = at
        if (!this.between(char)) read.push(this.refuse("a JSON object", TurnError.show(text.slice(at, at + 100))))
      } else if (this.inString) {
        if (this.escaped) this.escaped = false
        else if (char === "\\") this.escaped = true
        else if (char === '"') this.inString = false
      } else if (char === '"') this.inString = true
      else if (char === "{" || char === "[") this.depth++
      else if ((char === "}" || char === "]") && --this.depth === 0) {
        read.push(this.whole(text.slice(start, at + 1)))
      }
    }
    if (this.depth > 0 && !this.broken) {
      this.pending.push(text.slice(start))
      this.length += text.length - start
      if (this.length > mostCharacters) read.push(this.refuse(`at most ${mostCharacters} characters`, `${this.length}`))
    }
    return read
  }

  /** What stands between objects. */
  private between(char: string): boolean {
    if (char === "{") this.depth = 1
    else if (char === "[" && !this.inList) this.inList = true
    else if (char === "]" && this.inList) this.inList = false
    else return /\s/.test(char) || (char === "," && this.inList)
    return true
  }

  private whole(last: string): Read {
    this.pending.push(last)
    const text = this.pending.join("")
    this.pending = []
    this.length = 0
    try {
      const value: unknown = JSON.parse(text)
      this.count++
      return Result.succeed(value)
    } catch {
      return this.refuse("JSON", TurnError.show(text))
    }
  }

  private refuse(expected: string, received: string): Read {
    this.broken = true
    return Dialect.refuse(this.dialect, `events[${this.count}]`, expected, received)
  }
}
