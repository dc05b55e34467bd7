/** The page of a report, in a real browser: keys, filters, colours, widths, and what it asks for. */
import { assert, it } from "@effect/vitest"
import { type TurnEvent, TurnReport } from "effect-turn"
import * as fs from "node:fs"
import * as os from "node:os"
import * as path from "node:path"
import { afterAll } from "vitest"
import { describeBrowser, type Page } from "../utils/browser.ts"

const scratch = fs.mkdtempSync(path.join(os.tmpdir(), "effect-turn-"))
afterAll(() => fs.rmSync(scratch, { recursive: true, force: true }))

const hostile = `</script><img src=x onerror="document.title='pwned'">`
const tools = ["look", "book", "search", hostile]

/** A turn of so many calls, each on the heels of the one before it with its key: one in ten fails. */
const eventsOf = (turn: string, count: number): ReadonlyArray<TurnEvent.TurnEvent> => {
  const events: Array<TurnEvent.TurnEvent> = [{ _tag: "TurnStarted", turn, at: 0, calls: count }]
  for (let position = 0; position < count; position++) {
    const at = Math.floor(position / 4) * 20
    const of = { turn, position, id: `c${position}`, tool: tools[position % tools.length]! }
    events.push(
      ...(at === 0 ? [] : [{ ...of, at: 0, _tag: "CallQueued", for: "keys", backend: undefined } as const]),
      {
        ...of,
        at,
        _tag: "CallStarted",
        attempt: 1,
        backend: "maps",
        waited: { keys: at, permit: 0, rate: 0, approval: 0 }
      },
      {
        ...of,
        at: at + 20,
        _tag: "CallEnded",
        outcome: {
          position,
          id: of.id,
          name: of.tool,
          ...(position % 10 === 9
            ? { status: "error", code: "defect" } as const
            : { status: "provider_executed" } as const),
          started: true,
          effect: "none",
          retryable: false,
          message: ""
        }
      }
    )
  }
  events.sort((a, b) => a.at - b.at)
  return [...events, { _tag: "TurnEnded", turn, at: Math.ceil(count / 4) * 20, unsettled: 0 }]
}

const written = (name: string, ...turns: ReadonlyArray<readonly [string, number]>): string => {
  const file = path.join(scratch, `${name}.html`)
  fs.writeFileSync(file, TurnReport.toHtml(TurnReport.make(turns.flatMap(([turn, count]) => eventsOf(turn, count)))))
  return file
}

const selected = "document.querySelector('#list [aria-selected=true]')?.id"
const rows = "document.querySelectorAll('#list .row').length"
const count = "document.getElementById('count').textContent"
const focused = "document.activeElement.id"
const ticks = "[...document.querySelectorAll('#ticks span')].map((tick) => tick.textContent).join()"
const focusList = "document.getElementById('list').focus()"
const paper = "getComputedStyle(document.body).backgroundColor"

/** The contrast of an element's text to what it stands on, by the formula of WCAG. */
const contrast = `((selector) => {
  const element = document.querySelector(selector);
  const rgb = (text) => text.match(/[0-9.]+/g).map(Number);
  let ground = element;
  while (ground && (rgb(getComputedStyle(ground).backgroundColor)[3] ?? 1) === 0) ground = ground.parentElement;
  const light = (color) => rgb(color).slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const [a, b] = [light(getComputedStyle(element).color), light(getComputedStyle(ground).backgroundColor)].sort((x, y) => y - x);
  return (a + 0.05) / (b + 0.05);
})`

/** What has to be read, wherever it stands. */
const readable = ["h1", ".of", ".row .name", ".row .name b", ".row .out.bad", ".row .out.good", ".row .took", "#theme"]
  .concat([".row[aria-selected=true] .took", ".legend", "button.call", "#count", "dl.tiles dt", "footer"])

const clean = async (page: Page, file: string) => {
  assert.deepStrictEqual(page.problems, [])
  assert.strictEqual(page.requests.length, 1, `${file} asks for more than itself: ${page.requests.join()}`)
  assert.notStrictEqual(await page.get("document.title"), "pwned")
  assert.strictEqual(await page.get("document.querySelectorAll('img').length"), 0)
}

describeBrowser("the page in a browser", (browser) => {
  const few = written("few", ["t", 12])
  const many = written("many", ["t", 5000])
  const two = written("two", ["first", 3], ["second", 8])

  it("is driven by keys alone", async () => {
    const page = await browser().page(few, { width: 1200, height: 800 })
    await page.get(focusList)
    assert.strictEqual(await page.get(selected), "call-0")
    await page.press("ArrowDown", "ArrowDown", "ArrowUp")
    assert.strictEqual(await page.get(selected), "call-1")
    assert.strictEqual(
      await page.get("document.getElementById('list').getAttribute('aria-activedescendant')"),
      "call-1"
    )
    await page.press("End")
    assert.strictEqual(await page.get(selected), "call-11")
    await page.press("Home")
    assert.strictEqual(await page.get(selected), "call-0")
    await page.press("PageDown")
    assert.strictEqual(await page.get(selected), "call-10")
    const whole = await page.get<string>(ticks)
    await page.press("+", "+")
    const closer = await page.get<string>(ticks)
    assert.notStrictEqual(closer, whole)
    await page.press("ArrowLeft")
    assert.notStrictEqual(await page.get(ticks), closer)
    await page.press("0")
    assert.strictEqual(await page.get(ticks), whole)
    await page.press("Enter")
    assert.strictEqual(await page.get(focused), "name")
    const details = await page.get<string>("document.getElementById('details').innerText")
    for (const words of ["#10 search", "waited for keys", "40 ms – 60 ms: runs", "maps"]) assert.include(details, words)
    await page.press("Escape")
    assert.deepStrictEqual([await page.get(focused), await page.get("document.getElementById('details').hidden")], [
      "list",
      true
    ])
    await page.press("?")
    assert.isTrue(await page.get("document.getElementById('help').open"))
    await page.press("Escape")
    assert.isFalse(await page.get("document.getElementById('help').open"))
    await page.press("?", "Enter")
    assert.isFalse(await page.get("document.getElementById('help').open"))
    await page.press("/")
    assert.strictEqual(await page.get(focused), "search")
    await page.press("b", "o", "o", "k", "?")
    assert.strictEqual(await page.get(count), "0 of 12 calls.")
    assert.isFalse(await page.get("document.getElementById('help').open"))
    await page.press("Escape")
    assert.deepStrictEqual([await page.get(count), await page.get(focused)], ["12 calls.", "list"])
    await clean(page, few)
  })

  it("filters and sorts", async () => {
    const page = await browser().page(few, { width: 1200, height: 800 })
    const set = (id: string, value: string) =>
      page.get(
        `(() => { const box = document.getElementById("${id}"); box.value = "${value}"; box.dispatchEvent(new Event("change")) })()`
      )
    const shown = () =>
      page.get<string>("[...document.querySelectorAll('#list .row')].map((row) => row.id.slice(5)).join()")
    await set("tool", "book")
    assert.deepStrictEqual([await shown(), await page.get(count)], ["1,5,9", "3 of 12 calls."])
    await set("status", "error")
    assert.strictEqual(await shown(), "9")
    await set("tool", "")
    await set("status", "")
    await set("sort", "waited")
    assert.strictEqual(await shown(), "8,9,10,11,4,5,6,7,0,1,2,3")
    await page.get("document.getElementById('critical').click()")
    assert.strictEqual(
      await shown(),
      await page.get<string>(
        "[...document.querySelectorAll('ol.path button')].map((one) => one.textContent.slice(1, 2)).reverse().join()"
      )
    )
    await page.get("document.querySelector('ol.path button').click()")
    assert.strictEqual(await page.get(focused), "name")
    await clean(page, few)
  })

  it("stays fluid with thousands of calls, of which few are drawn, and all can be reached", async () => {
    const page = await browser().page(many, { width: 1200, height: 800 })
    assert.strictEqual(await page.get(count), "5,000 calls.")
    assert.isBelow(await page.get<number>(rows), 60)
    await page.get(focusList)
    await page.press("End")
    assert.strictEqual(await page.get(selected), "call-4999")
    assert.strictEqual(await page.get("document.getElementById('call-4999').getAttribute('aria-posinset')"), "5000")
    assert.isBelow(await page.get<number>(rows), 60)
    await page.get("document.getElementById('list').scrollTop = 75000")
    const middle = await page.get<string>("document.querySelectorAll('#list .row')[12].id")
    assert.match(middle, /^call-25\d\d$/)
    // What is drawn is drawn from what is in sight, so a frame costs the same for any number of calls.
    const drawn = await page.get<number>("document.querySelectorAll('#list *').length")
    assert.isBelow(drawn, 700)
    await page.press("/")
    await page.press("#", "4", "3", "2", "1")
    assert.strictEqual(await page.get(count), "1 of 5,000 calls.")
    await clean(page, many)
  })

  it("moves by mouse: a click opens the details, a drag pans, Ctrl and the wheel zoom", async () => {
    const page = await browser().page(few, { width: 1200, height: 800 })
    const whole = await page.get<string>(ticks)
    const [x, y] = await page.get<[number, number]>(
      "(() => { const box = document.querySelector('#call-2 .lane').getBoundingClientRect(); return [box.left + 200, box.top + 5] })()"
    )
    await page.wheel(x, y, -200, "ctrl")
    const closer = await page.get<string>(ticks)
    assert.notStrictEqual(closer, whole)
    await page.mouse("Pressed", x, y)
    await page.mouse("Moved", x - 60, y)
    await page.mouse("Moved", x - 150, y)
    await page.mouse("Released", x - 150, y)
    assert.notStrictEqual(await page.get(ticks), closer)
    assert.isTrue(await page.get("document.getElementById('details').hidden"))
    await page.mouse("Pressed", x, y)
    await page.mouse("Released", x, y)
    assert.deepStrictEqual([await page.get(selected), await page.get("document.getElementById('details').hidden")], [
      "call-2",
      false
    ])
    await clean(page, few)
  })

  it("is light or dark as the system is, or as it is told, and can be read in both", async () => {
    const grounds: Array<string> = []
    let page: Page
    for (const dark of [true, false]) {
      page = await browser().page(few, { width: 1200, height: 800, dark })
      grounds.unshift(await page.get<string>(paper))
      for (const selector of readable) {
        assert.isAtLeast(await page.get<number>(`${contrast}("${selector}")`), 4.5, selector)
      }
    }
    page = page!
    assert.notStrictEqual(grounds[0], grounds[1])
    const theme = "document.getElementById('theme')"
    await page.get(`${theme}.click()`)
    assert.deepStrictEqual([await page.get(`${theme}.textContent`), await page.get(paper)], [
      "Theme: light",
      grounds[0]
    ])
    await page.get(`${theme}.click()`)
    assert.deepStrictEqual([await page.get(`${theme}.textContent`), await page.get(paper)], ["Theme: dark", grounds[1]])
    assert.isAtLeast(await page.get<number>(`${contrast}(".row .out.bad")`), 4.5)
    await page.get(`${theme}.click()`)
    assert.strictEqual(await page.get(paper), grounds[0])
  })

  it("is as wide as a telephone, and nothing stands out of it", async () => {
    for (const file of [few, many]) {
      const page = await browser().page(file, { width: 360, height: 800 })
      await page.get(focusList)
      await page.press("Enter")
      assert.isAtMost(await page.get<number>("document.documentElement.scrollWidth"), 360)
      const out =
        "[...document.querySelectorAll('main *')].filter((one) => !one.closest('.wide,.lane,#ticks,.hidden') && one.getBoundingClientRect().right > 361).map((one) => one.outerHTML.slice(0, 80))"
      assert.deepStrictEqual(await page.get(out), [])
    }
  })

  it("shows one of several turns", async () => {
    const page = await browser().page(two, { width: 1200, height: 800 })
    assert.strictEqual(await page.get(count), "3 calls.")
    await page.get(
      "(() => { const box = document.getElementById('turn'); box.value = '1'; box.dispatchEvent(new Event('change')) })()"
    )
    assert.strictEqual(await page.get(count), "8 calls.")
    assert.strictEqual(
      await page.get(
        "[...document.querySelectorAll('article')].filter((one) => !one.hidden).map((one) => one.ariaLabel).join()"
      ),
      "Turn second"
    )
    await clean(page, two)
  })

  it("can be read without scripts, and on paper", async () => {
    const page = await browser().page(two, { width: 1200, height: 800, scripts: false })
    // Scripts are off for the page, not for the protocol.
    const text = await page.get<string>("document.body.innerText")
    for (const words of ["8 calls in 40 ms", "Critical path", "#7 </script>", "provider_executed"]) {
      assert.include(text, words)
    }
    assert.notInclude(text, "Search")
    const printed = await browser().page(few, { width: 1200, height: 800 })
    await printed.print()
    const onPaper = await printed.get<string>("document.body.innerText")
    assert.include(onPaper, "#11 </script>")
    assert.notInclude(onPaper, "all tools")
  })
})
