// The dashboard: a line for each city and four figures, every two seconds, without a reload.
import { byId, say } from "/static/dom.js";
import { count } from "/static/format.js";
import { poll } from "/static/poll.js";
import { makeCard } from "./card.js";
import { Series } from "./series.js";

const MOST_CARDS = 60;
const charts = byId("charts");
const series = new Series();
const cards = new Map();
const utc = (date) => date.toISOString().slice(11, 19);
let started = false;

function cardOf(city) {
  if (!cards.has(city) && cards.size < MOST_CARDS) {
    cards.set(city, makeCard(city));
    charts.append(cards.get(city).root);
  }
  return cards.get(city);
}

function tellAll(away) {
  cards.forEach((card, city) => card.tell(series.newest(city), away));
}

function showStats() {
  const { cities, points, average } = series.stats;
  say(byId("cities"), count(cities));
  say(byId("points"), count(points));
  say(byId("average"), average === null ? "–" : `${average.toFixed(1)} °F`);
  const hidden = cities - [...cards.keys()].filter((city) => series.newest(city)).length;
  byId("more").hidden = hidden <= 0;
  say(byId("more"), `${count(hidden)} more cities have data and no chart here.`);
}

JSON.parse(charts.dataset.cities).forEach(cardOf);
poll(
  () => (series.since ? `${charts.dataset.api}/latest?since=${encodeURIComponent(series.since)}` : charts.dataset.api),
  ({ cities, data }) => {
    const changed = series.add(data);
    for (const city of cities) if (changed.has(city)) cardOf(city)?.show(series.points(city));
    if (changed.size) say(byId("updated"), `${utc(started ? new Date() : new Date(series.since))} UTC`);
    started = true;
    tellAll(false);
    showStats();
  },
  () => tellAll(true),
);
