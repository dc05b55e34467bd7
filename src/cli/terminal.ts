/** The terminals: each stream is asked for its own size, since the other may be a file. */
import * as Context from "effect/Context"

/** Columns and rows; 0 where there is no terminal. */
export interface Size {
  readonly columns: number
  readonly rows: number
}

const sizeOf = (stream: { readonly columns?: number; readonly rows?: number }): Size => ({
  columns: stream.columns ?? 0,
  rows: stream.rows ?? 0
})

export const Sizes = Context.Reference<{ readonly stdout: () => Size; readonly stderr: () => Size }>(
  "effect-turn/cli/Sizes",
  {
    defaultValue: () => ({
      stdout: () => sizeOf(globalThis.process?.stdout ?? {}),
      stderr: () => sizeOf(globalThis.process?.stderr ?? {})
    })
  }
)

/** What is drawn on standard error at the moment; others who write there put it away first, and it is drawn again. */
export const drawn: { putAway: (() => string) | undefined } = { putAway: undefined }

/** Text of others, for a standard error that something may be drawn on, where lines are not wrapped. */
export const between = (text: string): string =>
  drawn.putAway === undefined ? text : `${drawn.putAway()}\u001b[?7h${text}\u001b[?7l`
