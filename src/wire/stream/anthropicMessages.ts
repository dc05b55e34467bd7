/**
 * Streams of Anthropic's Messages. A content block is complete at its `content_block_stop`, the response with its stop reason.
 *
 * Of a response that broke off are kept: its complete blocks, text as far as it came, and calls with what came of their input, as raw
 * text. Not kept is what the API takes only whole: thinking without its signature, thinking behind which nothing came, and tools that
 * the provider runs and has not answered.
 */
import * as Result from "effect/Result"
import * as TurnError from "../../TurnError.ts"
import * as Dialect from "../Dialect.ts"
import { add, addFields, broke, endedWell, type Fields, isIndex, noEvent, over, Parts, text, without } from "./parts.ts"

const name = "Anthropic Messages"

interface Block {
  fields: Fields
  /** The text of its input, as far as it came. */
  json: string
  done: boolean
}

export const assembly = (): Dialect.Assembly => {
  let envelope: Fields = {}
  let usage: Fields = {}
  let started = false
  let isOver = false
  const blocks = new Parts<Block>()

  const blockAt = (event: Fields): Result.Result<Block, TurnError.TurnError> => {
    const block = isIndex(event.index) ? blocks.get(event.index) : undefined
    return block === undefined
      ? Dialect.refuse(name, "index", "the index of a content block that was started", TurnError.show(event.index))
      : Result.succeed(block)
  }

  const message = (content: ReadonlyArray<unknown>): Fields => ({
    type: "message",
    role: "assistant",
    stop_reason: null,
    ...envelope,
    ...(Object.keys(usage).length > 0 ? { usage } : undefined),
    content
  })

  const complete = (blocks: ReadonlyArray<Block>): unknown =>
    blocks.some(isCall) ? message(blocks.filter(isCall).map(finished)) : undefined

  const start = (event: Fields): Result.Result<undefined, TurnError.TurnError> => {
    if (started || !Dialect.isRecord(event.message)) {
      return Dialect.refuse(
        name,
        "type",
        "one message_start, with the message",
        started ? "a second one" : "no message"
      )
    }
    started = true
    // What a client library has put into it meanwhile is not of this event.
    envelope = { ...without(event.message, "content", "usage"), stop_reason: null }
    usage = Dialect.isRecord(event.message.usage) ? event.message.usage : {}
    return Result.succeed(undefined)
  }

  const startBlock = ({ content_block, index }: Fields): Result.Result<undefined, TurnError.TurnError> => {
    if (!isIndex(index) || blocks.get(index) !== undefined) {
      return Dialect.refuse(name, "index", "the index of a new content block", TurnError.show(index))
    }
    if (!Dialect.isRecord(content_block)) {
      return Dialect.refuse(name, "content_block", "a content block", TurnError.show(content_block))
    }
    blocks.set(index, { fields: content_block, json: "", done: false })
    return Result.succeed(undefined)
  }

  const pushDelta = (event: Fields): Result.Result<undefined, TurnError.TurnError> => {
    const { delta } = event
    const found = blockAt(event)
    if (Result.isFailure(found)) return Result.fail(found.failure)
    const block = found.success
    if (!Dialect.isRecord(delta)) return Dialect.refuse(name, "delta", "a delta", TurnError.show(delta))
    if (block.done) {
      return Dialect.refuse(name, "index", "a content block that has not ended", `${event.index}, which has`)
    }
    if (delta.type === "input_json_delta") block.json += text(delta.partial_json)
    else if (delta.type === "citations_delta") {
      block.fields = { ...block.fields, citations: add(block.fields.citations ?? [], [delta.citation]) }
    } else block.fields = addFields(block.fields, without(delta, "type"))
    return Result.succeed(undefined)
  }

  return {
    push: (event) => {
      if (!Dialect.isRecord(event)) return noEvent(name, event)
      switch (event.type) {
        case "message_start":
          return start(event)
        case "content_block_start":
          return startBlock(event)
        case "content_block_delta":
          return pushDelta(event)
        case "content_block_stop":
          return Result.map(blockAt(event), (block) => {
            block.done = true
            return complete(blocks.take())
          })
        case "message_delta": {
          const { delta, type: _, usage: counts, ...rest } = event
          envelope = over(over(envelope, rest), Dialect.isRecord(delta) ? delta : {})
          if (Dialect.isRecord(counts)) usage = over(usage, counts)
          if (envelope.stop_reason == null) return Result.succeed(undefined)
          isOver = true
          return Result.succeed(complete(blocks.rest()))
        }
        case "message_stop":
          isOver = true
          return Result.succeed(complete(blocks.rest()))
        case "error":
          return broke(name, event.error)
        default:
          // Pings, and kinds of events that are yet to come.
          return "error" in event ? broke(name, event.error) : Result.succeed(undefined)
      }
    },
    response: () => message(isOver ? blocks.all().map(finished) : kept(blocks.all())),
    isOver: () => isOver
  }
}

/** Calls of the client, and of tools that the provider runs. */
const isCall = (block: Block): boolean => /(^|_)tool_use$/.test(text(block.fields.type))

const finished = ({ fields, json }: Block): Fields => {
  const input = json.trim() === "" ? fields.input === "" ? {} : fields.input : parsed(json)
  return input === undefined ? fields : { ...fields, input }
}

/** Text that is no object stays as it came: the runtime says what is wrong with it. */
const parsed = (json: string): unknown => {
  try {
    const value: unknown = JSON.parse(json)
    return Dialect.isRecord(value) ? value : json
  } catch {
    return json
  }
}

const kept = (blocks: ReadonlyArray<Block>): ReadonlyArray<Fields> => {
  const isKept = ({ done, fields }: Block) =>
    done || fields.type === "tool_use" || (fields.type === "text" && text(fields.text).trim() !== "")
  const lost = new Set<unknown>(
    blocks.filter((block) => !isKept(block)).flatMap(({ fields: { id } }) => id === undefined ? [] : [id])
  )
  const whole = blocks.filter(isKept).map((block) => block.done ? finished(block) : endedWell(finished(block))).filter((
    { tool_use_id }
  ) => !lost.has(tool_use_id))
  const answered = new Set(whole.map(({ tool_use_id }) => tool_use_id))
  const closed = whole.filter(({ id, type }) => !text(type).endsWith("_tool_use") || answered.has(id))
  return closed.slice(0, closed.findLastIndex(({ type }) => !text(type).endsWith("thinking")) + 1)
}
