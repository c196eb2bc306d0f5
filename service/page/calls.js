// The calls of the service, and what went wrong in words.

/** What is told when a call fails. `again`: it may go well the next time. */
export class Failure extends Error {
  constructor(title, detail, status = 0) {
    super(detail);
    this.title = title;
    this.status = status;
  }

  get again() {
    return this.status === 0 || this.status === 429 || this.status >= 500;
  }
}

/** The body of an answer as JSON, its headers, and the milliseconds it took; a Failure otherwise. */
export async function call(path, options = {}) {
  const began = performance.now();
  let response, text;
  try {
    response = await fetch(path, { cache: "no-store", ...options });
    text = await response.text();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw navigator.onLine
      ? new Failure("The service does not answer", "It may be stopped, or starting, or the network is down.")
      : new Failure("No network", "This device is offline.");
  }
  const body = parsed(text);
  if (!response.ok) {
    const title = { 422: "That cannot be asked", 503: "Not at the moment" }[response.status] ?? "That went wrong";
    throw new Failure(title, body?.detail ?? `The service answered with status ${response.status}.`, response.status);
  }
  if (body === null) throw new Failure("That went wrong", "The answer is no JSON.", 502);
  return { body, headers: response.headers, took: performance.now() - began };
}

export function predict(asked, signal) {
  const headers = { "Content-Type": "application/json" };
  return call("predict", { method: "POST", headers, body: JSON.stringify(asked), signal });
}

/** Why an ad; asked again a few times where the service is busy, since the title is worth a moment. */
export async function explain(query, ad, signal, tries = 4) {
  const asked = new URLSearchParams({ query, ad });
  for (let wait = 250; ; wait *= 2) {
    try {
      return (await call(`explain?${asked}`, { signal })).body;
    } catch (error) {
      if (error.status !== 503 || --tries === 0) throw error;
      await new Promise((resolve) => setTimeout(resolve, wait));
      signal.throwIfAborted();
    }
  }
}

/** Server-Timing as a dictionary of milliseconds. */
export function timing(headers) {
  const parts = (headers.get("Server-Timing") ?? "").matchAll(/([\w-]+);dur=([\d.]+)/g);
  return Object.fromEntries(Array.from(parts, ([, name, duration]) => [name, Number(duration)]));
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
