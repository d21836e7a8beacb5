// The control room: every pipeline as a picture and as a list, with figures that move.
import { byId, make, say } from "./dom.js";
import { drawFlow } from "./flow.js";
import { makeList } from "./list.js";
import { fetchJson, poll } from "./poll.js";

const room = byId("pipelines");
let started = null;
let shown = [];

async function build() {
  const flow = await fetchJson("/api/flow");
  shown = flow.pipelines.map((pipeline) => makePipeline(pipeline, flow.node));
  room.replaceChildren(...shown.map((each) => each.root), ...flow.broken.map(makeBroken));
  if (!shown.length && !flow.broken.length) room.append(make("p", { class: "notice" }, "No pipelines here. Create one: headrace new mine"));
  shown.forEach((each) => each.fit());
  started = flow.started;
}

function makePipeline(pipeline, size) {
  const picture = drawFlow(pipeline, size);
  const list = makeList(pipeline);
  const state = make("span", { class: "state" });
  const root = make(
    "section",
    { class: "panel pipeline", "aria-label": pipeline.name },
    make("div", { class: "title" }, make("h2", {}, pipeline.name), state, make("p", { class: "dim" }, pipeline.about)),
    make("div", { class: "scroll picture" }, picture.svg),
    make("details", { class: "all" }, make("summary", {}, "All figures"), make("div", { class: "scroll" }, list.root)),
  );
  if (matchMedia("(max-width: 700px)").matches) root.querySelector("details").open = true;
  return {
    name: pipeline.name,
    root,
    fit: picture.fit,
    update(figures) {
      state.dataset.state = figures.running ? "running" : "stopped";
      say(state, figures.running ? "running" : "not running");
      picture.update(figures.nodes);
      list.update(figures.nodes);
    },
  };
}

function makeBroken(problem) {
  return make(
    "section",
    { class: "panel pipeline" },
    make("div", { class: "title" }, make("h2", {}, problem.name), make("span", { class: "bad-text" }, "can’t be loaded")),
    make("p", { class: "notice bad" }, `${problem.where ? `${problem.where}: ` : ""}${problem.what}\n${problem.next_step}`),
  );
}

function showServices(services) {
  const parts = services.map((each) =>
    make("span", { "data-state": each.state }, each.name, " ", make("span", { class: "dim" }, each.address ? `${each.state} on ${each.address}` : each.state)),
  );
  const place = byId("services");
  if (place.textContent !== parts.map((each) => each.textContent).join("")) place.replaceChildren(...parts);
}

/** Sort running pipelines first, then pipelines with data, then the others. */
function arrange(pipelines) {
  const rank = (each) => (each.running ? 0 : Object.values(each.nodes).some((node) => node.state !== "never") ? 1 : 2);
  const order = [...pipelines].sort((one, other) => rank(one) - rank(other)).map((each) => each.name);
  const sections = order.map((name) => shown.find((each) => each.name === name)).filter(Boolean).map((each) => each.root);
  if (sections.some((section, index) => room.children[index] !== section)) room.prepend(...sections);
}

poll("/api/figures", async (figures) => {
  if (figures.started !== started) await build();
  showServices(figures.services);
  for (const pipeline of figures.pipelines) shown.find((each) => each.name === pipeline.name)?.update(pipeline);
  arrange(figures.pipelines);
  room.dataset.stale = "no";
}, () => { room.dataset.stale = "yes"; });
