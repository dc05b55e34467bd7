/** Charts as SVG that is as wide as its place: shapes in percent, text in its own size. Each has its numbers as a table beside it. */
import type * as TurnInsights from "../../TurnInsights.ts"
import { cut, escape, number, short } from "./text.ts"

interface Bar {
  readonly label: string
  readonly value: number
}

/** A chart with a title, a text that says what it shows, and its numbers. */
export interface Chart {
  readonly id: string
  readonly title: string
  readonly says: string
  readonly of: string
  readonly counts: string
  readonly bars: ReadonlyArray<Bar>
}

/** The most bars that can be told apart on a telephone, each with its value. */
const mostBars = 12

/** Bars of a distribution: one a number, or one a range of numbers where there are many. */
export const barsOf = ({ max, min, values }: TurnInsights.Distribution): ReadonlyArray<Bar> => {
  if (values.length === 0) return []
  const width = Math.max(1, Math.ceil((max - min + 1) / mostBars))
  const bars = Array.from({ length: Math.ceil((max - min + 1) / width) }, (_, i) => {
    const from = min + i * width
    return { label: width === 1 ? String(from) : `${from}–${Math.min(max, from + width - 1)}`, value: 0 }
  })
  for (const { count, value } of values) bars[Math.floor((value - min) / width)]!.value += count
  return bars
}

const figure = ({ bars, counts, id, of, says, title }: Chart, svg: string): string =>
  `<figure>
<figcaption><h3>${escape(title)}</h3></figcaption>
${svg}
<details><summary>The numbers</summary>
<table><caption class="hidden">${escape(title)}</caption>
<thead><tr><th scope="col">${escape(of)}</th><th scope="col" class="n">${escape(counts)}</th></tr></thead>
<tbody>${
    bars.map(({ label, value }) => `<tr><th scope="row">${escape(label)}</th><td class="n">${number(value)}</td></tr>`)
      .join("")
  }</tbody></table></details>
<p class="hidden" id="${id}-text">${escape(says)}</p>
</figure>`

const open = (id: string, title: string, height: number, kind: "bars" | "ranks"): string =>
  `<svg role="img" aria-label="${
    escape(title)
  }" aria-describedby="${id}-text" class="${kind}" width="100%" height="${height}">`

const percent = (share: number): string => `${Math.round(share * 1e4) / 100}%`

/** Upright bars, in the order of what they count. */
export const histogram = (chart: Chart): string => {
  const { bars, id, of, title } = chart
  const most = Math.max(...bars.map(({ value }) => value))
  const [top, room] = [20, 130]
  const bottom = top + room
  const each = 1 / bars.length
  // Not wider than a bar should be, where there are few.
  const wide = Math.min(each * 0.8, 0.12)
  const sparse = Math.ceil(bars.length / 6)
  const heights = bars.map(({ value }) => value === 0 ? 0 : Math.max(2, (value / most) * room))
  const shapes = heights.map((high, i) =>
    `<rect x="${percent((i + 0.5) * each - wide / 2)}" width="${percent(wide)}" y="${
      bottom - high
    }" height="${high}" rx="2"/>`
  )
  // After all shapes, so that none covers a number.
  const texts = bars.map(({ label, value }, i) => {
    const middle = percent((i + 0.5) * each)
    const rare = i % sparse === 0 ? "" : "rare"
    return `<text x="${middle}" y="${bottom + 16}" class="${rare}">${escape(label)}</text>${
      value === 0
        ? ""
        : `<text x="${middle}" y="${bottom - heights[i]! - 5}" class="v">${short(value)}</text>`
    }`
  })
  return figure(
    chart,
    `${open(id, title, bottom + 40, "bars")}<line x1="0" x2="100%" y1="${bottom}" y2="${bottom}"/>${
      [...shapes, ...texts].join("")
    }<text x="50%" y="${bottom + 34}" class="axis">${escape(of)}</text></svg>`
  )
}

/** Lying bars with a name above each. */
export const ranking = (chart: Chart): string => {
  const { bars, id, title } = chart
  const most = Math.max(1, ...bars.map(({ value }) => value))
  const row = 38
  const shapes = bars.map(({ label, value }, i) => {
    const y = i * row
    // Long enough to tell apart from nothing, and room for the number behind it.
    const share = value === 0 ? 0 : Math.max(0.005, (value / most) * 0.84)
    return `<text x="0" y="${y + 13}" class="name">${escape(cut(label))}</text><rect x="0" y="${
      y + 18
    }" height="13" rx="2" width="${percent(share)}"/><text x="${percent(share)}" dx="6" y="${y + 29}" class="name v">${
      number(value)
    }</text>`
  })
  return figure(chart, `${open(id, title, bars.length * row, "ranks")}${shapes.join("")}</svg>`)
}
