/**
 * What is done when the present step of the program is over, all of it together: windows and time limits are begun then, and those of
 * requests that are full, or over, by then are not. Virtual time does not move in between.
 */
import type * as Fiber from "effect/Fiber"
import type * as Scheduler from "effect/Scheduler"

export interface Late {
  arm(): void
}

class Round {
  readonly scheduler: Scheduler.Scheduler
  private readonly dispatcher: Scheduler.SchedulerDispatcher
  private list: Array<Late> = []

  constructor(scheduler: Scheduler.Scheduler) {
    this.scheduler = scheduler
    this.dispatcher = scheduler.makeDispatcher()
  }

  add(late: Late): void {
    if (this.list.push(late) === 1) this.dispatcher.scheduleTask(this.run, 0)
  }

  private readonly run = (): void => {
    const { list } = this
    this.list = []
    for (const late of list) late.arm()
  }
}

export class Soon {
  private round: Round | undefined = undefined

  add(fiber: Fiber.Fiber<any, any>, late: Late): void {
    const { scheduler } = fiber.cache
    if (this.round?.scheduler !== scheduler) this.round = new Round(scheduler)
    this.round.add(late)
  }
}
