/**
 * How long tools have taken so far. Of the calls of one turn that wait for the same backend, the one with the longest path below
 * it goes first, and a path is as long as its tools have been.
 *
 * Each runtime learns for itself, from the start of a handler to the end of its work, in turns in which a call could have to wait:
 * for a backend, or for the turn's own limit. A service of this kind in the context of a turn takes its place: one that several
 * processes share, or one that outlives them.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Layer from "effect/Layer"
import * as TurnError from "./TurnError.ts"

/**
 * What is known of the tools' times.
 *
 * **Details**
 *
 * A turn asks for each of its tools when two of its calls first wait in one line, and tells of each run that was not stopped, also
 * of one that failed or ran into its timeout. Neither may wait: both are plain functions. What they throw is dropped, and an answer
 * that is no time counts as none.
 *
 * @category services
 * @since 0.1.0
 * @stability experimental
 */
export class ToolDurations extends Context.Service<ToolDurations, {
  /** What a call of this tool is expected to take, in milliseconds; `undefined` when that is not known. */
  readonly expected: (tool: string) => number | undefined
  /** A call of this tool has taken so long, in milliseconds. */
  readonly observe: (tool: string, millis: number) => void
}>()("effect-turn/ToolDurations") {}

/**
 * What {@link make} and {@link layer} take.
 *
 * **Details**
 *
 * `capacity` is how many tools are remembered, the least recently used goes first. Default: 1,000. `memory` is how many of a
 * tool's last calls count: the older a call is, the less it weighs. Default: 10.
 *
 * @category models
 * @since 0.1.0
 * @stability experimental
 */
export interface Options {
  readonly capacity?: number | undefined
  readonly memory?: number | undefined
}

/** A time that has been taken or may be expected. */
const isTime = (millis: unknown): millis is number => typeof millis === "number" && millis >= 0 && millis < Infinity

/**
 * The expected time of a tool, whatever the service does.
 *
 * @internal
 */
export const expectedBy = (durations: ToolDurations["Service"], tool: string): number | undefined => {
  try {
    const millis = durations.expected(tool)
    return isTime(millis) ? millis : undefined
  } catch {
    return undefined
  }
}

interface Known {
  mean: number
  calls: number
}

/**
 * Makes an empty memory of tools' times: of each tool an exponentially weighted mean.
 *
 * **Details**
 *
 * What is no time, NaN or less than nothing, is ignored. Impossible options are thrown here, where they are written.
 *
 * **Example** (The mean of what was seen)
 *
 * ```ts import.meta.vitest
 * import { ToolDurations } from "effect-turn"
 *
 * const durations = ToolDurations.make()
 * durations.observe("search", 100)
 * durations.observe("search", 200)
 *
 * const search = durations.expected("search") // => 150
 * const book = durations.expected("book") // => undefined
 * ```
 *
 * @category constructors
 * @since 0.1.0
 * @stability experimental
 */
export const make = (options?: Options): ToolDurations["Service"] => empty(checked(options))

const checked = (options: Options | undefined) => {
  const owner = "the durations of tools"
  return {
    capacity: TurnError.wholeNumber(owner, "capacity", options?.capacity ?? 1000),
    memory: TurnError.wholeNumber(owner, "memory", options?.memory ?? 10)
  }
}

const empty = ({ capacity, memory }: ReturnType<typeof checked>): ToolDurations["Service"] => {
  // The least recently used stands first.
  const tools = new Map<string, Known>()
  let latest: string | undefined
  const use = (tool: string, known: Known) => {
    if (tool === latest) return
    latest = tool
    tools.delete(tool)
    tools.set(tool, known)
  }
  return {
    expected: (tool) => {
      const known = tools.get(tool)
      if (known === undefined) return undefined
      use(tool, known)
      return known.mean
    },
    observe: (tool, millis) => {
      if (!isTime(millis)) return
      const known = tools.get(tool)
      if (known === undefined) {
        if (tools.size >= capacity) {
          for (const oldest of tools.keys()) {
            tools.delete(oldest)
            break
          }
        }
        latest = tool
        tools.set(tool, { mean: millis, calls: 1 })
        return
      }
      use(tool, known)
      // The first few weigh the same.
      known.mean += (millis - known.mean) * Math.max(1 / memory, 1 / ++known.calls)
    }
  }
}

/**
 * A memory of tools' times that all turns below it share, whatever runtime they run on.
 *
 * @category layers
 * @since 0.1.0
 * @stability experimental
 */
export const layer = (options?: Options): Layer.Layer<ToolDurations> => {
  const limits = checked(options)
  return Layer.sync(ToolDurations, () => empty(limits))
}
