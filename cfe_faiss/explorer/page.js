"use strict";
/* Texts of the data enter the page as text nodes and values only. Nothing is loaded or sent. */
const ROW_HEIGHT = 34; // as in page.css
const SPARE_ROWS = 8;
const LONG_TEXT = 40;
const MOST_WORDS = 1500;
const PRINTED_ROWS = 30;

const byId = (id) => document.getElementById(id);
const form = byId("filters");
let data;
let pairs = [];
let shown = [];
let filters = {};
let sort = "place";
let chosenKey = "";
let hasUnsavedMarks = false;
let addressTimer;

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function completePair(pair, place) {
  const compared = pair.differences.filter(([column]) => !data.left_out.includes(column));
  const largest = Math.max(0, ...compared.map(([, change]) => Math.abs(change)));
  const key = `${pair.source}-${pair.target}`;
  return { ...pair, place, key, largest, count: pair.differences.length };
}

function hasClasses([left, right]) {
  const { from, to } = filters;
  return (!from || left.decision === from) && (!to || right.decision === to);
}

/* The class of "from" stands left: a pair is turned if its sides are the other way round. */
function turn(pair) {
  const sides = [data.rows[pair.source], data.rows[pair.target]];
  const turned = sides.toReversed();
  pair.isTurned = !hasClasses(sides) && hasClasses(turned);
  pair.sides = pair.isTurned ? turned : sides;
}

function isShown(pair) {
  const { find = "", attribute, how, group, limit, mark, better } = filters;
  const hasId = (row) => row.id.toLowerCase().includes(find.toLowerCase());
  const differs = pair.differences.some(([column]) => column === Number(attribute));
  const isUnknown = (row) => row.values[attribute] === null;
  const fits = { "": differs, agrees: !differs, unknown: pair.sides.some(isUnknown) };
  const [column] = (group ?? "").split("=", 1);
  const isMember = (row) => `${column}=${row.values[column]}` === group;
  const sign = data.measure === "distance" ? 1 : -1;
  return hasClasses(pair.sides) && pair.sides.some(hasId)
    && (!attribute || fits[how])
    && (!group || pair.sides.some(isMember))
    && (!limit || sign * pair.measure <= sign * limit)
    && (!mark || pair.mark === mark)
    && (!better || pair.better);
}

function compare(a, b) {
  const key = sort.replace("-", "");
  const sign = sort.startsWith("-") ? -1 : 1;
  return sign * (a[key] - b[key]) || a.place - b.place;
}

/* None if the address names a pair that is not on the page. */
function chosen() {
  const isNamed = (pair) => pair.key === chosenKey;
  return shown.find(isNamed) ?? (chosenKey && !pairs.some(isNamed) ? undefined : shown[0]);
}

function makeLine(pair, place) {
  const [left, right] = pair.sides;
  const classes = left.decision && `${left.decision} → ${right.decision}`;
  const cells = [
    pair.place + 1, left.id, right.id, classes,
    pair.shown, pair.count, pair.largest.toFixed(2), pair.mark,
  ];
  const options = { role: "row", id: `pair-${pair.place}`, "aria-rowindex": place + 2 };
  const makeGridCell = (cell) => make("div", { role: "gridcell" }, String(cell));
  const line = make("div", options, ...cells.map(makeGridCell));
  line.style.top = `${place * ROW_HEIGHT}px`;
  line.addEventListener("click", () => choose(pair));
  return line;
}

function drawLines() {
  const body = byId("body");
  const first = Math.max(0, Math.floor(body.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
  const last = Math.ceil((body.scrollTop + body.clientHeight) / ROW_HEIGHT) + SPARE_ROWS;
  const lines = shown.slice(first, last).map((pair, i) => makeLine(pair, first + i));
  byId("lines").replaceChildren(...lines);
  byId(`pair-${chosen()?.place}`)?.setAttribute("aria-selected", "true");
}

function choose(pair) {
  chosenKey = pair?.key ?? chosenKey;
  const body = byId("body");
  const top = shown.indexOf(chosen()) * ROW_HEIGHT;
  const lowest = top + 2 * ROW_HEIGHT - body.clientHeight; // below the head
  body.scrollTop = Math.min(top, Math.max(lowest, body.scrollTop));
  drawLines();
  drawPair();
  writeAddress();
}

function update() {
  filters = Object.fromEntries(new FormData(form));
  pairs.forEach(turn);
  shown = pairs.filter(isShown).sort(compare);
  byId("grid").setAttribute("aria-rowcount", shown.length + 1);
  byId("lines").style.height = `${shown.length * ROW_HEIGHT}px`;
  const counts = [shown, pairs].map((list) => list.length.toLocaleString("en-US"));
  byId("status").textContent = `${counts.join(" of ")} pairs shown.`;
  for (const button of document.querySelectorAll("[data-sort]")) {
    const key = button.dataset.sort;
    const direction = { [key]: "ascending", [`-${key}`]: "descending" }[sort] ?? "none";
    button.parentElement.setAttribute("aria-sort", direction);
  }
  choose(chosen());
}

const makeCell = (value) => make("td", value === null ? { class: "missing" } : {}, value ?? "unknown");

function makeBar(change, widest) {
  if (change === null) return make("td", { class: "bar" }, "different");
  const bar = make("i", { class: change < 0 ? "below" : "above" });
  const width = 25 * Math.abs(change) / widest; // the number stands in the right half
  bar.style.width = `${width}%`;
  bar.style.left = `${change < 0 ? 25 - width : 25}%`;
  return make("td", { class: "bar" }, bar, `${change < 0 ? "−" : "+"}${Math.abs(change)}`);
}

function makeRow(column, ...cells) {
  const note = data.left_out.includes(column) ? make("small", {}, " not compared") : "";
  return make("tr", {}, make("th", { scope: "row" }, data.columns[column], note), ...cells);
}

function drawDifferences({ differences, sides, isTurned }) {
  const rows = [];
  const texts = [];
  const widest = Math.max(1, ...differences.map(([, change]) => Math.abs(change)));
  for (const [column, change] of differences) {
    const values = sides.map((row) => row.values[column]);
    if (values.some((value) => value?.length > LONG_TEXT)) {
      texts.push(make("h3", {}, data.columns[column]));
      texts.push(make("div", { class: "two" }, ...drawTexts(values)));
    } else {
      const bar = makeBar(isTurned && change !== null ? -change : change, widest);
      rows.push(makeRow(column, ...values.map(makeCell), bar));
    }
  }
  const titles = ["Attribute", `A: ${sides[0].id}`, `B: ${sides[1].id}`, "B − A (SD)"];
  const head = make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  return rows.length ? [table, ...texts] : texts;
}

function drawEqual({ differences, sides }) {
  const isEqual = (column) => !differences.some(([other]) => other === column);
  const columns = [...data.columns.keys()].filter(isEqual);
  const rows = columns.map((column) => makeRow(column, makeCell(sides[0].values[column])));
  const summary = make("summary", {}, `Equal attributes: ${rows.length}`);
  return make("details", {}, summary, make("table", {}, ...rows));
}

/* Return the table [i][j] of words in common from word i of a and word j of b on, in this order. */
function commonWords(a, b) {
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const longest = Math.max(common[i + 1][j], common[i][j + 1]);
      common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : longest;
    }
  }
  return common;
}

/* Draw two texts. Words that they do not have in common are marked. */
function drawTexts(texts) {
  const [a, b] = texts.map((text) => (text ?? "unknown").split(" ").slice(0, MOST_WORDS));
  const common = commonWords(a, b);
  const sides = texts.map((text) => make("div", { class: text === null ? "text missing" : "text" }));
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && a[i] === b[j]) {
      sides[0].append(`${a[i++]} `);
      sides[1].append(`${b[j++]} `);
    } else if (j === b.length || (i < a.length && common[i + 1][j] >= common[i][j + 1])) {
      sides[0].append(make("mark", {}, a[i++]), " ");
    } else {
      sides[1].append(make("mark", {}, b[j++]), " ");
    }
  }
  return sides;
}

function drawNeighbours({ count, same, drawn }, letter) {
  const items = drawn.map(([number, isShared]) => {
    const { id, decision } = data.rows[number];
    return make("li", { class: isShared ? "both" : "one" }, `${id}, ${decision}`);
  });
  if (count > drawn.length) items.push(make("li", {}, `${count - drawn.length} more`));
  const title = `${letter}: ${count} neighbours, ${same} with the same decision`;
  return make("div", {}, make("h3", {}, title), make("ul", { class: "near" }, ...items));
}

function drawMarks(pair) {
  const buttons = data.mark_names.map((mark) => {
    const button = make("button", { type: "button", "aria-pressed": pair.mark === mark }, mark);
    button.addEventListener("click", () => setMark(pair, mark));
    return button;
  });
  const note = make("textarea", { placeholder: "Note", "aria-label": "Note" }, pair.note);
  note.addEventListener("input", () => {
    pair.note = note.value;
    hasUnsavedMarks = true;
  });
  return make("div", { class: "marks", role: "group", "aria-label": "Mark" }, ...buttons, note);
}

function drawPair() {
  const pair = chosen();
  byId("pair").replaceChildren(shown.length
    ? "The address names a pair that is not on this page." : "No pair fits the filters.");
  if (!pair) return;
  const people = pair.sides.map(({ id, decision, truth }, i) => make("li", {}, `${"AB"[i]}: ${id}`,
    decision && `, decision ${decision}`, truth && `, true class ${truth}`));
  const near = pair.isTurned ? pair.near.toReversed() : pair.near;
  byId("pair").replaceChildren(
    make("h2", {}, `Pair ${pair.place + 1}: ${pair.sides.map((row) => row.id).join(" and ")}`),
    make("ul", {}, ...people),
    make("p", {}, `The ${data.measure} is ${pair.shown}; `
      + `${pair.count} of ${data.columns.length} attributes differ.`),
    drawMarks(pair),
    ...drawDifferences(pair),
    drawEqual(pair),
    make("div", { class: "two" }, ...near.map((side, i) => drawNeighbours(side, "AB"[i]))),
  );
  const rows = document.querySelectorAll("#pair tr:has(td)");
  [...rows].slice(PRINTED_ROWS).forEach((row) => row.classList.add("beyond"));
  byId("grid").setAttribute("aria-activedescendant", `pair-${pair.place}`);
}

function setMark(pair, mark) {
  pair.mark = pair.mark === mark ? "" : mark;
  hasUnsavedMarks = true;
  choose(pair);
}

/* The rule of cfe_faiss.base.text.csv_text, with its characters and its pattern of numbers. */
function csvText(text) {
  const line = text.replace(/\p{Cc}/gu, " ").replace(/\p{Cs}/gu, "\ufffd");
  const isNumber = new RegExp(`^(?:${data.plain_number})$`, "i").test(line);
  const first = line.trimStart()[0] ?? " ";
  return data.formula_starts.includes(first) && !isNumber ? `'${line}` : line;
}

function exportMarks() {
  const lines = pairs.filter((pair) => pair.mark || pair.note).map((pair) => {
    const [left, right] = [data.rows[pair.source], data.rows[pair.target]];
    return [pair.source, pair.target, left.id, right.id, left.decision, right.decision,
      pair.shown, pair.mark, pair.note];
  });
  const quote = (cell) => `"${csvText(String(cell)).replaceAll('"', '""')}"`;
  const text = [data.csv_columns, ...lines].map((line) => line.map(quote).join(","));
  const file = new Blob(["\ufeff", text.join("\n"), "\n"], { type: "text/csv" });
  make("a", { download: "marks.csv", href: URL.createObjectURL(file) }).click();
  hasUnsavedMarks = false;
}

/* It holds no id, so not what was searched for. Browsers refuse many changes in a short time. */
function writeAddress() {
  clearTimeout(addressTimer);
  const values = { ...filters, find: "", sort: sort === "place" ? "" : sort, pair: chosenKey };
  const fields = new URLSearchParams(Object.entries(values).filter(([, value]) => value));
  addressTimer = setTimeout(() => history.replaceState(null, "", `#${fields}`), 150);
}

function readAddress() {
  const fields = new URLSearchParams(location.hash.slice(1));
  sort = fields.get("sort") ?? "place";
  chosenKey = fields.get("pair") ?? "";
  for (const input of form.elements) {
    const property = input.type === "checkbox" ? "checked" : "value";
    input[property] = fields.get(input.name) ?? "";
  }
  update();
}

function pressKey(event) {
  if (!shown.length) return;
  const place = shown.indexOf(chosen());
  const page = Math.max(1, Math.floor(byId("body").clientHeight / ROW_HEIGHT) - 2);
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -1e9, End: 1e9 };
  const mark = event.key === "0" ? chosen()?.mark : data.mark_names[event.key - 1];
  if (event.key in steps) {
    event.preventDefault();
    choose(shown[Math.min(shown.length - 1, Math.max(0, place + steps[event.key]))]);
  } else if (mark && chosen()) {
    setMark(chosen(), mark);
  }
}

function changeOrder({ target }) {
  const key = target.dataset.sort;
  if (!key) return;
  sort = sort === key ? `-${key}` : key;
  chosenKey = "";
  update();
}

async function start() {
  const packed = atob(byId("data").textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  data = await new Response(stream).json();
  pairs = data.pairs.map(completePair);
  readAddress();
  form.addEventListener("input", update);
  form.addEventListener("reset", () => setTimeout(update));
  byId("head").addEventListener("click", changeOrder);
  byId("body").addEventListener("scroll", drawLines);
  byId("grid").addEventListener("keydown", pressKey);
  byId("export").addEventListener("click", exportMarks);
  addEventListener("hashchange", readAddress);
  addEventListener("beforeunload", (event) => hasUnsavedMarks && event.preventDefault());
}

start();
