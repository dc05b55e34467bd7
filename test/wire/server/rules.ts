/**
 * What each provider refuses in a request, written from documentation, from the types of the vendors' SDKs and from error
 * messages that people met, not from the codecs: so that the two can disagree. Where a rule is not known it is strict, and says so.
 */
import { anthropic } from "./anthropicRules.ts"
import { chat } from "./chatRules.ts"
import { gemini } from "./geminiRules.ts"
import { responses } from "./responsesRules.ts"

/** Gives the provider's error message for the body of a request, or nothing where it takes it. */
export type Rule = (request: unknown) => string | undefined

export const rules = { chat, responses, anthropic, gemini } satisfies Record<string, Rule>

export type Provider = keyof typeof rules
