// A result as a table. Values are text, whatever they contain.
import { make } from "./dom.js";

export function makeGrid(answer) {
  const head = answer.columns.map((column) => make("th", { scope: "col", class: column.number ? "number" : null, title: column.type }, column.name));
  const rows = answer.rows.map((row) => make("tr", {}, row.map((value, at) => makeCell(value, answer.columns[at]))));
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Rows" }, make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows)));
}

function makeCell(value, column) {
  if (value === null) return make("td", { class: `null ${column.number ? "number" : ""}` }, "null");
  return make("td", { class: column.number ? "number" : null }, value);
}
