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

  // Charts: the pointer or the arrow keys read values; the legend hides and shows lines.
  const shown = 10;
  const text = (value) => String(Number(value.toPrecision(4))).replace("-", "\u2212");
  const spread = (line, i) =>
    line.low[i] === null || line.low[i] === line.high[i] ? "" : `${text(line.low[i])} to ${text(line.high[i])}`;

  const reader = (panel) => {
    const area = document.getElementById(panel.name);
    const figure = area.closest("figure");
    const groups = panel.lines.map((line) =>
      [...area.querySelectorAll(".series")].find((group) => group.dataset.label === line.label));
    const cursor = area.appendChild(make("div", "cursor"));
    const tip = area.appendChild(make("div", "tip"));
    tip.setAttribute("role", "status");
    cursor.hidden = tip.hidden = true;
    area.tabIndex = 0;
    area.setAttribute("role", "application");
    area.setAttribute("aria-label", `${area.getAttribute("aria-label")} Arrow keys read its values.`);
    let at = -1;
    let near = -1;

    const across = (x) => (x - panel.x_range[0]) / (panel.x_range[1] - panel.x_range[0]);
    const down = (y) => {
      const [low, high] = panel.y_range;
      return panel.log ? Math.log(high / Math.max(y, low / 10)) / Math.log(high / low) : (high - y) / (high - low);
    };
    const visible = () => panel.lines.map((_, i) => i).filter((i) => !groups[i].hasAttribute("hidden"));
    const hide = () => {
      cursor.hidden = tip.hidden = true;
      area.classList.remove("reading");
    };
    const show = () => {
      const here = visible().filter((i) => panel.lines[i].mean[at] !== null);
      if (!here.length) return hide();
      const value = (i) => panel.lines[i].mean[at];
      if (!here.includes(near)) near = here[0];
      const distance = (i) => Math.abs(down(value(i)) - down(value(near)));
      const listed = here.sort((a, b) => distance(a) - distance(b)).slice(0, shown).sort((a, b) => value(b) - value(a));
      tip.replaceChildren(make("div", "", `${panel.x_label} ${text(panel.x[at])}`));
      for (const i of listed) {
        const line = panel.lines[i];
        const entry = make("div", i === near ? "ink near" : "ink");
        entry.style.cssText = groups[i].style.cssText;
        entry.append(make("span", "chip"), `${line.label}: ${text(value(i))}`);
        tip.append(entry);
        if (i === near && spread(line, at)) tip.append(make("div", "ends", spread(line, at)));
      }
      if (here.length > shown) tip.append(make("div", "", `and ${here.length - shown} further away`));
      groups.forEach((group, i) => group.classList.toggle("near", i === near));
      area.classList.add("reading");
      const place = across(panel.x[at]);
      cursor.style.left = `${100 * place}%`;
      tip.style.left = place < 0.5 ? `calc(${100 * place}% + 0.6rem)` : "auto";
      tip.style.right = place < 0.5 ? "auto" : `calc(${100 * (1 - place)}% + 0.6rem)`;
      tip.style.maxWidth = `calc(${100 * Math.max(place, 1 - place)}% - 0.4rem)`;
      cursor.hidden = tip.hidden = false;
      return undefined;
    };
    const places = () =>
      panel.x.map((_, j) => j).filter((j) => visible().some((i) => panel.lines[i].mean[j] !== null));

    const point = (event) => {
      const frame = area.getBoundingClientRect();
      const x = (event.clientX - frame.left) / frame.width;
      const y = (event.clientY - frame.top) / frame.height;
      const candidates = places();
      if (!candidates.length) return hide();
      at = candidates.reduce((best, j) =>
        (Math.abs(across(panel.x[j]) - x) < Math.abs(across(panel.x[best]) - x) ? j : best));
      const here = visible().filter((i) => panel.lines[i].mean[at] !== null);
      const gap = (i) => Math.abs(down(panel.lines[i].mean[at]) - y);
      near = here.reduce((best, i) => (gap(i) < gap(best) ? i : best));
      return show();
    };
    area.addEventListener("pointermove", point);
    area.addEventListener("pointerdown", point);
    area.addEventListener("pointerleave", hide);
    area.addEventListener("blur", hide);
    area.addEventListener("keydown", (event) => {
      const steps = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity };
      const candidates = places();
      if (event.key === "Escape") return hide();
      if (!candidates.length || event.ctrlKey || event.altKey || event.metaKey) return undefined;
      if (event.key in steps) {
        const from = tip.hidden ? -1 : candidates.indexOf(at);
        const to = tip.hidden && event.key !== "End" ? 0 : from + steps[event.key];
        at = candidates[Math.min(Math.max(to, 0), candidates.length - 1)];
      } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
        if (tip.hidden) at = candidates[0];
        const here = visible().filter((i) => panel.lines[i].mean[at] !== null);
        here.sort((a, b) => panel.lines[b].mean[at] - panel.lines[a].mean[at]);
        const to = here.indexOf(near) + (event.key === "ArrowUp" ? -1 : 1);
        near = here[Math.min(Math.max(to, 0), here.length - 1)];
      } else {
        return undefined;
      }
      event.preventDefault();
      return show();
    });
    figure.addEventListener("legend", hide);
  };

  for (const panel of JSON.parse(document.getElementById("panels").textContent)) reader(panel);
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
      figure.dispatchEvent(new CustomEvent("legend"));
    });
  }

  // On paper everything is unfolded.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const fold of folded) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of folded) fold.open = false;
  });
})();
