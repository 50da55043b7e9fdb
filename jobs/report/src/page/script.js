"use strict";
for (const box of document.querySelectorAll(".jobs")) {
  const body = box.querySelector("tbody");
  const filter = box.querySelector(".filter");
  const input = filter.querySelector("input");
  const output = filter.querySelector("output");
  const unit = output.textContent.replace(/^\S+/, "");
  const key = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
  };
  const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  const choices = [...filter.querySelectorAll("select")];
  filter.classList.add("on");
  filter.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      const isChosen = choices.every(({ name, value }) => value === "" || row.dataset[name] === value);
      row.hidden = !isChosen || !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    output.textContent = shown + unit;
  });
  box.querySelectorAll("thead th").forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [key(row, at), row]);
      // What is not known comes last either way.
      rows.sort(([a], [b]) => (a === "") - (b === "") || (down ? compare(b, a) : compare(a, b)));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
