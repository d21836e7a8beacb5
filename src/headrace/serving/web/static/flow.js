// A pipeline's picture: nodes that are links, and lines from each input to the tables that read it.
import { draw, say } from "./dom.js";
import { brief, known, rate, short } from "./format.js";

const BEND = 0.5;
const SMALLEST = 0.8; // of its full size: below that the picture scrolls, because it would be unreadable

/** Return the drawing of a pipeline, and functions that fit its names and update its figures. */
export function drawFlow(pipeline, size) {
  const nodes = new Map();
  const svg = draw("svg", {
    viewBox: `-2 -2 ${pipeline.width + 4} ${pipeline.height + 4}`,
    width: pipeline.width + 4,
    height: pipeline.height + 4,
    role: "group",
    "aria-label": `The flow of ${pipeline.name}, from source to mart`,
  });
  for (const line of pipeline.lines) svg.append(draw("path", { d: path(line.points), class: `line ${line.role}` }));
  for (const place of pipeline.places) {
    const node = drawNode(place, size);
    nodes.set(place.name, node);
    svg.append(node.root);
  }
  highlight(svg, pipeline, nodes);
  svg.style.minWidth = `${Math.round(pipeline.width * SMALLEST)}px`;
  return { svg, fit: () => nodes.forEach((node) => node.fit()), update: (figures) => nodes.forEach((node, name) => node.update(figures[name] ?? {})) };
}

function path(points) {
  const [first, ...rest] = points;
  let at = first;
  const parts = [`M${first[0]} ${first[1]}`];
  for (const next of rest) {
    const middle = at[0] + (next[0] - at[0]) * BEND;
    parts.push(at[1] === next[1] ? `L${next[0]} ${next[1]}` : `C${middle} ${at[1]} ${middle} ${next[1]} ${next[0]} ${next[1]}`);
    at = next;
  }
  return parts.join("");
}

const counted = (number, noun) => `${short(number)} ${noun}${number === 1 ? "" : "s"}`;

/** Return the most important problem with a node's rows. */
function problems(figures) {
  if (figures.quarantined) return `${short(figures.quarantined)} quarantined`;
  return figures.warnings ? counted(figures.warnings, "warning") : "";
}

function drawNode(place, size) {
  const table = place.kind === "raw" || place.kind === "table";
  const title = table ? place.name.split(".").pop() : place.name.replace(/^(topic|http) /, "");
  const [rows, lag] = [39, 55].map((y) => draw("text", { x: 14, y, class: "figures" }));
  const [speed, bad] = [39, 55].map((y) => draw("text", { x: size.width - 10, y, class: `figures right${y === 55 ? " bad" : ""}` }));
  const name = draw("text", { x: 14, y: 20, class: "name" }, title);
  const stripe = draw("rect", { class: "stripe", width: 4, height: size.height, rx: 2 });
  const box = draw("rect", { class: "box", width: size.width, height: size.height, rx: 6 });
  const label = draw("title", {}, place.name);
  const body = [label, box, stripe, name, rows, speed, lag, bad];
  const attributes = { transform: `translate(${place.x} ${place.y})`, class: `node ${place.kind}`, "data-name": place.name };
  const href = table ? `/tables/${encodeURIComponent(place.name)}` : place.kind === "topic" ? `/topics/${encodeURIComponent(title)}` : null;
  const root = href ? draw("a", { ...attributes, href }, ...body) : draw("g", attributes, ...body);

  function update(figures) {
    root.dataset.state = figures.state ?? "never";
    const never = figures.state === "never";
    if (place.kind === "http") {
      say(rows, "events over HTTP");
    } else if (place.kind === "postgres") {
      say(rows, never ? "not published yet" : counted(figures.rows, "row"));
      say(lag, never ? "" : `${brief(figures.freshness_seconds)} ago`);
    } else if (place.kind === "topic") {
      say(rows, known(figures.rows) ? counted(figures.rows, "message") : "Kafka is off");
      say(lag, known(figures.lag) ? `${short(figures.lag)} to land` : "");
    } else {
      say(rows, never ? (place.kind === "raw" ? "nothing landed yet" : "not built yet") : counted(figures.rows, "row"));
      say(speed, never ? "" : rate(figures.rate));
      const problem = problems(figures);
      say(lag, never ? "" : problem ? delay(figures) : `${delay(figures)} · ${brief(figures.freshness_seconds)} ago`);
      say(bad, problem);
    }
    say(label, describe(place, figures));
  }

  /** Truncate a name that is wider than its node; the title has the full name. */
  function fit() {
    const room = size.width - 22;
    for (let length = title.length; length > 4 && name.getComputedTextLength() > room; length--) name.textContent = `${title.slice(0, length - 1)}…`;
  }
  return { root, update, fit };
}

const delay = (figures) => (known(figures.behind_seconds) ? `lag ${brief(figures.behind_seconds)}` : known(figures.lag) ? `lag ${short(figures.lag)}` : "lag –");

function describe(place, figures) {
  const said = [place.name, figures.state === "never" ? "nothing yet" : figures.state];
  if (known(figures.rows)) said.push(counted(figures.rows, place.kind === "topic" ? "message" : "row"));
  if (figures.expectations) said.push(`${figures.expectations - figures.failing} of ${figures.expectations} expectations hold`);
  return said.join(", ");
}

/** Highlight a node's upstream and downstream lines while it is hovered or has the focus. */
function highlight(svg, pipeline, nodes) {
  const paths = [...svg.querySelectorAll("path.line")];
  const mark = (name) => {
    svg.classList.toggle("chosen", Boolean(name));
    pipeline.lines.forEach((line, index) => paths[index].classList.toggle("near", line.source === name || line.target === name));
  };
  nodes.forEach((node, name) => {
    for (const event of ["mouseenter", "focus"]) node.root.addEventListener(event, () => mark(name));
    for (const event of ["mouseleave", "blur"]) node.root.addEventListener(event, () => mark(null));
  });
}
