// An answer as a chart: one column across, one number up, lines where time runs and bars elsewhere.
import { drawChart, plain } from "./chart.js";
import { make } from "./dom.js";

const isTime = (column) => /^(timestamp|date)/.test(column.type);

export function makeResultChart(answer) {
  const numbers = answer.columns.filter((column) => column.number);
  if (!numbers.length) return make("p", { class: "dim" }, "A chart needs a column of numbers.");
  const chart = make("div", { class: "chart", role: "img", "aria-label": "Chart of the answer" });
  const across = choice("across", answer.columns, answer.columns.find((column) => isTime(column)) ?? answer.columns.find((column) => !column.number) ?? answer.columns[0]);
  const up = choice("up", numbers, numbers.find((column) => column !== across.chosen()) ?? numbers[0]);
  const words = answer.columns.filter((column) => !column.number && !isTime(column));
  const each = choice("one for each", [{ name: "" }, ...words], words.find((column) => column !== across.chosen()) ?? { name: "" });
  const redraw = () => drawChart(chart, traces(answer, across.chosen(), up.chosen(), each.chosen()), {
    showlegend: Boolean(each.chosen().name),
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom" },
    xaxis: { type: isTime(across.chosen()) ? "date" : across.chosen().number ? "linear" : "category", title: { text: plain(across.chosen().name) } },
    yaxis: { title: { text: plain(up.chosen().name) } },
    margin: { l: 60, r: 12, t: 28, b: 48 },
  });
  for (const select of [across, up, each]) select.root.addEventListener("change", redraw);
  requestAnimationFrame(redraw);
  return make("div", {}, make("div", { class: "axes" }, across.root, up.root, each.root), chart);
}

function choice(label, columns, chosen) {
  const select = make("select", {}, columns.map((column) => make("option", { selected: column.name === chosen.name }, column.name)));
  return { root: make("label", {}, `${label} `, select), chosen: () => columns[select.selectedIndex] };
}

function traces(answer, across, up, each) {
  const at = (column) => answer.columns.findIndex((found) => found.name === column.name);
  const groups = new Map();
  for (const row of answer.rows) {
    const group = each.name ? String(row[at(each)]) : "";
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push([row[at(across)], row[at(up)] === null ? null : Number(row[at(up)])]);
  }
  const lines = isTime(across);
  return [...groups].map(([group, points]) => {
    if (lines) points.sort((one, other) => (one[0] < other[0] ? -1 : 1));
    return { type: lines ? "scatter" : "bar", mode: lines ? "lines+markers" : undefined, name: plain(group), x: points.map(([x]) => (typeof x === "string" ? plain(x) : x)), y: points.map(([, y]) => y) };
  });
}
