// The page is complete without this script. It sorts and filters tables, copies them as CSV, shows exact values at the
// pointer, at the focus and at a tap, and hides series.
(function () {
  "use strict";
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
  document.documentElement.classList.add("js");

  // Tables.
  function key(row, i) {
    const cell = row.cells[i], v = cell.getAttribute("data-v");
    return v === null ? cell.textContent : parseFloat(v);
  }
  function order(a, b) {
    const x = typeof a === "number", y = typeof b === "number";
    if (x && y) return a - b;
    if (x !== y) return x ? -1 : 1;
    return a.localeCompare(b, undefined, { numeric: true });
  }
  all("table.sortable").forEach(function (table) {
    const heads = Array.from(table.tHead.rows[0].cells), body = table.tBodies[0];
    heads.forEach(function (th, i) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = th.textContent;
      th.replaceChildren(button);
      button.addEventListener("click", function () {
        const down = th.getAttribute("aria-sort") === "ascending";
        heads.forEach((h) => h.removeAttribute("aria-sort"));
        th.setAttribute("aria-sort", down ? "descending" : "ascending");
        Array.from(body.rows)
          .map((row, n) => ({ row: row, key: key(row, i), n: n }))
          .sort((a, b) => (down ? -1 : 1) * order(a.key, b.key) || a.n - b.n)
          .forEach((e) => body.appendChild(e.row));
      });
    });
  });
  all("input.filter").forEach(function (filter) {
    filter.addEventListener("input", function () {
      const words = this.value.toLowerCase().split(/\s+/);
      all("table.sortable tbody tr", this.parentNode).forEach(function (row) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((w) => text.includes(w));
      });
    });
  });

  // Copies: tables as CSV with exact values, and commands.
  function copier(text, of) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.addEventListener("click", function () {
      const done = (word) => { button.textContent = word; setTimeout(() => { button.textContent = text; }, 2000); };
      copy(of()).then(() => done("Copied"), () => done("Not allowed here"));
    });
    return button;
  }
  function copy(text) {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    const area = document.createElement("textarea"); // pages opened as files have no clipboard in some browsers
    area.value = text;
    document.body.appendChild(area);
    area.select();
    const ok = document.execCommand("copy");
    area.remove();
    return ok ? Promise.resolve() : Promise.reject();
  }
  function unit(cell) { // of an exact value: "0.0123 s, …"
    const v = cell.getAttribute("data-v"), text = cell.getAttribute("data-tip") || "";
    return v !== null && text.startsWith(v + " ") ? text.slice(v.length + 1).split(/[\s,]/)[0] : "";
  }
  function csv(table) {
    const rows = Array.from(table.tBodies[0].rows).filter((row) => !row.hidden);
    const value = (cell) => cell.getAttribute("data-v") || cell.textContent.trim();
    const heads = Array.from(table.tHead.rows[0].cells).map(function (th, i) {
      const units = new Set(rows.map((row) => row.cells[i] ? unit(row.cells[i]) : "").filter(Boolean));
      return th.textContent.trim() + (units.size === 1 ? " (" + [...units][0] + ")" : "");
    });
    // A spreadsheet takes a text that begins like a formula for one.
    const text = (v) => (/^[=+\-@\t\r]/.test(v) && !/^[+-]?[0-9.]+(e[+-]?[0-9]+)?$/.test(v) ? "'" + v : v);
    const quoted = (v) => (/[",\n]/.test(v) ? '"' + v.replace(/"/g, '""') + '"' : v);
    return [heads, ...rows.map((row) => Array.from(row.cells).map(value))].map((r) => r.map(text).map(quoted).join(",")).join("\n") + "\n";
  }
  all(".tools").forEach(function (tools) {
    tools.prepend(copier("Copy as CSV", () => csv(tools.nextElementSibling.querySelector("table"))));
  });
  all("pre:not(.inert)").forEach(function (pre) {
    const button = copier("Copy", () => pre.textContent);
    button.className = "copy";
    pre.before(button);
  });

  // Values: at the pointer, at the focus, and at a tap.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "status");
  tip.hidden = true;
  document.body.appendChild(tip);
  function show(e) {
    tip.textContent = e.getAttribute("data-tip");
    tip.hidden = false;
    const at = e.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const above = at.top - size.height - 6;
    tip.style.left = Math.max(4, Math.min(at.left + at.width / 2 - size.width / 2, innerWidth - size.width - 4)) + "px";
    tip.style.top = (above < 4 ? at.bottom + 6 : above) + "px";
  }
  const hide = () => { tip.hidden = true; };
  all(":is(th, td)[title]").forEach(function (cell) {
    cell.setAttribute("data-tip", cell.title);
    cell.removeAttribute("title");
  });
  ["pointerover", "focusin", "click"].forEach((name) => document.addEventListener(name, function (event) {
    const e = event.target.closest && event.target.closest("[data-tip]");
    if (e) show(e); else hide();
  }));
  document.addEventListener("focusout", hide);
  addEventListener("scroll", hide, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // Plots: one stop of the tab key for the values of each, arrows go from value to value. Legend entries hide series.
  all(".plot svg").forEach(function (svg) {
    const hots = all(".hot", svg), toggles = all(".toggle", svg);
    all("title", svg).forEach((title) => title.remove()); // the browser's own, later tip
    hots.forEach(function (hot) {
      hot.setAttribute("tabindex", -1);
      hot.addEventListener("keydown", function (event) {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (!step) return;
        event.preventDefault();
        const shown = hots.filter((h) => h.style.display !== "none");
        shown[(shown.indexOf(hot) + step + shown.length) % shown.length].focus();
      });
    });
    const stop = () => { // the first shown value is the stop of the tab key
      const shown = hots.find((h) => h.style.display !== "none");
      hots.forEach((h) => h.setAttribute("tabindex", h === shown ? 0 : -1));
    };
    stop();
    const legendEnd = () => Math.max(...toggles.map((t) => t.getBoundingClientRect().bottom));
    toggles.forEach(function (toggle) {
      const color = toggle.getAttribute("data-color");
      toggle.setAttribute("role", "button");
      toggle.setAttribute("tabindex", 0);
      toggle.setAttribute("aria-pressed", "true");
      function press() {
        const shown = toggle.getAttribute("aria-pressed") === "false", end = legendEnd();
        toggles.filter((t) => t.getAttribute("data-color") === color).forEach((t) => t.setAttribute("aria-pressed", String(shown)));
        all("[style*='" + color + "']", svg).forEach(function (e) {
          if (e.getBoundingClientRect().top >= end - 1) e.style.visibility = shown ? "" : "hidden";
        });
        hots.filter((h) => h.getAttribute("data-of") === color).forEach((h) => { h.style.display = shown ? "" : "none"; });
        stop();
      }
      toggle.addEventListener("click", press);
      toggle.addEventListener("keydown", function (event) {
        if (event.key === "Enter" || event.key === " ") { event.preventDefault(); press(); }
      });
    });
  });

  // Flame graphs: a field that shows the functions with a name, and their share.
  all("svg.flame").forEach(function (svg) {
    const boxes = all("rect", svg), field = document.createElement("input"), width = svg.viewBox.baseVal.width;
    field.type = "search";
    field.className = "filter";
    field.placeholder = "Show functions with …";
    field.setAttribute("aria-label", field.placeholder);
    const found = document.createElement("output");
    field.addEventListener("input", function () {
      const word = field.value.toLowerCase(), hits = boxes.filter((b) => word && b.getAttribute("data-tip").toLowerCase().split(": ")[0].includes(word));
      boxes.forEach((b) => { b.style.opacity = word && !hits.includes(b) ? 0.25 : ""; });
      let end = 0, sum = 0; // the lowest boxes cover those on them
      hits.map((b) => [b.x.baseVal.value, b.x.baseVal.value + b.width.baseVal.value]).sort((a, b) => a[0] - b[0]).forEach(function (b) {
        sum += Math.max(0, b[1] - Math.max(b[0], end));
        end = Math.max(end, b[1]);
      });
      found.textContent = word ? " " + (100 * sum / width).toFixed(1) + " % of the time" : "";
    });
    svg.parentNode.before(field, found);
  });

  addEventListener("beforeprint", () => all("details").forEach((d) => { d.open = true; })); // closed ones would not be printed
})();
