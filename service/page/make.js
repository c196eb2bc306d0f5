// Elements and numbers. What comes from outside goes in as text, never as markup: nothing here parses HTML.

/** An element. Attributes that are null or false are left out; children are elements, text, or null. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null));
  return element;
}

/** A bar that is `share` (0 … 1) full. The number stands beside it as text, so it is hidden from readers. */
export function bar(share) {
  const full = make("span", { class: "full" });
  full.style.setProperty("--share", Math.min(1, Math.max(0, share)));
  return make("span", { class: "bar", "aria-hidden": "true" }, full);
}

export const percent = (value) => `${(100 * value).toFixed(2)} %`;

/** Three digits that count. */
export const brief = (value) => (value === 0 ? "0" : Number(value.toPrecision(3)).toString());

export const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

export const milliseconds = (value) => `${value < 10 ? value.toFixed(2) : value.toFixed(0)} ms`;

/** "1 ad", "2 ads". */
export const counted = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;
