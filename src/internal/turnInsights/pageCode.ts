/** What the page brings along: its looks, and the one script that its policy lets run. */

export const styles = `
:root{color-scheme:light dark;--paper:#fbfaf8;--card:#fff;--ink:#1d1f23;--soft:#5b616b;--line:#dcdad5;--bar:#2f6f8f;--good:#1d6b43;--shade:#0004}
@media (prefers-color-scheme:dark){:root{--paper:#16181c;--card:#1e2126;--ink:#e8e6e1;--soft:#a3a9b3;--line:#353a42;--bar:#6fb3d2;--good:#7fd0a3;--shade:#000c}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main,header{max-width:96rem;margin:0 auto;padding:0 1rem}
header{padding-top:2rem}
h1{font-size:1.6rem;line-height:1.2;margin:0 0 .25rem}
h2{font-size:1.15rem;margin:2.5rem 0 .75rem}
h3{font-size:1rem;margin:0 0 .75rem}
p{max-width:44rem}
.soft{color:var(--soft)}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.skip:not(:focus){position:absolute;left:-99rem}
dl.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(7rem,1fr));gap:.75rem;margin:1.25rem 0 0}
dl.tiles div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.75rem .9rem;display:flex;flex-direction:column-reverse;justify-content:flex-end}
dl.tiles dt{color:var(--soft);font-size:.85rem}
dl.tiles dd{margin:0;font-size:1.4rem;font-weight:600;line-height:1.2;font-variant-numeric:tabular-nums}
dl.tiles .good dd{color:var(--good)}
.charts{display:grid;grid-template-columns:repeat(3,minmax(0,1fr));gap:1rem;align-items:start}
@media (max-width:60rem){.charts{grid-template-columns:minmax(0,1fr)}}
figure{margin:0;background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:1rem;min-width:0;position:relative;container-type:inline-size}
svg{display:block;overflow:hidden}
svg.bars{overflow:visible}
svg rect{fill:var(--bar)}
svg line{stroke:var(--line)}
svg text{fill:var(--soft);font-size:12px;text-anchor:middle}
svg text.v{font-size:11px;fill:var(--ink);paint-order:stroke;stroke:var(--card);stroke-width:3px;font-variant-numeric:tabular-nums}
svg text.name{text-anchor:start;fill:var(--ink)}
@container (max-width:40rem){svg text.rare{display:none}}
details{margin-top:.75rem}
summary{cursor:pointer;color:var(--soft);font-size:.9rem}
.wide{overflow-x:auto;border:1px solid var(--line);border-radius:.5rem;background:linear-gradient(to right,var(--card) 50%,transparent) left/3rem 100% no-repeat local,linear-gradient(to left,var(--card) 50%,transparent) right/3rem 100% no-repeat local,linear-gradient(to right,var(--shade),transparent) left/1.25rem 100% no-repeat,linear-gradient(to left,var(--shade),transparent) right/1.25rem 100% no-repeat,var(--card)}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{padding:.45rem .75rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);font-weight:400}
thead th{font-weight:600;vertical-align:bottom}
thead .n{min-width:3.5rem}
tbody tr:last-child>*{border-bottom:0}
.n{text-align:right;padding-inline:.5rem;font-variant-numeric:tabular-nums}
.long{overflow-wrap:anywhere;min-width:clamp(8rem,13vw,15rem)}
figure .long{min-width:0}
th button{all:unset;cursor:pointer;font-weight:600}
th button:hover{text-decoration:underline}
th button::after{content:"\\a0\\2195";color:var(--soft);font-weight:400}
th[aria-sort=ascending] button::after{content:"\\a0\\2191";color:inherit}
th[aria-sort=descending] button::after{content:"\\a0\\2193";color:inherit}
a,button,input,summary,.wide{outline-offset:2px}
:focus-visible{outline:2px solid var(--bar)!important}
.tools{display:flex;flex-wrap:wrap;gap:.5rem .75rem;align-items:center;margin-bottom:.75rem}
.tools input,.tools button{font:inherit;font-size:.9rem;padding:.35rem .6rem;border:1px solid var(--line);border-radius:.4rem;background:var(--card);color:inherit}
.tools button:disabled{opacity:.5}
.tools input{min-width:0;flex:0 1 16rem}
footer{max-width:96rem;margin:3rem auto 2rem;padding:0 1rem}
li{max-width:44rem;margin-bottom:.35rem}
@media print{:root{color-scheme:light;--paper:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#bbb;--bar:#444;--good:#000;--shade:#0000}
.tools,.skip,details:not([open]){display:none}figure,tr,dl.tiles div{break-inside:avoid}.wide{overflow:visible;border:0}table{font-size:.7rem}th,td{padding:.2rem .35rem}.long,thead .n{min-width:0}thead{display:table-header-group}
svg rect{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
`

/** Sorts, filters and pages the user turns. Texts go in as text, never as markup. */
export const script = `
(() => {
  const data = JSON.parse(document.getElementById("rows").textContent);
  const table = document.getElementById("turns");
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const bar = document.getElementById("turn-tools");
  const filter = document.getElementById("filter");
  const [before, after] = bar.querySelectorAll("button");
  const status = document.getElementById("status");
  const numeric = heads.map((head) => head.classList.contains("n"));
  const format = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
  const size = 50;
  let shown = data, page = 0, column = -1, up = false;
  const compare = (a, b) => {
    if (numeric[column]) return (a[column] ?? -1) - (b[column] ?? -1);
    return a[column] < b[column] ? -1 : a[column] > b[column] ? 1 : 0;
  };
  const draw = () => {
    const pages = Math.max(1, Math.ceil(shown.length / size));
    page = Math.min(page, pages - 1);
    const rows = document.createDocumentFragment();
    for (const row of shown.slice(page * size, (page + 1) * size)) {
      const line = document.createElement("tr");
      row.forEach((value, i) => {
        const cell = document.createElement(i === 0 ? "th" : "td");
        if (i === 0) cell.scope = "row";
        cell.className = numeric[i] ? "n" : "long";
        cell.textContent = numeric[i] ? value === null ? "?" : format.format(value) : value;
        line.append(cell);
      });
      rows.append(line);
    }
    body.replaceChildren(rows);
    before.disabled = page === 0;
    after.disabled = page === pages - 1;
    const from = shown.length === 0 ? 0 : page * size + 1;
    status.textContent = from + "\\u2013" + Math.min(shown.length, (page + 1) * size) + " of " + format.format(shown.length);
  };
  const select = () => {
    const words = filter.value.toLowerCase().split(/\\s+/).filter((word) => word !== "");
    shown = words.length === 0 ? [...data] : data.filter((row) => {
      const text = row.filter((_, i) => !numeric[i]).join(" ").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    if (column >= 0) shown.sort((a, b) => up ? compare(a, b) : compare(b, a));
    page = 0;
    draw();
  };
  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      up = column === i ? !up : !numeric[i];
      column = i;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      select();
    });
  });
  let later;
  filter.addEventListener("input", () => { clearTimeout(later); later = setTimeout(select, 120); });
  before.addEventListener("click", () => { page--; draw(); });
  after.addEventListener("click", () => { page++; draw(); });
  bar.hidden = false;
  document.getElementById("more")?.remove();
  draw();
})();
`

/** The SHA-256 of the script, as the policy names it. */
export const scriptHash = "sha256-SWVonortX5NfcZJUJ5iFcpNGbIzjimE7ywXw/+Pp9hE="
