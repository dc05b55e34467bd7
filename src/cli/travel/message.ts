/** A model's response, as Chat Completions gives it. */
const call = (id: string, name: string, args: string) => ({ id, type: "function", function: { name, arguments: args } })

export const response = {
  id: "chatcmpl-travel",
  object: "chat.completion",
  created: 1777885200,
  model: "gpt-4.1",
  choices: [
    {
      index: 0,
      finish_reason: "tool_calls",
      logprobs: null,
      message: {
        role: "assistant",
        content: "I will look up flights, hotels and the weather, and book Hotel Alfama as you asked.",
        refusal: null,
        annotations: [],
        tool_calls: [
          call("call_w1", "get_weather", '{"city":"Lisbon"}'),
          call("call_f1", "search_flights", '{"from":"Berlin","to":"Lisbon","day":"2026-05-04"}'),
          call("call_h1", "search_hotels", '{"city":"Lisbon"}'),
          call("call_h2", "get_hotel", '{"hotel_id":"LIS-1"}'),
          call("call_h3", "get_hotel", '{"hotel_id":"LIS-2"}'),
          call("call_b1", "book_hotel", '{"hotel_id":"LIS-1","nights":3}'),
          call("call_w2", "get_weather", '{ "city": "Lisbon" }'),
          call("call_b2", "book_flight", '{"flight_id":"<flight_id>"}'),
          call("call_t1", "reserve_table", '{"restaurant":"Ramiro","people":2}'),
          call("call_l1", "list_bookings", ""),
          call("call_p1", "pay_deposit", '{"euros":120}')
        ]
      }
    }
  ],
  usage: { prompt_tokens: 612, completion_tokens: 214, total_tokens: 826 }
}
