(() => {
  "use strict";
  const make = (tag, name, text) => {
    const element = document.createElement(tag);
    if (name) element.className = name;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // Tables: numbers stand in data-sort (empty: missing, always last), the rest is sorted as text.
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
  for (const table of document.querySelectorAll("table.sortable")) {
    for (const heading of table.tHead.rows[0].cells) {
      const button = make("button");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      button.addEventListener("click", () => {
        const first = heading.dataset.first || "ascending";
        const second = first === "ascending" ? "descending" : "ascending";
        sortBy(table, heading, heading.getAttribute("aria-sort") === first ? second : first);
      });
    }
  }

  // Charts: the pointer, a finger or the arrow keys read values; the legend hides and shows lines.
  const shown = 10;
  const text = (value) => String(Number(value.toPrecision(4))).replace("-", "\u2212");
  const nearest = (places, distance) => places.reduce((best, i) => (distance(i) < distance(best) ? i : best));
  const within = (places, i) => places[Math.min(Math.max(i, 0), places.length - 1)];

  const reader = ({ name, x_label, x, across, lines }) => {
    const area = document.getElementById(name);
    const groups = [...area.querySelectorAll(".series")]; // as many as lines, in their order
    const cursor = area.appendChild(make("div", "cursor"));
    const tip = area.appendChild(make("div", "tip"));
    tip.setAttribute("role", "status");
    cursor.hidden = tip.hidden = true;
    area.tabIndex = 0;
    area.setAttribute("role", "application");
    area.setAttribute("aria-label", `${area.getAttribute("aria-label")} Arrow keys read its values.`);
    let at = 0; // which point
    let near = 0; // which line

    // The lines that can be read at a point, from the top; and the points that have such lines.
    const readable = (i, j) => lines[i].mean[j] !== null && !groups[i].hasAttribute("hidden");
    const linesAt = (j) =>
      [...lines.keys()].filter((i) => readable(i, j)).sort((a, b) => lines[b].mean[j] - lines[a].mean[j]);
    const points = () => [...x.keys()].filter((j) => lines.some((_, i) => readable(i, j)));

    const hide = () => {
      cursor.hidden = tip.hidden = true;
      area.classList.remove("reading");
    };
    const entry = (i) => {
      const { label, mean, low, high } = lines[i];
      const element = make("div", i === near ? "ink near" : "ink");
      element.style.cssText = groups[i].style.cssText;
      element.append(make("span", "chip"), `${label}: ${text(mean[at])}`);
      const spread = i === near && low[at] !== null && low[at] !== high[at];
      return spread ? [element, make("div", "ends", `${text(low[at])} to ${text(high[at])}`)] : [element];
    };
    const show = () => {
      const here = linesAt(at);
      if (!here.includes(near)) [near] = here;
      const distance = (i) => Math.abs(lines[i].down[at] - lines[near].down[at]);
      const listed = new Set([...here].sort((a, b) => distance(a) - distance(b)).slice(0, shown));
      tip.replaceChildren(make("div", "", `${x_label} ${text(x[at])}`));
      tip.append(...here.filter((i) => listed.has(i)).flatMap(entry));
      if (here.length > shown) tip.append(make("div", "", `and ${here.length - shown} further away`));
      groups.forEach((group, i) => group.classList.toggle("near", i === near));
      area.classList.add("reading");
      const left = across[at] / 10;
      cursor.style.left = `${left}%`;
      tip.style.left = left < 50 ? `calc(${left}% + 0.6rem)` : "auto";
      tip.style.right = left < 50 ? "auto" : `calc(${100 - left}% + 0.6rem)`;
      tip.style.maxWidth = `calc(${Math.max(left, 100 - left)}% - 0.4rem)`;
      cursor.hidden = tip.hidden = false;
    };

    const point = (event) => {
      const frame = area.getBoundingClientRect();
      const places = points();
      if (!places.length) return;
      const left = (1000 * (event.clientX - frame.left)) / frame.width;
      const top = (1000 * (event.clientY - frame.top)) / frame.height;
      at = nearest(places, (j) => Math.abs(across[j] - left));
      near = nearest(linesAt(at), (i) => Math.abs(lines[i].down[at] - top));
      show();
    };
    area.addEventListener("pointermove", point);
    area.addEventListener("pointerdown", (event) => {
      area.focus({ preventScroll: true }); // so that values stay under a lifted finger until it taps elsewhere
      point(event);
    });
    area.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && hide());
    area.addEventListener("pointercancel", hide);
    area.addEventListener("blur", hide);
    area.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
      const places = points();
      if (event.key === "Escape") hide();
      if (!places.length || event.ctrlKey || event.altKey || event.metaKey) return;
      if (event.key in steps) {
        const first = tip.hidden && event.key !== "End"; // the first key shows the first point
        at = first ? places[0] : within(places, places.indexOf(at) + steps[event.key]);
      } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
        if (tip.hidden) [at] = places;
        const here = linesAt(at);
        near = within(here, here.indexOf(near) + (event.key === "ArrowUp" ? -1 : 1));
      } else {
        return;
      }
      event.preventDefault();
      show();
    });
  };

  for (const area of JSON.parse(document.getElementById("areas").textContent)) reader(area);
  for (const item of document.querySelectorAll(".legend li")) {
    const figure = item.closest("figure");
    const button = make("button");
    button.type = "button";
    button.title = "hide or show";
    button.setAttribute("aria-pressed", "true");
    button.append(...item.childNodes);
    item.append(button);
    button.addEventListener("click", () => {
      const on = button.getAttribute("aria-pressed") === "false";
      button.setAttribute("aria-pressed", String(on));
      for (const group of figure.querySelectorAll(".series")) {
        if (group.dataset.label === item.dataset.label) group.toggleAttribute("hidden", !on);
      }
    });
  }
})();
