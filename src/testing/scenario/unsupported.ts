/**
 * What the format can say and this version of the library does not do. A file that needs it is not run, and its report says so.
 *
 * @since 0.1.0
 */
import type * as Form from "./schema.ts"

const not = (what: string, where: string): string => `this version does not run \`${what}\` (${where})`

/** What a file needs and is not there, before anything runs. @internal */
export const features = ({ policy }: Form.Scenario): Array<string> =>
  policy?.references === true ? [not("references", "policy")] : []
