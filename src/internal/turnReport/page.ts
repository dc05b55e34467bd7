/** A report as one HTML document. What is no timeline is written here; the timeline is drawn by the page's script, out of the data beside it. */
import type * as TurnReport from "../../TurnReport.ts"
import { script, scriptHash } from "./pageCode.ts"
import { styles } from "./pageStyles.ts"
import { duration, escape, escapeJson, number, plural, visible } from "./text.ts"
import { did, headline, nameOf, outcomeOf, reasonOf, savings, sharesOf, waitsOf } from "./words.ts"

/** How many calls stand in the document itself, for paper and for those who run no scripts; and how many links of a path. */
const written = 100

export const page = (report: TurnReport.Report): string => {
  const { notes, turns } = report
  const policy =
    `default-src 'none'; style-src 'unsafe-inline'; script-src '${scriptHash}'; base-uri 'none'; form-action 'none'`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>${
    turns.length === 1 ? `Turn ${escape(turns[0]!.turn)}` : plural(turns.length, "turn")
  }: where the time went</title>
<style>${styles}</style>
</head>
<body>
<a class="skip" href="#main">To the report</a>
<header>
<div class="head"><h1>Where the time went</h1><span class="live tools"><select id="turn" aria-label="Turn" hidden></select><button type="button" id="theme">Theme: system</button><button type="button" id="keys" aria-haspopup="dialog">Keys (?)</button></span></div>
${notes.map((note) => `<p class="note">${escape(note)}</p>`).join("\n")}
</header>
<main id="main">
${turns.length === 0 ? "<p>There are no turns in these events.</p>" : turns.map(article).join("\n")}
</main>
${turns.length === 0 ? "" : live}
<footer class="soft">Made by effect-turn report. This page loads nothing and sends nothing; it has no arguments and no results of calls.</footer>
${
    turns.length === 0
      ? ""
      : `<script type="application/json" id="data">${
        escapeJson(turns.map(dataOf))
      }</script>\n<script>${script}</script>`
  }
</body>
</html>
`
}

/** What the script draws. Its texts are as they are shown. */
const dataOf = (turn: TurnReport.Turn) => {
  const { calls, elapsed, path, requests } = turn
  return {
    name: visible(turn.turn),
    head: headline(turn),
    elapsed,
    calls: calls.map((call) => ({
      ...call,
      tool: visible(call.tool),
      id: visible(call.id),
      backend: call.backend === undefined ? "" : visible(call.backend),
      status: call.status ?? "",
      outcome: outcomeOf(call),
      code: call.code === undefined ? "" : visible(call.code)
    })),
    path: path.map((link) => [link.position ?? -1, link.from, link.to, did[link.kind], reasonOf(link)]),
    requests: requests.map(({ from, into, items, ok, positions, to }) => ({
      positions,
      says: `${visible(into)}: ${items} for ${plural(positions.length, "call")}, ${
        to === undefined ? "no end" : `${duration(to - from)}, ${ok} found`
      }`
    }))
  }
}

const article = (turn: TurnReport.Turn, index: number): string => {
  const of = [
    `turn ${escape(turn.turn)}`,
    ...(turn.tenant === undefined ? [] : [`tenant ${escape(turn.tenant)}`]),
    ...(turn.conversation === undefined ? [] : [`conversation ${escape(turn.conversation)}`])
  ]
  return `<article data-turn="${index}" aria-label="Turn ${escape(turn.turn)}">
<p class="soft of">${of.join(", ")}</p>
<p class="lead">${escape(headline(turn))}</p>
${turn.notes.map((note) => `<p class="note">${escape(note)}</p>`).join("\n")}
${tiles(turn)}
<div class="here"></div>
${fallback(turn)}
<div class="columns">
<section><h2>Critical path</h2>
${critical(turn)}
</section>
<section><h2>Waits</h2>
${waits(turn)}
</section>
</div>
${merged(turn)}</article>`
}

const tiles = (turn: TurnReport.Turn): string => {
  const { calls, elapsed } = turn
  const ran = calls.reduce((sum, call) => sum + call.ran, 0)
  const waited = waitsOf(turn).reduce((sum, [, millis]) => sum + millis, 0)
  const tile = (name: string, value: string) => `<div><dt>${name}</dt><dd>${escape(value)}</dd></div>`
  return `<dl class="tiles">${
    [
      tile("the turn took", duration(elapsed)),
      tile("calls", number(calls.length)),
      tile("their handlers ran", duration(ran)),
      tile("they waited", duration(waited)),
      ...(elapsed > 0 && ran > 0 ? [tile("at once, on average", number(ran / elapsed))] : [])
    ].join("")
  }</dl>`
}

const share = (part: number, whole: number): string => `${Math.round((part / whole) * 1000) / 10}%`

const critical = (turn: TurnReport.Turn): string => {
  const { calls, elapsed, path } = turn
  if (path.length === 0) return `<p class="soft">The turn took no time.</p>`
  const byPosition = new Map(calls.map((call) => [call.position, call]))
  const shares = sharesOf(turn)
  const says = shares.map(([kind, millis]) => `${did[kind]} ${share(millis, elapsed)}`)
  const items = path.slice(0, written).map((link) => {
    const { attempt = 1, from, kind, position, to } = link
    const call = position === undefined ? undefined : byPosition.get(position)
    const reason = reasonOf(link)
    return `<li><span class="time">${duration(to - from)}</span> <i class="dot ${kind}"></i> ${
      call === undefined ? "" : `<span class="call" data-position="${call.position}">${escape(nameOf(call))}</span> `
    }${did[kind]}${attempt > 1 ? ` (attempt ${attempt})` : ""}${
      reason === "" ? "" : `<span class="soft">, ${escape(reason)}</span>`
    }</li>`
  })
  return `<div class="stack" role="img" aria-label="${escape(says.join(", "))}">${
    shares.map(([kind, millis]) => `<i class="s ${kind}" style="width:${share(millis, elapsed)}"></i>`).join("")
  }</div>
<p class="legend">${
    shares.map(([kind, millis]) => `<span><i class="dot ${kind}"></i>${did[kind]} ${share(millis, elapsed)}</span>`)
      .join(
        " "
      )
  }</p>
<ol class="path" tabindex="0" aria-label="The links of the critical path">
${items.join("\n")}
</ol>
${
    path.length > written
      ? `<p class="soft">The first ${written} of ${plural(path.length, "link")}: the timeline shows all.</p>`
      : ""
  }`
}

const waits = (turn: TurnReport.Turn): string => {
  const causes = waitsOf(turn)
  const backends = turn.backends.filter(({ permit, rate }) => permit + rate > 0)
  const saved = savings(turn)
  return `${
    causes.length === 0
      ? `<p>No call waited.</p>`
      : table(
        "Waits of all calls by cause",
        [["Cause"], ["All calls together", "n"]],
        causes.map((row) => [
          row[0],
          duration(row[1])
        ])
      )
  }${
    backends.length === 0 ? "" : table(
      "Waits by backend",
      [["Backend"], ["Calls", "n"], ["Permits", "n"], ["Rate", "n"], ["They ran", "n"]],
      backends.map(({ backend, calls, permit, ran, rate }) => [
        backend,
        number(calls),
        duration(permit),
        duration(rate),
        duration(ran)
      ])
    )
  }${
    saved.length === 0 ?
      "" :
      `<p>As long as each call takes what it took:</p><ul>${
        saved.map((words) => `<li>${escape(words)}</li>`).join("")
      }</ul>`
  }`
}

const merged = ({ requests }: TurnReport.Turn): string =>
  requests.length === 0 ? "" : `<section><h2>Requests for several calls</h2>
${
    table(
      "Requests for several calls",
      [["Request"], ["Backend"], ["Calls", "n"], ["Items", "n"], ["Found", "n"], ["Sent at", "n"], ["Took", "n"]],
      requests.slice(0, written).map(({ backend = "", from, into, items, ok, positions, request, to }) => [
        `${request} ${into}`,
        backend,
        number(positions.length),
        number(items),
        ok === undefined ? "?" : number(ok),
        duration(from),
        to === undefined ? "?" : duration(to - from)
      ])
    )
  }${
    requests.length > written ? `<p class="soft">The first ${written} of ${number(requests.length)}.</p>` : ""
  }</section>
`

type Column = readonly [title: string, kind?: "n"]

/** A table that scrolls in itself where the window is narrow; its first column says what a row is. */
const table = (
  name: string,
  columns: ReadonlyArray<Column>,
  rows: ReadonlyArray<ReadonlyArray<string>>,
  last?: (row: number) => string
): string =>
  `<div class="wide" role="region" tabindex="0" aria-label="${escape(name)}"><table>
<thead><tr>${
    columns.map(([title, kind = "long"]) => `<th scope="col" class="${kind}">${escape(title)}</th>`).join("")
  }</tr></thead>
<tbody>${
    rows.map((row, r) =>
      `<tr>${
        row.map((text, i) =>
          i === 0
            ? `<th scope="row" class="long">${escape(text)}</th>`
            : `<td class="${columns[i]![1] ?? "long"}">${escape(text)}</td>`
        ).join("")
      }${last === undefined ? "" : `<td>${last(r)}</td>`}</tr>`
    ).join("\n")
  }</tbody>
</table></div>`

/** The timeline for paper, and for those who run no scripts. */
const fallback = ({ calls, elapsed }: TurnReport.Turn): string => {
  if (calls.length === 0) return ""
  const first = calls.slice(0, written)
  const bar = (row: number) =>
    `<div class="lane">${
      first[row]!.spans.filter(({ from }) => from <= elapsed).map(({ from, kind, to }) =>
        `<i class="s ${kind}" style="left:${share(from, elapsed || 1)};width:${
          share(Math.min(to, elapsed) - from, elapsed || 1)
        }"></i>`
      ).join("")
    }</div>`
  const kinds = new Set(first.flatMap(({ spans }) => spans.map(({ kind }) => kind)))
  return `<section class="still"><h2>Calls</h2>
<p class="legend">${[...kinds].map((kind) => `<span><i class="dot ${kind}"></i>${did[kind]}</span>`).join(" ")}</p>
${
    table(
      "Calls",
      [["Call"], ["Outcome"], ["Came at", "n"], ["Waited", "n"], ["Ran", "n"], ["Timeline"]],
      first.map((call) => [
        nameOf(call),
        outcomeOf(call),
        duration(call.from),
        duration(call.waited.keys + call.waited.permit + call.waited.rate + call.waited.approval),
        call.attempts === 0 ? "not run" : duration(call.ran)
      ]),
      bar
    )
  }${
    calls.length > written
      ? `<p>The first ${written} of ${
        number(calls.length)
      }: the others need scripts, or the report as text or JSON.</p>`
      : ""
  }</section>`
}

const option = (value: string, text: string): string => `<option value="${value}">${text}</option>`

const keys: ReadonlyArray<readonly [string, string]> = [
  ["↑ ↓", "the call before, the next one"],
  ["Page Up, Page Down", "ten calls further"],
  ["Home, End", "the first, the last"],
  ["← →", "earlier, later"],
  ["+ −", "closer, further away"],
  ["0", "the whole turn"],
  ["Enter", "the call's details"],
  ["/", "search"],
  ["Esc", "back: close the details, then clear the search"],
  ["?", "this help"]
]

/** The parts that the script brings to life. They stand in the document once, and go to the turn that is shown. */
const live = `<div id="timeline" class="live" hidden>
<h2 id="calls">Calls</h2>
<div class="tools">
<label for="search" class="hidden">Search</label><input id="search" type="search" autocomplete="off" placeholder="Search: tool, id, outcome, backend">
<select id="tool" aria-label="Tool"></select><select id="status" aria-label="Outcome"></select>
<select id="sort" aria-label="Order">${
  option("position", "in the model's order") + option("start", "by start") + option("ran", "longest run first") +
  option("waited", "longest wait first")
}</select>
<label class="check"><input type="checkbox" id="critical"> critical path</label>
<span class="zoom"><button type="button" id="earlier" aria-label="Earlier">←</button><button type="button" id="out" aria-label="Further away">−</button><button type="button" id="in" aria-label="Closer">+</button><button type="button" id="later" aria-label="Later">→</button><button type="button" id="fit">Fit</button></span>
</div>
<p class="legend" id="legend"></p>
<div class="split">
<div class="chart">
<div class="axis" aria-hidden="true"><div id="ticks"></div></div>
<div id="list" role="listbox" tabindex="0" aria-labelledby="calls" aria-describedby="hint"><div id="space" role="presentation"></div></div>
<p class="soft small"><span id="count" role="status"></span> <span id="hint">Drag to move in time, Ctrl and wheel to zoom; press ? for the keys.</span></p>
</div>
<section id="details" aria-labelledby="name" hidden></section>
</div>
</div>
<dialog id="help" aria-labelledby="help-name"><h2 id="help-name">Keys</h2><dl class="keys">${
  keys.map(([key, does]) => `<div><dt><kbd>${key}</kbd></dt><dd>${does}</dd></div>`).join("")
}</dl><form method="dialog"><button type="submit">Close</button></form></dialog>`
