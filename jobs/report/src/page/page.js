"use strict";

// What identifies a child among its siblings: a picture and a film stay the same element wherever they move.
const keyOf = (node) => {
  if (node.nodeType !== Node.ELEMENT_NODE) return null;
  return node.dataset.key ?? (node.id || node.querySelector?.(":scope > video")?.getAttribute("src") || null);
};

// Makes `old` look like `fresh`, and keeps elements: what plays goes on, what is open stays open, focus stays where it is.
const morph = (old, fresh) => {
  for (const { name, value } of [...fresh.attributes]) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const { name } of [...old.attributes]) {
    const isOurs = (name === "open" && old.tagName === "DETAILS") || (name === "src" && old.tagName === "IMG");
    if (!isOurs && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  morphChildren(old, fresh);
};

const morphChildren = (old, fresh) => {
  const keyed = new Map([...old.childNodes].map((node) => [keyOf(node), node]).filter(([key]) => key !== null));
  let at = old.firstChild;
  for (const next of [...fresh.childNodes]) {
    const key = keyOf(next);
    let same = key === null ? at : keyed.get(key);
    if (same && (same.nodeName !== next.nodeName || (key === null && keyOf(same) !== null))) same = null;
    if (!same) {
      old.insertBefore(next, at);
      continue;
    }
    if (same === at) at = at.nextSibling;
    else old.insertBefore(same, at);
    if (same.nodeType !== Node.ELEMENT_NODE) {
      if (same.nodeValue !== next.nodeValue) same.nodeValue = next.nodeValue;
    } else if (same.classList.contains("jobs")) morphJobs(same, next);
    else morph(same, next);
  }
  while (at) {
    const rest = at.nextSibling;
    at.remove();
    at = rest;
  }
};

// A table that can be sorted and filtered keeps its head and the filter; rows are those of their jobs.
const tables = new WeakMap();
const morphJobs = (old, fresh) => {
  const byName = new Map([...old.querySelector("tbody").rows].map((row) => [row.cells[0].textContent, row]));
  const body = old.querySelector("tbody");
  const rows = [...fresh.querySelector("tbody").rows].map((row) => {
    const same = byName.get(row.cells[0].textContent);
    byName.delete(row.cells[0].textContent);
    if (!same) return row;
    morph(same, row);
    return same;
  });
  for (const row of byName.values()) row.remove();
  rows.forEach((row, at) => { if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null); });
  tables.get(old)?.();
};

const enhance = (box) => {
  if (tables.has(box)) return;
  const [filter, body] = [box.querySelector(".filter"), box.querySelector("tbody")];
  const [input, output] = [filter.querySelector("input"), filter.querySelector("output")];
  const order = { at: -1, down: false };
  const key = (row) => {
    const cell = row.cells[order.at];
    return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  const apply = () => {
    if (order.at >= 0) {
      const rows = [...body.rows].map((row) => [key(row), row]);
      rows.sort(([a], [b]) => (a === "") - (b === "") || (order.down ? compare(b, a) : compare(a, b)));
      rows.forEach(([, row], at) => { if (body.rows[at] !== row) body.insertBefore(row, body.rows[at] ?? null); });
    }
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    output.textContent = shown + (shown === 1 ? " job" : " jobs");
  };
  tables.set(box, apply);
  filter.classList.add("on");
  filter.addEventListener("input", apply);
  box.querySelectorAll("thead th").forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      order.down = order.at === at && !order.down;
      order.at = at;
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order.down ? "descending" : "ascending");
      apply();
    });
  });
};

const show = ({ id, html }) => {
  const place = document.getElementById(id);
  const fresh = document.createElement("template");
  fresh.innerHTML = html;
  morphChildren(place, fresh.content);
  place.querySelectorAll(".jobs").forEach(enhance);
  const part = place.closest("section");
  if (part) {
    part.hidden = html === "";
    const link = document.querySelector(`nav a[href="#${part.id}"]`);
    if (link) link.parentNode.hidden = html === "";
  }
  if (id === "now") pictures();
  tick();
};

// The newest picture of each environment, by its version.
let versions = {};
const pictures = () => {
  for (const image of document.querySelectorAll("img[data-picture]")) {
    const version = versions[image.dataset.picture];
    const source = version === undefined ? null : `picture/${image.dataset.picture}?${version}`;
    if (source && image.getAttribute("src") !== source && image.complete) image.setAttribute("src", source);
  }
};

// A picture may be gone before it is loaded, because a new job began: the next one is loaded anew.
document.addEventListener("error", (event) => {
  if (event.target.matches?.("img[data-picture]")) event.target.removeAttribute("src");
}, true);

const tick = () => {
  for (const time of document.querySelectorAll("time[data-since]")) {
    const seconds = Math.max(0, Math.round((Date.now() - Date.parse(time.dataset.since)) / 1000));
    const text = seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${String(seconds % 60).padStart(2, "0")} s`;
    if (time.textContent !== text) time.textContent = text;
  }
};
setInterval(tick, 1000);

// A run that has ended has no server any more, which is no fault.
const lost = (is) => { document.getElementById("lost").hidden = !is || document.getElementById("ended") !== null; };

// Asks what has changed since it last asked; the answer comes when something has. While nobody answers, it asks ever
// more slowly. Timers of hidden tabs are slow, so that one alone would miss the end of the run.
const [PAUSE_MS, LONGEST_MS] = [1000, 60000];
let [seen, pause] = [document.body.dataset.seen, PAUSE_MS];
const ask = async () => {
  try {
    const answer = await fetch(`news?seen=${encodeURIComponent(seen)}`);
    if (!answer.ok) throw new Error(answer.statusText);
    const news = await answer.json();
    if (news.pictures) versions = news.pictures;
    news.parts.forEach(show);
    pictures();
    [seen, pause] = [news.seen, PAUSE_MS];
    lost(false);
    ask();
  } catch {
    lost(true);
    setTimeout(ask, pause);
    pause = Math.min(2 * pause, LONGEST_MS);
  }
};
if (seen !== undefined) ask();

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-command]");
  if (!button || !confirm(button.dataset.confirm)) return;
  button.disabled = true;
  const { command, job } = button.dataset;
  const answer = await fetch("command", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ command, job }) });
  if (!answer.ok) {
    button.disabled = false;
    alert(await answer.text());
  }
});

document.querySelectorAll(".jobs").forEach(enhance);
tick();
