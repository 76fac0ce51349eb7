// Tables: numbers are in data-sort (empty: missing, always last), the rest is sorted as text.
"use strict";
const key = (cell) => {
  const plain = cell.dataset.sort;
  if (plain !== undefined) return plain === "" ? null : Number(plain);
  return cell.textContent.trim() || null;
};
const order = (a, b) => (typeof a === "number" ? a - b : a.localeCompare(b, "en"));
const sortBy = (table, heading, direction) => {
  const sign = direction === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows].map((row) => [key(row.cells[heading.cellIndex]), row]);
  rows.sort(([a], [b]) => {
    if (a === null || b === null) return (a === null) - (b === null);
    return sign * order(a, b);
  });
  table.tBodies[0].append(...rows.map(([, row]) => row));
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", direction);
};
for (const heading of document.querySelectorAll("table.sortable thead th")) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...heading.childNodes);
  heading.append(button);
  button.addEventListener("click", () => {
    const first = heading.dataset.first || "ascending";
    const second = first === "ascending" ? "descending" : "ascending";
    sortBy(heading.closest("table"), heading, heading.getAttribute("aria-sort") === first ? second : first);
  });
}
