/**
 * The templates of a scenario file: resource keys and idempotency keys, filled from the arguments of a call.
 *
 * @since 0.1.0
 */
import type * as Form from "./schema.ts"

/** JSON with the members of objects sorted at every depth: equal values give equal texts. @internal */
export const canonical = (value: unknown): string => {
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "null"
  const members = Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonical((value as any)[name])}`)
  return `{${members.join(",")}}`
}

/** Whether two values are the same as JSON; what is not there is not null. @internal */
export const same = (a: unknown, b: unknown): boolean =>
  a === undefined || b === undefined ? a === b : canonical(a) === canonical(b)

const member = (value: unknown, name: string): unknown =>
  typeof value === "object" && value !== null && Object.hasOwn(value, name) ? (value as any)[name] : undefined

/** Fills `{name}` (or `{name.inner}`) from the arguments. A member that is not there leaves nothing. @internal */
export const fill = (template: string, params: unknown): string =>
  template.replace(/\{([^{}]+)\}/g, (_, path: string) => {
    const value = member(params, path) ?? path.split(".").reduce(member, params)
    return value === undefined ? "" : typeof value === "string" ? value : canonical(value)
  })

/**
 * The keys of a call as the file says them; `undefined` is unknown reach.
 *
 * @internal
 */
export const keysOf = (tool: Form.Tool, params: unknown): ReadonlyArray<string> | undefined =>
  tool.keys?.map((template) => fill(template, params))

/** Whether arguments have all members of `when`, with these values. @internal */
export const fits = (when: { readonly [name: string]: unknown } | undefined, args: unknown): boolean =>
  when === undefined || Object.entries(when).every(([name, value]) => same(member(args, name), value))

/**
 * What a call of a list tool asks for: the entries of its one list, or itself where it has none.
 *
 * @internal
 */
export const askedOf = (args: unknown): ReadonlyArray<unknown> => {
  const lists = typeof args === "object" && args !== null ? Object.values(args).filter(Array.isArray) : []
  return lists.length === 1 ? lists[0]! : [args]
}
