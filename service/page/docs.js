// openapi.json as a list that people read: each call with its fields, an example, and what it answers.

import { call } from "./calls.js";
import { make } from "./make.js";

const TAGS = { predict: "Asking", releases: "Releases and the table", admin: "Administration", health: "Health and metrics" };
const SAMPLES = { query: "running shoes", queries: ["running shoes", "wine glasses"], ad: "ad0000001", id: "…" };
let schemas = {};

const resolved = (schema) => (schema?.$ref ? schemas[schema.$ref.split("/").pop()] ?? {} : schema ?? {});
const nameOf = (schema) => schema?.$ref?.split("/").pop();

/** A type in words: "integer 1 … 100", "list of text", the name of another body. */
function kind(schema) {
  if (schema.$ref) return nameOf(schema);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const either = schema.anyOf ?? schema.oneOf;
  if (either) return either.map(kind).join(" | ");
  if (schema.type === "array") {
    const many = range(schema.minItems, schema.maxItems);
    return `list of ${kind(schema.items ?? {})}${many ? `;${many} of them` : ""}`;
  }
  if (schema.type === "string") {
    const long = range(schema.minLength, schema.maxLength);
    return long ? `text,${long} characters` : "text";
  }
  if (schema.type === "object" && schema.additionalProperties) return `names → ${kind(schema.additionalProperties)}`;
  return `${schema.type ?? "anything"}${range(schema.minimum ?? schema.exclusiveMinimum, schema.maximum)}`;
}

function range(least, most) {
  if (least === undefined && most === undefined) return "";
  if (most === undefined) return ` ${least} and more`;
  return least === undefined ? ` up to ${most}` : ` ${least} … ${most}`;
}

function table(heads, rows) {
  const head = make("tr", {}, ...heads.map((title) => make("th", { scope: "col" }, title)));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell) => make("td", {}, cell))));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
}

/** The fields of a body, then those of the bodies it names. */
function fields(schema, asked, seen = new Set()) {
  const body = resolved(schema);
  const rows = Object.entries(body.properties ?? {}).map(([name, one]) => [
    make("code", {}, name),
    kind(one),
    one.description ?? "",
    ...(asked ? [one.default !== undefined ? JSON.stringify(one.default) : needs(body, name)] : []),
  ]);
  const parts = rows.length ? [table(["field", "type", "", ...(asked ? ["if left out"] : [])], rows)] : [];
  for (const inner of named(body)) {
    if (seen.has(inner.$ref)) continue;
    seen.add(inner.$ref);
    parts.push(make("h4", {}, nameOf(inner)), describe(resolved(inner)), ...fields(inner, asked, seen));
  }
  return parts;
}

function needs(body, name) {
  if ((body.required ?? []).includes(name)) return "refused";
  return (body.oneOf ?? []).some(({ required }) => required?.includes(name)) ? "one of these is needed" : "";
}

/** The references in a body's fields, one level deep. */
function named(body) {
  const found = (schema) =>
    schema.$ref ? [schema] : [schema.items, schema.additionalProperties, ...(schema.anyOf ?? schema.oneOf ?? [])]
      .filter((part) => part && typeof part === "object").flatMap(found);
  return Object.values(body.properties ?? {}).flatMap(found);
}

const describe = (schema) => make("p", { class: "muted" }, schema.description ?? "");

function sample(schema, name) {
  const body = resolved(schema);
  if (body.examples?.length) return body.examples[0];
  if (name in SAMPLES) return SAMPLES[name];
  if (body.default !== undefined) return body.default;
  if (body.enum) return body.enum[0];
  if (body.type === "array") return [sample(body.items, name)];
  if (body.properties) {
    const needed = [...(body.required ?? []), ...(body.oneOf?.[0].required ?? [])];
    return Object.fromEntries(needed.map((field) => [field, sample(body.properties[field], field)]));
  }
  return body.type === "string" ? "…" : body.minimum ?? 1;
}

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function curl(method, path, operation) {
  const asked = new URLSearchParams();
  let where = path;
  for (const { name, in: place, required, schema } of operation.parameters ?? []) {
    const value = String(sample(schema, name));
    if (place === "path") where = where.replace(`{${name}}`, encodeURIComponent(value));
    else if (place === "query" && required) asked.set(name, value);
  }
  const address = `${new URL(".", location.href).href.replace(/\/$/, "")}${where}${asked.size ? `?${asked}` : ""}`;
  const words = ["curl", "-s", method === "get" ? "" : `-X ${method.toUpperCase()}`, quoted(address)];
  if (path.startsWith("/admin/")) words.push(`-H "Authorization: Bearer $TOKEN"`);
  const content = operation.requestBody?.content?.["application/json"];
  if (content) words.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(sample(content.schema)))}`);
  return words.filter(Boolean).join(" ");
}

function parameters(operation) {
  const rows = (operation.parameters ?? []).filter(({ name }) => name !== "authorization").map((one) => [
    make("code", {}, one.name), one.in, kind(one.schema ?? {}), one.required ? "always" : "", one.description ?? "",
  ]);
  return rows.length ? [make("h3", {}, "Parameters"), table(["name", "in", "type", "needed", ""], rows)] : [];
}

function body(operation) {
  const content = operation.requestBody?.content?.["application/json"];
  return content ? [make("h3", {}, "Body"), describe(resolved(content.schema)), ...fields(content.schema, true)] : [];
}

function answers(operation) {
  const all = Object.entries(operation.responses ?? {});
  const rows = all.map(([status, { description, content }]) => {
    const [media, said] = Object.entries(content ?? {})[0] ?? [];
    return [make("code", {}, status), description ?? "", media ? `${media}${said.schema ? `: ${kind(said.schema)}` : ""}` : ""];
  });
  const good = all.find(([status]) => status.startsWith("2"))?.[1].content?.["application/json"]?.schema;
  const detail = good ? fields(good, false) : [];
  return [make("h3", {}, "Answers"), table(["status", "", "body"], rows),
    ...(detail.length ? [make("h3", {}, nameOf(good) ?? "Fields"), describe(resolved(good)), ...detail] : [])];
}

function entry(method, path, operation) {
  const about = (operation.description ?? operation.summary ?? "").replaceAll("\n", " ");
  const [first] = about.split(". ");
  return make("details", { class: "call", id: `${method}${path}` },
    make("summary", {},
      make("span", { class: `method ${method}` }, method.toUpperCase()), make("code", { class: "path-of" }, path),
      make("span", { class: "muted" }, first)),
    make("div", { class: "inside" },
      make("h3", {}, "For example"), make("pre", {}, make("code", {}, curl(method, path, operation))),
      about === first ? null : make("p", {}, about), ...parameters(operation), ...body(operation), ...answers(operation)));
}

function listed({ paths }) {
  const groups = new Map(Object.keys(TAGS).map((tag) => [tag, []]));
  for (const [path, methods] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags?.[0] ?? "other";
      if (!groups.has(tag)) groups.set(tag, []);
      groups.get(tag)[path === "/predict" ? "unshift" : "push"](entry(method, path, operation));
    }
  }
  return [...groups].filter(([, entries]) => entries.length)
    .flatMap(([tag, entries]) => [make("h2", { class: "tag" }, TAGS[tag] ?? tag), ...entries]);
}

const place = document.getElementById("calls");
try {
  const { body: document_ } = await call("openapi.json");
  schemas = document_.components?.schemas ?? {};
  place.replaceChildren(...listed(document_));
  place.querySelector("details").open = true;
} catch (error) {
  place.replaceChildren(make("p", { class: "notice error" }, `${error.title ?? "That went wrong"}: ${error.message}`));
}
