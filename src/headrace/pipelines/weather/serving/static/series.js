// What is known of each city: its averages by minute. An average that comes again, while its minute is open, takes the old one's place.
const DRAWN = 720;

export class Series {
  #cities = new Map();

  /** Add the server's answer, and return the cities that changed. */
  add(data) {
    const changed = new Set();
    for (const [city, points] of Object.entries(data)) {
      if (!this.#cities.has(city)) this.#cities.set(city, new Map());
      const own = this.#cities.get(city);
      for (const { time, temperature } of points) {
        if (own.get(time) !== temperature || !own.has(time)) changed.add(city);
        own.set(time, temperature);
      }
    }
    return changed;
  }

  cities = () => [...this.#cities.keys()];

  /** Return a city's newest points in order of time. */
  points(city) {
    const all = [...(this.#cities.get(city) ?? [])];
    return all.sort(([one], [other]) => (one < other ? -1 : 1)).slice(-DRAWN);
  }

  newest(city) {
    return [...(this.#cities.get(city)?.keys() ?? [])].reduce((newest, time) => (time > newest ? time : newest), "");
  }

  /** Return the newest minute of any city: the next request begins there. */
  get since() {
    return this.cities().map((city) => this.newest(city)).reduce((newest, time) => (time > newest ? time : newest), "");
  }

  get stats() {
    let [points, known, sum] = [0, 0, 0];
    for (const own of this.#cities.values()) {
      for (const temperature of own.values()) {
        points += 1;
        if (temperature !== null) [known, sum] = [known + 1, sum + temperature];
      }
    }
    return { cities: this.#cities.size, points, average: known ? sum / known : null };
  }
}
