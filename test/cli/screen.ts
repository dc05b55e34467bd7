/** A terminal in a few lines: what stands on it after a program has written. Where it becomes narrower, lines are broken anew, as most do. */
import { displayWidth } from "effect/cli/CliOutput"

const segments = new Intl.Segmenter(undefined, { granularity: "grapheme" })

/** A row of the screen; `soft` where the next one goes on with its line. */
interface Row {
  text: Array<string>
  soft: boolean
}

export class Screen {
  rows: number
  columns: number
  cursor = true
  wrapping = true
  /** What was written in all, to look for what was there once. */
  written = ""
  private lines: Array<Row> = [{ text: [], soft: false }]
  private x = 0
  private y = 0
  private pending = ""

  constructor(rows: number, columns: number) {
    this.rows = rows
    this.columns = columns
  }

  /** All lines, those above the screen included, without blanks at their ends. */
  get all(): ReadonlyArray<string> {
    return this.lines.map(({ text }) => text.join("").trimEnd())
  }

  /** The lines that can be seen. */
  get seen(): ReadonlyArray<string> {
    return this.all.slice(-this.rows)
  }

  resize(rows: number, columns: number): void {
    const whole: Array<Array<string>> = []
    let at = 0
    let goesOn = false
    for (const [i, { soft, text }] of this.lines.entries()) {
      if (goesOn) whole.at(-1)!.push(...text)
      else whole.push([...text])
      goesOn = soft
      if (i === this.y) at = whole.length - 1
    }
    this.rows = rows
    this.columns = columns
    this.lines = []
    for (const [i, text] of whole.entries()) {
      if (i === at) this.y = this.lines.length
      do {
        this.lines.push({ text: text.splice(0, columns), soft: text.length > 0 })
      } while (text.length > 0)
    }
  }

  write(text: string): void {
    this.written += text
    let rest = this.pending + text
    this.pending = ""
    while (rest !== "") {
      const escape = /^\u001b\[([?\d;]*)([A-Za-z])/.exec(rest)
      if (escape !== null) {
        this.control(escape[1]!, escape[2]!)
        rest = rest.slice(escape[0].length)
      } else if (rest.startsWith("\u001b")) {
        if (rest.length > 20) throw new Error(`a sequence that this terminal does not have: ${JSON.stringify(rest)}`)
        this.pending = rest
        return
      } else if (rest.startsWith("\r")) {
        this.x = 0
        rest = rest.slice(1)
      } else if (rest.startsWith("\n")) {
        this.y++
        if (this.y === this.lines.length) this.lines.push({ text: [], soft: false })
        rest = rest.slice(1)
      } else {
        const plain = /^[^\u001b\r\n]+/.exec(rest)![0]
        for (const { segment } of segments.segment(plain)) this.put(segment)
        rest = rest.slice(plain.length)
      }
    }
  }

  private put(character: string): void {
    const width = displayWidth(character)
    if (this.x + width > this.columns) {
      if (this.wrapping) {
        this.lines[this.y]!.soft = true
        this.y++
        if (this.y === this.lines.length) this.lines.push({ text: [], soft: false })
        this.x = 0
      } else this.x = Math.max(0, this.columns - width)
    }
    const { text } = this.lines[this.y]!
    while (text.length < this.x) text.push(" ")
    text.splice(this.x, width, character, ...Array.from({ length: width - 1 }, () => ""))
    this.x += width
  }

  private control(values: string, kind: string): void {
    const n = Number(values === "" ? 1 : values)
    const row = this.lines[this.y]!
    if (kind === "A") {
      // The cursor does not leave the screen.
      this.y = Math.max(0, this.lines.length - this.rows, this.y - n)
    } else if (kind === "K") row.text = []
    else if (kind === "J") {
      row.text.length = Math.min(row.text.length, this.x)
      row.soft = false
      this.lines.length = this.y + 1
    } else if (kind === "h" || kind === "l") {
      if (values === "?25") this.cursor = kind === "h"
      else if (values === "?7") this.wrapping = kind === "h"
    } else if (kind !== "m") throw new Error(`a sequence that this terminal does not have: ESC[${values}${kind}`)
  }
}
