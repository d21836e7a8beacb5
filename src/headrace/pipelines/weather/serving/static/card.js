// One city: its name, its newest average, how its data is, and its line.
import { drawChart } from "/static/chart.js";
import { make, say } from "/static/dom.js";
import { span } from "/static/format.js";

const STALE_SECONDS = 180;
const MINUTE = 60000; // in milliseconds: ticks are never closer than what they say

export function makeCard(city) {
  const now = make("span", { class: "now" });
  const state = make("span", { class: "state" });
  const plot = make("div", { class: "plot", role: "img", "aria-label": `Temperature in ${city} over time` });
  const blank = make("p", { class: "blank" });
  const root = make("article", { class: "city", "data-city": city, "data-state": "loading" }, make("header", {}, make("h2", { title: city }, city), now, state), blank);

  /** Says how old the newest minute is; `away` while nobody can tell whether there is a newer one. */
  function tell(newest, away) {
    const age = newest ? (Date.now() - Date.parse(newest)) / 1000 : null;
    const found = age === null ? (away ? root.dataset.state : "empty") : away || age > STALE_SECONDS ? "stale" : "live";
    root.dataset.state = found;
    say(state, { loading: "loading", empty: "no data", stale: age === null ? "stale" : `stale, ${span(age)} old`, live: "live" }[found]);
    if (age === null) say(blank, found === "loading" ? "Loading…" : "No reading of this city has come yet.");
  }

  function show(points) {
    const [time, temperature] = points.at(-1);
    if (!plot.isConnected) blank.replaceWith(plot);
    say(now, temperature === null ? "–" : `${temperature.toFixed(1)} °F`);
    root.dataset.points = points.length;
    root.dataset.newest = time;
    const line = { type: "scatter", mode: points.length < 60 ? "lines+markers" : "lines", x: points.map(([at]) => at), y: points.map(([, value]) => value), line: { width: 1.75 }, marker: { size: 4 }, hovertemplate: "%{x|%H:%M} UTC  %{y:.1f} °F<extra></extra>" };
    drawChart(plot, [line], { xaxis: { type: "date", nticks: 5, dtick: points.length < 6 ? MINUTE : undefined, tickformat: "%H:%M" }, yaxis: { nticks: 5 }, hovermode: "x", margin: { l: 34, r: 8, t: 6, b: 26 } });
  }

  tell("", true);
  return { root, tell, show };
}
