// One ad of an answer: a row that opens. The id and the probability are there at once; title, words and paths come
// with /explain.

import { bar, brief, counted, make, percent, signed } from "./make.js";

const CHIPS = 5; // words in a closed row; all are in the open one
const SOURCES = { model: "model", table: "table", both: "table + model" };

/** A row, and what fills it: `explained` with the answer of /explain, `failed` with a message. */
export function row(ad, place, ceiling, worth) {
  const name = make("span", { class: "name" }, ad.ad);
  const words = make("span", { class: "words" });
  const why = make("div", { class: "why" }, make("p", { class: "muted" }, "Asking why …"));
  const summary = make("summary", {},
    make("span", { class: "place" }, `${place}`),
    name,
    make("span", { class: "probability" }, percent(ad.relevance)),
    make("span", { class: "mark", "aria-hidden": "true" }),
    bar(ad.relevance / ceiling),
    make("span", { class: "facts" },
      make("code", { class: "id" }, ad.ad),
      make("span", { class: `badge ${ad.source}` }, SOURCES[ad.source] ?? ad.source),
      worth ? make("span", { class: "worth" }, `worth ${brief(ad.rank_score)}`) : null,
      words,
    ),
  );
  const details = make("details", {}, summary, why);
  const element = make("li", { "data-ad": ad.ad }, details);
  return {
    element,
    details,
    ad: ad.ad,
    known: false,
    explained(said) {
      this.known = true;
      if (said.title) name.replaceChildren(said.title);
      words.replaceChildren(...chips(said.words, CHIPS));
      why.replaceChildren(...reasons(said));
    },
    failed(message) {
      why.replaceChildren(make("p", { class: "muted" }, message));
    },
  };
}

/** Words that pushed, the strongest first; the arrow says the same as the colour. */
function chips(words, most = words.length) {
  const shown = words.slice(0, most).map(({ word, push }) => {
    const [way, arrow, said] = push < 0 ? ["down", "▼", "down"] : ["up", "▲", "up"];
    return make("span", { class: `chip ${way}` },
      make("span", { "aria-hidden": "true" }, `${arrow} `),
      word, " ",
      make("span", { class: "unseen" }, `${said} `),
      make("span", { class: "push" }, signed(push)),
    );
  });
  const more = words.length - shown.length;
  return more > 0 ? [...shown, make("span", { class: "chip" }, `${more} more`)] : shown;
}

function reasons(said) {
  return [linked(said.url), ...tabled(said.table), ...modelled(said.model, said.words)].filter((part) => part !== null);
}

/** The landing page. Only an address of the web becomes a link. */
function linked(url) {
  if (!url) return null;
  const link = /^https?:\/\//i.test(url) ? make("a", { href: url, rel: "noopener noreferrer nofollow" }, url) : url;
  return make("p", { class: "url" }, link);
}

function tabled(table) {
  const said = table === null
    ? "It does not name this ad for the query."
    : `Place ${table.rank} in the query's row, score ${brief(table.score)}.`;
  return [make("h3", {}, "Table"), make("p", {}, said)];
}

function modelled(model, words) {
  const title = make("h3", {}, "Model");
  if (model === null) return [title, make("p", {}, "It knows none of the words, or not the ad.")];
  const mean = `Score ${brief(model.score)}, the mean of ${counted(model.trees.length, "tree")}, before it is calibrated.`;
  return [
    title,
    make("p", {}, mean),
    words.length > CHIPS ? make("p", { class: "words" }, ...chips(words)) : null,
    make("div", { class: "trees" }, ...model.trees.map(path)),
  ];
}

/** One tree's way from the root to the ad, an edge a line. */
function path(tree, index) {
  const edges = tree.path.map((edge, level) => {
    const last = level === tree.path.length - 1;
    return make("li", {},
      make("span", { class: "edge" }, `node ${edge.node} → ${last ? "the ad" : `node ${tree.path[level + 1].node}`}`),
      make("span", { class: "probability" }, percent(edge.probability)),
      bar(edge.probability),
      make("span", { class: "words" }, make("span", { class: "bias" }, `bias ${signed(edge.bias)}`), ...chips(edge.words)),
    );
  });
  const factor = tree.factor === 1 ? "" : `, the way to its leaf counts × ${brief(tree.factor)}`;
  const score = `score ${brief(tree.score)}${factor}`;
  return make("section", { class: "tree" },
    make("h4", {}, `Tree ${index + 1} `, make("span", { class: "muted" }, score)),
    make("ol", { class: "path" }, ...edges),
  );
}
