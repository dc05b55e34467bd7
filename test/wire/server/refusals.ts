/** What the rules of all four providers share. */

/** A plain object of JSON. */
export const isObject = (value: unknown): value is Record<string, any> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** The first refusal, which is the one that a provider answers with. */
export const first = (refusals: Iterable<string>): string | undefined => {
  for (const refusal of refusals) return refusal
  return undefined
}

/** Fields that a request may not have, by path. */
export const unknownFields = (value: Record<string, any>, known: ReadonlyArray<string>): ReadonlyArray<string> =>
  Object.keys(value).filter((key) => !known.includes(key))

/**
 * A half of a surrogate pair, which no UTF-8 text can hold: providers refuse the whole body ("The request body is not valid
 * JSON: no low surrogate in string"). Keys count as well.
 */
export const hasLoneSurrogate = (value: unknown): boolean => {
  if (typeof value === "string") return !value.isWellFormed()
  if (Array.isArray(value)) return value.some(hasLoneSurrogate)
  return isObject(value) && Object.entries(value).some(([key, field]) => !key.isWellFormed() || hasLoneSurrogate(field))
}

/** The text as one JSON object, or nothing. */
export const objectOf = (text: unknown): Record<string, any> | undefined => {
  if (typeof text !== "string") return undefined
  try {
    const value: unknown = JSON.parse(text)
    return isObject(value) ? value : undefined
  } catch {
    return undefined
  }
}
