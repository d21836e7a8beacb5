// Format figures; unknown values are a dash.
const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const MINUTE = 60, HOUR = 3600, DAY = 86400;

export const known = (value) => value !== null && value !== undefined;
export const count = (value) => (known(value) ? whole.format(value) : "–");
export const short = (value) => (known(value) ? (Math.abs(value) < 100000 ? whole.format(value) : compact.format(value)) : "–");

export function rate(value) {
  if (!known(value)) return "–";
  if (value === 0) return "0/s";
  return value < 10 ? `${value.toFixed(1)}/s` : `${short(Math.round(value))}/s`;
}

export function span(seconds) {
  if (!known(seconds)) return "–";
  if (seconds < MINUTE) return `${Math.round(seconds)} s`;
  if (seconds < HOUR) return `${Math.floor(seconds / MINUTE)} min`;
  if (seconds < DAY) return `${Math.floor(seconds / HOUR)} h ${Math.floor((seconds % HOUR) / MINUTE)} min`;
  return `${whole.format(Math.floor(seconds / DAY))} d ${Math.floor((seconds % DAY) / HOUR)} h`;
}

/** A span in its largest unit, for small spaces. */
export const brief = (seconds) => span(seconds).replace(/ (h|d) .*/, " $1");

export const batch = (seconds) => (known(seconds) ? `${seconds.toFixed(seconds < 10 ? 2 : 1)} s` : "–");

/** Seconds as milliseconds: how long a phase of a build took. */
export const millis = (seconds) => (known(seconds) ? `${whole.format(seconds * 1000)} ms` : "–");

export function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) [value, at] = [value / 1000, at + 1];
  return `${at ? value.toFixed(1) : value} ${units[at]}`;
}

export const moment = (iso) => (iso ? `${iso.slice(0, 10)} ${iso.slice(11, 19)}` : "never");
export const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;
