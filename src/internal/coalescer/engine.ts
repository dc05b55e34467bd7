/** What a coalescer does. */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type * as Coalescer from "../../Coalescer.ts"
import * as Errors from "../../Coalescer.ts"

export const makeCoalescer = (options: Coalescer.Options<any, any, any, any, any, any, any>) => {
  const keyText = options.keyText ?? ((key: unknown) => typeof key === "string" ? key : JSON.stringify(key))
  const request = (keys: ReadonlyArray<unknown>, about: Coalescer.Request, _callers: number) =>
    Effect.catch(
      Effect.map(options.lookup(keys as any, about), (answer) => {
        const found = new Map<string, Exit.Exit<unknown, unknown>>()
        const list = answer as ReadonlyMap<unknown, unknown>
        keys.forEach((key) => {
          const item = list.get(key)
          found.set(
            keyText(key),
            item === undefined
              ? Exit.fail(new Errors.ItemNotFound({ coalescer: "", key, message: "gone" }))
              : Exit.succeed(item)
          )
        })
        return found
      }),
      (error) =>
        Effect.succeed(
          new Map(
            keys.map((
              key
            ) => [keyText(key), Exit.fail(new Errors.RequestFailed({ coalescer: "", error, message: "x" }))])
          )
        )
    )
  const load = (key: unknown) =>
    Effect.flatMap(request([key], { tenant: "default" }, 1), (found) => found.get(keyText(key))!)
  return {
    name: options.name,
    window: 5,
    size: options.size ?? 10,
    timeout: 2000,
    load,
    loadAll: (keys: ReadonlyArray<unknown>) => Effect.forEach(keys, (key) => Effect.exit(load(key))),
    parts: { backend: options.backend, keyText, request, cached: () => undefined }
  }
}
