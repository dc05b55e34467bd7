/**
 * `effect-turn/wire`: providers' messages into calls, and outcomes into providers' messages, for programs that hold
 * their own client. Pure: nothing here runs anything.
 *
 * @since 0.1.0
 */

/** @since 0.1.0 */
export * as AnthropicMessages from "./AnthropicMessages.ts"

/** @since 0.1.0 */
export * as Dialect from "./Dialect.ts"

/** @since 0.1.0 */
export * as EventStream from "./EventStream.ts"

/** @since 0.1.0 */
export * as GeminiContents from "./GeminiContents.ts"

/** @since 0.1.0 */
export * as History from "./History.ts"

/** @since 0.1.0 */
export * as Neutral from "./Neutral.ts"

/** @since 0.1.0 */
export * as OpenAiChat from "./OpenAiChat.ts"

/** @since 0.1.0 */
export * as OpenAiResponses from "./OpenAiResponses.ts"

export {
  /** @since 0.1.0 */
  type AnyDialect,
  /** @since 0.1.0 */
  detect,
  /** @since 0.1.0 */
  dialects
} from "./Dialects.ts"
