/**
 * What a runtime remembers of calls, bounded: how often the same call was run in a conversation, over its turns (rule R32), and which calls of turns that
 * waited for a human are over (rule R10). Those that were seen last are kept.
 */
const mostConversations = 1_000
const mostCalls = 256

const touch = <K, V>(map: Map<K, V>, key: K, value: V, most: number): void => {
  map.delete(key)
  map.set(key, value)
  if (map.size > most) map.delete(map.keys().next().value!)
}

export class Repeats {
  private readonly conversations = new Map<string, Map<string, number>>()

  count(conversation: string, digest: string): number {
    return this.conversations.get(conversation)?.get(digest) ?? 0
  }

  note(conversation: string, digest: string): void {
    const calls = this.conversations.get(conversation) ?? new Map<string, number>()
    touch(this.conversations, conversation, calls, mostConversations)
    touch(calls, digest, (calls.get(digest) ?? 0) + 1, mostCalls)
  }
}

const mostDecided = 10_000

/** Calls of parked turns that were run, or given up. */
export class DecidedCalls {
  private readonly calls = new Map<string, true>()

  has(tenant: string, turn: string, position: number): boolean {
    return this.calls.has(JSON.stringify([tenant, turn, position]))
  }

  note(tenant: string, turn: string, position: number): void {
    touch(this.calls, JSON.stringify([tenant, turn, position]), true, mostDecided)
  }
}
