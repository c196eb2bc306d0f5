// The page: a query in the field and in the address, its ads below.
//
// Asking anew ends what was asked before, so an older answer never takes the place of a newer one. Typing replaces the
// entry of the history that it began; Enter settles it, so the back button goes from query to query, not letter by letter.

import { explain, predict, timing } from "./calls.js";
import { counted, make, milliseconds } from "./make.js";
import { showRelease } from "./release.js";
import { row } from "./rows.js";

const TYPING = 180; // milliseconds without a key before a query is asked
const AT_ONCE = 2; // explanations: the service works on few, and others ask too
const CEILINGS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]; // what a full bar may be
const DEFAULTS = { k: "10", threshold: "0", source: "auto", rank: "relevance" };
const REASONS = {
  no_words: "The query has no letter and no digit.",
  no_known_words: "The release knows none of these words.",
  not_in_table: "The table has no row for this query. The model may know it: see Options.",
  nothing_found: "Nothing was found.",
  below_threshold: "No ad is as likely as Options ask for.",
};

const $ = (id) => document.getElementById(id);
const [form, field, status, notice, results, list] = ["form", "q", "status", "notice", "results", "ads"].map($);
let asking = new AbortController();
let typing = 0; // the timer
let settled = true; // whether the next query gets an entry of its own in the history
let release = null; // whose figures are shown

// ---- the address ----

function address() {
  const parts = new URLSearchParams();
  const query = field.value.trim();
  if (query) parts.set("q", query);
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    const value = form.elements[name].value;
    if (value !== "" && value !== usual) parts.set(name, value);
  }
  return parts;
}

function fromAddress() {
  const parts = new URLSearchParams(location.search);
  field.value = parts.get("q") ?? "";
  for (const [name, usual] of Object.entries(DEFAULTS)) {
    form.elements[name].value = parts.get(name) ?? usual;
    if (form.elements[name].value === "") form.elements[name].value = usual;
  }
}

function remember(settles) {
  const wanted = address().toString();
  if (wanted !== new URLSearchParams(location.search).toString()) {
    const target = wanted ? `?${wanted}` : location.pathname;
    history[settled ? "pushState" : "replaceState"](null, "", target);
  }
  settled = settles;
}

// ---- asking ----

async function ask() {
  clearTimeout(typing);
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const query = field.value.trim();
  document.title = query ? `${query} · xreg` : "xreg";
  $("chosen").replaceChildren(chosen());
  results.setAttribute("aria-busy", "true");
  try {
    await (query ? answer(query, signal) : welcome(signal));
  } catch (error) {
    if (!signal.aborted) failed(error);
  } finally {
    if (!signal.aborted) results.setAttribute("aria-busy", "false");
  }
}

async function answer(query, signal) {
  const wished = { source: form.elements.source.value, rank: form.elements.rank.value };
  for (const name of ["k", "threshold"]) {
    if (form.elements[name].value !== "") wished[name] = Number(form.elements[name].value);
  }
  const { body, headers, took } = await predict({ query, ...wished }, signal);
  signal.throwIfAborted();
  const rows = show(body, wished.rank === "revenue");
  tell(body, timing(headers), took);
  results.setAttribute("aria-busy", "false");
  if (body.release !== release) showRelease($("release"), (release = body.release));
  const fill = (one) => fillIn(one, query, signal);
  for (const one of rows) one.details.addEventListener("toggle", () => one.details.open && !one.known && fill(one));
  const waiting = [...rows];
  const work = async () => {
    while (waiting.length) await fill(waiting.shift());
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

async function fillIn(one, query, signal) {
  try {
    const said = await explain(query, one.ad, signal);
    if (!signal.aborted) one.explained(said);
  } catch (error) {
    if (!signal.aborted) one.failed(`Why is not known: ${error.message}`);
  }
}

// ---- showing ----

function show({ ads, degraded, reason }, worth) {
  const most = Math.max(0, ...ads.map((ad) => ad.relevance));
  const ceiling = CEILINGS.find((value) => value >= most) ?? 1;
  const rows = ads.map((ad, index) => row(ad, index + 1, ceiling, worth));
  list.replaceChildren(...rows.map((one) => one.element));
  results.dataset.ceiling = ceiling;
  if (!ads.length) say("No ads", REASONS[reason] ?? `${reason}`);
  else if (degraded) say("A quick answer", "The service is pressed and searched less widely (degraded).");
  else say();
  return rows;
}

function tell({ ads }, { answer: found, total }, took) {
  const parts = [make("strong", {}, counted(ads.length, "ad"))];
  if (found !== undefined) parts.push(`${milliseconds(found)} to answer`);
  if (total !== undefined) parts.push(`${milliseconds(total)} in the service`);
  parts.push(`${milliseconds(took)} round trip`);
  const line = parts.map((part) => make("span", {}, part));
  if (ads.length) line.push(make("span", { class: "scale" }, `full bar ${100 * results.dataset.ceiling} %`));
  status.replaceChildren(...line);
}

/** A notice above the ads, or none. */
function say(title = null, detail = "", ...more) {
  notice.hidden = title === null;
  notice.className = "notice";
  notice.replaceChildren(...(title === null ? [] : [make("strong", {}, title), make("p", {}, detail), ...more]));
}

function failed(error) {
  list.replaceChildren();
  status.replaceChildren(`${error.title ?? "That went wrong"}: ${error.message}`);
  const again = make("button", { type: "button" }, "Try again");
  again.addEventListener("click", ask);
  say(error.title ?? "That went wrong", error.message, ...(error.again ? [again] : []));
  notice.classList.add("error");
}

/** Nothing asked yet: words of this release to begin with, if it has any. */
async function welcome(signal) {
  list.replaceChildren();
  status.replaceChildren();
  say("Type what somebody would search for", "The ads that suit it come as you type.");
  notice.classList.add("welcome");
  if (release === null) showRelease($("release"));
  const response = await fetch("page/examples", { signal }).catch(() => null);
  const queries = response?.ok ? (await response.json()).queries : [];
  if (signal.aborted || !queries.length) return;
  const links = queries.map((query) => make("a", { class: "example", href: `?${new URLSearchParams({ q: query })}` }, query));
  notice.append(make("p", {}, "For example ", ...links));
}

function chosen() {
  const parts = [...address()].filter(([name]) => name !== "q").map(([name, value]) => `${name} ${value}`);
  return parts.length ? `(${parts.join(", ")})` : "";
}

// ---- people ----

function typed(event) {
  clearTimeout(typing);
  if (event.isComposing) return;
  typing = setTimeout(() => {
    remember(false);
    ask();
  }, TYPING);
}

function go(search) {
  if (search !== location.search) history.pushState(null, "", search || location.pathname);
  settled = true;
  fromAddress();
  ask();
}

/** Up and down go through the ads, and from the first back to the query. */
function step(event) {
  const stops = [field, ...list.querySelectorAll(":scope > li > details > summary")];
  const here = stops.indexOf(document.activeElement);
  const next = stops[here + (event.key === "ArrowDown" ? 1 : -1)];
  if (here < 0 || !next) return;
  event.preventDefault();
  next.focus();
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  remember(true);
  ask();
});
form.addEventListener("input", typed);
field.addEventListener("compositionend", typed);
document.addEventListener("click", (event) => {
  const link = event.target.closest("a.example, a#home");
  if (!link || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  event.preventDefault();
  go(link.search);
  field.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (event.key === "/" && !event.target.closest("input, select, textarea")) {
    event.preventDefault();
    field.select();
    field.focus();
  } else if (event.key === "ArrowDown" || event.key === "ArrowUp") step(event);
});
window.addEventListener("popstate", () => go(location.search));
window.addEventListener("online", () => !notice.hidden && notice.classList.contains("error") && ask());

fromAddress();
ask();
