/** The travel agent's tools: what the model sees, and what it never sees (who touches what, on which backend). */
import * as Tool from "effect/ai/Tool"
import * as Toolkit from "effect/ai/Toolkit"
import * as Effect from "effect/Effect"
import { pipe } from "effect/Function"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as ToolPolicy from "../../ToolPolicy.ts"
import * as TurnContext from "../../TurnContext.ts"
import { Booking, Flight, Forecast, Hotel, Hotels, Travel, TravelError } from "./backend.ts"

const GetWeather = pipe(
  Tool.make("get_weather", {
    description: "The forecast for a city",
    parameters: Schema.Struct({ city: Schema.String }),
    success: Forecast
  }),
  ToolPolicy.read({ keys: () => [] })
)

const SearchFlights = pipe(
  Tool.make("search_flights", {
    description: "Flights from one city to another on a day",
    parameters: Schema.Struct({ from: Schema.String, to: Schema.String, day: Schema.String }),
    success: Schema.Array(Flight)
  }),
  ToolPolicy.read({ keys: () => ["flights"] })
)

const SearchHotels = pipe(
  Tool.make("search_hotels", {
    description: "Hotels of a city",
    parameters: Schema.Struct({ city: Schema.String }),
    success: Schema.Array(Hotel)
  }),
  ToolPolicy.read({ keys: () => ["hotels"] }),
  ToolPolicy.on(Hotels)
)

const GetHotel = pipe(
  Tool.make("get_hotel", {
    description: "One hotel, with the rooms it has left",
    parameters: Schema.Struct({ hotel_id: Schema.String }),
    success: Hotel,
    failure: TravelError
  }),
  ToolPolicy.read({ keys: ({ hotel_id }) => [`hotels/${hotel_id}`] }),
  ToolPolicy.on(Hotels)
)

const BookHotel = pipe(
  Tool.make("book_hotel", {
    description: "Book a room",
    parameters: Schema.Struct({ hotel_id: Schema.String, nights: Schema.Int }),
    success: Booking,
    failure: TravelError
  }),
  ToolPolicy.write({ keys: ({ hotel_id }) => [`hotels/${hotel_id}`, "bookings"] }),
  ToolPolicy.on(Hotels),
  ToolPolicy.forward(({ hotel_id, nights }, { turn }) => `${turn}/${hotel_id}/${nights}`)
)

const BookFlight = pipe(
  Tool.make("book_flight", {
    description: "Book a flight that search_flights has found",
    parameters: Schema.Struct({ flight_id: Schema.String }),
    success: Schema.String
  }),
  ToolPolicy.write({ keys: ({ flight_id }) => [`flights/${flight_id}`, "bookings"] })
)

const ReserveTable = pipe(
  Tool.make("reserve_table", {
    description: "Reserve a table in a restaurant",
    parameters: Schema.Struct({ restaurant: Schema.String, people: Schema.Int }),
    success: Schema.String,
    failure: TravelError
  }),
  ToolPolicy.write({ keys: ({ restaurant }) => [`tables/${restaurant}`] }),
  ToolPolicy.failures({ noEffect: () => true })
)

const ListBookings = pipe(
  Tool.make("list_bookings", {
    description: "Everything that is booked for this trip",
    success: Schema.Array(Booking)
  }),
  ToolPolicy.read({ keys: () => ["bookings"] })
)

const PayDeposit = pipe(
  Tool.make("pay_deposit", {
    description: "Pay a deposit with the customer's card",
    parameters: Schema.Struct({ euros: Schema.Int }),
    success: Schema.String,
    needsApproval: true
  }),
  ToolPolicy.write({ keys: () => ["card"] })
)

export const toolkit = Toolkit.make(
  GetWeather,
  SearchFlights,
  SearchHotels,
  GetHotel,
  BookHotel,
  BookFlight,
  ReserveTable,
  ListBookings,
  PayDeposit
)

const handlers = toolkit.toLayer(Effect.map(Travel, (travel) => ({
  get_weather: ({ city }) => travel.forecast(city),
  search_flights: () => travel.flights,
  search_hotels: () => travel.hotels,
  get_hotel: ({ hotel_id }) => travel.hotel(hotel_id),
  book_hotel: ({ hotel_id, nights }) =>
    Effect.flatMap(TurnContext.CurrentCall, (call) => travel.book(hotel_id, nights, call?.idempotencyKey ?? "")),
  book_flight: ({ flight_id }) => Effect.succeed(`booked ${flight_id}`),
  reserve_table: () => travel.table,
  list_bookings: () => travel.bookings,
  pay_deposit: ({ euros }) => Effect.succeed(`paid ${euros}`)
})))

export const layer = Layer.mergeAll(handlers.pipe(Layer.provide(Travel.layer)), Hotels.layer({ concurrency: 2 }))
