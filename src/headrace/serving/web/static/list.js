// All figures of a pipeline as a table, including the ones for which its picture has no room.
import { make, say } from "./dom.js";
import { batch, count, known, rate, span } from "./format.js";

const FIGURES = ["rows", "rows/s", "lag", "freshness", "batch", "quarantined", "warnings", "commit"];

export function makeList(pipeline) {
  const rows = new Map();
  const body = make("tbody");
  for (const place of pipeline.places.filter((each) => each.kind === "raw" || each.kind === "table")) {
    const cells = FIGURES.map((name) => make("td", { class: "number", "data-label": name }));
    const link = make("a", { href: `/tables/${encodeURIComponent(place.name)}` }, place.name);
    rows.set(place.name, cells);
    body.append(make("tr", {}, make("td", { class: "title" }, link), cells));
  }
  const head = make("tr", {}, make("th", { scope: "col" }, "table"), FIGURES.map((name) => make("th", { scope: "col", class: "number" }, name)));
  return { root: make("table", { class: "figures" }, make("thead", {}, head), body), update: (figures) => rows.forEach((cells, name) => write(cells, figures[name] ?? {})) };
}

function write(cells, figures) {
  const lag = known(figures.behind_seconds) ? span(figures.behind_seconds) : count(figures.lag);
  const values = [count(figures.rows), rate(figures.rate), lag, span(figures.freshness_seconds), batch(figures.batch_seconds), count(figures.quarantined), warnings(figures), count(figures.commit)];
  values.forEach((value, index) => say(cells[index], value));
  cells[2].classList.toggle("behind", figures.state === "behind");
  cells[5].classList.toggle("bad-text", Boolean(figures.quarantined));
  cells[6].classList.toggle("bad-text", Boolean(figures.warnings));
}

const warnings = (figures) => (figures.failing ? `${count(figures.warnings)} in ${figures.failing}/${figures.expectations}` : count(figures.warnings));
