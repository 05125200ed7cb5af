"""The style sheet of the report pages, and the script that sorts their long tables. A page without the script shows the same."""

STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1c2430; --pale: #5f6873; --line: #e3e6ea; --shade: #1c243038; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 72rem; margin: 2.5rem auto; padding: 0 1.2rem; color: var(--ink);
  background: var(--page); overflow-wrap: break-word; }
h1 { font-size: 1.7rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93rem; }
th, td { padding: .3rem .55rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th.words, td.words { text-align: left; } td.words { white-space: normal; min-width: 5rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th[title] { text-decoration: underline dotted; text-underline-offset: .2em; cursor: help; }
th[aria-sort] { cursor: pointer; } th[aria-sort=ascending]::after { content: " ↑"; } th[aria-sort=descending]::after { content: " ↓"; }
/* what is wider than the page scrolls by itself, and a shadow at its edge says so */
div.wide, figure, pre { overflow-x: auto; margin: 1rem 0; background:
  linear-gradient(90deg, var(--page) 40%, transparent) 0 0 / 3rem 100% no-repeat local,
  linear-gradient(-90deg, var(--page) 40%, transparent) 100% 0 / 3rem 100% no-repeat local,
  linear-gradient(90deg, var(--shade), transparent) 0 0 / 1rem 100% no-repeat scroll,
  linear-gradient(-90deg, var(--shade), transparent) 100% 0 / 1rem 100% no-repeat scroll, var(--page); }
figure { color: var(--ink); }
svg { display: block; max-width: 100%; min-width: calc(.7 * var(--natural)); height: auto; fill: currentColor; }
p.finding { border-left: 3px solid #3579c8; padding-left: .9rem; }
details { margin: 1rem 0; } summary { cursor: pointer; color: var(--pale); }
tr.reference td { color: var(--pale); } td.best { font-weight: 700; }
ul.verdicts { list-style: none; padding: 0; } ul.verdicts li { border-left: 5px solid; padding: .1rem 0 .3rem .8rem; margin: .6rem 0; }
ul.verdicts span { font-size: .8rem; color: var(--pale); } ul.verdicts .green { border-color: #239b62; }
ul.verdicts .yellow { border-color: #d9a514; } ul.verdicts .red { border-color: #c8352b; }
footer { margin-top: 3rem; font-size: .85rem; color: var(--pale); } code, pre { font: .9em ui-monospace, monospace; }
pre { padding: .8rem 1rem; border: 1px solid var(--line); border-radius: 6px; }
@media screen and (prefers-color-scheme: dark) {
  :root { --page: #14181d; --ink: #dde3ea; --pale: #9aa5b1; --line: #2b323a; --shade: #dde3ea48; } }
@media screen and (max-width: 40rem) {
  body { margin: 1.2rem auto; padding: 0 .9rem; } table { font-size: .84rem; } th, td { padding: .25rem .35rem; }
  pre { font-size: .8rem; } }
@media print {
  :root { color-scheme: light; } body { max-width: none; margin: 0; font-size: 10pt; } table { font-size: 8.5pt; }
  div.wide, figure, pre { overflow: visible; background: none; } pre { white-space: pre-wrap; } svg { min-width: 0; }
  figure, tr, ul.verdicts li { break-inside: avoid; } h2 { break-after: avoid; } }
"""

SCRIPT = """
for (const table of document.querySelectorAll("table.long")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], rows = [...body.rows];
  const text = (row, j) => row.cells[j].textContent.trim();
  const digits = /[-+]?(\\d+\\.?\\d*|\\.\\d+)(e[-+]?\\d+)?/i;
  const number = words => +(words.replace(/,/g, "").match(digits) ?? [Infinity])[0];
  for (const row of rows) heads.forEach((head, j) => { if (j) row.cells[j].title = text(row, 0) + ", " + head.textContent; });
  heads.forEach((head, j) => {
    const sort = () => {
      const order = { none: "ascending", ascending: "descending", descending: "none" }[head.ariaSort];
      heads.forEach(other => { other.ariaSort = "none"; });
      head.ariaSort = order;
      const words = head.classList.contains("words"), up = order == "ascending" ? 1 : -1;
      const compare = (a, b) => words ? up * text(a, j).localeCompare(text(b, j)) : up * (number(text(a, j)) - number(text(b, j)));
      body.append(...(order == "none" ? rows : [...rows].sort((a, b) => compare(a, b) || 0)));
    };
    head.ariaSort = "none"; head.tabIndex = 0; head.title ||= "sort by " + head.textContent;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", event => { if (event.key == "Enter") sort(); });
  });
}
"""
