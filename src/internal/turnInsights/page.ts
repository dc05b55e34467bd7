/** A report as one HTML document. */
import type * as TurnInsights from "../../TurnInsights.ts"
import { barsOf, type Chart, histogram, ranking } from "./charts.ts"
import { script, scriptHash, styles } from "./pageCode.ts"
import { escape, escapeJson, number, plural, short, visible } from "./text.ts"

/** How many rows stand in the document itself, for those who run no scripts. */
const written = 50

export const page = (report: TurnInsights.Report): string => {
  const { candidates, options, sources, totals, unread } = report
  const policy =
    `default-src 'none'; style-src 'unsafe-inline'; script-src '${scriptHash}'; base-uri 'none'; form-action 'none'`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>Tool calls and lists</title>
<style>${styles}</style>
</head>
<body>
<a class="skip" href="#main">To the numbers</a>
<header>
<h1>Tool calls, and what lists would have saved</h1>
<p class="soft">${plural(totals.userTurns, "user turn")} out of ${
    plural(sources.length, "recording")
  }. A user turn is all steps of the model between two messages of the user; a step is one answer with calls.</p>${
    unread.length === 0
      ? ""
      : `\n<p><strong>${
        plural(unread.length, "recording")
      } could not be read:</strong> the numbers are of the others. <a href="#unread">Which, and why</a></p>`
  }
</header>
<main id="main">
${tiles(report)}
<h2>Charts</h2>
<div class="charts">
${charts(report).join("\n")}
</div>
<h2>Tools</h2>
${
    table(
      "Tools",
      [
        ["Tool"],
        ["Calls"],
        ["Steps"],
        ["User turns"],
        ["Most in one"],
        [`Over ${options.threshold} in`],
        ["Round trips saved"],
        ["Requests saved"],
        ["Tokens saved"]
      ],
      report.tools.map(({ calls, most, over, saved, steps, tool, userTurns }) => [
        tool,
        calls,
        steps,
        userTurns,
        most,
        over,
        saved.roundTrips,
        saved.requests,
        tokensOf(saved)
      ])
    )
  }
<h2>User turns with more than ${plural(options.threshold, "call")} of one tool</h2>
${
    candidates.length === 0
      ? `<p>There are none: no tool was called more than ${plural(options.threshold, "time")} in one user turn.</p>`
      : turns(report)
  }
${lists(report)}${requests(report)}
<h2>Recordings</h2>
${
    table(
      "Recordings",
      [["Recording", "long"], ["Form", "long"], ["User turns"], ["Steps"], ["Calls"], [
        "Notes",
        "long"
      ]],
      sources.map(({ calls, form, notes, source, steps, userTurns }) => [
        source,
        form,
        userTurns,
        steps,
        calls,
        notes.join("; ")
      ])
    )
  }
${
    unread.length === 0
      ? ""
      : `<h2 id="unread">Recordings that could not be read</h2>\n${
        table(
          "Recordings that could not be read",
          [["Recording", "long"], ["Why", "long"]],
          unread.map(({ problem, source }) => [source, problem])
        )
      }\n`
  }<h2>How it is counted</h2>
${method(report)}
</main>
<footer class="soft">Made by effect-turn insights. This page loads nothing and sends nothing.</footer>
${
    candidates.length === 0
      ? ""
      : `<script type="application/json" id="rows">${
        escapeJson(candidates.map(rowOf))
      }</script>\n<script>${script}</script>`
  }
</body>
</html>
`
}

const tokensOf = ({ envelopeTokens, historyTokens }: TurnInsights.Candidate["saved"]): number | null =>
  historyTokens === null ? null : envelopeTokens + historyTokens

const tiles = ({ totals }: TurnInsights.Report): string => {
  const { calls, duplicates, saved, steps, tools, userTurns } = totals
  const tile = (name: string, value: string, good = false) =>
    `<div${good ? ' class="good"' : ""}><dt>${escape(name)}</dt><dd>${value}</dd></div>`
  return `<dl class="tiles">${
    [
      tile("user turns", number(userTurns)),
      tile("steps", number(steps)),
      tile("calls", number(calls)),
      tile("tools", number(tools)),
      tile("round trips saved", number(saved.roundTrips), true),
      tile("requests saved", number(saved.requests), true),
      tile(
        "tokens saved, estimated",
        `${saved.historyUnknown > 0 ? "≥ " : ""}${short(saved.envelopeTokens + saved.historyTokens)}`,
        true
      ),
      ...(duplicates > 0 ? [tile("duplicates in a step", number(duplicates))] : []),
      ...totals.deferred.map(({ code, count }) => tile(`deferred: ${code}`, number(count))),
      ...(totals.cut > 0 ? [tile("answers cut", number(totals.cut))] : [])
    ].join("")
  }</dl>`
}

const charts = (report: TurnInsights.Report): ReadonlyArray<string> => {
  const { batches, callsPerUserTurn, requests, tools } = report
  const top = tools.filter(({ saved }) => saved.requests > 0).sort((a, b) => b.saved.requests - a.saved.requests).slice(
    0,
    10
  )
  // What was really sent says more than what would have been.
  const sent = mergedSizes(requests.map(({ sizes }) => sizes))
  const sizes = sent.count > 0 ? sent : batches
  const spread = (of: TurnInsights.Distribution, what: string) =>
    `Half of them have at most ${number(of.p50)} ${what}, nine of ten at most ${number(of.p90)}, and the most is ${
      number(of.max)
    }.`
  const all: ReadonlyArray<readonly [Chart, (chart: Chart) => string]> = [
    [{
      id: "per-turn",
      title: "Calls per user turn",
      says: `${plural(callsPerUserTurn.count, "user turn")}. ${spread(callsPerUserTurn, "calls")}`,
      of: "calls in a user turn",
      counts: "user turns",
      bars: barsOf(callsPerUserTurn)
    }, histogram],
    [{
      id: "top",
      title: "Requests to backends saved, by tool",
      says: top.length === 0
        ? "Lists would have saved no request."
        : `Lists of ${top[0]!.tool} would have saved most: ${plural(top[0]!.saved.requests, "request")}.`,
      of: "tool",
      counts: "requests saved",
      bars: top.map(({ saved, tool }) => ({ label: tool, value: saved.requests }))
    }, ranking],
    [{
      id: "sizes",
      title: sent.count > 0 ? "Items in a request, as sent" : "Calls that one list would have held",
      says: sizes.count === 0
        ? ""
        : `${plural(sizes.count, sent.count > 0 ? "request" : "list")}. ${
          spread(sizes, sent.count > 0 ? "items" : "calls")
        }`,
      of: sent.count > 0 ? "items in a request" : "calls in a list",
      counts: sent.count > 0 ? "requests" : "lists",
      bars: barsOf(sizes)
    }, histogram]
  ]
  return all.map(([chart, draw]) =>
    chart.bars.length === 0
      ? `<figure><figcaption><h3>${escape(chart.title)}</h3></figcaption><p class="soft">Nothing to show.</p></figure>`
      : draw(chart)
  )
}

const mergedSizes = (all: ReadonlyArray<TurnInsights.Distribution>): TurnInsights.Distribution => {
  const counts = new Map<number, number>()
  for (const { values } of all) {
    for (const { count, value } of values) counts.set(value, (counts.get(value) ?? 0) + count)
  }
  const values = [...counts].map(([value, count]) => ({ value, count })).sort((a, b) => a.value - b.value)
  const count = values.reduce((sum, one) => sum + one.count, 0)
  const total = values.reduce((sum, one) => sum + one.count * one.value, 0)
  const at = (share: number) => {
    let seen = 0
    return values.find((one) => (seen += one.count) >= share * count)?.value ?? 0
  }
  return {
    count,
    total,
    mean: count === 0 ? 0 : total / count,
    min: values[0]?.value ?? 0,
    p50: at(0.5),
    p90: at(0.9),
    max: values.at(-1)?.value ?? 0,
    values
  }
}

type Column = readonly [title: string, kind?: "long"]

type Cell = string | number | null

/** A table that scrolls in itself where the window is narrow; its first column says what a row is. */
const table = (
  name: string,
  columns: ReadonlyArray<Column>,
  rows: ReadonlyArray<ReadonlyArray<Cell>>,
  id?: string
): string => {
  const kindOf = (i: number) => i === 0 || columns[i]![1] === "long" ? "long" : "n"
  const cell = (value: Cell, i: number) => {
    const text = typeof value === "string" ? escape(value) : number(value)
    return i === 0 ? `<th scope="row" class="long">${text}</th>` : `<td class="${kindOf(i)}">${text}</td>`
  }
  return `<div class="wide" role="region" tabindex="0" aria-label="${escape(name)}"><table${
    id === undefined ? "" : ` id="${id}"`
  }>
<thead><tr>${
    columns.map(([title], i) => `<th scope="col" class="${kindOf(i)}">${escape(title)}</th>`).join("")
  }</tr></thead>
<tbody>${rows.map((row) => `<tr>${row.map(cell).join("")}</tr>`).join("\n")}</tbody>
</table></div>`
}

const rowOf = (candidate: TurnInsights.Candidate): ReadonlyArray<Cell> => {
  const { calls, conversation, distinct, duplicates, index, repeats, saved, source, steps, tool, turn } = candidate
  return [
    visible(tool),
    visible(`${source}, #${index}.${turn}${conversation === null ? "" : ` ${conversation}`}`),
    calls,
    steps,
    distinct,
    duplicates + repeats,
    saved.roundTrips,
    saved.requests,
    tokensOf(saved),
    why(candidate)
  ]
}

const why = ({ apart }: TurnInsights.Candidate): string =>
  ([
    [apart.dependent, "depend on an answer"],
    [apart.others, "have other tools with or before them"],
    [apart.repeated, "ask the same again"],
    [apart.failed, "follow a failure"],
    [apart.unknown, "not known"]
  ] as const).filter(([n]) => n > 0).map(([n, words]) => `${n} ${words}`).join(", ")

const turns = ({ candidates }: TurnInsights.Report): string =>
  `<div class="tools" id="turn-tools" hidden><label for="filter">Filter</label><input id="filter" type="search" autocomplete="off" placeholder="tool, recording, conversation"><button type="button">Back</button><button type="button">Next</button><span id="status" role="status" class="soft"></span></div>
${
    table(
      "User turns",
      [
        ["Tool", "long"],
        ["Recording, #conversation.turn", "long"],
        ["Calls"],
        ["Steps"],
        ["Distinct"],
        ["Same again"],
        ["Round trips saved"],
        ["Requests saved"],
        ["Tokens saved"],
        ["Steps that stay", "long"]
      ],
      candidates.slice(0, written).map(rowOf),
      "turns"
    )
  }
${
    candidates.length > written
      ? `<p id="more">The first ${written} of ${number(candidates.length)}: the others need scripts, or --json.</p>`
      : ""
  }`

const lists = ({ lists }: TurnInsights.Report): string =>
  lists.length === 0 ? "" : `<h2>Tools that were asked for lists</h2>
${
    table(
      "Lists",
      [["Tool"], ["Calls"], ["Items"], ["Items a call, median"], ["Most"], ["Deferred items"]],
      lists.map(({ calls, deferred, items, sizes, tool }) => [tool, calls, items, sizes.p50, sizes.max, deferred])
    )
  }
`

const requests = ({ requests }: TurnInsights.Report): string =>
  requests.length === 0 ? "" : `<h2>Requests of coalescers</h2>
${
    table(
      "Requests of coalescers",
      [["Coalescer"], ["Requests"], ["Calls"], ["Calls a request"], ["Items"], ["Items a request, median"], ["Most"], [
        "Not found"
      ]],
      requests.map(({ calls, coalescer, items, missing, ratio, requests, sizes }) => [
        coalescer,
        requests,
        calls,
        ratio,
        items,
        sizes.p50,
        sizes.max,
        missing
      ])
    )
  }
`

const method = ({ options, totals }: TurnInsights.Report): string => {
  const { charsPerToken, size, threshold } = options
  return `<p>A tool that is called more than ${
    plural(threshold, "time")
  } in one user turn is judged. Nothing is claimed that a recording does not show: where it has no arguments or no answers, calls of different steps are not merged.</p>
<ul>
<li><strong>Round trips.</strong> A step is saved when it has calls of this tool alone that could have been asked for with an earlier step: only calls of this tool between, none of them failed, other arguments, and no word or number in them that came up first in an answer between. What was decided by an answer without a word of it cannot be seen.</li>
<li><strong>Requests.</strong> n calls that could have been together are ⌈n / ${
    number(size)
  }⌉ requests to the backend. Where a coalescer merges them already, its own requests count.</li>
<li><strong>Tokens.</strong> Each call of a list but the first saves its envelope (id, names, punctuation), and each step that is saved does not send the conversation so far again: characters divided by ${
    number(charsPerToken)
  }. System prompts and schemas that are not in a recording are not counted, and caches of providers make the history cheaper than its number. A question mark is a number that the recording does not give${
    totals.saved.historyUnknown > 0 ? `: ${plural(totals.saved.historyUnknown, "row")} here` : ""
  }.</li>
</ul>`
}
