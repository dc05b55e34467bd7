/** How the page looks: light and dark, on a screen, on a telephone, on paper. */

export const styles = `
:root{color-scheme:light;--paper:#fbfaf8;--card:#fff;--ink:#1d1f23;--soft:#5b616b;--line:#dcdad5;--edge:#8b867c;--bar:#2f6f8f;--sel:#e6eff4;--good:#1d6b43;--bad:#a3261c;--keys:#b5791a;--permit:#7a5cb8;--rate:#b0508e;--approval:#5f7a1e;--idle:#9a958b;--pause:#8a8f98}
@media (prefers-color-scheme:dark){:root:not([data-theme=light]){color-scheme:dark;--paper:#16181c;--card:#1e2126;--ink:#e8e6e1;--soft:#a3a9b3;--line:#353a42;--edge:#767d88;--bar:#6fb3d2;--sel:#263742;--good:#7fd0a3;--bad:#ff9a8d;--keys:#e0a94a;--permit:#b39ae6;--rate:#e08cc0;--approval:#a8c45c;--idle:#6f7580;--pause:#8a919c}}
:root[data-theme=dark]{color-scheme:dark;--paper:#16181c;--card:#1e2126;--ink:#e8e6e1;--soft:#a3a9b3;--line:#353a42;--edge:#767d88;--bar:#6fb3d2;--sel:#263742;--good:#7fd0a3;--bad:#ff9a8d;--keys:#e0a94a;--permit:#b39ae6;--rate:#e08cc0;--approval:#a8c45c;--idle:#6f7580;--pause:#8a919c}
*{box-sizing:border-box}
[hidden]{display:none!important}
body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main,header,footer{max-width:96rem;margin:0 auto;padding:0 1rem}
header{padding-top:1.25rem}
.head{display:flex;flex-wrap:wrap;gap:.5rem 1rem;align-items:center;justify-content:space-between}
h1{font-size:1.6rem;line-height:1.2;margin:0}
h2{font-size:1.15rem;margin:2rem 0 .75rem}
p{max-width:44rem;margin:.5rem 0}
.of{margin:.25rem 0 0;overflow-wrap:anywhere}
.lead{font-size:1.05rem;font-weight:600;margin:.25rem 0;overflow-wrap:anywhere}
.note{border-left:3px solid var(--keys);padding-left:.6rem}
.soft{color:var(--soft)}
.small{font-size:.85rem}
.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.skip:not(:focus){position:absolute;left:-99rem}
.still{display:block}
.live:not([hidden]){display:block}
.head .live{display:none}
.js .still{display:none}
.js .head .live{display:flex}
dl.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8rem,1fr));gap:.6rem;margin:1rem 0 0}
dl.tiles div{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.6rem .8rem;display:flex;flex-direction:column-reverse;justify-content:flex-end}
dl.tiles dt{color:var(--soft);font-size:.85rem}
dl.tiles dd{margin:0;font-size:1.25rem;font-weight:600;line-height:1.2;font-variant-numeric:tabular-nums}
.columns{display:grid;grid-template-columns:minmax(0,3fr) minmax(0,2fr);gap:0 2rem}
@media (max-width:60rem){.columns{grid-template-columns:minmax(0,1fr)}}
.tools{display:flex;flex-wrap:wrap;gap:.4rem;align-items:center;margin-bottom:.5rem}
.tools input[type=search]{flex:1 1 14rem;min-width:0;max-width:26rem}
.tools select{max-width:14rem;min-width:0;text-overflow:ellipsis}
.tools input[type=search],select,button{font:inherit;font-size:.9rem;padding:.35rem .6rem;min-height:2.2rem;border:1px solid var(--edge);border-radius:.4rem;background:var(--card);color:inherit}
button{cursor:pointer}
.check{display:inline-flex;gap:.35rem;align-items:center;font-size:.9rem;min-height:2.2rem;padding:0 .25rem}
.zoom{display:inline-flex;gap:.25rem;margin-left:auto}
.zoom button{min-width:2.2rem}
.legend{display:flex;flex-wrap:wrap;gap:.15rem .9rem;font-size:.85rem;color:var(--soft);margin:.25rem 0 .5rem;max-width:none}
.legend span{white-space:nowrap}
.dot{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.35em;vertical-align:-.05em}
.running{background:var(--bar)}
.overdue{background:repeating-linear-gradient(135deg,var(--bar) 0 4px,var(--bad) 4px 8px)}
.late{background:repeating-linear-gradient(135deg,var(--bad) 0 3px,transparent 3px 6px)}
.keys{--of:var(--keys)}.permit{--of:var(--permit)}.rate{--of:var(--rate)}.approval{--of:var(--approval)}
.keys.s,.permit.s,.rate.s,.approval.s,.keys.dot,.permit.dot,.rate.dot,.approval.dot{background:repeating-linear-gradient(90deg,var(--of) 0 2px,transparent 2px 5px),color-mix(in srgb,var(--of) 28%,transparent)}
.starting,.twin,.unit,.submitted,.closing,.unknown{background:repeating-linear-gradient(90deg,var(--idle) 0 2px,transparent 2px 6px)}
.unit{background:color-mix(in srgb,var(--good) 55%,transparent)}
.pause{background:linear-gradient(transparent 42%,var(--pause) 42% 58%,transparent 58%)}
.split{display:grid;grid-template-columns:minmax(0,1fr);gap:1rem;align-items:start}
.chart{min-width:0}
.axis,.row{display:grid;grid-template-columns:minmax(7rem,15rem) minmax(8rem,13rem) minmax(0,3fr) 4.8rem;column-gap:.6rem;padding:0 .6rem;align-items:center}
.axis{height:1.5rem;font-size:.75rem;color:var(--soft);margin-right:var(--gutter,0)}
#ticks{grid-column:3;position:relative;height:100%;overflow:hidden}
#ticks span{position:absolute;white-space:nowrap;border-left:1px solid var(--line);padding-left:.25rem;height:100%}
#list{position:relative;overflow-y:auto;overflow-x:hidden;max-height:min(34rem,65vh);border:1px solid var(--line);border-radius:.5rem;background:var(--card)}
#space{position:relative}
.row{position:absolute;left:0;right:0;height:30px;font-size:.875rem;border-bottom:1px solid var(--line);cursor:default;scroll-margin:0}
.row:hover{background:color-mix(in srgb,var(--sel) 55%,transparent)}
.row[aria-selected=true]{background:var(--sel)}
#list:focus-visible .row[aria-selected=true]{outline:2px solid var(--bar);outline-offset:-2px}
.row .name,.row .out{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.row .name b{font-weight:400;color:var(--soft);font-variant-numeric:tabular-nums}
.row.crit .name{font-weight:600}
.row .took{text-align:right;font-variant-numeric:tabular-nums;color:var(--soft)}
.good{color:var(--good)}.bad{color:var(--bad)}
.lane{position:relative;height:18px;min-width:6rem;overflow:hidden;touch-action:pan-y}
.row .lane{min-width:0;cursor:grab}
.s{position:absolute;top:3px;bottom:3px;min-width:2px}
.s.crit{top:0;bottom:0;border-block:2px solid var(--ink)}
.edge{position:absolute;top:0;bottom:0;border-left:1px dashed var(--edge)}
.stack{position:relative;display:flex;height:1.1rem;border:1px solid var(--line);border-radius:.25rem;overflow:hidden}
.stack .s{position:static;flex:none;min-width:0}
ol.path{list-style:none;margin:0;padding:.4rem .6rem;max-height:24rem;overflow-y:auto;border:1px solid var(--line);border-radius:.5rem;background:var(--card);font-size:.9rem}
ol.path li{padding:.15rem 0 .15rem 5.2rem;overflow-wrap:anywhere;position:relative}
ol.path .time{position:absolute;left:0;width:4.7rem;text-align:right;font-variant-numeric:tabular-nums}
button.call{all:unset;cursor:pointer;color:var(--bar);text-decoration:underline;overflow-wrap:anywhere}
#details{background:var(--card);border:1px solid var(--line);border-radius:.5rem;padding:.75rem 1rem 1rem;min-width:0;overflow-wrap:anywhere}
#details .top{display:flex;gap:.75rem;align-items:flex-start;justify-content:space-between}
#details h3{margin:.25rem 0;font-size:1.05rem;min-width:0}
#details dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.15rem .9rem;margin:.6rem 0;font-size:.9rem}
#details dt{color:var(--soft)}
#details dd{margin:0;font-variant-numeric:tabular-nums}
#details h4{margin:.75rem 0 .25rem;font-size:.95rem}
#details ul{list-style:none;margin:0;padding:0;font-size:.9rem}
@media (min-width:70rem){.split.open{grid-template-columns:minmax(0,1fr) 22rem}#details{max-height:calc(min(34rem,65vh) + 1.5rem);overflow-y:auto}}
.wide{overflow-x:auto;border:1px solid var(--line);border-radius:.5rem;background:var(--card);margin:.5rem 0}
table{border-collapse:collapse;width:100%;font-size:.9rem}
th,td{padding:.35rem .6rem;text-align:left;vertical-align:top;border-bottom:1px solid var(--line);font-weight:400}
thead th{font-weight:600;vertical-align:bottom}
tbody tr:last-child>*{border-bottom:0}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.long{overflow-wrap:anywhere;min-width:6rem}
.still td:last-child{width:40%;min-width:12rem}
ul{padding-left:1.2rem}
dialog{border:1px solid var(--edge);border-radius:.5rem;background:var(--card);color:var(--ink);max-width:min(30rem,calc(100vw - 2rem))}
dialog::backdrop{background:#0008}
dialog h2{margin-top:0}
dl.keys div{display:grid;grid-template-columns:9rem 1fr;gap:.5rem;padding:.15rem 0}
dl.keys dd{margin:0}
kbd{font:inherit;font-weight:600}
a,button,input,select,.wide,#list,ol.path{outline-offset:2px}
:focus-visible{outline:2px solid var(--bar)}
button.call:focus-visible{outline:2px solid var(--bar)}
footer{margin:2.5rem auto 2rem}
@media (max-width:48rem){.axis{grid-template-columns:minmax(0,1fr)}#ticks{grid-column:1}
.row{height:54px;grid-template-columns:minmax(0,1fr) minmax(0,max-content) max-content;grid-template-rows:24px 18px;row-gap:2px;align-content:center}
.row .lane{grid-area:2/1/3/4}.row .name{grid-area:1/1}.row .out{grid-area:1/2}.row .took{grid-area:1/3}
#list{max-height:60vh}.zoom{margin-left:0}.live .tools select{flex:1 1 8rem;max-width:none}}
@media (prefers-reduced-motion:no-preference){.row{transition:background-color .12s}}
@media (forced-colors:active){.s,.dot{forced-color-adjust:none}.row[aria-selected=true]{outline:2px solid Highlight;outline-offset:-2px}}
@media print{:root,:root[data-theme]{color-scheme:light;--paper:#fff;--card:#fff;--ink:#000;--soft:#444;--line:#bbb}
.live,.js .live,.skip,dialog{display:none!important}.js .still{display:block}article[hidden]{display:block!important}tr,dl.tiles div,li{break-inside:avoid}.wide,ol.path{overflow:visible;max-height:none}thead{display:table-header-group}
.s,.dot{print-color-adjust:exact;-webkit-print-color-adjust:exact}.columns{display:block}table{font-size:.75rem}}
`
