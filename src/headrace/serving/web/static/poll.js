// Poll an address, report an outage of the server, and resume when it is back.
import { byId, say } from "./dom.js";

export const EVERY = 2000;
const PATIENCE = 10000;

/** Return the JSON of an address. A failed request is an error with the server's message. */
export async function fetchJson(address, options = {}) {
  const response = await fetch(address, { headers: { Accept: "application/json", ...options.headers }, signal: AbortSignal.timeout(PATIENCE), ...options });
  if (response.status === 401) location.assign(`/login?next=${encodeURIComponent(location.pathname)}`);
  const body = await response.json().catch(() => null);
  if (!response.ok) throw Object.assign(new Error(words(body, response.status)), { status: response.status, body });
  return body;
}

export function words(body, status) {
  if (body?.what) return [body.where ? `${body.where}: ${body.what}` : body.what, body.next_step].filter(Boolean).join("\n");
  return `The server answered with ${status}.`;
}

/** Call `seen` with an address's JSON every two seconds while the page is visible, or `failed` with the error. */
export function poll(address, seen, failed = () => {}) {
  const signal = byId("signal");
  let since = null;
  let timer = 0;

  function show(state, text) {
    if (!signal) return;
    signal.dataset.state = state;
    say(signal, text);
  }

  async function ask() {
    clearTimeout(timer);
    try {
      const found = await fetchJson(typeof address === "function" ? address() : address);
      since = null;
      await seen(found);
      show("live", "live");
    } catch (error) {
      since ??= Date.now();
      const away = Math.round((Date.now() - since) / 1000);
      const reason = error.status ? error.message.split("\n")[0] : "the server does not answer";
      show("away", `${reason}, retrying (${away} s)`);
      failed(error);
    }
    if (!document.hidden) timer = setTimeout(ask, EVERY);
  }

  document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
  ask();
}
