// Read-only SQL: a query, and its answer as a table or a chart, or its error.
import { byId, make } from "./dom.js";
import { plural } from "./format.js";
import { makeGrid } from "./grid.js";
import { fetchJson } from "./poll.js";
import { makeResultChart } from "./result_chart.js";

const KEPT = "headrace.sql";
const [form, text, button, answer, examples] = ["ask", "sql", "run", "answer", "examples"].map(byId);

async function run() {
  button.disabled = true;
  answer.replaceChildren(make("p", { class: "notice" }, "Running…"));
  sessionStorage.setItem(KEPT, text.value);
  try {
    const found = await fetchJson("/api/query", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ sql: text.value }), signal: AbortSignal.timeout(40000) });
    show(found);
  } catch (error) {
    const words = error.status ? error.message : "The server does not answer. Try again when it is back.";
    answer.replaceChildren(make("p", { class: "notice bad code", role: "alert" }, words));
  } finally {
    button.disabled = false;
  }
}

function show(found) {
  const place = make("div");
  const facts = `${plural(found.rows.length, "row", "rows")}${found.truncated ? ", truncated" : ""} · ${found.seconds.toFixed(2)} s`;
  const views = { Table: () => makeGrid(found), Chart: () => makeResultChart(found) };
  const tabs = Object.keys(views).map((name) => make("button", { type: "button", "aria-pressed": "false", on: { click: () => choose(name) } }, name));
  function choose(name) {
    tabs.forEach((tab) => tab.setAttribute("aria-pressed", String(tab.textContent === name)));
    place.replaceChildren(found.rows.length ? views[name]() : make("p", { class: "dim" }, "The answer has no rows."));
  }
  answer.replaceChildren(make("div", { class: "panel" }, make("div", { class: "tabs" }, tabs, make("span", { class: "dim" }, facts)), place));
  choose("Table");
}

async function listExamples() {
  const flow = await fetchJson("/api/flow");
  for (const pipeline of flow.pipelines) {
    const queries = pipeline.queries.map((query) => make("option", { value: query.sql }, query.about));
    const tables = pipeline.places.filter((each) => each.kind === "raw" || each.kind === "table").map((each) => make("option", { value: `SELECT *\nFROM ${each.name}\nLIMIT 100` }, each.name));
    examples.append(make("optgroup", { label: pipeline.name }, queries, tables));
  }
}

form.addEventListener("submit", (event) => { event.preventDefault(); run(); });
text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); run(); } });
examples.addEventListener("change", () => { if (examples.value) { text.value = examples.value; examples.selectedIndex = 0; text.focus(); } });
text.value = sessionStorage.getItem(KEPT) ?? "";
listExamples().catch(() => {});
text.focus();
