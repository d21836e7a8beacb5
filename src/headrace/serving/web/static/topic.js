// One topic: its partitions, schemas and messages, which update live unless an offset is chosen.
import { byId, make } from "./dom.js";
import { count, known, moment, plural } from "./format.js";
import { fetchJson, poll } from "./poll.js";

const page = byId("topic");
const address = `/api/topics/${encodeURIComponent(page.dataset.name)}`;
const chosen = { last: "5", partition: "", offset: "" };
let ends = null;

poll(address, async (topic) => {
  page.dataset.stale = "no";
  if (!byId("now")) build(topic);
  byId("now").replaceChildren(...now(topic));
  byId("partitions").replaceChildren(make("h2", {}, "Partitions"), partitions(topic));
  const seen = JSON.stringify(topic.offsets.map((each) => each.high));
  if (seen === ends) return;
  const first = ends === null;
  ends = seen;
  await Promise.all([first || !chosen.offset ? showMessages() : null, showSchemas()]);
}, (error) => {
  if (byId("now")) page.dataset.stale = "yes";
  else page.replaceChildren(make("p", { class: "notice bad" }, error.message));
});

function build(topic) {
  page.replaceChildren(
    make("dl", { id: "now", class: "now" }),
    make("section", { class: "panel", id: "partitions", "aria-label": "Partitions" }),
    make("section", { class: "panel", "aria-label": "Messages" }, make("h2", {}, "Messages"), form(topic), make("div", { id: "messages" })),
    make("section", { class: "panel", id: "schemas", "aria-label": "Schemas" }, make("h2", {}, "Schemas")),
  );
}

function now(topic) {
  const figures = [["messages", count(topic.messages)], ["partitions", count(topic.partitions)], ["to land", known(topic.lag) ? count(topic.lag) : "–"]];
  const parts = figures.map(([label, value]) => make("div", {}, make("dt", {}, label), make("dd", {}, value)));
  const links = topic.readers.map((each) => make("a", { href: `/tables/${encodeURIComponent(each.table)}`, title: each.label }, each.table));
  return [...parts, make("div", {}, make("dt", {}, "lands in"), make("dd", {}, links.length ? links.flatMap((link, at) => (at ? [", ", link] : [link])) : "–"))];
}

function partitions(topic) {
  const labels = topic.readers.map((each) => each.label);
  const head = ["partition", "oldest offset", "next offset", "messages", ...labels.map((label) => `${label} lag`)];
  const rows = topic.offsets.map((each) => make("tr", {}, [each.partition, each.low, each.high, each.high - each.low, ...labels.map((label) => each.lags[label])].map((value) => make("td", { class: "number" }, count(value)))));
  return make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Partitions" }, make("table", {}, make("thead", {}, make("tr", {}, head.map((name) => make("th", { scope: "col", class: "number" }, name)))), make("tbody", {}, rows)));
}

function form(topic) {
  const option = (value, text) => make("option", { value }, text);
  const last = make("select", { name: "last" }, ["5", "20", "100"].map((each) => option(each, each)));
  const partition = make("select", { name: "partition" }, option("", "all"), topic.offsets.map((each) => option(String(each.partition), String(each.partition))));
  const offset = make("input", { name: "offset", inputmode: "numeric", pattern: "[0-9]*", placeholder: "the newest", autocomplete: "off" });
  const ask = (event) => {
    event.preventDefault();
    Object.assign(chosen, { last: last.value, partition: partition.value, offset: offset.value.trim() });
    showMessages();
  };
  return make("form", { class: "choose", on: { submit: ask } }, make("label", {}, "messages", last), make("label", {}, "partition", partition), make("label", {}, "from offset", offset), make("button", { type: "submit" }, "Show"));
}

async function showMessages() {
  const place = byId("messages");
  const asked = new URLSearchParams(Object.entries(chosen).filter(([, value]) => value));
  try {
    const found = (await fetchJson(`${address}/messages?${asked}`)).messages;
    const inOrder = chosen.offset ? found : found.reverse();
    place.replaceChildren(...(inOrder.length ? inOrder.map(makeMessage) : [make("p", { class: "dim" }, "No messages.")]));
  } catch (error) {
    place.replaceChildren(make("p", { class: "notice bad" }, error.message));
  }
}

function makeMessage(message) {
  const when = message.at ? `${moment(message.at)} UTC` : "no time";
  const headers = message.headers.map((each) => make("p", { class: "code" }, make("span", { class: "dim" }, `${each.name}: `), plain(each)));
  return make(
    "article",
    { class: "message" },
    make("h3", {}, `partition ${message.partition} · offset ${message.offset} · ${when}`),
    message.key.form === "null" ? null : make("p", { class: "code" }, make("span", { class: "dim" }, "key "), plain(message.key)),
    headers,
    message.value.about ? make("p", {}, message.value.about) : null,
    body(message.value),
  );
}

const plain = (part) => (part.form === "null" ? "null" : part.form === "empty" ? "empty" : part.text.replace(/\s*\n\s*/g, " ")) + (part.note ? ` … ${part.note}` : "");

function body(value) {
  if (value.form === "null") return make("p", { class: "dim" }, "null: a tombstone");
  if (value.form === "empty") return make("p", { class: "dim" }, "empty");
  const facts = [value.form, value.schema, plural(value.size, "byte", "bytes"), value.note].filter(Boolean).join(" · ");
  return [value.reason ? make("p", { class: "bad-text" }, value.reason) : null, make("pre", { tabindex: 0 }, value.text), make("p", { class: "dim" }, facts)];
}

async function showSchemas() {
  const place = byId("schemas");
  const open = new Set([...place.querySelectorAll("details[open] summary")].map((each) => each.textContent));
  try {
    const found = await fetchJson(`${address}/schemas`);
    const parts = found.schemas.map((each) => make("details", { class: "schema", open: open.has(each.origin) }, make("summary", {}, each.origin), make("pre", { tabindex: 0 }, each.text)));
    const none = found.schemas.length || found.problem ? null : make("p", { class: "dim" }, "No schema found in a stream or a registry.");
    const problem = found.problem ? make("p", { class: "notice bad" }, found.problem) : null;
    place.replaceChildren(...[make("h2", {}, "Schemas"), ...parts, none, problem].filter(Boolean));
  } catch (error) {
    place.replaceChildren(make("h2", {}, "Schemas"), make("p", { class: "notice bad" }, error.message));
  }
}
