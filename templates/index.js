"use strict";
// The page of the report: a matrix of models by opset, and a panel with the details of a cell.
// Text of models and manifests is inserted only as textContent.

const DATA = JSON.parse(document.getElementById("data").textContent);
const MARKS = new Map(DATA.head.marks.map((mark) => [mark.word, mark]));
const ROWS = DATA.rows.map((row, index) => ({ ...row, index }));
const BATCH = 60; // rows that are built at once; the others follow when they become visible
const redCells = (row) => row.cells.filter((cell) => family(cell) === "bad").length;
const changedCells = (row) => row.cells.filter((cell) => cell.is_changed).length;
const ORDERS = {
  "red first": (row) => (redCells(row) ? 0 : changedCells(row) ? 1 : 2),
  "as in the manifest": (row) => row.index,
  name: (row) => row.model,
  "most red": (row) => -redCells(row),
  "largest error": (row) => -Math.max(...row.cells.map(errorOf)),
  "largest file": (row) => -Math.max(...row.cells.map((cell) => fileOf(row, cell)?.bytes ?? 0)),
  "lowest opset": (row) => Number(row.lowest_opset || Infinity),
};
const byId = (id) => document.getElementById(id);
const family = (cell) => MARKS.get(cell.mark).family;
const errorOf = (cell) => (cell.is_unbounded ? Infinity : (cell.error ?? -1));
const fileOf = (row, cell) => row.files[cell.file ?? -1];
const keyOf = (row, cell) => `${row.model}/${cell.opset}/${row.device}`;
const state = { words: [], marks: new Set(), cluster: null, changed: false, device: "", tables: [], active: null, open: null };

/** Create an element with properties and children; strings become text nodes. */
function create(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== ""));
  return element;
}

/** Draw a mark: its form shows the family without a color, and its letter the outcome. */
function dot(mark) {
  const letter = mark.family === "bad" || mark.family === "open" ? mark.letter : "";
  return create("span", { className: `dot ${mark.family}`, "aria-hidden": "true" }, letter);
}

// --- the matrix ----------------------------------------------------------------------------------

function reasonOf(row, cell) {
  const outcome = row.outcomes[cell.outcome];
  return outcome.expected_reason || outcome.reason || MARKS.get(cell.mark).meaning;
}

function searchTextOf(row) {
  const texts = row.outcomes.flatMap(
    (each) => [each.outcome, each.reason, each.expected_reason, each.culprit]);
  return [row.model, row.device, row.description, row.tags, row.owner, row.operators, ...texts]
    .filter(Boolean).join("\n").toLowerCase();
}

function isFiltered() {
  return state.marks.size > 0 || state.cluster !== null || state.changed;
}

function isSelected(cell) {
  return (!state.marks.size || state.marks.has(cell.mark))
    && (state.cluster === null || (cell.clusters ?? []).includes(state.cluster))
    && (!state.changed || Boolean(cell.is_changed));
}

function isFound(row) {
  row.text ??= searchTextOf(row);
  return (!state.device || row.device === state.device)
    && state.words.every((word) => row.text.includes(word));
}

function isShown(row) {
  return (!isFiltered() || row.cells.some(isSelected)) && isFound(row);
}

function show() {
  const key = ORDERS[byId("sort").value];
  const keyed = ROWS.filter(isShown).map((row) => [key(row), row]);
  keyed.sort(([a, one], [b, other]) => (a < b ? -1 : a > b ? 1 : one.index - other.index));
  const shown = keyed.map(([, row]) => row);
  state.tables = DATA.head.devices
    .map((device) => createTable(device, shown.filter((row) => row.device === device)))
    .filter((table) => table.rows.length);
  visibility.disconnect();
  byId("tables").replaceChildren(...state.tables.map((table) => table.section));
  state.tables.forEach(build);
  const cells = shown.reduce((sum, row) => sum + row.cells.length, 0);
  const counts = new Map();
  for (const cell of ROWS.filter(isFound).flatMap((row) => row.cells)) counts.set(cell.mark, (counts.get(cell.mark) ?? 0) + 1);
  for (const button of byId("marks").querySelectorAll("[data-mark]")) {
    button.lastChild.textContent = ` ${button.dataset.mark} ${counts.get(button.dataset.mark) ?? 0}`;
  }
  if (state.open && !shown.includes(state.open[0])) hidePanel(); // no panel beside a table without its cell
  byId("shown").textContent = shown.length
    ? `${shown.length} of ${ROWS.length} rows, ${cells} cells`
    : "No row matches; press Escape in the search field to clear it.";
  for (const table of state.tables) activate(table.body.querySelector(".cell"));
  activate(state.active && buttonOf(...state.active));
  markOpen();
}

function createTable(device, rows) {
  const opsets = [...new Set(rows.flatMap((row) => row.cells.map((cell) => cell.opset)))];
  opsets.sort((a, b) => a - b);
  const heads = opsets.map((opset) => create("th", { scope: "col" }, String(opset)));
  const body = create("tbody");
  const end = create("div");
  const scroll = create("div", { className: "scroll" },
    create("table", { className: "matrix" },
      create("thead", {}, create("tr", {},
        create("th", { scope: "col" }, "model"), ...heads,
        create("th", { scope: "col" }, "all pass from"))),
      body));
  sizes.observe(scroll);
  const section = create("section", {}, create("h2", {}, `On ${device}`), scroll, end);
  return { rows, opsets, body, end, section, built: 0 };
}

/** Build the next rows of a table; return false if all exist. */
function build(table) {
  const next = table.rows.slice(table.built, table.built + BATCH);
  table.body.append(...next.map((row) => createRow(row, table.opsets)));
  table.built += next.length;
  visibility.unobserve(table.end);
  if (table.built < table.rows.length) visibility.observe(table.end);
  return next.length > 0;
}

const visibility = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const table = state.tables.find((each) => each.end === entry.target);
    if (entry.isIntersecting && table) build(table);
  }
}, { rootMargin: "1200px" });

// The opsets stay in view: below the controls, or in a box of its own if the table is too wide.
const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (target.id !== "controls") {
      target.classList.toggle("wide", target.firstChild.offsetWidth > target.clientWidth);
    } else {
      const isFixed = getComputedStyle(target).position === "sticky";
      document.documentElement.style.setProperty("--top", `${isFixed ? target.offsetHeight : 0}px`);
    }
  }
});

/** Let long names break after an underscore. */
function breakable(name) {
  return name.split(/(?<=_)/).flatMap((part) => [part, create("wbr")]);
}

function createRow(row, opsets) {
  const cells = new Map(row.cells.map((cell) => [cell.opset, cell]));
  return create("tr", {},
    create("th", { scope: "row", title: row.description ?? "" }, create("a", { href: row.page, tabIndex: -1 }, ...breakable(row.model))),
    ...opsets.map((opset) => create("td", {}, cells.has(opset) ? createCell(row, cells.get(opset)) : "")),
    create("td", { className: "from" }, row.lowest_opset ?? ""));
}

function createCell(row, cell) {
  const mark = MARKS.get(cell.mark);
  const dim = isFiltered() && !isSelected(cell) ? " dim" : "";
  const changed = cell.is_changed ? " changed" : "";
  const button = create("button", {
    type: "button", className: `cell ${mark.family}${dim}${changed}`, tabIndex: -1,
    "aria-label": `${keyOf(row, cell)}: ${row.outcomes[cell.outcome].outcome}${cell.is_changed ? ", changed" : ""}`,
  }, dot(mark));
  button.at = [row, cell];
  return button;
}

function buttonOf(row, cell) {
  for (const table of state.tables) {
    const index = table.rows.indexOf(row);
    if (index < 0) continue;
    while (table.built <= index) build(table);
    return [...table.body.rows[index].querySelectorAll(".cell")].find((each) => each.at[1] === cell);
  }
  return undefined;
}

// --- movement --------------------------------------------------------------------------------------

/** Let Tab reach this cell of its table. */
function activate(button) {
  if (!button) return;
  for (const previous of button.closest("table").querySelectorAll('.cell[tabindex="0"]')) previous.tabIndex = -1;
  button.tabIndex = 0;
}

const MOVES = {
  ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
  PageUp: [-10, 0], PageDown: [10, 0], Home: [0, -Infinity], End: [0, Infinity],
};

function move(from, [down, right]) {
  const [row, cell] = from.at;
  const clamp = (index, last) => Math.min(Math.max(index, 0), last);
  if (right) {
    return buttonOf(row, row.cells[clamp(row.cells.indexOf(cell) + right, row.cells.length - 1)]);
  }
  const rows = state.tables.flatMap((table) => table.rows);
  const target = rows[clamp(rows.indexOf(row) + down, rows.length - 1)];
  const nearest = [...target.cells].sort(
    (a, b) => Math.abs(a.opset - cell.opset) - Math.abs(b.opset - cell.opset))[0];
  return buttonOf(target, nearest);
}

document.addEventListener("keydown", (event) => {
  const inField = event.target.matches("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/" && !inField) {
    event.preventDefault();
    byId("search").select();
    byId("search").focus();
  } else if (event.key === "Escape") {
    if (!byId("tip").hidden) hideTip();
    if (event.target.id === "search") search("");
    else if (state.open) closePanel();
  } else if (event.target.matches(".cell") && MOVES[event.key]) {
    event.preventDefault();
    const button = move(event.target, MOVES[event.key]);
    button.focus();
    button.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (state.open) openPanel(button);
  }
});

// --- the tip -------------------------------------------------------------------------------------

function showTip(button) {
  const [row, cell] = button.at;
  const tip = byId("tip");
  tip.textContent = `${keyOf(row, cell)}: ${row.outcomes[cell.outcome].outcome}. ${reasonOf(row, cell)}`
    + (cell.is_changed ? `. Before: ${row.outcomes[cell.outcome].acceptance}` : "");
  tip.hidden = false;
  const box = button.getBoundingClientRect();
  const { width, height } = tip.getBoundingClientRect();
  const below = box.bottom + 6;
  tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - width - 8))}px`;
  tip.style.top = `${below + height > innerHeight ? box.top - height - 6 : below}px`;
}

function hideTip() {
  byId("tip").hidden = true;
}

byId("tables").addEventListener("pointerover", (event) => {
  const button = event.target.closest(".cell");
  if (button) showTip(button);
  else hideTip();
});
byId("tables").addEventListener("pointerleave", hideTip);
byId("tables").addEventListener("focusin", (event) => {
  if (!event.target.matches(".cell")) return;
  state.active = event.target.at;
  activate(event.target);
  if (event.target.matches(":focus-visible")) showTip(event.target);
});
byId("tables").addEventListener("focusout", hideTip);
document.addEventListener("scroll", hideTip, { capture: true, passive: true });

// --- the panel -----------------------------------------------------------------------------------

function markOpen() {
  document.querySelector('.cell[aria-expanded="true"]')?.removeAttribute("aria-expanded");
  if (state.open) buttonOf(...state.open)?.setAttribute("aria-expanded", "true");
}

function openPanel(button, focus = false) {
  const [row, cell] = button.at;
  state.active = state.open = button.at;
  activate(button);
  markOpen();
  const panel = byId("panel");
  panel.replaceChildren(...panelOf(row, cell));
  panel.hidden = false;
  document.body.classList.add("with-panel");
  panel.scrollTop = 0;
  button.scrollIntoView({ block: "nearest", inline: "nearest" });
  if (focus) panel.focus({ preventScroll: true });
  remember(`#${encodeURI(keyOf(row, cell))}`);
}

function hidePanel() {
  state.open = null;
  markOpen();
  byId("panel").hidden = true;
  document.body.classList.remove("with-panel");
}

function closePanel() {
  const button = buttonOf(...state.open);
  hidePanel();
  rememberSearch();
  (button ?? byId("search")).focus();
}

/** Store the words of the search in the address, so that it can be shared. */
function rememberSearch() {
  const text = byId("search").value.trim();
  remember(text ? `#q=${encodeURIComponent(text)}` : "#");
}

function remember(hash) {
  try {
    history.replaceState(null, "", hash);
  } catch { /* not allowed if another page embeds this one */ }
}

byId("tables").addEventListener("click", (event) => {
  const button = event.target.closest(".cell");
  if (button) openPanel(button, true);
});

function panelOf(row, cell) {
  const mark = MARKS.get(cell.mark);
  const outcome = row.outcomes[cell.outcome];
  const file = fileOf(row, cell);
  const close = create("button", { type: "button", className: "close", "aria-label": "Close" }, "✕");
  close.addEventListener("click", closePanel);
  const message = ["message", outcome.reason === mark.meaning ? "" : outcome.reason];
  const isRed = family(cell) === "bad";
  const codes = document.body.dataset.codes;  // only a site has the page of the codes
  const code = outcome.code && codes
    ? create("a", { href: `${codes}#${outcome.code.toLowerCase()}` }, outcome.code) : outcome.code;
  const facts = [
    ...(isRed ? [message] : []),
    ["status", `${mark.word}: ${mark.meaning}`],
    ["code", code], ["stage", outcome.stage], ["check", outcome.check], ["promised at", isRed && row.location],
    ["in the model", outcome.lines], [cell.is_changed ? "changed, before" : "accepted before", outcome.acceptance],
    ...(isRed ? [] : [message]),
    ["foreseen", outcome.expected_reason],
    ["flaky", outcome.flaky],
    ["fault", outcome.culprit], ["shown by", outcome.sample], ["first at", outcome.divergence],
    ["file", file && `${file.size}, ${file.nodes} nodes, ${file.parameters} parameters, IR version ${file.ir_version}`],
    ["exporter", file?.exporter], ["settings", row.settings], ["log", outcome.stage && cell.log], ["model", row.description],
    ["owner", row.owner], ["tags", row.tags],
  ];
  const commands = [
    command("run the cell again", cell.export_command),
    command("reproduce the failure", cell.repro_command),
    command("explain the code", cell.guide_command),
  ].filter(Boolean);
  const all = create("button", { type: "button" }, `${row.model} on all devices`);
  all.addEventListener("click", () => {
    byId("device").value = state.device = "";
    search(row.model);
    byId("search").focus();
  });
  return [
    close,
    create("h2", { id: "panel-title" }, keyOf(row, cell)),
    definitions(facts),
    ...section("Commands", commands.length ? create("div", {}, ...commands) : null),
    ...section("Advice", listOf(outcome.advice)),
    ...section("Evidence", listOf(outcome.evidence)),
    ...section("Missing operators", table(["operator", "times", "used at"],
      (outcome.missing ?? []).map((each) => [each.operator, String(each.count), each.sources ?? ""]))),
    ...section("Checks", table(["", "check", "figures", "message"],
      row.checks[cell.checks].map((each) => [
        create("span", { title: each.mark, role: "img", "aria-label": each.mark }, dot(MARKS.get(each.mark))), each.check, each.figures ?? "", each.message ?? ""]))),
    ...section("Detail", outcome.detail ? create("pre", { tabIndex: 0 }, outcome.detail) : null),
    ...section("Notes", listOf(outcome.notes)),
    ...section("Trend over commits", trendCharts(DATA.head.trends?.[row.model])),
    ...section("Error by opset, relative to its limit", errorChart(row, cell)),
    ...section("Size by opset", sizeChart(row, cell)),
    create("p", {}, all, " ", create("a", { href: row.page }, `All about ${row.model}`)),
  ];
}

function section(title, content) {
  return content ? [create("h3", {}, title), content] : [];
}

function definitions(facts) {
  return create("dl", {}, ...facts.filter(([, text]) => text)
    .flatMap(([name, text]) => [create("dt", {}, name), create("dd", {}, text)]));
}

function listOf(lines) {
  return lines?.length ? create("ul", {}, ...lines.map((line) => create("li", {}, line))) : null;
}

function table(heads, rows) {
  if (!rows.length) return null;
  return create("table", {},
    create("thead", {}, create("tr", {}, ...heads.map((head) =>
      head ? create("th", { scope: "col" }, head) : create("td")))),
    create("tbody", {}, ...rows.map((row) => create("tr", {}, ...row.map((text) => create("td", {}, text))))));
}

function command(name, line) {
  if (!line) return "";
  const code = create("code", {}, line);
  const copy = create("button", { type: "button", "aria-label": `Copy the command to ${name}` }, "Copy");
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(line);
      copy.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
    }
  });
  return create("div", { className: "command" }, code, copy);
}

// --- charts --------------------------------------------------------------------------------------

const PLOT = { left: 58, right: 8, top: 8, bottom: 22, width: 420, height: 150 };

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Draw bars by opset. `lines`: [share of the height, label, class]; `heightOf`: 0 to 1, or null. */
function chart(row, current, lines, heightOf, textOf) {
  const inner = PLOT.height - PLOT.top - PLOT.bottom;
  const step = (PLOT.width - PLOT.left - PLOT.right) / row.cells.length;
  const y = (share) => PLOT.top + inner * (1 - share);
  const parts = lines.flatMap(([share, label, kind]) => [
    svg("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y(share), y2: y(share), class: kind }),
    svg("text", { x: PLOT.left - 5, y: y(share) + 4, "text-anchor": "end" }, label),
  ]);
  row.cells.forEach((cell, index) => {
    const x = PLOT.left + index * step;
    const share = heightOf(cell);
    if (share !== null) {
      const kind = `${family(cell)}${cell === current ? " here" : ""}`;
      parts.push(svg("rect", {
        x: x + step * 0.18, width: step * 0.64, y: y(share), height: Math.max(1, inner * share), class: kind,
      }, svg("title", {}, `opset ${cell.opset}: ${textOf(cell)}`)));
    }
    parts.push(svg("text", { x: x + step / 2, y: PLOT.height - 6, "text-anchor": "middle" }, String(cell.opset)));
  });
  if (heightOf(current) === null) return null; // no figure of this cell
  const texts = row.cells.filter((cell) => heightOf(cell) !== null)
    .map((cell) => `opset ${cell.opset}: ${textOf(cell)}`);
  if (!texts.length) return null;
  const label = texts.join(", ");
  return svg("svg", { viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, role: "img", "aria-label": label }, ...parts);
}

// Errors are rounded to steps that all machines agree on; the scale is logarithmic.
function errorChart(row, current) {
  const share = (error) => Math.min(1, Math.max(0.03, (Math.log10(error) + 2.5) / 4));
  const heightOf = (cell) => (cell.is_unbounded ? 1 : cell.error === undefined ? null : share(cell.error));
  const textOf = (cell) => (cell.is_unbounded ? "outside every limit"
    : cell.error > 1 ? `${cell.error} times its limit` : `at most ${cell.error * 100}% of its limit`);
  const lines = [[share(0.01), "1%", ""], [share(0.1), "10%", ""], [share(1), "100%", "limit"], [share(10), "10×", ""]];
  return chart(row, current, lines, heightOf, textOf);
}

function sizeChart(row, current) {
  const largest = row.files.reduce((most, file) => (file.bytes > most.bytes ? file : most), { bytes: 0, size: "" });
  const heightOf = (cell) => (fileOf(row, cell) ? fileOf(row, cell).bytes / largest.bytes : null);
  return chart(row, current, [[0, "0", ""], [1, largest.size, ""]], heightOf, (cell) => fileOf(row, cell).size);
}

// --- trends over commits ------------------------------------------------------------------------------

const TRENDS = [
  ["green", "green cells", String], ["error", "largest error, as a multiple of its limit", String],
  ["bytes", "largest file, bytes", (value) => value.toLocaleString("en")],
  ["nodes", "most nodes", String], ["latency", "latency, as a multiple of PyTorch's time", String],
];

/** Draw the values at each commit as steps; a change is a dot with its commit. */
function trendChart(title, values, formatValue) {
  const points = values.map((value, index) => [index, value]).filter(([, value]) => value !== null);
  if (points.length < 2) return null;
  const most = Math.max(...points.map(([, value]) => value)) || 1;
  const x = (index) => PLOT.left + (index * (PLOT.width - PLOT.left - PLOT.right)) / Math.max(values.length - 1, 1);
  const y = (value) => 8 + 70 * (1 - value / most);
  const steps = points.filter(([, value], index) => index === 0 || value !== points[index - 1][1]);
  const textOf = ([index, value]) => `${DATA.head.commits[index]}: ${formatValue(value)}`;
  const path = points.map(([index, value], at) => (at ? `H${x(index)}V${y(value)}` : `M${x(index)} ${y(value)}`)).join("");
  const label = `${title}: ${steps.map(textOf).join("; ")}`;
  const drawing = svg("svg", { viewBox: `0 0 ${PLOT.width} 90`, role: "img", "aria-label": label },
    svg("text", { x: PLOT.left - 5, y: 14, "text-anchor": "end" }, formatValue(most)),
    svg("path", { d: path, class: "trend" }),
    ...steps.map((step) => svg("circle", { cx: x(step[0]), cy: y(step[1]), r: 3.5, class: "step" }, svg("title", {}, textOf(step)))));
  const last = steps.slice(-4).reverse().map(textOf);
  return create("figure", {}, create("figcaption", {}, title), drawing, listOf(last));
}

function trendCharts(trend) {
  if (!trend) return null;
  const charts = TRENDS.map(([key, title, formatValue]) => trendChart(title, trend[key] ?? [], formatValue)).filter(Boolean);
  return charts.length ? create("div", { className: "trends" }, ...charts) : null;
}

function showTrend() {
  const charts = trendCharts(DATA.head.trend);
  if (!charts) return;
  byId("trend").append(create("h2", { id: "trend-title" }, `Trend over ${DATA.head.commits.length} commits`), charts);
  byId("trend").hidden = false;
}

// --- the controls --------------------------------------------------------------------------------

function search(text) {
  if (byId("search").value !== text) byId("search").value = text;
  state.words = text.toLowerCase().split(/\s+/).filter(Boolean);
  show();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
  byId("theme").setAttribute("aria-label", `${theme === "dark" ? "Light" : "Dark"} colors`);
}

function initializeTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch { /* some browsers have no storage for files */ }
  const systemTheme = () => (dark.matches ? "dark" : "light");
  setTheme(chosen === "dark" || chosen === "light" ? chosen : systemTheme());
  dark.addEventListener("change", () => chosen || setTheme(systemTheme()));
  byId("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    setTheme(chosen);
    try {
      localStorage.setItem("theme", chosen);
    } catch { /* no storage */ }
  });
}

function markButton(mark) {
  const button = create("button", { type: "button", title: mark.meaning, "aria-pressed": "false" },
    dot(mark), ` ${mark.word} ${mark.cells}`);
  button.dataset.mark = mark.word;
  button.addEventListener("click", () => {
    const pressed = !state.marks.delete(mark.word);
    if (pressed) state.marks.add(mark.word);
    button.setAttribute("aria-pressed", String(pressed));
    show();
  });
  return button;
}

function clusterButton(cluster, index) {
  const button = create("button", { type: "button", "aria-pressed": "false" },
    create("strong", {}, cluster.title), cluster.is_new ? create("span", { className: "new" }, " new") : "",
    create("span", { className: "reason" }, [cluster.operator, cluster.reason].filter(Boolean).join(": ")));
  button.addEventListener("click", () => {
    state.cluster = state.cluster === index ? null : index;
    for (const each of byId("clusters").querySelectorAll("button")) {
      each.setAttribute("aria-pressed", String(each === button && state.cluster === index));
    }
    show();
  });
  return create("li", {}, button);
}

function showClusters() {
  const clusters = DATA.head.clusters ?? [];
  if (!clusters.length) return;
  const buttons = clusters.map(clusterButton);
  const more = buttons.slice(6);
  byId("clusters").append(
    create("h2", { id: "clusters-title" }, "Failures; select one to filter"),
    create("ul", {}, ...buttons.slice(0, 6)),
    more.length ? create("details", {}, create("summary", {}, `${more.length} more`), create("ul", {}, ...more)) : "");
  byId("clusters").hidden = false;
}

function changedButton() {
  const cells = ROWS.reduce((sum, row) => sum + changedCells(row), 0);
  if (!cells) return "";
  const button = create("button", { type: "button", "aria-pressed": "false" },
    `changed since ${DATA.head.compared_with} ${cells}`);
  button.addEventListener("click", () => {
    state.changed = !state.changed;
    button.setAttribute("aria-pressed", String(state.changed));
    show();
  });
  return button;
}

function start() {
  initializeTheme();
  showClusters();
  byId("marks").append(...DATA.head.marks.filter((mark) => mark.cells).map(markButton), changedButton());
  byId("legend").querySelector("dl").append(...DATA.head.marks.filter((mark) => mark.cells)
    .flatMap((mark) => [create("dt", {}, dot(mark), ` ${mark.symbol === mark.letter ? "" : mark.symbol} ${mark.word}`), create("dd", {}, mark.meaning)]),
    create("dt", {}, "dot in a corner"), create("dd", {}, "the cell has another outcome than the baseline"));
  byId("device").append(create("option", { value: "" }, "all"),
    ...DATA.head.devices.map((device) => create("option", { value: device }, device)));
  byId("sort").append(...Object.keys(ORDERS).map((name) => create("option", { value: name }, name)));
  byId("tools").append(...DATA.head.tools.flatMap(([name, version]) => [create("dt", {}, name), create("dd", {}, version)]));
  byId("theme").hidden = byId("controls").hidden = false;
  sizes.observe(byId("controls"));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("search").addEventListener("input", () => {
    search(byId("search").value);
    if (!state.open) rememberSearch();
  });
  byId("sort").addEventListener("change", show);
  byId("device").addEventListener("change", () => {
    state.device = byId("device").value;
    show();
  });
  show();
  showTrend();
  openLinked();
  addEventListener("hashchange", openLinked);
}

/** Open the cell or the search in the address: `index.html#alexnet/18/cpu`, `#q=alexnet`. */
function openLinked() {
  let key = location.hash.slice(1);
  try {
    key = decodeURIComponent(key);
  } catch { /* no key of a cell */ }
  if (key.startsWith("q=")) search(key.slice(2));
  for (const row of ROWS) {
    const cell = row.cells.find((each) => keyOf(row, each) === key);
    if (!cell) continue;
    if (!buttonOf(row, cell)) { // a search or a filter hides it
      for (const pressed of document.querySelectorAll('[aria-pressed="true"]')) pressed.click();
      byId("device").value = state.device = "";
      search("");
    }
    const button = buttonOf(row, cell);
    openPanel(button);
    button.scrollIntoView({ block: "center" });
  }
}

start();
