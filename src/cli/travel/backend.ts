/** The travel agent's backend: everything in memory, with the latencies of a real one. */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Backend from "../../Backend.ts"

/** The hotels' system takes two requests at a time, whoever asks. */
export class Hotels extends Backend.Service<Hotels>()("travel/Hotels") {}

export const Forecast = Schema.Struct({ city: Schema.String, celsius: Schema.Int, sky: Schema.String })

export const Flight = Schema.Struct({
  id: Schema.String,
  carrier: Schema.String,
  departs: Schema.String,
  euros: Schema.Int
})

export const Hotel = Schema.Struct({
  id: Schema.String,
  name: Schema.String,
  stars: Schema.Int,
  euros: Schema.Int,
  rooms_left: Schema.Int
})

export const Booking = Schema.Struct({
  reference: Schema.String,
  hotel: Schema.String,
  nights: Schema.Int,
  euros: Schema.Int
})

export class TravelError extends Schema.TaggedError<TravelError>()("TravelError", { reason: Schema.String }) {
  override get message(): string {
    return this.reason
  }
}

const hotels = (): Map<string, typeof Hotel.Type> =>
  new Map([
    ["LIS-1", { id: "LIS-1", name: "Hotel Alfama", stars: 4, euros: 120, rooms_left: 3 }],
    ["LIS-2", { id: "LIS-2", name: "Pensão Tejo", stars: 3, euros: 74, rooms_left: 1 }]
  ])

/** What the handlers talk to. */
export class Travel extends Context.Service<Travel>()("travel/Travel", {
  make: Effect.sync(() => {
    const rooms = hotels()
    const bookings = new Map<string, typeof Booking.Type>()
    const after = <A, E>(latency: number, answer: Effect.Effect<A, E>): Effect.Effect<A, E> =>
      Effect.andThen(Effect.sleep(latency), answer)
    const hotel = (id: string): Effect.Effect<typeof Hotel.Type, TravelError> =>
      Effect.suspend(() => {
        const found = rooms.get(id)
        return found === undefined ? Effect.fail(new TravelError({ reason: `no hotel ${id}` })) : Effect.succeed(found)
      })
    /** One booking for each key, however often it is asked for. */
    const book = Effect.fnUntraced(function*(id: string, nights: number, key: string) {
      const known = bookings.get(key)
      if (known !== undefined) return known
      const room = yield* hotel(id)
      if (room.rooms_left === 0) return yield* new TravelError({ reason: `${room.name} is full` })
      const reference = `H-${1000 + bookings.size}`
      const booking = { reference, hotel: room.name, nights, euros: nights * room.euros }
      rooms.set(id, { ...room, rooms_left: room.rooms_left - 1 })
      bookings.set(key, booking)
      return booking
    })
    return {
      forecast: (city: string) => after(180, Effect.succeed({ city, celsius: 19, sky: "clear" })),
      flights: after(
        420,
        Effect.succeed([
          { id: "TP-441", carrier: "TAP", departs: "2026-05-04T07:15", euros: 138 },
          { id: "FR-207", carrier: "Ryanair", departs: "2026-05-04T21:40", euros: 61 }
        ])
      ),
      hotels: after(350, Effect.sync(() => Array.from(rooms.values()))),
      hotel: (id: string) => after(240, hotel(id)),
      book: (id: string, nights: number, key: string) => after(480, book(id, nights, key)),
      table: after(150, Effect.fail(new TravelError({ reason: "fully booked at 20:00" }))),
      bookings: after(90, Effect.sync(() => Array.from(bookings.values())))
    }
  })
}) {
  static readonly layer = Layer.effect(Travel, Travel.make)
}
