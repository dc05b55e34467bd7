/**
 * `effect-turn`: a runtime for the tool calls of one model turn. Every call gets exactly one outcome, conflicting calls keep
 * their order, limits are shared by all turns, and a stop waits for what it stops.
 *
 * The layers, lowest first. A module imports from lower layers alone, types included; the words know each other, the modules
 * of any other layer do not.
 *
 * - **words**, data and schemas: `ToolCall`, `Outcome`, `ToolPolicy`, `TurnContext`, `TurnError`, `TurnEvent`
 * - **pure**, decides and never runs: `TurnPlan`, `ResultBudget`, `TurnReport`, and the folder `wire/` (an entry of its own, `effect-turn/wire`)
 * - **store**, rows in a database: `TurnStore`
 * - **capabilities**, strangers to one another: `Siblings`, `Handler`, `Backend`, `ToolDurations`, `IdempotencyKey`,
 *   `IdempotencyStore`, `TurnJournal`, `ParkedTurns`, `Approval`, `TurnMiddleware`, `ArtifactStore`
 * - **lists**, many items in one request: `Coalescer`, `BatchTool`
 * - **turn**, the only module that knows them all: `Turn`
 * - **drivers**, around turns: `Agent`, `ProviderTurn`, `TurnTelemetry`, `TurnInsights`
 * - **hosts**, entries of their own: `index`, `testing/` (`effect-turn/testing`) and the program `cli/`
 *
 * @since 0.1.0
 */

/** @since 0.1.0 */
export * as Agent from "./Agent.ts"

/** @since 0.1.0 */
export * as Approval from "./Approval.ts"

/** @since 0.1.0 */
export * as ArtifactStore from "./ArtifactStore.ts"

/** @since 0.1.0 */
export * as Backend from "./Backend.ts"

/** @since 0.1.0 */
export * as BatchTool from "./BatchTool.ts"

/** @since 0.1.0 */
export * as Coalescer from "./Coalescer.ts"

/** @since 0.1.0 */
export * as Handler from "./Handler.ts"

/** @since 0.1.0 */
export * as IdempotencyKey from "./IdempotencyKey.ts"

/** @since 0.1.0 */
export * as IdempotencyStore from "./IdempotencyStore.ts"

/** @since 0.1.0 */
export * as Outcome from "./Outcome.ts"

/** @since 0.1.0 */
export * as ParkedTurns from "./ParkedTurns.ts"

/** @since 0.1.0 */
export * as ProviderTurn from "./ProviderTurn.ts"

/** @since 0.1.0 */
export * as ResultBudget from "./ResultBudget.ts"

/** @since 0.1.0 */
export * as Siblings from "./Siblings.ts"

/** @since 0.1.0 */
export * as ToolCall from "./ToolCall.ts"

/** @since 0.1.0 */
export * as ToolDurations from "./ToolDurations.ts"

/** @since 0.1.0 */
export * as ToolPolicy from "./ToolPolicy.ts"

/** @since 0.1.0 */
export * as Turn from "./Turn.ts"

/** @since 0.1.0 */
export * as TurnContext from "./TurnContext.ts"

/** @since 0.1.0 */
export * as TurnError from "./TurnError.ts"

/** @since 0.1.0 */
export * as TurnEvent from "./TurnEvent.ts"

/** @since 0.1.0 */
export * as TurnInsights from "./TurnInsights.ts"

/** @since 0.1.0 */
export * as TurnJournal from "./TurnJournal.ts"

/** @since 0.1.0 */
export * as TurnMiddleware from "./TurnMiddleware.ts"

/** @since 0.1.0 */
export * as TurnPlan from "./TurnPlan.ts"

/** @since 0.1.0 */
export * as TurnReport from "./TurnReport.ts"

/** @since 0.1.0 */
export * as TurnTelemetry from "./TurnTelemetry.ts"

/** @since 0.1.0 */
export * as TurnStore from "./TurnStore.ts"
