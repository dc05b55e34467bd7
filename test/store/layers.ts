/** Every layer of `TurnStore` that the laws are checked on. One more is one more line. */
import { TurnStore } from "effect-turn"
import * as Layer from "effect/Layer"

export interface StoreLayer {
  readonly name: string
  /** A store of its own each time that it is built, or one whose rows nobody else has. */
  readonly layer: Layer.Layer<TurnStore.TurnStore, unknown>
  /** Why it cannot be checked here; undefined where it can. */
  readonly missing?: string | undefined
}

export const layers: ReadonlyArray<StoreLayer> = [
  { name: "memory", layer: Layer.fresh(TurnStore.layerMemory) }
]
