/** The tool of example 11, as the model sees it: the program and its worker threads share this. */
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Schema from "effect/Schema"

export const SearchText = Tool.make("search_text", {
  description: "Finds the lines of a text that match a regular expression.",
  parameters: Schema.Struct({ pattern: Schema.String, text: Schema.String }),
  success: Schema.Array(Schema.String),
  failure: Schema.String
})

export const toolkit = Toolkit.make(SearchText)
