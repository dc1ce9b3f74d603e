// States of a list or a panel: empty, loading, broken; chips; JSON as text.

import { h } from "./dom.js";
import { icon } from "./icons.js";

export function empty({ title, text, command, button, small, icon: name }) {
  return h("div.empty", { class: small ? "small" : "" }, name ? icon(name) : null, h("p.empty-title", title), text ? h("p", text) : null,
    command ? h("code", command) : null,
    button ? h("button.btn.primary", { type: "button", on: { click: button.run } }, button.label) : null);
}

// Grey lines, which appear only if the data takes more than 200 ms.
export function skeleton(rows = 6) {
  const el = h("div.skeleton", { role: "status", aria: { label: "Loading" } });
  el.style.visibility = "hidden";
  setTimeout(() => (el.style.visibility = ""), 200);
  for (let n = 0; n < rows; n += 1) el.append(h("i"));
  return el;
}

// A text with words between backticks, which are code.
export const ticks = (text) => String(text ?? "").split("`").map((part, n) => (n % 2 ? h("code", part) : part));

export function broken(error, retry) {
  return h("div.empty", { role: "alert" }, icon("bad"), h("p.empty-title", error?.title ?? "This could not be loaded"),
    h("p", ticks(error?.detail ?? error?.message ?? String(error))),
    retry && ![403, 404].includes(error?.status) ? h("button.btn", { type: "button", on: { click: retry } }, icon("restart"), "Try again") : null);
}

const ICON = { good: "good", warn: "warn", bad: "bad", wait: "wait", idle: "idle", accent: "accent" };

// A chip with an icon and a word; `kind` is good, warn, bad, wait, idle or accent.
export const status = (kind, word, title) => h("span.chip", { class: kind, title }, icon(ICON[kind] ?? "info"), word);
// The same without a border, for cells.
export const mark = (kind, word, title) => h("span.mark", { class: kind, title }, icon(ICON[kind] ?? "info"), word);

const LINES_MAX = 200;

export function jsonView(value, depth = 0) {
  const root = h("div.json");
  root.append(node(value, depth));
  return root;
}

function scalar(value) {
  if (typeof value === "string") return h("span.s", JSON.stringify(value));
  if (typeof value === "number") return h("span.n", String(value));
  return h("span.b", String(value));
}

function node(value, depth, key) {
  const name = key === undefined ? null : h("span.k", `${key}: `);
  if (value === null || typeof value !== "object") return h("div.line", name, scalar(value));
  const isList = Array.isArray(value);
  const entries = isList ? value.map((v, n) => [n, v]) : Object.entries(value);
  const brief = isList ? `[${entries.length}]` : `{${entries.length}}`;
  if (!entries.length) return h("div.line", name, h("span.k", isList ? "[]" : "{}"));
  const details = h("details", h("summary", name, h("span.k", brief)));
  let filled = false;
  const fill = () => {
    if (filled) return;
    filled = true;
    for (const [k, v] of entries.slice(0, LINES_MAX)) details.append(node(v, depth + 1, k));
    if (entries.length > LINES_MAX) details.append(h("div.line.dim", `${entries.length - LINES_MAX} more`));
  };
  details.addEventListener("toggle", () => details.open && fill());
  if (depth < 2) {
    fill();
    details.open = true;
  }
  return details;
}
