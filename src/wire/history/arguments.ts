/** Arguments as they may go into a history: one JSON object, in the way that a provider writes it. */
import * as Dialect from "../Dialect.ts"
import type { Report } from "./view.ts"

/** The arguments, as they came where they are one JSON object, written in this way. */
export const checkedArguments = (
  given: unknown,
  way: "text" | "object",
  name: string,
  path: string,
  report: Report
): unknown => {
  const fits = way === "text" ? typeof given === "string" && isObjectText(given) : Dialect.isRecord(given)
  if (fits) return given
  const kept = Dialect.argumentsOf({ id: "", name, arguments: given })
  const told = given == null || (typeof given === "string" && given.trim() === "")
    ? "nothing"
    : isObject(given)
    ? way === "text" ? "an object and not its text" : "text and not an object"
    : "no JSON object"
  report(
    "arguments",
    told === "no JSON object" ? "loss" : "refused",
    path,
    `the arguments of ${name} are ${told}`,
    told === "no JSON object" || told === "nothing" ? "they are written as {}" : `they are written as ${way}`
  )
  return way === "text" ? JSON.stringify(kept) : kept
}

const isObject = (given: unknown): boolean => typeof given === "string" ? isObjectText(given) : Dialect.isRecord(given)

const isObjectText = (text: string): boolean => {
  try {
    return Dialect.isRecord(JSON.parse(text))
  } catch {
    return false
  }
}
