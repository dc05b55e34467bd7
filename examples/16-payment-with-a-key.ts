/**
 * A payment with an idempotency key: the connection breaks after the money has moved, and the model calls again.
 *
 * The key is named by the author of the tool, from what makes two calls the same payment: the invoice. Two tools pay here, at two banks.
 * One bank honours keys (`ToolPolicy.forward`): the second call goes out with the same key, and the bank answers as it did at first. The
 * other takes no keys (`IdempotencyStore.record`): our own record says that this payment was begun, so the second call is not run. It is
 * answered `in_doubt` until somebody who can look at the account says what became of it.
 *
 * The records are in SQLite, which comes with Node.js: a file name instead of `:memory:` keeps them for the next process.
 */
import { Effect, Layer, pipe, Schema } from "effect"
import { Agent, IdempotencyKey, IdempotencyStore, Outcome, ToolPolicy, Turn, TurnContext, TurnStore } from "effect-turn"
import { FakeModel } from "effect-turn/testing"
import { Tool, Toolkit } from "effect/ai"
import { HttpClient, HttpClientError, HttpClientResponse } from "effect/http"

const Payment = Schema.Struct({ invoice: Schema.String, euros: Schema.Int })
const payment = <const Name extends string>(name: Name) =>
  pipe(
    Tool.make(name, { parameters: Payment, success: Schema.String, failure: Schema.String }),
    ToolPolicy.write({ keys: () => ["account"] })
  )
const byInvoice = ({ invoice }: typeof Payment.Type) => `invoice:${invoice}`

// With such a key a payment that failed may be tried again, and the model is told so.
const Pay = pipe(payment("pay"), ToolPolicy.forward(byInvoice), ToolPolicy.failures({ transient: () => true }))
const PayOldBank = pipe(payment("pay_old_bank"), IdempotencyStore.record(byInvoice))
const toolkit = Toolkit.make(Pay, PayOldBank)

/** A bank that pays, and breaks its first connection before it has answered. */
class Bank {
  readonly receipts: Array<string> = []
  private readonly byKey = new Map<string, string>()
  private requests = 0

  readonly client = HttpClient.make((request) =>
    Effect.suspend(() => {
      const key = request.headers["idempotency-key"]
      let receipt = key === undefined ? undefined : this.byKey.get(key)
      console.log(
        `  (${request.url}, key ${key ?? "none"}: ${
          receipt === undefined ? "money has moved" : "as it was answered before"
        })`
      )
      if (receipt === undefined) {
        receipt = `receipt ${this.receipts.length + 1}`
        this.receipts.push(receipt)
        if (key !== undefined) this.byKey.set(key, receipt)
      }
      const broken = new HttpClientError.TransportError({ request, description: "connection reset" })
      return ++this.requests === 1
        ? Effect.fail(new HttpClientError.HttpClientError({ reason: broken }))
        : Effect.succeed(HttpClientResponse.fromWeb(request, new Response(receipt)))
    })
  )
}
const bank = new Bank()
const oldBank = new Bank()

const payAt = (client: HttpClient.HttpClient, url: string) => ({ euros }: typeof Payment.Type) =>
  client.post(url, { urlParams: { euros } }).pipe(
    Effect.flatMap((response) => response.text),
    Effect.mapError(({ message }) => message)
  )
const tools = toolkit.toLayer({
  // The client sends the key of the call that it works for.
  pay: payAt(IdempotencyKey.withHeader(bank.client), "https://bank.example/payments"),
  pay_old_bank: payAt(oldBank.client, "https://old-bank.example/payments")
})

const paid = { invoice: "2031", euros: 40 }
const model = FakeModel.layer([
  FakeModel.calls([FakeModel.call(Pay, paid)]),
  FakeModel.calls([FakeModel.call(Pay, paid)], { text: "The connection broke, and it may be tried again." }),
  FakeModel.text("Invoice 2031 is paid."),
  FakeModel.calls([FakeModel.call(PayOldBank, paid)]),
  FakeModel.calls([FakeModel.call(PayOldBank, paid)], {
    text: "The connection broke. I try it again, which I was told not to."
  }),
  FakeModel.text("It is not known whether invoice 2031 was paid: please look."),
  FakeModel.calls([FakeModel.call(PayOldBank, paid)]),
  FakeModel.text("Invoice 2031 is paid.")
])

const ask = (prompt: string) =>
  Effect.gen(function*() {
    const { steps, text } = yield* Agent.run({ prompt, toolkit })
    for (const { outcomes } of steps) {
      for (const outcome of outcomes) {
        console.log(`  ${outcome.name}: ${JSON.stringify(Outcome.forModel(outcome).value)}`)
      }
    }
    console.log(`  the model says: ${text}`)
  })

const records = IdempotencyStore.layer().pipe(Layer.provide(TurnStore.layerSqlite({ filename: ":memory:" })))

const program = Effect.gen(function*() {
  const known = yield* IdempotencyStore.IdempotencyStore

  console.log("A bank that honours keys. Trying again is safe:")
  yield* ask("Pay invoice 2031.")
  console.log(`  payments made: ${bank.receipts.length}`)

  console.log("\nA bank that takes no keys. Nobody tries again:")
  yield* ask("Pay invoice 2031 at the old bank.")
  console.log(`  payments made: ${oldBank.receipts.length}`)

  console.log("\nWhat is in doubt is listed, and somebody looks at the account:")
  for (const { key, note } of yield* known.list({ state: "unknown" })) {
    console.log(`  ${key.tool} ${key.key}: ${note}`)
    const [receipt] = oldBank.receipts
    yield* known.resolve(key, receipt === undefined ? { _tag: "NotApplied" } : { _tag: "Applied", result: receipt })
  }

  console.log("\nNow the same call has its answer, and is not run:")
  yield* ask("I have looked. Go on.")
  console.log(`  payments made: ${oldBank.receipts.length}`)
})

await program.pipe(
  Effect.provide(Layer.mergeAll(tools, model, Turn.layer(), records)),
  Effect.provide(TurnContext.make({ tenant: "acme", conversation: "bills" })),
  Effect.runPromise
)
