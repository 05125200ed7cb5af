"use strict";
// Live pages: what is marked with data-live is fetched again. A page without this script shows the same, as it was when it was loaded.
const SECONDS = 5;
async function renew() {
  const parts = [...document.querySelectorAll("[data-live]")];
  if (!parts.length || document.hidden) return;
  try {
    const answer = await fetch(location.href, { headers: { "X-Live": "1" }, redirect: "error" });
    if (!answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts) {
      const found = page.getElementById(part.id);
      if (!found || part.contains(document.activeElement) || found.innerHTML === part.dataset.seen) continue;
      const opened = [...part.querySelectorAll("details")].map(each => each.open);
      part.replaceChildren(...document.importNode(found, true).childNodes);
      part.className = found.className;
      part.dataset.seen = found.innerHTML;
      part.querySelectorAll("details").forEach((each, i) => { each.open = opened[i] ?? each.open; });
    }
    filterAll();
  } catch { /* the server is away: the page stays as it is, with its time */ }
}
function filterAll() {
  for (const input of document.querySelectorAll("input[data-filter]")) {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const table = document.getElementById(input.dataset.filter);
    if (!table) continue;
    let shown = 0;
    for (const row of table.tBodies[0].rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
      shown += !row.hidden;
    }
    const said = document.getElementById(input.dataset.filter + "-shown");
    if (said) said.textContent = words.length ? shown + " of " + table.tBodies[0].rows.length + " rows shown" : "";
  }
}
for (const each of document.querySelectorAll("[data-script]")) each.hidden = false;
document.addEventListener("input", event => { if (event.target.matches("input[data-filter]")) filterAll(); });
setInterval(renew, SECONDS * 1000);
