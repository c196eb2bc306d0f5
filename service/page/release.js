// The foot of the page: which release answers, how old it is, and its figures.

import { call } from "./calls.js";
import { brief, make } from "./make.js";

const share = (value) => `${value.toFixed(1)} %`;
const MAIN = [
  ["WP@5", share, "of the clicks that the five best ads would get"],
  ["nDCG@5", share, "the same, and the first places count more"],
  ["ECE@10", (value) => value.toFixed(4), "mean gap between promised and observed click rates"],
  ["query coverage", share, "of the queries have an ad of 1 % and more"],
  ["table queries", (value) => value.toLocaleString("en"), "queries answered from the table"],
  ["megabytes", (value) => `${value.toFixed(1)} MB`, "on disk"],
];

/** Show the release by this name; asked anew when another one answers. */
export async function showRelease(place, wished = null) {
  let listed;
  try {
    listed = (await call("releases")).body;
  } catch (error) {
    place.replaceChildren(make("p", { class: "muted" }, `The release is not known: ${error.message}`));
    return;
  }
  const name = wished ?? listed.served;
  const found = listed.releases.find((release) => release.name === name);
  if (!found) {
    place.replaceChildren(make("p", { class: "muted" }, name ? `Release ${name}` : "No release is served yet."));
    return;
  }
  const waiting = listed.current !== name && listed.current
    ? make("p", { class: "notice" }, `CURRENT names ${listed.current}, which is not served here yet.`)
    : null;
  place.replaceChildren(
    make("h2", {}, "Release ", make("code", {}, found.name)),
    ...[waiting].filter((part) => part !== null),
    make("p", { class: "muted" }, ...made(found), `, ${found.kind}`),
    main(found.figures),
    all(found.figures),
  );
}

function made({ created }) {
  const then = new Date(created);
  if (Number.isNaN(then.getTime())) return [`made ${created}`];
  return ["made ", make("time", { datetime: created }, `${then.toISOString().slice(0, 16).replace("T", " ")} UTC`), ` (${age(then)})`];
}

function age(then) {
  const hours = (Date.now() - then.getTime()) / 3_600_000;
  if (hours < 0) return "in the future";
  if (hours < 1) return "within the last hour";
  return hours < 48 ? `${Math.floor(hours)} h ago` : `${Math.floor(hours / 24)} days ago`;
}

function main(figures) {
  const tiles = MAIN.filter(([name]) => Number.isFinite(figures[name])).map(([name, shown, about]) =>
    make("div", {},
      make("dt", {}, name),
      make("dd", { class: "figure" }, shown(figures[name])),
      make("dd", { class: "about" }, about),
    ));
  return make("dl", { class: "figures" }, ...tiles);
}

function all(figures) {
  const rows = Object.entries(figures).map(([name, value]) =>
    make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, brief(value))));
  return make("details", { class: "all" }, make("summary", {}, "All figures"), make("table", {}, make("tbody", {}, ...rows)));
}
