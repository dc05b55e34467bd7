import { it } from "@effect/vitest"
import * as path from "node:path"
import { assertClean, root } from "./checks/report.ts"
import { checkSizes } from "./checks/size.ts"

/** Bytes after gzip. A budget changes in the commit that needs it, with a reason in the change log. */
const budgets = {
  Agent: 67_500,
  Approval: 3_000,
  ArtifactStore: 4_500,
  Backend: 7_500,
  BatchTool: 19_000,
  Coalescer: 9_500,
  Handler: 4_000,
  IdempotencyKey: 1_200,
  IdempotencyStore: 6_000,
  Outcome: 1_200,
  ParkedTurns: 4_500,
  ProviderTurn: 65_000,
  ResultBudget: 1_900,
  Siblings: 3_500,
  ToolCall: 600,
  ToolDurations: 1_500,
  ToolPolicy: 2_500,
  Turn: 67_500,
  TurnContext: 500,
  TurnError: 1_200,
  TurnEvent: 400,
  TurnInsights: 18_900,
  TurnJournal: 4_000,
  TurnMiddleware: 1_500,
  TurnPlan: 8_200,
  TurnReport: 21_500,
  TurnStore: 11_500,
  TurnTelemetry: 4_000,
  "testing/index": 118_500,
  "wire/index": 29_500
}

it("every public module keeps to its budget", async () =>
  assertClean(await checkSizes(path.join(root, "src"), budgets)))
