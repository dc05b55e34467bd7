/** How large the terminals are: each stream is asked for its own, since the other may be a file. */
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
