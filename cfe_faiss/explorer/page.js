"use strict";
/* Texts of the data enter the page as text nodes and values only. Nothing is loaded or sent. */

const ROW_HEIGHT = 34; // as in page.css
const SPARE_ROWS = 8;
const LONG_TEXT = 40;
const MOST_WORDS = 1500;
const PRINTED_ROWS = 30;
const MOST_GROUPS = 30;
const COLUMNS = [
  ["place", "#"], ["source", "A"], ["target", "B"], ["classes", "Decisions"], ["measure", ""],
  ["count", "Differ"], ["largest", "Largest"],
];
const SORTABLE = ["place", "measure", "count", "largest"];
const FILTERS = ["find", "from", "to", "attribute", "how", "group", "limit", "mark", "better"];

const byId = (id) => document.getElementById(id);
const state = { sort: "place", pair: "" };
let data;
let pairs = [];
let shown = [];
let hasUnsavedMarks = false;

async function readData() {
  const packed = atob(byId("data").textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

function make(tag, attributes, ...children) {
  const isDrawn = ["svg", "path", "circle", "rect", "text", "title"].includes(tag);
  const element = isDrawn
    ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/* --- pairs ------------------------------------------------------------------------------------ */

function sizeOf([, change]) {
  return change === null ? 1 : Math.abs(change);
}

function makePair(place) {
  const differences = data.differences[place];
  const source = data.source[place];
  const target = data.target[place];
  return {
    place, source, target, differences,
    key: `${data.rows[source]}-${data.rows[target]}`,
    measure: data.measures[place],
    count: differences.length,
    largest: differences.length ? Math.max(...differences.map(sizeOf)) : 0,
    mark: data.marks[place] || "",
    note: data.notes[place] || "",
  };
}

function nameOf(row) {
  return data.ids[row] ?? "missing";
}

function classOf(row, labels = data.labels) {
  if (!labels) return "";
  return labels[row] < 0 ? "unknown" : data.classes[labels[row]];
}

/* The class of "from" stands left: a pair is turned if its sides are the other way round. */
function isTurned(pair) {
  const left = classOf(pair.source);
  const right = classOf(pair.target);
  if (state.from) return left !== state.from && right === state.from;
  return Boolean(state.to) && right !== state.to && left === state.to;
}

function sidesOf(pair) {
  return isTurned(pair) ? [pair.target, pair.source] : [pair.source, pair.target];
}

function hasValue(row, group) {
  const place = data.columns.findIndex((name) => group.startsWith(`${name}=`)
    && data.values[data.columns.indexOf(name)][row] === group.slice(name.length + 1));
  return place >= 0;
}

function isShown(pair) {
  const sides = sidesOf(pair);
  const find = state.find.toLowerCase();
  if (find && !sides.some((row) => nameOf(row).toLowerCase().includes(find))) return false;
  if (state.from && classOf(sides[0]) !== state.from) return false;
  if (state.to && classOf(sides[1]) !== state.to) return false;
  if (state.attribute) {
    const column = data.columns.indexOf(state.attribute);
    const differs = pair.differences.some(([place]) => place === column);
    if (differs !== (state.how !== "agrees")) return false;
  }
  if (state.group && !sides.some((row) => hasValue(row, state.group))) return false;
  if (state.limit) {
    const limit = Number(state.limit);
    if (data.measure === "distance" ? pair.measure > limit : pair.measure < limit) return false;
  }
  if (state.mark && pair.mark !== state.mark) return false;
  return !state.better || data.better[pair.place];
}

function compare(a, b) {
  const key = state.sort.replace("-", "");
  const sign = state.sort.startsWith("-") ? -1 : 1;
  return sign * (a[key] - b[key]) || a.place - b.place;
}

function chosen() {
  return shown.find((pair) => pair.key === state.pair) ?? shown[0];
}

/* --- the table -------------------------------------------------------------------------------- */

function drawHead() {
  const title = data.measure === "distance" ? "Distance" : "Similarity";
  byId("head").replaceChildren(...COLUMNS.map(([key, name]) => {
    const head = make("div", { role: "columnheader" });
    const text = key === "measure" ? title : name;
    if (!SORTABLE.includes(key)) {
      head.append(text);
      return head;
    }
    if (key !== "place") head.className = "num";
    const direction = { [key]: "ascending", [`-${key}`]: "descending" }[state.sort];
    head.setAttribute("aria-sort", direction ?? "none");
    const arrow = { ascending: " ▲", descending: " ▼" }[direction] ?? "";
    const button = make("button", { type: "button", "data-sort": key }, text + arrow);
    head.append(button);
    return head;
  }));
}

function sortBy(key) {
  const descendsFirst = key === "count" || key === "largest";
  const [first, second] = descendsFirst ? [`-${key}`, key] : [key, `-${key}`];
  state.sort = state.sort === first ? second : first;
  update();
  byId("head").querySelector(`[data-sort=${key}]`).focus();
}

function makeLine(pair, place) {
  const [left, right] = sidesOf(pair);
  const classes = data.labels ? `${classOf(left)} → ${classOf(right)}` : "";
  const cells = [
    pair.place + 1, nameOf(left), nameOf(right), classes, data.values_shown[pair.place],
    pair.count, pair.largest.toFixed(2),
  ];
  const line = make("div", {
    role: "row", id: `pair-${pair.place}`, "aria-rowindex": place + 2,
    "aria-selected": pair === chosen(),
  });
  line.style.top = `${place * ROW_HEIGHT}px`;
  line.append(...cells.map((cell, column) => {
    const element = make("div", { role: "gridcell" }, String(cell));
    if (column > 3) element.className = "num";
    return element;
  }));
  if (pair.mark) line.firstChild.append(` ${"●◆■"[data.mark_names.indexOf(pair.mark)]}`);
  line.title = pair.mark || "";
  line.addEventListener("click", () => choose(pair));
  return line;
}

function drawLines() {
  const body = byId("body");
  const first = Math.max(0, Math.floor(body.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
  const last = Math.ceil((body.scrollTop + body.clientHeight) / ROW_HEIGHT) + SPARE_ROWS;
  const lines = shown.slice(first, last).map((pair, i) => makeLine(pair, first + i));
  byId("lines").replaceChildren(...lines);
}

function scrollToChosen() {
  const body = byId("body");
  const top = shown.indexOf(chosen()) * ROW_HEIGHT;
  if (top < body.scrollTop) body.scrollTop = top;
  const bottom = top + ROW_HEIGHT - body.clientHeight;
  if (bottom > body.scrollTop) body.scrollTop = bottom;
}

function choose(pair) {
  if (!pair) return;
  state.pair = pair.key;
  scrollToChosen();
  drawLines();
  drawPair();
  writeAddress();
}

function update() {
  shown = pairs.filter(isShown).sort(compare);
  const grid = byId("grid");
  grid.setAttribute("aria-rowcount", shown.length + 1);
  byId("lines").style.height = `${shown.length * ROW_HEIGHT}px`;
  byId("status").textContent = `${shown.length.toLocaleString("en-US")} of `
    + `${pairs.length.toLocaleString("en-US")} pairs shown.`;
  drawHead();
  scrollToChosen();
  drawLines();
  drawPair();
  writeAddress();
}

/* --- one pair --------------------------------------------------------------------------------- */

function cellOf(value) {
  if (value === null) return make("td", { class: "missing" }, "missing");
  return make("td", {}, value);
}

function makeBar(change, widest) {
  const cell = make("td", { class: "bar" });
  if (change === null) return cell;
  const bar = make("i", { class: change < 0 ? "below" : "above" });
  const width = 50 * Math.abs(change) / widest;
  bar.style.width = `${width}%`;
  bar.style.left = `${change < 0 ? 50 - width : 50}%`;
  const sign = change > 0 ? "+" : "−";
  cell.append(bar, make("span", {}, `${sign}${Math.abs(change).toPrecision(3)}`));
  return cell;
}

function isLong(values) {
  return values.some((value) => value !== null && value.length > LONG_TEXT);
}

function drawDifferences(pair, sides, sign) {
  const body = make("tbody", {});
  const texts = [];
  const widest = Math.max(1, ...pair.differences.map(sizeOf));
  for (const [column, change] of pair.differences) {
    const values = sides.map((row) => data.values[column][row]);
    if (!data.numeric[column] && isLong(values)) {
      texts.push(...drawTexts(data.columns[column], values));
      continue;
    }
    const line = make("tr", {}, make("th", { scope: "row" }, data.columns[column]),
      ...values.map(cellOf), makeBar(change === null ? null : sign * change, widest));
    if (body.children.length >= PRINTED_ROWS) line.className = "beyond";
    body.append(line);
  }
  const titles = ["Attribute", ...sides.map((row, i) => `${"AB"[i]}: ${nameOf(row)}`), "B − A (SD)"];
  const head = make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title))));
  return body.children.length ? [make("table", {}, head, body), ...texts] : texts;
}

function drawEqual(pair, sides) {
  const differing = new Set(pair.differences.map(([column]) => column));
  const equal = data.columns.map((_, column) => column).filter((column) => !differing.has(column));
  if (!equal.length) return [];
  const body = make("tbody", {}, ...equal.map((column) => make("tr", {},
    make("th", { scope: "row" }, data.columns[column]), cellOf(data.values[column][sides[0]]))));
  const title = `${equal.length} attribute${equal.length === 1 ? " is" : "s are"} equal`;
  return [make("details", {}, make("summary", {}, title), make("table", {}, body))];
}

/* Lengths of the longest common subsequences of the ends of two lists of words. */
function commonLengths(a, b) {
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const skipped = Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
      const taken = lengths[(i + 1) * width + j + 1] + 1;
      lengths[i * width + j] = a[i] === b[j] ? taken : skipped;
    }
  }
  return (i, j) => lengths[i * width + j];
}

/* The words of both texts; those that the other one lacks are marked. */
function wordDiff(texts) {
  const [a, b] = texts.map((text) => (text ?? "").split(/\s+/).slice(0, MOST_WORDS));
  const common = commonLengths(a, b);
  const sides = [[], []];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      sides[0].push(`${a[i++]} `);
      sides[1].push(`${b[j++]} `);
    } else if (j === b.length || (i < a.length && common(i + 1, j) >= common(i, j + 1))) {
      sides[0].push(make("mark", {}, a[i++]), " ");
    } else {
      sides[1].push(make("mark", {}, b[j++]), " ");
    }
  }
  return sides;
}

function drawTexts(name, values) {
  const columns = wordDiff(values).map((words, i) => (values[i] === null
    ? make("div", { class: "text missing" }, "missing") : make("div", { class: "text" }, ...words)));
  return [make("h3", {}, name), make("div", { class: "two" }, ...columns)];
}

function drawNeighbourhood(row, [degree, same, near, shared, edges], letter) {
  const places = near.map((_, i) => {
    const angle = 2 * Math.PI * (i + 0.5) / near.length - Math.PI / 2;
    return [130 + 85 * Math.cos(angle), 120 + 85 * Math.sin(angle)];
  });
  const lines = places.map(([x, y]) => `M130 120L${x} ${y}`)
    .concat(edges.map(([i, j]) => `M${places[i]}Q130 120 ${places[j]}`));
  const drawing = make("svg", { viewBox: "0 0 260 240", role: "img" },
    make("title", {}, `${nameOf(row)} and its neighbours`), make("path", { d: lines.join("") }));
  places.forEach(([x, y], i) => {
    const isOwn = data.labels[near[i]] === data.labels[row];
    const look = `node ${isOwn ? "own" : ""} ${shared[i] ? "both" : ""}`;
    drawing.append(isOwn ? make("circle", { cx: x, cy: y, r: 11, class: look })
      : make("rect", { x: x - 10, y: y - 10, width: 20, height: 20, class: look }));
    drawing.append(make("text", { x, y: y + (y < 120 ? -17 : 18) }, nameOf(near[i]).slice(0, 10)));
  });
  drawing.append(make("circle", { cx: 130, cy: 120, r: 20, class: "node own" }));
  drawing.append(make("text", { x: 130, y: 120 }, nameOf(row).slice(0, 6)));
  const text = `${letter}: ${degree} neighbours, ${same} with the same decision`;
  return make("figure", {}, drawing, make("figcaption", { class: "soft" }, text));
}

function drawNeighbourhoods(pair, sides) {
  if (!data.near.length) return [];
  const near = isTurned(pair) ? [...data.near[pair.place]].reverse() : data.near[pair.place];
  const common = near[0][2].filter((row, i) => near[0][3][i] && row !== sides[1]).map(nameOf);
  const figures = near.map((one, i) => drawNeighbourhood(sides[i], one, "AB"[i]));
  return [
    make("h3", {}, "Neighbours"),
    make("div", { class: "two" }, ...figures),
    make("p", { class: "soft" }, `Neighbours of both: ${common.join(", ") || "none"}. `
      + "Circles have the decision of the node in the middle, squares another one; a thick "
      + "outline is the other side or a neighbour of both."),
  ];
}

function drawMarks(pair) {
  const buttons = data.mark_names.map((mark) => {
    const options = { type: "button", "aria-pressed": pair.mark === mark };
    const button = make("button", options, mark);
    button.addEventListener("click", () => setMark(pair, mark));
    return button;
  });
  const note = make("textarea", { placeholder: "Note", "aria-label": "Note" });
  note.value = pair.note;
  note.addEventListener("input", () => {
    pair.note = note.value;
    hasUnsavedMarks = true;
  });
  return make("div", { class: "marks", role: "group", "aria-label": "Mark" }, ...buttons, note);
}

function drawPair() {
  const pair = chosen();
  if (!pair) {
    byId("pair").replaceChildren(make("p", {}, "No pair fits the filters."));
    return;
  }
  const sides = sidesOf(pair);
  const decisions = sides.map((row, i) => make("li", {}, `${"AB"[i]}: ${nameOf(row)}`,
    data.labels ? `, decision ${classOf(row)}` : "",
    data.truth ? `, true class ${classOf(row, data.truth)}` : ""));
  byId("pair").replaceChildren(
    make("h2", {}, `Pair ${pair.place + 1}: ${sides.map(nameOf).join(" and ")}`),
    make("ul", {}, ...decisions),
    make("p", {}, `${data.measure[0].toUpperCase()}${data.measure.slice(1)} `
      + `${data.values_shown[pair.place]}; ${pair.count} of ${data.columns.length} attributes differ.`),
    drawMarks(pair),
    ...drawDifferences(pair, sides, isTurned(pair) ? -1 : 1),
    ...drawEqual(pair, sides),
    ...drawNeighbourhoods(pair, sides),
  );
  byId("grid").setAttribute("aria-activedescendant", `pair-${pair.place}`);
}

/* --- marks ------------------------------------------------------------------------------------ */

function setMark(pair, mark) {
  pair.mark = pair.mark === mark ? "" : mark;
  hasUnsavedMarks = true;
  drawLines();
  drawPair();
}

/* The rule of cfe_faiss.base.text.csv_text, with its characters and its pattern of numbers. */
function csvText(text) {
  const line = text.replace(/\p{Cc}/gu, " ").replace(/\p{Cs}/gu, "\ufffd");
  const isNumber = new RegExp(`^(?:${data.plain_number})$`, "i").test(line);
  const isFormula = data.formula_starts.includes(line.trimStart()[0] ?? " ") && !isNumber;
  return isFormula ? `'${line}` : line;
}

function marksAsCsv() {
  const lines = pairs.filter((pair) => pair.mark || pair.note).map((pair) => [
    data.rows[pair.source], data.rows[pair.target], nameOf(pair.source), nameOf(pair.target),
    classOf(pair.source), classOf(pair.target), data.values_shown[pair.place], pair.mark, pair.note,
  ]);
  const head = ["source_row", "target_row", "source", "target", "source_class", "target_class",
    data.measure, "mark", "note"];
  const quote = (cell) => `"${csvText(String(cell)).replaceAll('"', '""')}"`;
  return [head, ...lines].map((line) => `${line.map(quote).join(",")}\n`).join("");
}

function exportMarks() {
  const link = make("a", { download: "marks.csv" });
  link.href = URL.createObjectURL(new Blob(["\ufeff", marksAsCsv()], { type: "text/csv" }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  hasUnsavedMarks = false;
}

/* --- address, form and keys ------------------------------------------------------------------- */

function writeAddress() {
  const fields = Object.entries(state).filter(([key, value]) => value && value !== "place");
  const address = `#${new URLSearchParams(fields)}`;
  if (address !== (location.hash || "#")) history.replaceState(null, "", address);
}

function readAddress() {
  const fields = new URLSearchParams(location.hash.slice(1));
  const sort = fields.get("sort") ?? "";
  state.sort = SORTABLE.includes(sort.replace("-", "")) ? sort : "place";
  state.pair = fields.get("pair") ?? "";
  for (const name of FILTERS) {
    const input = byId(name);
    if (!input) continue;
    if (input.type === "checkbox") input.checked = fields.has(name);
    else input.value = fields.get(name) ?? "";
  }
  readForm();
}

function readForm() {
  for (const name of FILTERS) {
    const input = byId(name);
    if (!input) state[name] = "";
    else state[name] = input.type === "checkbox" ? (input.checked ? "1" : "") : input.value;
  }
  update();
}

function fillForm() {
  const option = (value) => make("option", { value }, value);
  for (const name of ["from", "to"]) byId(name)?.append(...data.classes.map(option));
  byId("attribute").append(...data.columns.map(option));
  byId("mark").append(...data.mark_names.map(option));
  const places = data.columns.map((_, place) => place);
  const others = places.filter((place) => !data.sensitive.includes(place));
  for (const place of [...data.sensitive, ...others]) {
    const values = [...new Set(data.values[place])].filter((value) => value !== null).sort();
    if (values.length > MOST_GROUPS) continue;
    const name = data.columns[place];
    const options = values.map((value) => make("option", { value: `${name}=${value}` }, value));
    byId("group").append(make("optgroup", { label: name }, ...options));
  }
}

function pressKey(event) {
  if (event.target !== byId("grid")) return;
  const page = Math.max(1, Math.floor(byId("body").clientHeight / ROW_HEIGHT) - 1);
  const place = shown.indexOf(chosen());
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -place, End: shown.length };
  if (event.key in steps) {
    event.preventDefault();
    choose(shown[Math.min(shown.length - 1, Math.max(0, place + steps[event.key]))]);
  } else if (event.key === "Enter") {
    byId("pair").focus();
  } else if (chosen() && event.key === "0") {
    setMark(chosen(), chosen().mark);
  } else if (chosen() && data.mark_names[event.key - 1]) {
    setMark(chosen(), data.mark_names[event.key - 1]);
  }
}

async function start() {
  data = await readData();
  pairs = data.source.map((_, place) => makePair(place));
  byId("grid").setAttribute("aria-colcount", COLUMNS.length);
  fillForm();
  readAddress();
  byId("filters").addEventListener("input", readForm);
  byId("filters").addEventListener("reset", () => setTimeout(readForm));
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("head").addEventListener("click", (event) => {
    if (event.target.dataset.sort) sortBy(event.target.dataset.sort);
  });
  byId("body").addEventListener("scroll", drawLines);
  byId("grid").addEventListener("keydown", pressKey);
  byId("export").addEventListener("click", exportMarks);
  addEventListener("resize", drawLines);
  addEventListener("hashchange", readAddress);
  addEventListener("beforeunload", (event) => {
    if (hasUnsavedMarks) event.preventDefault();
  });
}

start();
