// All topics: their messages, the streams that land them, and the lag.
import { byId, make } from "./dom.js";
import { count, known } from "./format.js";
import { poll } from "./poll.js";

const page = byId("topics");
let shown = "";

poll("/api/topics", (found) => {
  page.dataset.stale = "no";
  const seen = JSON.stringify(found.topics);
  if (seen === shown) return;
  shown = seen;
  page.replaceChildren(found.topics.length ? makeTable(found.topics) : make("p", { class: "notice" }, "No topics yet. A pipeline creates its topics when it runs."));
}, (error) => {
  if (shown) page.dataset.stale = "yes";
  else page.replaceChildren(make("p", { class: "notice bad" }, error.message));
});

function makeTable(topics) {
  const head = [["topic"], ["partitions", true], ["messages", true], ["to land", true], ["lands in"], ["format"]].map(([name, number]) => make("th", { scope: "col", class: number ? "number" : null }, name));
  return make("div", { class: "panel scroll", tabindex: 0, role: "group", "aria-label": "Topics" }, make("table", {}, make("thead", {}, make("tr", {}, head)), make("tbody", {}, topics.map(makeRow))));
}

function makeRow(topic) {
  const tables = topic.readers.map((each) => make("div", {}, make("a", { href: `/tables/${encodeURIComponent(each.table)}` }, each.table), make("span", { class: "dim" }, ` ${each.label}`)));
  return make(
    "tr",
    { "data-topic": topic.name },
    make("td", { class: "wrap" }, make("a", { href: `/topics/${encodeURIComponent(topic.name)}` }, topic.name)),
    make("td", { class: "number" }, count(topic.partitions)),
    make("td", { class: "number" }, count(topic.messages)),
    make("td", { class: `number ${topic.lag ? "behind" : ""}` }, known(topic.lag) ? count(topic.lag) : ""),
    make("td", {}, tables.length ? tables : make("span", { class: "dim" }, "no pipeline on this server")),
    make("td", {}, [...new Set(topic.readers.map((each) => each.format))].join(", ")),
  );
}
