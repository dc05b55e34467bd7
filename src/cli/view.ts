/**
 * Shows a turn while it runs, on standard error: a line for each call that is rewritten in place on a terminal, a line
 * for each event anywhere else. Standard output is left to the result.
 */
import { displayWidth } from "effect/cli/CliOutput"
import * as Clock from "effect/Clock"
import * as Console from "effect/Console"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as Stdio from "effect/Stdio"
import * as Stream from "effect/Stream"
import type * as ToolCall from "../ToolCall.ts"
import type * as TurnEvent from "../TurnEvent.ts"
import * as Lines from "./lines.ts"
import * as Progress from "./progress.ts"
import { drawn, type Size, Sizes } from "./terminal.ts"
import { colours, type Paint, plain } from "./text.ts"

/** What the process may do with the terminal that standard error is, if it is one. */
export interface Screen {
  /** Lines may be rewritten. */
  readonly animated: boolean
  readonly paint: Paint
  /** As it is now; of 0 columns where there is no terminal. */
  readonly size: () => Size
}

/** Rewriting is for a terminal that can; colours are for one whose owner has not said no to them. */
export const screen: Effect.Effect<Screen, never, Stdio.Stdio> = Effect.gen(function*() {
  const stdio = yield* Stdio.Stdio
  const sizes = yield* Sizes
  const env = globalThis.process?.env ?? {}
  const terminal = yield* stdio.stderrIsTerminal
  const animated = terminal && env["TERM"] !== "dumb"
  return {
    animated,
    paint: animated && (env["NO_COLOR"] ?? "") === "" ? colours : plain,
    size: () => terminal ? sizes.stderr() : { columns: 0, rows: 0 }
  }
})

/** Colours for standard output, where it is a terminal whose owner has not said no to them. */
export const stdoutPaint: Effect.Effect<Paint> = Effect.gen(function*() {
  const { columns } = (yield* Sizes).stdout()
  const env = globalThis.process?.env ?? {}
  return columns > 0 && env["TERM"] !== "dumb" && (env["NO_COLOR"] ?? "") === "" ? colours : plain
})

/** A view of one turn: `onEvent` never waits and never throws. */
export interface View {
  readonly progress: Progress.Progress
  readonly onEvent: (event: TurnEvent.TurnEvent) => void
  /** A call of a response that streams, `undefined` where there are no more. */
  readonly onCall: (call: ToolCall.ToolCall | undefined) => void
  /** Says what a stop waits for, if for anything. */
  readonly onAwaited: Effect.Effect<void>
}

/** Opens the view of a turn; it is taken off the terminal when the scope closes. Without calls, they come while it runs. */
export const open = (
  calls: ReadonlyArray<ToolCall.ToolCall> | undefined,
  screen: Screen,
  options: Progress.Known & { readonly quiet: boolean }
): Effect.Effect<View, never, Scope.Scope | Stdio.Stdio> => {
  const progress = Progress.start(calls, { plan: options.plan, limits: options.limits })
  const onCall = (call: ToolCall.ToolCall | undefined) => Progress.list(progress, call)
  const onAwaited = Effect.suspend(() => {
    progress.awaits = true
    const words = Lines.awaited(progress)
    return words === undefined || screen.animated ? Effect.void : Console.error(words)
  })
  if (screen.animated) {
    return Effect.map(animate(progress, screen), (onEvent) => ({ progress, onEvent, onCall, onAwaited }))
  }
  if (options.quiet) {
    return Effect.succeed({ progress, onEvent: (event) => Progress.advance(progress, event), onCall, onAwaited })
  }
  return Effect.map(Console.Console, (console) => ({
    progress,
    onEvent: (event) => {
      Progress.advance(progress, event)
      const line = Lines.ofEvent(progress, event)
      if (line !== undefined) console.error(line)
    },
    onCall,
    onAwaited
  }))
}

const animate = (
  progress: Progress.Progress,
  screen: Screen
): Effect.Effect<View["onEvent"], never, Scope.Scope | Stdio.Stdio> =>
  Effect.gen(function*() {
    let opened: number | undefined
    yield* rewritten(screen, (now, { columns, rows }, tick) => {
      if (progress.origin === undefined) return undefined
      opened ??= now - progress.elapsed
      return Lines.live(progress, Math.max(progress.elapsed, now - opened), {
        width: columns,
        height: Math.max(1, rows - 3),
        tick,
        paint: screen.paint
      })
    })
    return (event) => Progress.advance(progress, event)
  })

/** Shows one line while something goes on, on a terminal alone. The line goes when the scope closes. */
export const line = (
  screen: Screen,
  text: (elapsed: number, width: number, tick: number) => string
): Effect.Effect<void, never, Scope.Scope | Stdio.Stdio> =>
  Effect.gen(function*() {
    if (!screen.animated) return
    const opened = yield* Clock.currentTimeMillis
    yield* rewritten(screen, (now, { columns }, tick) => [text(now - opened, columns, tick)])
  })

/** Lines that are drawn again and again in the same place, until the scope closes. */
const rewritten = (
  screen: Screen,
  linesOf: (now: number, size: Size, tick: number) => ReadonlyArray<string> | undefined
): Effect.Effect<void, never, Scope.Scope | Stdio.Stdio> =>
  Effect.gen(function*() {
    const stdio = yield* Stdio.Stdio
    const clock = yield* Clock.Clock
    const write = (text: string) =>
      Stream.run(Stream.succeed(text), stdio.stderr({ endOnDone: false })).pipe(Effect.ignore)
    let drawnWidths: ReadonlyArray<number> = []
    let tick = 0
    // Where the terminal has become narrower meanwhile, what was drawn takes more rows of it.
    const up = () => {
      const { columns } = screen.size()
      const height = drawnWidths.reduce(
        (sum, width) => sum + (columns > 0 ? Math.max(1, Math.ceil(width / columns)) : 1),
        0
      )
      return height === 0 ? "" : `\u001b[${height}A`
    }
    const draw = Effect.suspend(() => {
      const { columns, rows } = screen.size()
      const size = { columns: (columns > 0 ? columns : 80) - 1, rows: rows > 0 ? rows : 24 }
      const lines = linesOf(clock.currentTimeMillisUnsafe(), size, tick)
      if (lines === undefined) return Effect.void
      tick++
      const text = `${up()}${lines.map((line) => `\r\u001b[2K${line}\n`).join("")}\u001b[J`
      drawnWidths = lines.map((line) => displayWidth(line.replace(/\u001b\[[\d;]*m/g, "")))
      return write(text)
    })
    // No cursor and no wrapping while lines are rewritten; both come back in every case, and the lines go.
    yield* Effect.acquireRelease(
      write("\u001b[?25l\u001b[?7l"),
      () =>
        Effect.suspend(() => {
          drawn.putAway = undefined
          return write(`${up()}\r\u001b[J\u001b[?7h\u001b[?25h`)
        })
    )
    drawn.putAway = () => {
      const text = `${up()}\r\u001b[J`
      drawnWidths = []
      return text
    }
    yield* draw.pipe(Effect.andThen(Effect.sleep("80 millis")), Effect.forever, Effect.forkScoped)
  })
