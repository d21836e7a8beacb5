// One table's page: its definition, lineage, commits, files and rows.
import { byId, make } from "./dom.js";
import { batch, bytes, count, known, millis, moment, plural, rate, span } from "./format.js";
import { makeGrid } from "./grid.js";
import { fetchJson, poll } from "./poll.js";

const page = byId("table");
const name = page.dataset.name;
const address = `/api/tables/${encodeURIComponent(name)}`;
let version = null;

const panel = (title, id, ...content) => make("section", { class: "panel", id, "aria-label": title }, make("h2", {}, title), content);
const none = (text) => make("p", { class: "dim" }, text);

poll("/api/figures", async (figures) => {
  const pipeline = figures.pipelines.find((each) => name in each.nodes);
  const own = pipeline?.nodes[name] ?? {};
  const seen = `${figures.started} ${own.commit} ${own.rows}`;
  if (seen !== version) await build();
  version = seen;
  byId("now").replaceChildren(...now(own));
});

/** Draw the page; slower sections load afterwards. */
async function build() {
  const table = await fetchJson(address);
  page.replaceChildren(
    make("p", { class: "dim" }, make("a", { href: "/room" }, table.pipeline), ` · ${table.kind} · ${table.file}`),
    make("h1", {}, table.name),
    make("p", { class: "about" }, table.about),
    make("dl", { id: "now", class: "now" }),
    make("div", { class: "columns" }, lineage(table), definition(table)),
    panel("Expectations", "expectations", expectations(table)),
    panel("Quarantined rows", "refused", none("reading…")),
    panel("Sample", "sample", none("reading…")),
    panel("Schema", "schema", schema(table)),
    panel("Last commits", "snapshots", snapshots(table)),
    panel("Files", "files", none("reading…")),
  );
  await Promise.all([
    later("sample", `${address}/sample`, (found) => (found.answer?.rows.length ? makeGrid(found.answer) : none("No rows yet."))),
    later("refused", `${address}/refused`, (found) => (found.answer?.rows.length ? makeGrid(found.answer) : none("No row of this table is in the quarantine."))),
    later("files", `${address}/files`, files),
  ]);
}

async function later(id, from, show) {
  const section = byId(id);
  try {
    section.replaceChildren(section.firstChild, show(await fetchJson(from)));
  } catch (error) {
    section.replaceChildren(section.firstChild, make("p", { class: "notice bad" }, error.message));
  }
}

function now(own) {
  const lag = known(own.behind_seconds) ? ["behind", span(own.behind_seconds)] : ["lag", known(own.lag) ? count(own.lag) : "Kafka is off"];
  const figures = [["rows in the table", count(own.rows)], ["rows per second", rate(own.rate)], lag, ["freshness", span(own.freshness_seconds)], ["last batch", batch(own.batch_seconds)], ["quarantined rows", count(own.quarantined)], ...(known(own.warnings) ? [["warnings in the last build", count(own.warnings)]] : []), ...built(own)];
  const marked = { "quarantined rows": own.quarantined, "warnings in the last build": own.warnings };
  return figures.map(([label, value]) => make("div", {}, make("dt", {}, label), make("dd", { class: marked[label] ? "behind" : null }, value)));
}

/** Return the figures of a table's last build: rows, phases, and the sizes of indexes and cached rows. */
function built(own) {
  const rows = known(own.rows_in) ? [["rows in", count(own.rows_in)], ["rows out", count(own.rows_out)]] : [];
  const phases = own.phases ? ["fetch", "query", "write", "commit"].map((phase) => [phase, millis(own.phases[phase])]) : [];
  return [...rows, ...phases, ...(known(own.index_bytes) ? [["file indexes", bytes(own.index_bytes)], ["cached rows", bytes(own.cached_row_bytes)]] : [])];
}

function definition(table) {
  const facts = [["keys", table.keys.join(", ")], ["newer by", table.sequence_by], ["partitioned by", table.partition_by.join(", ")], ["made by", table.made_by], ["in", table.location]];
  const rows = facts.filter(([, value]) => value).map(([label, value]) => make("tr", {}, make("th", { scope: "row" }, label), make("td", { class: "wrap" }, value)));
  return panel("Definition", "definition", make("table", {}, make("tbody", {}, rows)));
}

function lineage(table) {
  const link = (each) => make("li", {}, make("a", { href: each.topic ? `/topics/${encodeURIComponent(each.name.replace("topic ", ""))}` : `/tables/${encodeURIComponent(each.name)}` }, each.name), each.role === "joined" ? make("span", { class: "dim" }, " joined") : null);
  const list = (title, items, empty) => make("div", {}, make("h3", {}, title), items.length ? make("ul", {}, items.map(link)) : none(empty));
  return panel("Lineage", "lineage", make("div", { class: "columns" }, list("made of", table.inputs, "No inputs."), list("read by", table.readers, "No table reads it.")));
}

function expectations(table) {
  if (!table.expectations.length) return none(table.kind === "landed" ? "A landed table has no expectations; messages that can’t be decoded go to the quarantine." : "This table has no expectations.");
  const rows = table.expectations.map((each) =>
    make(
      "tr",
      {},
      make("td", { class: "wrap" }, each.sentence, make("div", { class: "dim code" }, each.that), each.failed && each.sample ? make("div", { class: "dim code example" }, `such as ${each.sample}`) : null),
      make("td", {}, each.on_failure),
      make("td", { class: "number" }, count(each.checked)),
      make("td", { class: `number ${each.failed ? "behind" : ""}` }, count(each.failed)),
    ),
  );
  return grid(["expectation", "on failure", "#checked in the last build", "#failing in it"], rows);
}

/** A name without the namespace that it shares with the table. */
const nearby = (name, table) => name.replace(`${table.name.slice(0, table.name.lastIndexOf("."))}.`, "");

const schema = (table) =>
  grid(["column", "type", "made of", "how"], table.columns.map((each) => make("tr", {}, make("td", {}, each.name), make("td", { class: "dim" }, `${each.type}${each.required ? ", required" : ""}`), make("td", { class: "wrap" }, each.from.map((name) => nearby(name, table)).join(", ")), make("td", { class: "wrap dim code" }, each.how))));

const snapshots = (table) =>
  table.snapshots.length
    ? grid(["when (UTC)", "by", "#took", "#fetch, query, write", "#rows in", "#rows out", "#rows", "#files", "snapshot"], table.snapshots.map((each) => make("tr", {}, make("td", {}, moment(each.at)), make("td", {}, each.by || each.operation), number(batch(each.seconds)), number(each.phases ? [each.phases.fetch, each.phases.query, each.phases.write].map(millis).join(", ") : "–"), number(count(each.added_rows)), number(count(each.deleted_rows)), number(count(each.total_rows)), number(count(each.total_files)), make("td", { class: "dim" }, each.id))))
    : none("No commits yet.");

const number = (text) => make("td", { class: "number" }, text);

function files(found) {
  if (!found.count) return none("No data files yet.");
  const rows = found.files.map((each) => make("tr", {}, make("td", { class: "wrap code" }, each.path), number(count(each.rows)), number(bytes(each.bytes))));
  const more = found.count > found.files.length ? `, the largest ${found.files.length} of which are listed` : "";
  return make("div", {}, make("p", { class: "dim" }, `${plural(found.count, "file", "files")}, ${bytes(found.bytes)}${more}`), grid(["file", "#rows", "#size"], rows));
}

/** A table whose columns that begin with # hold numbers. */
function grid(columns, rows) {
  const head = columns.map((column) => make("th", { scope: "col", class: column.startsWith("#") ? "number" : null }, column.replace("#", "")));
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": columns[0] }, make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, rows)));
}
