/** The one script that the page's policy lets run. */

/** Draws the timeline: of thousands of calls only those that are in sight. Texts go in as text, never as markup. */
export const script = `
(() => {
  const turns = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const root = document.documentElement;
  const timeline = $("timeline"), list = $("list"), space = $("space"), ticks = $("ticks"), details = $("details");
  const search = $("search"), toolBox = $("tool"), statusBox = $("status"), sortBox = $("sort"), critical = $("critical");
  const articles = [...document.querySelectorAll("article")];
  const split = document.querySelector(".split");
  const narrow = matchMedia("(max-width:48rem)");
  const group = new Intl.NumberFormat("en-US");
  const time = (ms) => {
    if (ms < 999.5) return Math.round(ms * 10) / 10 + " ms";
    if (ms < 59995) return (ms / 1000).toFixed(2) + " s";
    const s = Math.round(ms / 1000);
    return s < 3600 ? Math.floor(s / 60) + " min " + s % 60 + " s" : Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  };
  const kinds = {
    running: "runs", overdue: "runs on, overdue", keys: "waits for keys", permit: "waits for a permit", rate: "waits for the rate",
    approval: "waits for an approval", twin: "waits for its twin", starting: "gets ready", pause: "pauses before the next attempt",
    unit: "waits for its unit", late: "runs on after its answer"
  };
  const causes = ["keys", "permit", "rate", "approval"];
  const waited = (call) => causes.reduce((sum, cause) => sum + call.waited[cause], 0);
  const isGood = (call) => call.status === "ok" || call.status === "provider_executed";
  const isHeld = (call) => call.status === "deferred" || call.status === "pending_approval";

  let turn, links, end, shown, selected, from, to, drawing = false;

  const rowHeight = () => narrow.matches ? 54 : 30;
  const draw = () => {
    if (drawing) return;
    drawing = true;
    requestAnimationFrame(() => { drawing = false; drawNow(); });
  };

  const percent = (at) => (at - from) / (to - from) * 100;
  const words = (call) => {
    const parts = [call.outcome];
    for (const cause of causes) if (call.waited[cause] > 0) parts.push("waited " + time(call.waited[cause]) + " for " + cause);
    parts.push(call.attempts === 0 ? "not run" : "ran " + time(call.ran) + (call.attempts > 1 ? " in " + call.attempts + " attempts" : ""));
    if (links.has(call.position)) parts.push("on the critical path");
    return parts.join(", ");
  };
  const span = (kind, start, stop) => {
    const left = Math.max(-1, percent(start)), right = Math.min(101, percent(stop));
    if (right < 0 || left > 100 || right < left) return undefined;
    const bar = make("i", "s " + kind);
    bar.style.left = left + "%";
    bar.style.width = right - left + "%";
    return bar;
  };
  const rowOf = (index) => {
    const call = shown[index], mine = links.get(call.position);
    const row = make("div", mine ? "row crit" : "row");
    row.id = "call-" + call.position;
    row.dataset.index = index;
    row.setAttribute("role", "option");
    row.setAttribute("aria-posinset", index + 1);
    row.setAttribute("aria-setsize", shown.length);
    row.setAttribute("aria-selected", call.position === selected);
    row.setAttribute("aria-label", "#" + call.position + " " + call.tool + ": " + words(call));
    row.style.top = index * rowHeight() + "px";
    const name = make("span", "name");
    name.append(make("b", "", "#" + call.position), " " + call.tool);
    name.title = call.tool;
    const out = make("span", isGood(call) ? "out good" : isHeld(call) ? "out" : "out bad", call.outcome);
    out.title = call.outcome;
    const lane = make("div", "lane");
    for (const one of call.spans) {
      const bar = span(one.kind, one.from, one.to);
      if (bar) lane.append(bar);
    }
    for (const [, start, stop] of mine || []) {
      const bar = span("crit", start, stop);
      if (bar && stop > start) lane.append(bar);
    }
    if (end > turn.elapsed) {
      const edge = make("i", "edge");
      edge.style.left = percent(turn.elapsed) + "%";
      lane.append(edge);
    }
    row.append(name, out, lane, make("span", "took", call.attempts === 0 ? "" : time(call.ran)));
    return row;
  };
  const drawNow = () => {
    const height = rowHeight();
    space.style.height = shown.length * height + "px";
    const first = Math.max(0, Math.floor(list.scrollTop / height) - 6);
    const last = Math.min(shown.length, Math.ceil((list.scrollTop + list.clientHeight) / height) + 6);
    const rows = [];
    for (let i = first; i < last; i++) rows.push(rowOf(i));
    space.replaceChildren(...rows);
    const active = shown.some((call) => call.position === selected) ? "call-" + selected : "";
    if (active !== "" && $(active)) list.setAttribute("aria-activedescendant", active);
    else list.removeAttribute("aria-activedescendant");
    document.querySelector(".axis").style.setProperty("--gutter", list.offsetWidth - list.clientWidth + "px");
    drawTicks();
  };
  const drawTicks = () => {
    const most = Math.max(2, Math.floor(ticks.clientWidth / 95)), rough = (to - from) / most;
    const ten = Math.pow(10, Math.floor(Math.log10(rough)));
    const step = [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= rough);
    const all = [];
    for (let i = Math.ceil(from / step); i * step <= to; i++) {
      const at = Math.round(i * step * 1e6) / 1e6, tick = make("span", "", time(at).replace(".00 s", " s"));
      tick.style.left = percent(at) + "%";
      // At the edge there is no room for all of it.
      if (all.length === 0 || (100 - percent(at)) / 100 * ticks.clientWidth > 48) all.push(tick);
    }
    ticks.replaceChildren(...all);
  };

  const select = (index, quiet) => {
    if (shown.length === 0) return;
    const at = Math.max(0, Math.min(shown.length - 1, index));
    selected = shown[at].position;
    const height = rowHeight(), top = at * height;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + height > list.scrollTop + list.clientHeight) list.scrollTop = top + height - list.clientHeight;
    drawNow();
    if (!details.hidden) describe();
    else if (!quiet) draw();
  };
  const indexOf = () => shown.findIndex((call) => call.position === selected);

  const filter = () => {
    const texts = search.value.toLowerCase().split(" ").filter((word) => word !== "");
    shown = turn.calls.filter((call) => {
      if (toolBox.value !== "" && call.tool !== toolBox.value) return false;
      if (statusBox.value !== "" && (call.status || "none") !== statusBox.value) return false;
      if (critical.checked && !links.has(call.position)) return false;
      if (texts.length === 0) return true;
      const text = ("#" + call.position + " " + call.tool + " " + call.id + " " + call.outcome + " " + call.backend).toLowerCase();
      return texts.every((word) => text.includes(word));
    });
    const startOf = (call) => (call.spans.find((one) => one.kind === "running") || { from: Infinity }).from;
    const by = {
      position: (a, b) => a.position - b.position,
      start: (a, b) => (startOf(a) > startOf(b)) - (startOf(a) < startOf(b)),
      ran: (a, b) => b.ran - a.ran,
      waited: (a, b) => waited(b) - waited(a)
    }[sortBox.value];
    shown.sort((a, b) => by(a, b) || a.position - b.position);
    $("count").textContent = shown.length === turn.calls.length
      ? group.format(shown.length) + (shown.length === 1 ? " call." : " calls.")
      : group.format(shown.length) + " of " + group.format(turn.calls.length) + " calls.";
    list.scrollTop = 0;
    if (shown.length > 0 && indexOf() === -1) selected = shown[0].position;
    const at = indexOf();
    if (at > 0) select(at, true);
    else drawNow();
    if (!details.hidden) describe();
  };

  const look = (a, b) => {
    const least = Math.max(end / 100000, 0.01), wide = Math.min(Math.max(b - a, least), end);
    const middle = (a + b) / 2;
    from = Math.min(Math.max(0, middle - wide / 2), end - wide);
    to = from + wide;
    draw();
  };
  const zoom = (factor, at) => {
    const part = at === undefined ? 0.5 : (at - from) / (to - from);
    const point = from + part * (to - from), wide = Math.min((to - from) * factor, end);
    look(point - part * wide, point + (1 - part) * wide);
  };
  const middleOf = () => {
    const call = turn.calls.find((one) => one.position === selected);
    if (!call) return undefined;
    const run = call.spans.find((one) => one.kind === "running") || { from: call.from, to: call.to === undefined ? turn.elapsed : call.to };
    const at = (Math.max(run.from, from) + Math.min(run.to, to)) / 2;
    return at >= from && at <= to ? at : undefined;
  };
  const pan = (part) => { const by = (to - from) * part; look(from + by, to + by); };
  const fit = () => look(0, turn.elapsed || 1);

  const describe = () => {
    const call = turn.calls.find((one) => one.position === selected);
    if (!call) return shut();
    const close = make("button", "close", "Close");
    close.type = "button";
    close.addEventListener("click", shut);
    const name = make("h3", "", "#" + call.position + " " + call.tool);
    name.id = "name";
    name.tabIndex = -1;
    const facts = make("dl");
    const fact = (key, value) => { if (value !== undefined && value !== "") facts.append(make("dt", "", key), make("dd", "", value)); };
    fact("outcome", call.outcome);
    fact("effect", call.effect);
    fact("undo", call.undo);
    fact("id", call.id);
    fact("backend", call.backend);
    fact("came at", time(call.from));
    fact("answered at", call.to === undefined ? "never" : time(call.to));
    for (const cause of causes) if (call.waited[cause] > 0) fact("waited for " + cause, time(call.waited[cause]));
    fact("ran", call.attempts === 0 ? "not run" : time(call.ran));
    if (call.attempts > 1) fact("attempts", String(call.attempts));
    if (call.progress > 0) fact("progress notes", String(call.progress));
    if (call.cut) fact("cut", "the model got " + call.cut.to + " of " + call.cut.of + " characters" + (call.cut.artifact ? ", the whole is kept" : ""));
    if (call.late) fact("its work ended", time(call.late.at) + ": " + call.late.status);
    const top = make("div", "top");
    top.append(name, close);
    const parts = [top, facts];
    const listed = (title, lines) => {
      if (lines.length === 0) return;
      const items = make("ul");
      for (const line of lines) {
        const item = make("li");
        if (line[0]) item.append(make("i", "dot " + line[0]));
        item.append(line[1]);
        items.append(item);
      }
      parts.push(make("h4", "", title), items);
    };
    listed("Its time", call.spans.map((one) => [
      one.kind,
      time(one.from) + " – " + time(one.to) + ": " + kinds[one.kind] + (one.attempt > 1 ? ", attempt " + one.attempt : "")
    ]));
    listed("On the critical path", (links.get(call.position) || []).map((link) => [
      "", time(link[1]) + " – " + time(link[2]) + ": " + link[3] + (link[4] ? ", " + link[4] : "")
    ]));
    listed("Requests", turn.requests.filter((one) => one.positions.includes(call.position)).map((one) => ["", one.says]));
    details.replaceChildren(...parts);
  };
  const open = () => {
    if (selected === undefined) return;
    details.hidden = false;
    split.classList.add("open");
    describe();
    $("name").focus();
    draw();
  };
  const shut = () => {
    details.hidden = true;
    split.classList.remove("open");
    list.focus();
    draw();
  };

  const fill = (box, all, values) => {
    const counts = new Map();
    for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
    const option = (value, text) => { const one = make("option", "", text); one.value = value; return one; };
    box.replaceChildren(option("", all), ...[...counts].sort((a, b) => b[1] - a[1]).map(([value, n]) => option(value, value + " (" + group.format(n) + ")")));
  };
  const show = (index) => {
    turn = turns[index];
    articles.forEach((article, i) => { article.hidden = i !== index; });
    articles[index].querySelector(".here").append(timeline);
    timeline.hidden = turn.calls.length === 0;
    links = new Map();
    for (const link of turn.path) if (link[0] >= 0) links.set(link[0], [...(links.get(link[0]) || []), link]);
    end = turn.calls.reduce((most, call) => call.late ? Math.max(most, call.late.at) : most, turn.elapsed) || 1;
    from = 0;
    to = turn.elapsed || 1;
    selected = undefined;
    search.value = "";
    critical.checked = false;
    sortBox.value = "position";
    details.hidden = true;
    split.classList.remove("open");
    fill(toolBox, "all tools", turn.calls.map((call) => call.tool));
    fill(statusBox, "all outcomes", turn.calls.map((call) => call.status || "none"));
    const used = new Set(turn.calls.flatMap((call) => call.spans.map((one) => one.kind)));
    $("legend").replaceChildren(...Object.keys(kinds).filter((kind) => used.has(kind)).map((kind) => {
      const entry = make("span");
      entry.append(make("i", "dot " + kind), kinds[kind]);
      return entry;
    }), make("span", "", "framed: the critical path"));
    filter();
  };

  list.addEventListener("scroll", draw);
  list.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const at = indexOf();
    const act = {
      ArrowDown: () => select(at + 1), ArrowUp: () => select(at - 1), PageDown: () => select(at + 10), PageUp: () => select(at - 10),
      Home: () => select(0), End: () => select(shown.length - 1), ArrowLeft: () => pan(-0.15), ArrowRight: () => pan(0.15),
      "+": () => zoom(0.6, middleOf()), "=": () => zoom(0.6, middleOf()), "-": () => zoom(1 / 0.6, middleOf()), "0": fit, Enter: open
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    const typing = event.target.closest && event.target.closest("input[type=search],select");
    if (event.key === "Escape") {
      if (event.target === search) { search.value = ""; filter(); list.focus(); }
      else if (!details.hidden) shut();
      else if (search.value !== "") { search.value = ""; filter(); }
      else return;
      event.preventDefault();
    } else if (!typing && event.key === "/") { event.preventDefault(); search.focus(); }
    else if (!typing && event.key === "?") { event.preventDefault(); $("help").showModal(); }
    else if (event.target === search && (event.key === "Enter" || event.key === "ArrowDown")) { event.preventDefault(); list.focus(); }
  });
  list.addEventListener("wheel", (event) => {
    const lane = space.querySelector(".lane");
    if (!lane) return;
    const box = lane.getBoundingClientRect();
    if (event.ctrlKey) {
      event.preventDefault();
      zoom(event.deltaY > 0 ? 1.25 : 0.8, from + Math.max(0, Math.min(1, (event.clientX - box.left) / box.width)) * (to - from));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      pan((event.deltaX || event.deltaY) / box.width);
    }
  }, { passive: false });
  let drag;
  list.addEventListener("pointerdown", (event) => {
    const row = event.target.closest(".row"), lane = event.target.closest(".lane");
    if (!row || event.button !== 0) return;
    drag = { x: event.clientX, from, to, wide: lane ? lane.clientWidth : 0, moved: false, index: Number(row.dataset.index), id: event.pointerId };
  });
  list.addEventListener("pointermove", (event) => {
    if (!drag || drag.wide === 0 || event.pointerId !== drag.id) return;
    const by = event.clientX - drag.x;
    if (!drag.moved && Math.abs(by) < 4) return;
    if (!drag.moved) list.setPointerCapture(event.pointerId);
    drag.moved = true;
    const move = -by / drag.wide * (drag.to - drag.from);
    look(drag.from + move, drag.to + move);
  });
  list.addEventListener("pointerup", () => {
    if (drag && !drag.moved) { select(drag.index); open(); }
    drag = undefined;
  });
  list.addEventListener("pointercancel", () => { drag = undefined; });
  search.addEventListener("input", filter);
  for (const box of [toolBox, statusBox, sortBox, critical]) box.addEventListener("change", filter);
  $("in").addEventListener("click", () => zoom(0.6, middleOf()));
  $("out").addEventListener("click", () => zoom(1 / 0.6, middleOf()));
  $("earlier").addEventListener("click", () => pan(-0.25));
  $("later").addEventListener("click", () => pan(0.25));
  $("fit").addEventListener("click", fit);
  $("keys").addEventListener("click", () => $("help").showModal());
  const themes = ["system", "light", "dark"];
  $("theme").addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "system") + 1) % 3];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    $("theme").textContent = "Theme: " + next;
  });
  for (const link of document.querySelectorAll("span.call")) {
    const button = make("button", "call", link.textContent);
    button.type = "button";
    button.addEventListener("click", () => {
      const position = Number(link.dataset.position);
      if (!shown.some((call) => call.position === position)) {
        search.value = toolBox.value = statusBox.value = "";
        critical.checked = false;
        filter();
      }
      select(shown.findIndex((call) => call.position === position));
      open();
      timeline.scrollIntoView({ block: "nearest" });
    });
    link.replaceWith(button);
  }
  const chooser = $("turn");
  if (turns.length > 1) {
    chooser.hidden = false;
    turns.forEach((one, i) => {
      const option = make("option", "", i + 1 + " of " + turns.length + ": " + one.head + " (" + one.name + ")");
      option.value = i;
      chooser.append(option);
    });
    chooser.addEventListener("change", () => show(Number(chooser.value)));
  }
  root.classList.add("js");
  addEventListener("resize", draw);
  narrow.addEventListener("change", draw);
  show(0);
})();
`

/** The SHA-256 of the script, as the policy names it. */
export const scriptHash = "sha256-9asZQu7sRiVhAeVyXnWy/cYvI4XzcWXIspHp8OOsOPE="
